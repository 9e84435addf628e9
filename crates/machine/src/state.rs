//! What the machine decides on: the thread before the run, the run so far, and the model turns that are being received.

use crate::turn_state::ModelTurn;
use model::definition::{Agent, Definitions};
use model::event::{ApprovalResolved, TaskCancelling};
use model::fold::{ItemFold, RunFold, StandingKey, StepFold, TaskFold};
use model::item::ToolCall;
use model::ports::Spend;
use model::thread::ThreadFold;
use model::usage::Usage;
use model::{CallId, Event, ItemId, Seq, TaskId, ThreadId, UserId};
use schema::SchemaCache;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One run, between two inputs.
#[derive(Clone, Debug)]
pub struct RunState {
    pub user: UserId,
    pub thread: ThreadId,
    /// The agents and tools that the run may use.
    pub definitions: Arc<Definitions>,
    /// The thread as it was when the run started. Shared with the thread's executor: a start copies no history.
    pub thread_fold: Arc<ThreadFold>,
    /// The run so far.
    pub fold: RunFold,
    /// What the user had spent today before this run.
    pub prior_spend: Spend,
    /// The schemas of its tools, compiled once. A cache: without it the run is the same.
    pub schemas: SchemaCache,
    /// Turns that are being received, by task. Nothing here outlives its step: a crash loses it, and the step with it.
    pub(crate) turns: BTreeMap<TaskId, ModelTurn>,
}

impl RunState {
    /// A run that is about to start, or to go on from its log (`fold`).
    pub fn new(
        user: UserId,
        thread: ThreadId,
        definitions: Arc<Definitions>,
        thread_fold: Arc<ThreadFold>,
        fold: Option<RunFold>,
    ) -> Self {
        let fold = fold.unwrap_or_else(|| thread_fold.new_run_fold());
        let (prior_spend, schemas, turns) = Default::default();
        Self { user, thread, definitions, thread_fold, fold, prior_spend, schemas, turns }
    }

    pub(crate) fn root_id(&self) -> TaskId {
        self.fold.root().map_or_else(|| TaskId::from(""), |root| root.id.clone())
    }

    pub(crate) fn item(&self, task: &TaskId, output_index: u32) -> Option<&ItemFold> {
        self.fold.task(task)?.items.get(output_index as usize)
    }

    /// The cancel that stops a task after its turn: its own, or that of a task above it.
    pub(crate) fn pending_cancel(&self, task: &TaskFold) -> Option<TaskCancelling> {
        let parent = || task.spec.parent_task_id.as_ref().and_then(|parent| self.fold.task(parent));
        task.cancelling.clone().or_else(|| self.pending_cancel(parent()?))
    }

    /// Whether a task stops after this turn.
    pub(crate) fn is_cancelling(&self, task: &TaskFold) -> bool {
        self.pending_cancel(task).is_some()
    }

    /// The last decision about the tool of this call that holds for the task's agent for the rest of the run.
    pub(crate) fn standing_decision(&self, task: &TaskFold, call: &ToolCall) -> Option<&ApprovalResolved> {
        let (agent, server_label, tool) = (task.agent.clone(), call.server_label.clone(), call.name.clone());
        self.fold.standing_decisions.get(&StandingKey { agent, server_label, tool })
    }

    /// The last record of the run.
    pub const fn head(&self) -> Seq {
        self.fold.seq
    }

    /// The suffix of the run's ids, and the number of the next one.
    pub(crate) fn next_id_number(&self) -> (String, u32) {
        let suffix = self.fold.root().map(|root| root.id.run_suffix().to_owned()).unwrap_or_default();
        (suffix, self.fold.id_count.saturating_add(1))
    }

    pub(crate) fn next_item_id(&self, prefix: &str) -> ItemId {
        let (suffix, number) = self.next_id_number();
        ItemId::numbered(prefix, &suffix, number)
    }

    /// A model is called. A turn that is still there was an attempt that failed: its tokens count.
    pub(crate) fn begin_turn(&mut self, task: &TaskId, model: String, shown_references: BTreeSet<u32>) {
        let failed_usage = self.turns.remove(task).map(|failed| failed.total_usage()).unwrap_or_default();
        let turn = ModelTurn { model, failed_usage, shown_references, ..ModelTurn::default() };
        self.turns.insert(task.clone(), turn);
    }

    /// Usage of the turn that this event belongs to, when the log does not have it yet.
    pub(crate) fn take_unlogged_usage(&mut self, event: &Event) -> Option<Usage> {
        self.turns.get_mut(event.task_id()?)?.unlogged_usage.take()
    }

    /// The number of reference groups in the thread.
    pub(crate) fn reference_count(&self) -> u32 {
        self.thread_fold.reference_count.max(self.fold.reference_count)
    }

    /// The agent that a task has now.
    pub(crate) fn agent_of_task(&self, task: &TaskFold) -> Agent {
        let agent =
            self.definitions.resolve_agent(&task.agent).unwrap_or_else(|| Agent::bare(&task.agent, &task.spec.model));
        if task.spec.is_compaction() { agent.into_summarizer() } else { agent }
    }

    pub(crate) fn step_model(&self, task: &TaskFold, step: &StepFold) -> String {
        self.agent_of_task(task).models.get(step.model_index).cloned().unwrap_or_default()
    }

    pub(crate) fn task_of_call(&self, call: &CallId) -> Option<&TaskFold> {
        self.fold.tasks.iter().find(|task| task.call(call).is_some())
    }
}
