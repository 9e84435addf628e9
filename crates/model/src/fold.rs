//! Records → state, for one run. Pure and total: the only way from the log to anything that is shown.
//!
//! A record that does not fit leaves the state as it was and is counted; it never panics and never guesses. What outlives
//! the run is [`crate::thread::ThreadFold`]'s; how it looks to a client is [`RunFold::object`].
//! `task` has the state of one task, `output` what item and block events do to it, `file` what is read before a model is
//! asked.

mod file;
mod output;
mod render;
mod task;

pub use file::{FILES_MAX, FileFold};
pub use task::{Handover, InputFold, ItemFold, StartedTool, StepFold, TaskFold};

use crate::event::{ApprovalResolved, Event, StateDelta};
use crate::id::TaskId;
use crate::item::{IncompleteReason, Item};
use crate::object::TaskStatus;
use crate::record::{Private, Record};
use crate::seq::{Millis, Seq};
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
    pub numbers: u32,
    /// The highest reference group that a result of this run opened; zero when none did.
    pub references: u32,
    /// What people said of tools for the rest of the run: the last word on each.
    pub standing: BTreeMap<String, ApprovalResolved>,
    /// The shared state, once this run has touched it.
    pub state: Option<Value>,
    /// How many records did not fit. A run with any is not executed further.
    pub misfits: u32,
}

/// The record does not fit the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

/// What folding one event gives.
pub type Fit = Result<(), Misfit>;

impl RunFold {
    /// Folds a stored record.
    pub fn apply(&mut self, record: &Record) -> Fit {
        self.apply_event(record.seq, record.at, record.event(), record.private().as_ref())
    }

    /// Folds an event at its place.
    pub fn apply_event(&mut self, seq: Seq, at: Millis, event: &Event, private: Option<&Private>) -> Fit {
        let gap = self.seq != Seq::ZERO && seq != self.seq.next();
        self.seq = seq;
        self.at = self.at.max(at);
        let fit = if gap { Err(Misfit) } else { self.change(event, private) };
        if fit.is_err() {
            self.misfits = self.misfits.saturating_add(1);
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
    pub fn is_over(&self) -> bool {
        self.root().is_some_and(|root| root.status.is_terminal())
    }

    fn change(&mut self, event: &Event, private: Option<&Private>) -> Fit {
        // The new state is worked out before anything changes: a record that does not fit must leave everything alone.
        let state = match event {
            Event::Created(created) => return self.create(created, private),
            // These are the thread's; the run they stand behind has ended or does not mind.
            Event::HistoryCompacted(_) | Event::RunHidden(_) => return Ok(()),
            Event::StateSnapshot(snapshot) => Some(snapshot.state.clone()),
            Event::StateDelta(delta) => Some(self.patched(delta)?),
            _ => None,
        };
        let at = self.at;
        let id = event.task_id().ok_or(Misfit)?;
        let loose = self.is_over() || (event.is_terminal() && self.has_open_child(id));
        let task = self.tasks.iter_mut().find(|task| task.id == *id).ok_or(Misfit)?;
        if loose || task.status.is_terminal() {
            return Err(Misfit);
        }
        task.apply(at, event, private)?;
        if let Event::ApprovalResolved(resolved) = event
            && resolved.decisions.iter().any(|decision| decision.always)
            && let Some((asked, _)) = task.approvals.iter().find(|(asked, _)| asked.key == resolved.key)
        {
            let tools = asked.action_requests.iter().map(|action| (action.name.clone(), resolved.clone()));
            self.standing.extend(tools);
        }
        if state.is_some() {
            self.state = state;
        }
        self.count(event);
        Ok(())
    }

    /// A task that ended before its sub-agents would leave them without an end of their own (law 9).
    fn has_open_child(&self, id: &TaskId) -> bool {
        let mut children = self.tasks.iter().filter(|task| task.spec.parent_task_id.as_ref() == Some(id));
        children.any(|child| !child.status.is_terminal())
    }

    fn create(&mut self, created: &crate::event::Created, private: Option<&Private>) -> Fit {
        let fits = match &created.task.parent_task_id {
            None => self.tasks.is_empty(),
            Some(parent) => {
                let asked = |parent: &TaskFold| parent.calls().any(|(_, call)| call.call_id.task() == created.task_id);
                !self.is_over()
                    && self.task(&created.task_id).is_none()
                    && self.task(parent).is_some_and(|parent| !parent.status.is_terminal() && asked(parent))
            }
        };
        if !fits {
            return Err(Misfit);
        }
        let task = TaskFold::new(created, self.at, private);
        // What was numbered elsewhere stays good here.
        self.references = self.references.max(task.before.as_ref().map_or(0, |before| before.references));
        self.tasks.push(task);
        Ok(())
    }

    /// Would this change of the shared state apply? Whoever writes a log asks first.
    #[must_use]
    pub fn accepts(&self, delta: &StateDelta) -> bool {
        self.patched(delta).is_ok()
    }

    fn patched(&self, delta: &StateDelta) -> Result<Value, Misfit> {
        let operations = serde_json::to_value(&delta.delta).map_err(|_| Misfit)?;
        let patch: json_patch::Patch = serde_json::from_value(operations).map_err(|_| Misfit)?;
        let mut state = self.state.clone().unwrap_or(Value::Null);
        json_patch::patch(&mut state, &patch).map_err(|_| Misfit)?;
        Ok(state)
    }

    /// Counts what ids and references are numbered by.
    fn count(&mut self, event: &Event) {
        let named = match event {
            // A result shares the number of its call.
            Event::ItemAdded(e) if !matches!(e.item, Item::ToolResult(_)) => 1,
            Event::InputAdded(e) => e.input.len(),
            _ => 0,
        };
        self.numbers = self.numbers.saturating_add(u32::try_from(named).unwrap_or(u32::MAX));
        let opened = match event {
            Event::TextAdded(e) | Event::TextDone(e) => self.opened(&e.task_id, e.output_index, e.item.block().id),
            Event::ImageAdded(e) | Event::ImageDone(e) => self.opened(&e.task_id, e.output_index, e.item.block().id),
            _ => 0,
        };
        self.references = self.references.max(opened);
    }

    /// The reference group that a block opens: only results open any.
    fn opened(&self, task: &TaskId, output_index: u32, group: Option<u32>) -> u32 {
        let item = self.task(task).and_then(|task| task.items.get(output_index as usize));
        let of_result = item.is_some_and(|item| matches!(item.item, Item::ToolResult(_)));
        if of_result { group.unwrap_or_default() } else { 0 }
    }
}

/// What an item that was cut by its step's end counts as.
const fn reason_of(stop: crate::event::StopReason) -> IncompleteReason {
    use crate::event::StopReason as S;
    match stop {
        S::Error => IncompleteReason::Failed,
        S::Cancelled => IncompleteReason::Cancelled,
        S::Lost => IncompleteReason::Recovered,
        S::Stop | S::ToolCalls | S::MaxTokens | S::ContentFilter => IncompleteReason::Limit,
    }
}

/// The status that a terminal event gives.
const fn ended_as(event: &Event) -> Option<TaskStatus> {
    match event {
        Event::Completed(_) => Some(TaskStatus::Completed),
        Event::Incomplete(_) => Some(TaskStatus::Incomplete),
        Event::Failed(_) => Some(TaskStatus::Failed),
        Event::Cancelled(_) => Some(TaskStatus::Cancelled),
        _ => None,
    }
}
