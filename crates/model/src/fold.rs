//! Records → state, for one run. Pure and total: the only way from the log to anything that is shown.
//!
//! A record that does not fit leaves the state as it was and is counted; it never panics and never guesses. What outlives
//! the run is [`crate::thread::ThreadFold`]'s; how it looks to a client is [`RunFold::object`].
//! `task` has the state of one task, `output` what item and block events do to it, `file` what is read before a model is
//! asked.

mod file;
mod output;
mod task;
mod task_object;

pub use file::{FileFold, TASK_FILES_MAX};
pub use task::{HandoffFold, InputFold, ItemFold, StartedTool, StepFold, TaskFold};

use crate::event::{ApprovalResolved, Event, StateDelta};
use crate::id::TaskId;
use crate::item::{IncompleteReason, Item};
use crate::record::{PrivatePayload, Record};
use crate::seq::{Millis, Seq};
use crate::task::TaskStatus;
use serde_json::Value;
use std::collections::BTreeMap;

/// One run: its root task, the sub-agents below it, and what they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFold {
    /// The tasks in the order in which they were created; the root is the first.
    pub tasks: Vec<TaskFold>,
    /// The last record in here.
    pub seq: Seq,
    /// Its moment.
    pub at: Millis,
    /// How many numbered things the run has named: the next id takes the next number.
    pub id_count: u32,
    /// The highest reference group that a result of this run opened; zero when none did.
    pub reference_count: u32,
    /// What people said of tools for the rest of the run: the last word on each.
    pub standing_decisions: BTreeMap<String, ApprovalResolved>,
    /// The shared state, once this run has touched it.
    pub state: Option<Value>,
    /// How many records did not fit. A run with any is not executed further.
    pub fold_errors: u32,
}

/// The record does not fit the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoldError;

/// What folding one event gives.
pub type FoldResult = Result<(), FoldError>;

impl RunFold {
    /// Folds a stored record.
    pub fn apply(&mut self, record: &Record) -> FoldResult {
        self.apply_event(record.seq, record.at, record.event(), record.private().as_ref())
    }

    /// Folds an event at its place.
    pub fn apply_event(&mut self, seq: Seq, at: Millis, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        let gap = self.seq != Seq::ZERO && seq != self.seq.next();
        self.seq = seq;
        self.at = self.at.max(at);
        let fit = if gap { Err(FoldError) } else { self.apply_change(event, private) };
        if fit.is_err() {
            self.fold_errors = self.fold_errors.saturating_add(1);
        }
        fit
    }

    /// The run's root task, once it was created.
    #[must_use]
    pub fn root(&self) -> Option<&TaskFold> {
        self.tasks.first()
    }

    /// A task of the run.
    #[must_use]
    pub fn task(&self, id: &TaskId) -> Option<&TaskFold> {
        self.tasks.iter().find(|task| task.id == *id)
    }

    /// Has the run ended?
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.root().is_some_and(|root| root.status.is_terminal())
    }

    fn apply_change(&mut self, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        // The new state is worked out before anything changes: a record that does not fit must leave everything alone.
        let state = match event {
            Event::Created(created) => return self.create_task(created, private),
            // These are the thread's; the run they stand behind has ended or does not mind.
            Event::HistoryCompacted(_) | Event::RunHidden(_) => return Ok(()),
            Event::StateSnapshot(snapshot) => Some(snapshot.state.clone()),
            Event::StateDelta(delta) => Some(self.patched_state(delta)?),
            _ => None,
        };
        let at = self.at;
        let id = event.task_id().ok_or(FoldError)?;
        let loose = self.has_ended() || (event.is_terminal() && self.has_open_child(id));
        let task = self.tasks.iter_mut().find(|task| task.id == *id).ok_or(FoldError)?;
        if loose || task.status.is_terminal() {
            return Err(FoldError);
        }
        task.apply(at, event, private)?;
        if let Event::ApprovalResolved(resolved) = event
            && resolved.decisions.iter().any(|decision| decision.always)
            && let Some((asked, _)) = task.approvals.iter().find(|(asked, _)| asked.key == resolved.key)
        {
            let tools = asked.action_requests.iter().map(|action| (action.name.clone(), resolved.clone()));
            self.standing_decisions.extend(tools);
        }
        if state.is_some() {
            self.state = state;
        }
        self.update_counters(event);
        Ok(())
    }

    /// A task that ended before its sub-agents would leave them without an end of their own (law 9).
    fn has_open_child(&self, id: &TaskId) -> bool {
        let mut children = self.tasks.iter().filter(|task| task.spec.parent_task_id.as_ref() == Some(id));
        children.any(|child| !child.status.is_terminal())
    }

    fn create_task(&mut self, created: &crate::event::TaskCreated, private: Option<&PrivatePayload>) -> FoldResult {
        let fits = match &created.task.parent_task_id {
            None => self.tasks.is_empty(),
            Some(parent) => {
                let asked =
                    |parent: &TaskFold| parent.calls().any(|(_, call)| call.call_id.child_task_id() == created.task_id);
                !self.has_ended()
                    && self.task(&created.task_id).is_none()
                    && self.task(parent).is_some_and(|parent| !parent.status.is_terminal() && asked(parent))
            }
        };
        if !fits {
            return Err(FoldError);
        }
        let task = TaskFold::new(created, self.at, private);
        // What was numbered elsewhere stays good here.
        self.reference_count =
            self.reference_count.max(task.prior_history.as_ref().map_or(0, |before| before.reference_count));
        self.tasks.push(task);
        Ok(())
    }

    /// Would this change of the shared state apply? Whoever writes a log asks first.
    #[must_use]
    pub fn can_apply_state_delta(&self, delta: &StateDelta) -> bool {
        self.patched_state(delta).is_ok()
    }

    fn patched_state(&self, delta: &StateDelta) -> Result<Value, FoldError> {
        let operations = serde_json::to_value(&delta.delta).map_err(|_| FoldError)?;
        let patch: json_patch::Patch = serde_json::from_value(operations).map_err(|_| FoldError)?;
        let mut state = self.state.clone().unwrap_or(Value::Null);
        json_patch::patch(&mut state, &patch).map_err(|_| FoldError)?;
        Ok(state)
    }

    /// Counts what ids and references are numbered by.
    fn update_counters(&mut self, event: &Event) {
        let named = match event {
            // A result shares the number of its call.
            Event::ItemAdded(e) if !matches!(e.item, Item::ToolResult(_)) => 1,
            Event::InputAdded(e) => e.input.len(),
            _ => 0,
        };
        self.id_count = self.id_count.saturating_add(u32::try_from(named).unwrap_or(u32::MAX));
        let opened = match event {
            Event::TextAdded(e) | Event::TextDone(e) => {
                self.opened_group(&e.task_id, e.output_index, e.item.block().id)
            }
            Event::ImageAdded(e) | Event::ImageDone(e) => {
                self.opened_group(&e.task_id, e.output_index, e.item.block().id)
            }
            _ => 0,
        };
        self.reference_count = self.reference_count.max(opened);
    }

    /// The reference group that a block opens: only results open any.
    fn opened_group(&self, task: &TaskId, output_index: u32, group: Option<u32>) -> u32 {
        let item = self.task(task).and_then(|task| task.items.get(output_index as usize));
        let of_result = item.is_some_and(|item| matches!(item.item, Item::ToolResult(_)));
        if of_result { group.unwrap_or_default() } else { 0 }
    }
}

/// What an item that was cut by its step's end counts as.
const fn incomplete_reason(stop: crate::event::StopReason) -> IncompleteReason {
    use crate::event::StopReason as S;
    match stop {
        S::Error => IncompleteReason::Failed,
        S::Cancelled => IncompleteReason::Cancelled,
        S::Lost => IncompleteReason::Recovered,
        S::Stop | S::ToolCalls | S::MaxTokens | S::ContentFilter => IncompleteReason::Limit,
    }
}

/// The status that a terminal event gives.
const fn terminal_status(event: &Event) -> Option<TaskStatus> {
    match event {
        Event::Completed(_) => Some(TaskStatus::Completed),
        Event::Incomplete(_) => Some(TaskStatus::Incomplete),
        Event::Failed(_) => Some(TaskStatus::Failed),
        Event::Cancelled(_) => Some(TaskStatus::Cancelled),
        _ => None,
    }
}
