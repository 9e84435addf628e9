//! What the loop decides on: what the thread kept, what the run has done, and the answer that is being heard.

use crate::model_turn::ModelTurn;
use model::definition::{Agent, Definitions};
use model::event::{ApprovalResolved, TaskCancelling};
use model::fold::{RunFold, TaskFold};
use model::ports::Spend;
use model::thread::ThreadFold;
use model::usage::Usage;
use model::{CallId, Event, Seq, TaskId, ThreadId, UserId};
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
    pub thread_fold: ThreadFold,
    /// The run so far.
    pub fold: RunFold,
    /// What the user had used up today before this run.
    pub prior_spend: Spend,
    /// Answers that are being heard, by task. Nothing in here outlives its step: a lost one is cut.
    pub(crate) turns: BTreeMap<TaskId, ModelTurn>,
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
        let fold = fold.unwrap_or_else(|| past.new_run_fold());
        Self {
            user,
            thread,
            definitions,
            thread_fold: past,
            fold,
            prior_spend: Spend::default(),
            turns: BTreeMap::new(),
        }
    }

    /// The run's name.
    pub(crate) fn root_id(&self) -> TaskId {
        self.fold.root().map_or_else(|| TaskId::from(""), |root| root.id.clone())
    }

    /// The cancel for which a task stops after its turn: its own, or that of a task above it.
    pub(crate) fn pending_cancel(&self, task: &TaskFold) -> Option<TaskCancelling> {
        let above = || task.spec.parent_task_id.as_ref().and_then(|parent| self.fold.task(parent));
        task.cancelling.clone().or_else(|| self.pending_cancel(above()?))
    }

    /// Does a task stop after this turn?
    pub(crate) fn is_cancelling(&self, task: &TaskFold) -> bool {
        self.pending_cancel(task).is_some()
    }

    /// What a person said of this tool for the rest of the run, last.
    pub(crate) fn standing_decision(&self, tool: &str) -> Option<&ApprovalResolved> {
        self.fold.standing_decisions.get(tool)
    }

    /// The last record that the run knows of.
    #[must_use]
    pub const fn head(&self) -> Seq {
        self.fold.seq
    }

    /// The run's suffix and the number that its next thing takes.
    pub(crate) fn next_id_number(&self) -> (String, u32) {
        let suffix = self.fold.root().map(|root| root.id.run_suffix().to_owned()).unwrap_or_default();
        (suffix, self.fold.id_count.saturating_add(1))
    }

    /// Tokens of the turn that this event belongs to, when the log does not have them yet.
    pub(crate) fn take_unlogged_usage(&mut self, event: &Event) -> Option<Usage> {
        self.turns.get_mut(event.task_id()?)?.unlogged_usage.take()
    }

    /// How many reference groups there are.
    pub(crate) fn reference_count(&self) -> u32 {
        self.thread_fold.reference_count.max(self.fold.reference_count)
    }

    /// The agent that answers for a task now.
    pub(crate) fn agent_of_task(&self, task: &TaskFold) -> Agent {
        let bare = || Agent { name: task.agent.clone(), models: vec![task.spec.model.clone()], ..Agent::default() };
        self.definitions.resolve_agent(&task.agent).unwrap_or_else(bare)
    }

    /// The task whose call this is.
    pub(crate) fn task_of_call(&self, call: &CallId) -> Option<&TaskFold> {
        self.fold.tasks.iter().find(|task| task.call(call).is_some())
    }
}
