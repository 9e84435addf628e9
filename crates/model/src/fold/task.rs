//! The state of one task, and what its life and steps do to it.

use super::{FileFold, FoldError, FoldResult, incomplete_reason, output, terminal_status};
use crate::content::ContentPart;
use crate::definition::OnCrash;
use crate::error::ErrorInfo;
use crate::event::{ApprovalRequested, ApprovalResolved, StepRetrying, TaskRecovered, TaskSpec, ToolStarted};
use crate::event::{
    Event, InputMessage, PendingRequest, StepDone, StepStarted, StopReason, TaskCancelling, TaskCreated,
};
use crate::history::RawItem;
use crate::history::{HistoryEntry, PriorHistory};
use crate::id::{CallId, ItemId, TaskId};
use crate::item::{Item, ToolCall};
use crate::model_settings::ModelSettings;
use crate::record::PrivatePayload;
use crate::seq::Millis;
use crate::task::TaskStatus;
use crate::usage::Usage;
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
    pub pending: Vec<PendingRequest>,
    /// Questions that were asked, with their answers.
    pub approvals: Vec<(ApprovalRequested, Option<ApprovalResolved>)>,
    /// A cancel waits for the turn to end.
    pub cancelling: Option<TaskCancelling>,
    /// Who handed over to whom, and when.
    pub handoffs: Vec<HandoffFold>,
    /// What a hook made of the past, where one did.
    pub rewritten_history: Option<Vec<HistoryEntry>>,
    /// What was said before it that the thread's log does not have.
    pub prior_history: Option<PriorHistory>,
    /// What the caller asks of the model.
    pub model_settings: ModelSettings,
    /// The digest of the definitions that it started with.
    pub definitions_digest: Option<String>,
    /// What its own steps cost.
    pub usage: Usage,
    /// What its end said that everything cost.
    pub total_usage: Option<Usage>,
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
    pub model_index: usize,
    /// How often that one was asked, from 1.
    pub model_attempt: u32,
    /// The try begins then, when one before it failed.
    pub not_before: Option<Millis>,
    /// The model that answered, once it has ended.
    pub model: String,
    /// How it ended.
    pub stop_reason: Option<StopReason>,
    /// Tokens so far.
    pub usage: Usage,
}

/// One item of the output, with what only the server knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemFold {
    /// The item as people see it.
    pub item: Item,
    /// The attempt that it belongs to: its place in `steps`. Results belong to none, nor do files.
    pub step_index: Option<usize>,
    /// Has its `done` come?
    pub done: bool,
    /// Which of its blocks or summary parts are open.
    pub open_parts: Vec<u32>,
    /// Are its arguments whole?
    pub arguments_complete: bool,
    /// Is it of an attempt that was done again? Then it is left out of history and of final objects.
    pub superseded: bool,
    /// What the model reads of it.
    pub content: Option<Vec<ContentPart>>,
    /// The upstream item as it came.
    pub raw: Option<RawItem>,
    /// The provider's name for the call.
    pub provider_call_id: Option<String>,
    /// How the tool was started, unless a person has been asked about it since.
    pub started: Option<StartedTool>,
    /// How often it was started.
    pub attempts: u32,
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
pub struct HandoffFold {
    /// It happened when this many attempts had begun.
    pub after_steps: usize,
    /// Who handed over.
    pub from_agent: String,
    /// Who goes on.
    pub to_agent: String,
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
    pub(super) fn new(created: &TaskCreated, at: Millis, private: Option<&PrivatePayload>) -> Self {
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
            handoffs: Vec::new(),
            rewritten_history: private.and_then(|private| private.rewritten_history.clone()),
            prior_history: private.and_then(|private| private.prior_history.clone()),
            model_settings: private.map(|private| private.model_settings.clone()).unwrap_or_default(),
            definitions_digest: private.and_then(|private| private.definitions_digest.clone()),
            usage: Usage::default(),
            total_usage: None,
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
        self.steps.last().filter(|step| step.stop_reason.is_none())
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
    pub fn last_approval(&self, call_id: &CallId) -> Option<&(ApprovalRequested, Option<ApprovalResolved>)> {
        self.approvals.iter().rev().find(|(asked, _)| asked.call_id == *call_id)
    }

    pub(super) fn apply(&mut self, at: Millis, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        self.apply_change(at, event, private)?;
        // Tokens of a turn that has not ended ride with its records: recovery needs them when it never ends.
        if let Some(usage) = private.and_then(|private| private.usage)
            && let Some(step) = self.steps.last_mut().filter(|step| step.stop_reason.is_none())
        {
            step.usage = usage;
        }
        Ok(())
    }

    fn apply_change(&mut self, at: Millis, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        match event {
            Event::Started(_) => self.start(),
            Event::StepStarted(e) => self.step_started(e),
            Event::StepDone(e) => self.step_done(e),
            Event::Retrying(e) => self.retrying(at, e),
            Event::AgentUpdated(e) => {
                self.agent.clone_from(&e.agent);
                let (from, agent) = (e.from.clone(), e.agent.clone());
                self.handoffs.push(HandoffFold { after_steps: self.steps.len(), from_agent: from, to_agent: agent });
                Ok(())
            }
            Event::InputAdded(e) => {
                let after_steps = self.steps.len();
                let messages = e.input.iter().cloned();
                self.inputs.extend(messages.map(|message| InputFold { after_steps, message }));
                Ok(())
            }
            Event::ToolStarted(e) => self.tool_started(e, private),
            Event::ToolProgress(e) => self.call(&e.call_id).map(|_| ()).ok_or(FoldError),
            Event::ApprovalRequested(e) => {
                // Asked after a crash: nobody knows what became of the call, so it does not run any more.
                self.call_mut(&e.call_id).ok_or(FoldError)?.started = None;
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
            | Event::ImageDone(_) => output::apply_output_event(self, event, private),
            Event::Created(_) | Event::HistoryCompacted(_) | Event::RunHidden(_) | Event::Unknown(_) => Err(FoldError),
        }
    }

    fn start(&mut self) -> FoldResult {
        if self.status != TaskStatus::Queued {
            return Err(FoldError);
        }
        self.status = TaskStatus::Running;
        Ok(())
    }

    fn change_status(&mut self, from: TaskStatus, to: TaskStatus, pending: &[PendingRequest]) -> FoldResult {
        if self.status != from {
            return Err(FoldError);
        }
        self.status = to;
        self.pending = pending.to_vec();
        Ok(())
    }

    fn step_started(&mut self, e: &StepStarted) -> FoldResult {
        if self.open_step().is_some() || self.status != TaskStatus::Running {
            return Err(FoldError);
        }
        self.steps.push(StepFold {
            step: e.step,
            attempt: e.attempt,
            model_index: 0,
            model_attempt: 1,
            not_before: None,
            model: String::new(),
            stop_reason: None,
            usage: Usage::default(),
        });
        Ok(())
    }

    fn retrying(&mut self, at: Millis, e: &StepRetrying) -> FoldResult {
        let step =
            self.steps.last_mut().filter(|step| step.stop_reason.is_none() && step.step == e.step).ok_or(FoldError)?;
        step.attempt = e.attempt;
        step.not_before = Some(e.not_before);
        // A model that failed is left alone for a while; the next one is asked at once.
        if e.not_before > at {
            step.model_attempt = step.model_attempt.saturating_add(1);
        } else {
            (step.model_index, step.model_attempt) = (step.model_index.saturating_add(1), 1);
        }
        Ok(())
    }

    fn step_done(&mut self, e: &StepDone) -> FoldResult {
        let place = self.steps.len().checked_sub(1).ok_or(FoldError)?;
        let step =
            self.steps.last_mut().filter(|step| step.stop_reason.is_none() && step.step == e.step).ok_or(FoldError)?;
        step.stop_reason = Some(e.stop_reason);
        step.usage = e.usage;
        step.model.clone_from(&e.model);
        self.usage.add(e.usage);
        if e.stop_reason.is_interrupted() {
            for fold in self.items.iter_mut().filter(|fold| fold.step_index == Some(place)) {
                fold.item.mark_incomplete(incomplete_reason(e.stop_reason));
            }
        }
        Ok(())
    }

    fn tool_started(&mut self, e: &ToolStarted, private: Option<&PrivatePayload>) -> FoldResult {
        let started = StartedTool {
            attempt: e.attempt,
            arguments: e.arguments.clone(),
            idempotent: private.and_then(|private| private.idempotent).unwrap_or_default(),
            on_crash: private.and_then(|private| private.on_crash).unwrap_or_default(),
            deadline: private.and_then(|private| private.deadline),
        };
        let fold = self.call_mut(&e.call_id).ok_or(FoldError)?;
        fold.started = Some(started);
        fold.attempts = e.attempt;
        Ok(())
    }

    fn resolve(&mut self, e: &ApprovalResolved) -> FoldResult {
        let asked = self.approvals.iter_mut().find(|(asked, answer)| asked.key == e.key && answer.is_none());
        asked.ok_or(FoldError)?.1 = Some(e.clone());
        Ok(())
    }

    fn recovered(&mut self, e: &TaskRecovered) -> FoldResult {
        let known = |id: &ItemId| self.items.iter().any(|fold| fold.item.id() == id);
        if self.open_step().is_some() || !e.cut.iter().all(known) {
            return Err(FoldError);
        }
        for fold in self.items.iter_mut().filter(|fold| e.cut.contains(fold.item.id())) {
            fold.superseded = true;
        }
        Ok(())
    }

    fn end(&mut self, at: Millis, event: &Event) -> FoldResult {
        let loose = self.open_step().is_some() || self.items.iter().any(|fold| !fold.done);
        self.status = terminal_status(event).filter(|_| !loose).ok_or(FoldError)?;
        self.ended_at = Some(at);
        self.pending = Vec::new();
        match event {
            Event::Completed(e) => self.total_usage = Some(e.usage),
            Event::Incomplete(e) => {
                self.total_usage = Some(e.usage);
                self.reason = wire_name(e.reason);
            }
            Event::Failed(e) => {
                self.total_usage = Some(e.usage);
                self.error = Some(e.error.clone());
            }
            Event::Cancelled(e) => {
                self.total_usage = Some(e.usage);
                self.reason = wire_name(e.by);
            }
            _ => {}
        }
        Ok(())
    }
}

/// A unit variant's wire name.
fn wire_name(word: impl serde::Serialize) -> Option<String> {
    serde_json::to_value(word).ok()?.as_str().map(str::to_owned)
}
