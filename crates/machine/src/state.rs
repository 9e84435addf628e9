//! What the loop decides on: what the thread kept, what the run has done, and the answer that is being heard.

use crate::turn::Turn;
use model::definition::{Agent, Definitions};
use model::fold::{RunFold, TaskFold};
use model::thread::ThreadFold;
use model::{CallId, Seq, TaskId, ThreadId, UserId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One run, between two inputs.
#[derive(Clone, Debug)]
pub struct RunState {
    /// Whose run it is.
    pub user: UserId,
    /// In which thread.
    pub thread: ThreadId,
    /// The agents and tools that it may use.
    pub definitions: Arc<Definitions>,
    /// The thread as it was when the run began.
    pub past: ThreadFold,
    /// The run so far.
    pub fold: RunFold,
    /// Answers that are being heard, by task. Nothing in here outlives its step: a lost one is cut.
    pub(crate) turns: BTreeMap<TaskId, Turn>,
}

impl RunState {
    /// A run that is about to begin, or to go on from what the log says (`fold`).
    #[must_use]
    pub fn new(
        user: UserId,
        thread: ThreadId,
        definitions: Arc<Definitions>,
        past: ThreadFold,
        fold: Option<RunFold>,
    ) -> Self {
        let fold = fold.unwrap_or_else(|| past.next_run());
        Self { user, thread, definitions, past, fold, turns: BTreeMap::new() }
    }

    /// The last record that the run knows of.
    #[must_use]
    pub const fn head(&self) -> Seq {
        self.fold.seq
    }

    /// The run's suffix and the number that its next thing takes.
    pub(crate) fn next_number(&self) -> (String, u32) {
        let suffix = self.fold.root().map(|root| root.id.suffix().to_owned()).unwrap_or_default();
        (suffix, self.fold.numbers.saturating_add(1))
    }

    /// How many reference groups there are.
    pub(crate) fn references(&self) -> u32 {
        self.past.references.max(self.fold.references)
    }

    /// The agent that answers for a task now.
    pub(crate) fn agent(&self, task: &TaskFold) -> Agent {
        let bare = || Agent { name: task.agent.clone(), models: vec![task.spec.model.clone()], ..Agent::default() };
        self.definitions.resolve(&task.agent).unwrap_or_else(bare)
    }

    /// The task whose call this is.
    pub(crate) fn task_of_call(&self, call: &CallId) -> Option<&TaskFold> {
        self.fold.tasks.iter().find(|task| task.call(call).is_some())
    }
}
