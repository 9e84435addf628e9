//! The state of one task, and what its life and steps do to it.

use super::{FileFold, Fit, Misfit, ended_as, output, reason_of};
use crate::block::Part;
use crate::event::{ApprovalRequested, ApprovalResolved, Recovered, Retrying, TaskSpec, ToolStarted};
use crate::event::{Cancelling, Created, ErrorInfo, Event, InputMessage, Pending, StepDone, StepStarted, StopReason};
use crate::history::{Before, Entry};
use crate::id::{CallId, ItemId, TaskId};
use crate::item::{Item, ToolCall};
use crate::object::TaskStatus;
use crate::record::{OnCrash, Private, RawItem};
use crate::seq::Millis;
use crate::usage::Usage;
use crate::wish::Wishes;
use std::collections::BTreeMap;

/// One task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskFold {
    /// Its name.
    pub id: TaskId,
    /// What it is to do.
    pub spec: Box<TaskSpec>,
    /// The agent that answers now.
    pub agent: String,
    /// Where it is.
    pub status: TaskStatus,
    /// Its output, with what only the server knows of each item.
    pub items: Vec<ItemFold>,
    /// Its turns, attempt by attempt.
    pub steps: Vec<StepFold>,
    /// What was said after it began.
    pub inputs: Vec<InputFold>,
    /// What it waits for, as its last pause said.
    pub pending: Vec<Pending>,
    /// Questions that were asked, with their answers.
    pub approvals: Vec<(ApprovalRequested, Option<ApprovalResolved>)>,
    /// A cancel waits for the turn to end.
    pub cancelling: Option<Cancelling>,
    /// Who handed over to whom, and when.
    pub handovers: Vec<Handover>,
    /// What a hook made of the past, where one did.
    pub history: Option<Vec<Entry>>,
    /// What was said before it that the thread's log does not have.
    pub before: Option<Before>,
    /// What the caller asks of the model.
    pub wishes: Wishes,
    /// The digest of the definitions that it started with.
    pub digest: Option<String>,
    /// What its own steps cost.
    pub usage: Usage,
    /// What its end said that everything cost.
    pub total: Option<Usage>,
    /// What went wrong.
    pub error: Option<ErrorInfo>,
    /// Which limit, or who, ended it.
    pub reason: Option<String>,
    /// When it began.
    pub created_at: Millis,
    /// When it ended.
    pub ended_at: Option<Millis>,
    /// When it must have ended.
    pub deadline: Option<Millis>,
}

/// One attempt of one turn.
#[derive(Clone, Debug, PartialEq)]
pub struct StepFold {
    /// The turn, from 1.
    pub step: u32,
    /// The try, from 1.
    pub attempt: u32,
    /// Which of the agent's models is asked: its place among them.
    pub place: usize,
    /// How often that one was asked, from 1.
    pub asked: u32,
    /// The try begins then, when one before it failed.
    pub not_before: Option<Millis>,
    /// The model that answered, once it has ended.
    pub model: String,
    /// How it ended.
    pub end: Option<StopReason>,
    /// Tokens so far.
    pub usage: Usage,
}

/// One item of the output, with what only the server knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemFold {
    /// The item as people see it.
    pub item: Item,
    /// The attempt that it belongs to: its place in `steps`. Results belong to none, nor do files.
    pub step: Option<usize>,
    /// Has its `done` come?
    pub closed: bool,
    /// Which of its blocks or summary parts are open.
    pub open: Vec<u32>,
    /// Are its arguments whole?
    pub arguments_whole: bool,
    /// Is it of an attempt that was done again? Then it is left out of history and of final objects.
    pub dropped: bool,
    /// What the model reads of it.
    pub content: Option<Vec<Part>>,
    /// The upstream item as it came.
    pub raw: Option<RawItem>,
    /// The provider's name for the call.
    pub provider_call_id: Option<String>,
    /// How the tool was started, unless a person has been asked about it since.
    pub started: Option<StartedTool>,
    /// How often it was started.
    pub tries: u32,
    /// The files that are read, by address.
    pub files: BTreeMap<String, FileFold>,
}

/// How a tool was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedTool {
    /// The try, from 1.
    pub attempt: u32,
    /// The arguments that it runs with.
    pub arguments: String,
    /// May it be started again?
    pub idempotent: bool,
    /// What its result is when the process died.
    pub on_crash: OnCrash,
    /// When it must have ended.
    pub deadline: Option<Millis>,
}

/// An agent took over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// It happened when this many attempts had begun.
    pub after_steps: usize,
    /// Who handed over.
    pub from: String,
    /// Who goes on.
    pub agent: String,
}

/// Something that was said after the task began.
#[derive(Clone, Debug, PartialEq)]
pub struct InputFold {
    /// It came while this many attempts had begun.
    pub after_steps: usize,
    /// What was said.
    pub message: InputMessage,
}

impl TaskFold {
    pub(super) fn new(created: &Created, at: Millis, private: Option<&Private>) -> Self {
        Self {
            id: created.task_id.clone(),
            spec: created.task.clone(),
            agent: created.task.agent.clone(),
            status: TaskStatus::Queued,
            items: Vec::new(),
            steps: Vec::new(),
            inputs: Vec::new(),
            pending: Vec::new(),
            approvals: Vec::new(),
            cancelling: None,
            handovers: Vec::new(),
            history: private.and_then(|private| private.history.clone()),
            before: private.and_then(|private| private.before.clone()),
            wishes: private.map(|private| private.wishes.clone()).unwrap_or_default(),
            digest: private.and_then(|private| private.digest.clone()),
            usage: Usage::default(),
            total: None,
            error: None,
            reason: None,
            created_at: at,
            ended_at: None,
            deadline: private.and_then(|private| private.deadline),
        }
    }

    /// The attempt that is going on.
    #[must_use]
    pub fn open_step(&self) -> Option<&StepFold> {
        self.steps.last().filter(|step| step.end.is_none())
    }

    /// The call of this name, and its item.
    #[must_use]
    pub fn call(&self, call_id: &CallId) -> Option<(&ItemFold, &ToolCall)> {
        self.calls().find(|(_, call)| call.call_id == *call_id)
    }

    /// Every call, in order.
    pub fn calls(&self) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
        self.items.iter().filter_map(|fold| match &fold.item {
            Item::ToolCall(call) => Some((fold, call)),
            _ => None,
        })
    }

    /// The result of this call, and its place in the output.
    #[must_use]
    pub fn result(&self, call_id: &CallId) -> Option<(usize, &ItemFold)> {
        self.items.iter().enumerate().find(|(_, fold)| match &fold.item {
            Item::ToolResult(result) => result.call_id == *call_id,
            _ => false,
        })
    }

    fn call_mut(&mut self, call_id: &CallId) -> Option<&mut ItemFold> {
        self.items.iter_mut().find(|fold| match &fold.item {
            Item::ToolCall(call) => call.call_id == *call_id,
            _ => false,
        })
    }

    /// The last question about a call, with its answer.
    #[must_use]
    pub fn question(&self, call_id: &CallId) -> Option<&(ApprovalRequested, Option<ApprovalResolved>)> {
        self.approvals.iter().rev().find(|(asked, _)| asked.call_id == *call_id)
    }

    pub(super) fn apply(&mut self, at: Millis, event: &Event, private: Option<&Private>) -> Fit {
        self.change(at, event, private)?;
        // Tokens of a turn that has not ended ride with its records: recovery needs them when it never ends.
        if let Some(usage) = private.and_then(|private| private.usage)
            && let Some(step) = self.steps.last_mut().filter(|step| step.end.is_none())
        {
            step.usage = usage;
        }
        Ok(())
    }

    fn change(&mut self, at: Millis, event: &Event, private: Option<&Private>) -> Fit {
        match event {
            Event::Started(_) => self.start(),
            Event::StepStarted(e) => self.step_started(e),
            Event::StepDone(e) => self.step_done(e),
            Event::Retrying(e) => self.retrying(at, e),
            Event::AgentUpdated(e) => {
                self.agent.clone_from(&e.agent);
                let (from, agent) = (e.from.clone(), e.agent.clone());
                self.handovers.push(Handover { after_steps: self.steps.len(), from, agent });
                Ok(())
            }
            Event::InputAdded(e) => {
                let after_steps = self.steps.len();
                let messages = e.input.iter().cloned();
                self.inputs.extend(messages.map(|message| InputFold { after_steps, message }));
                Ok(())
            }
            Event::ToolStarted(e) => self.tool_started(e, private),
            Event::ToolProgress(e) => self.call(&e.call_id).map(|_| ()).ok_or(Misfit),
            Event::ApprovalRequested(e) => {
                // Asked after a crash: nobody knows what became of the call, so it does not run any more.
                self.call_mut(&e.call_id).ok_or(Misfit)?.started = None;
                self.approvals.push((e.clone(), None));
                Ok(())
            }
            Event::ApprovalResolved(e) => self.resolve(e),
            Event::Paused(e) => self.change_status(TaskStatus::Running, TaskStatus::Paused, &e.pending),
            Event::Resumed(_) => self.change_status(TaskStatus::Paused, TaskStatus::Running, &[]),
            Event::Cancelling(e) => {
                self.cancelling = Some(e.clone());
                Ok(())
            }
            Event::Recovered(e) => self.recovered(e),
            Event::StateSnapshot(_) | Event::StateDelta(_) | Event::Custom(_) | Event::ProviderEvent(_) => Ok(()),
            Event::Completed(_) | Event::Incomplete(_) | Event::Failed(_) | Event::Cancelled(_) => self.end(at, event),
            Event::ItemAdded(_)
            | Event::ItemDone(_)
            | Event::SummaryAdded(_)
            | Event::SummaryDelta(_)
            | Event::SummaryDone(_)
            | Event::ArgumentsDelta(_)
            | Event::ArgumentsDone(_)
            | Event::HostedCallUpdated(_)
            | Event::FileProcessingUpdated(_)
            | Event::TextAdded(_)
            | Event::TextDelta(_)
            | Event::AnnotationAdded(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::ImageDelta(_)
            | Event::ImageDone(_) => output::apply(self, event, private),
            Event::Created(_) | Event::HistoryCompacted(_) | Event::RunHidden(_) | Event::Unknown(_) => Err(Misfit),
        }
    }

    fn start(&mut self) -> Fit {
        if self.status != TaskStatus::Queued {
            return Err(Misfit);
        }
        self.status = TaskStatus::Running;
        Ok(())
    }

    fn change_status(&mut self, from: TaskStatus, to: TaskStatus, pending: &[Pending]) -> Fit {
        if self.status != from {
            return Err(Misfit);
        }
        self.status = to;
        self.pending = pending.to_vec();
        Ok(())
    }

    fn step_started(&mut self, e: &StepStarted) -> Fit {
        if self.open_step().is_some() || self.status != TaskStatus::Running {
            return Err(Misfit);
        }
        self.steps.push(StepFold {
            step: e.step,
            attempt: e.attempt,
            place: 0,
            asked: 1,
            not_before: None,
            model: String::new(),
            end: None,
            usage: Usage::default(),
        });
        Ok(())
    }

    fn retrying(&mut self, at: Millis, e: &Retrying) -> Fit {
        let step = self.steps.last_mut().filter(|step| step.end.is_none() && step.step == e.step).ok_or(Misfit)?;
        step.attempt = e.attempt;
        step.not_before = Some(e.not_before);
        // A model that failed is left alone for a while; the next one is asked at once.
        if e.not_before > at {
            step.asked = step.asked.saturating_add(1);
        } else {
            (step.place, step.asked) = (step.place.saturating_add(1), 1);
        }
        Ok(())
    }

    fn step_done(&mut self, e: &StepDone) -> Fit {
        let place = self.steps.len().checked_sub(1).ok_or(Misfit)?;
        let step = self.steps.last_mut().filter(|step| step.end.is_none() && step.step == e.step).ok_or(Misfit)?;
        step.end = Some(e.stop_reason);
        step.usage = e.usage;
        step.model.clone_from(&e.model);
        self.usage.add(e.usage);
        if e.stop_reason.is_cut() {
            for fold in self.items.iter_mut().filter(|fold| fold.step == Some(place)) {
                fold.item.cut(reason_of(e.stop_reason));
            }
        }
        Ok(())
    }

    fn tool_started(&mut self, e: &ToolStarted, private: Option<&Private>) -> Fit {
        let started = StartedTool {
            attempt: e.attempt,
            arguments: e.arguments.clone(),
            idempotent: private.and_then(|private| private.idempotent).unwrap_or_default(),
            on_crash: private.and_then(|private| private.on_crash).unwrap_or_default(),
            deadline: private.and_then(|private| private.deadline),
        };
        let fold = self.call_mut(&e.call_id).ok_or(Misfit)?;
        fold.started = Some(started);
        fold.tries = e.attempt;
        Ok(())
    }

    fn resolve(&mut self, e: &ApprovalResolved) -> Fit {
        let asked = self.approvals.iter_mut().find(|(asked, answer)| asked.key == e.key && answer.is_none());
        asked.ok_or(Misfit)?.1 = Some(e.clone());
        Ok(())
    }

    fn recovered(&mut self, e: &Recovered) -> Fit {
        let known = |id: &ItemId| self.items.iter().any(|fold| fold.item.id() == id);
        if self.open_step().is_some() || !e.cut.iter().all(known) {
            return Err(Misfit);
        }
        for fold in self.items.iter_mut().filter(|fold| e.cut.contains(fold.item.id())) {
            fold.dropped = true;
        }
        Ok(())
    }

    fn end(&mut self, at: Millis, event: &Event) -> Fit {
        let loose = self.open_step().is_some() || self.items.iter().any(|fold| !fold.closed);
        self.status = ended_as(event).filter(|_| !loose).ok_or(Misfit)?;
        self.ended_at = Some(at);
        self.pending = Vec::new();
        match event {
            Event::Completed(e) => self.total = Some(e.usage),
            Event::Incomplete(e) => {
                self.total = Some(e.usage);
                self.reason = name_of(e.reason);
            }
            Event::Failed(e) => {
                self.total = Some(e.usage);
                self.error = Some(e.error.clone());
            }
            Event::Cancelled(e) => {
                self.total = Some(e.usage);
                self.reason = name_of(e.by);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A unit variant's wire name.
fn name_of(word: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(word).ok()?.as_str().map(str::to_owned)
}
