//! The state of one task, and how lifecycle and step events change it.

use super::{FileFold, FoldError, FoldResult, QuestionFold, output};
use crate::command::RequestUpdate;
use crate::content::ContentPart;
use crate::context::ContextEntry;
use crate::definition::OnCrash;
use crate::error::ErrorInfo;
use crate::event::{
    ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, ClientTool, StepRetrying, TaskRecovered, TaskSpec,
    ToolStarted,
};
use crate::event::{
    Event, InputMessage, PendingRequest, StepDone, StepStarted, StopReason, TaskCancelling, TaskCreated,
};
use crate::history::{HistoryEntry, PriorHistory, RawItem};
use crate::id::{CallId, ItemId, TaskId};
use crate::item::{CallKind, HostedCall, Item, ItemStatus, MCP_LIST_TOOLS, ToolCall};
use crate::model_settings::ModelSettings;
use crate::record::PrivatePayload;
use crate::reference;
use crate::seq::Millis;
use crate::task::TaskStatus;
use crate::usage::Usage;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct TaskFold {
    pub id: TaskId,
    pub spec: Box<TaskSpec>,
    /// The active agent.
    pub agent: String,
    pub status: TaskStatus,
    pub items: Vec<ItemFold>,
    /// One entry per attempt.
    pub steps: Vec<StepFold>,
    /// Input that arrived after the task was created.
    pub inputs: Vec<InputFold>,
    /// What the last pause waits for.
    pub pending: Vec<PendingRequest>,
    /// Approval requests with their decisions.
    pub approvals: Vec<(ApprovalRequested, Option<ApprovalResolved>)>,
    /// A cancellation that waits for the turn to end.
    pub cancelling: Option<TaskCancelling>,
    pub handoffs: Vec<HandoffFold>,
    /// The history as an input hook rewrote it.
    pub rewritten_history: Option<Vec<HistoryEntry>>,
    /// History that the thread's log does not have.
    pub prior_history: Option<PriorHistory>,
    pub model_settings: ModelSettings,
    /// The context that the client sent last.
    pub context: Vec<ContextEntry>,
    /// The last step before the settings came: a forced tool choice holds for the first one after it.
    pub settings_since_step: u32,
    /// The agent that the client named last; a hand-off may have replaced it since.
    pub requested_agent: String,
    /// The tools that the client declared last, and those that it declared before.
    pub client_tools: Vec<ClientTool>,
    pub retired_client_tools: Vec<ClientTool>,
    pub definitions_digest: Option<String>,
    /// Tokens of its own steps.
    pub usage: Usage,
    /// The total that its terminal event carries, descendants included.
    pub total_usage: Option<Usage>,
    pub error: Option<ErrorInfo>,
    /// Which limit or who ended the task.
    pub reason: Option<String>,
    pub created_at: Millis,
    pub ended_at: Option<Millis>,
    pub deadline: Option<Millis>,
}

/// One attempt at one turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFold {
    /// Counted from 1.
    pub step: u32,
    /// Counted from 1.
    pub attempt: u32,
    /// Index into the agent's models.
    pub model_index: usize,
    /// Attempts with that model, counted from 1.
    pub model_attempt: u32,
    /// When the next attempt may start, after a failed one.
    pub not_before: Option<Millis>,
    /// The model that answered; empty until the step is done.
    pub model: String,
    pub stop_reason: Option<StopReason>,
    pub usage: Usage,
}

/// An item of the output with the server's private state.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemFold {
    pub item: Item,
    /// Index into `steps` of the attempt that it belongs to. Results and files belong to none.
    pub step_index: Option<usize>,
    pub done: bool,
    /// Indices of the blocks or summary parts that are open.
    pub open_parts: Vec<u32>,
    pub arguments_complete: bool,
    /// Whether its attempt was repeated. Excluded from the history.
    pub superseded: bool,
    /// What the model reads of it.
    pub content: Option<Vec<ContentPart>>,
    /// The upstream item, unchanged.
    pub raw: Option<RawItem>,
    /// The safety checks of a computer call that the client acknowledged with its result.
    pub acknowledged_checks: Option<Vec<Value>>,
    pub provider_call_id: Option<String>,
    /// Set while the tool may be running; reset when a person is asked about it after a crash.
    pub started: Option<StartedTool>,
    /// Number of times the tool was started.
    pub attempts: u32,
    /// The last questions of the tool.
    pub question: Option<QuestionFold>,
    /// By URL.
    pub files: BTreeMap<String, FileFold>,
}

impl ItemFold {
    /// A whole list of an MCP server's tools that this server has written, with the server's label.
    #[must_use]
    pub fn mcp_list(&self) -> Option<(&str, &HostedCall)> {
        let Item::HostedCall(call) = &self.item else { return None };
        let is_whole = self.done && call.status != Some(ItemStatus::Incomplete);
        // A provider lists the tools of its own servers in a turn.
        let is_own = call.name == MCP_LIST_TOOLS && self.step_index.is_none();
        call.server_label().filter(|_| is_own && is_whole).map(|label| (label, call))
    }

    /// What the model reads of a result. Content that did not fit into the record's private half is rebuilt from the
    /// blocks.
    pub fn result_content(&self) -> Vec<ContentPart> {
        let rebuild = || reference::wrap_reference_groups(reference::blocks_to_parts(self.item.blocks()));
        self.content.clone().unwrap_or_else(rebuild)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedTool {
    /// Counted from 1.
    pub attempt: u32,
    pub arguments: String,
    /// Whether it may be started again after a crash.
    pub idempotent: bool,
    pub on_crash: OnCrash,
    pub deadline: Option<Millis>,
    /// Blocks of its result that earlier attempts have left.
    pub blocks_before: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffFold {
    /// Attempts that had started before the handoff.
    pub after_steps: usize,
    pub from_agent: String,
    pub to_agent: String,
}

/// Input that arrived after the task was created.
#[derive(Clone, Debug, PartialEq)]
pub struct InputFold {
    /// Attempts that had started before it arrived.
    pub after_steps: usize,
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
            context: private.map(|private| private.context.clone()).unwrap_or_default(),
            settings_since_step: 0,
            requested_agent: created.task.agent.clone(),
            client_tools: created.task.tools.clone(),
            retired_client_tools: Vec::new(),
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

    /// The attempt in progress.
    pub fn open_step(&self) -> Option<&StepFold> {
        self.steps.last().filter(|step| step.stop_reason.is_none())
    }

    pub fn call(&self, call_id: &CallId) -> Option<(&ItemFold, &ToolCall)> {
        self.calls().find(|(_, call)| call.call_id == *call_id)
    }

    pub fn calls(&self) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
        self.items.iter().filter_map(|fold| match &fold.item {
            Item::ToolCall(call) => Some((fold, call)),
            _ => None,
        })
    }

    /// The result of a call, and its index in the output.
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

    /// The last approval request about a call, with its decision.
    pub fn last_approval(&self, call_id: &CallId) -> Option<&(ApprovalRequested, Option<ApprovalResolved>)> {
        self.approvals.iter().rev().find(|(asked, _)| asked.call_id == *call_id)
    }

    pub(super) fn apply(&mut self, at: Millis, event: &Event, private: Option<&PrivatePayload>) -> FoldResult {
        self.apply_change(at, event, private)?;
        // Records carry the tokens of an unfinished turn: recovery needs them if the turn never ends.
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
                let fold = self.call_mut(&e.call_id).ok_or(FoldError)?;
                let context = private.and_then(|private| private.question.as_deref()).filter(|_| e.question.is_some());
                // Requested after a crash, the outcome is unknown; with a question the tool may have ended. Then the call no
                // longer counts as running.
                if !context.is_some_and(|context| context.live) {
                    fold.started = None;
                }
                if let Some(context) = context {
                    fold.question =
                        Some(QuestionFold::after(fold.question.take(), e.key.clone(), context, fold.attempts));
                }
                self.approvals.push(((**e).clone(), None));
                Ok(())
            }
            Event::ApprovalResolved(e) => self.resolve(e),
            Event::Paused(e) => self.change_status(TaskStatus::Running, TaskStatus::Paused, &e.pending),
            Event::Resumed(_) => {
                self.change_status(TaskStatus::Paused, TaskStatus::Running, &[])?;
                if let Some(update) = private.and_then(|private| private.update.as_deref()) {
                    self.apply_request_update(update);
                }
                Ok(())
            }
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

    fn apply_request_update(&mut self, update: &RequestUpdate) {
        self.model_settings = update.model_settings.clone();
        self.settings_since_step = self.steps.last().map_or(0, |step| step.step);
        self.requested_agent.clone_from(&update.agent);
        if let Some(context) = &update.context {
            self.context.clone_from(context);
        }
        let Some(tools) = &update.tools else { return };
        let before = std::mem::replace(&mut self.client_tools, tools.clone());
        let is_retired = |tool: &ClientTool| !self.client_tools.iter().any(|now| now.name == tool.name);
        self.retired_client_tools.extend(before.into_iter().filter(is_retired));
    }

    fn step_started(&mut self, e: &StepStarted) -> FoldResult {
        if self.open_step().is_some() || self.status != TaskStatus::Running {
            return Err(FoldError);
        }
        self.steps.push(StepFold { step: e.step, attempt: e.attempt, model_attempt: 1, ..StepFold::default() });
        Ok(())
    }

    fn retrying(&mut self, at: Millis, e: &StepRetrying) -> FoldResult {
        let step =
            self.steps.last_mut().filter(|step| step.stop_reason.is_none() && step.step == e.step).ok_or(FoldError)?;
        step.attempt = e.attempt;
        step.not_before = Some(e.not_before);
        // A time in the future means that the same model is tried again later; otherwise the next model is tried at
        // once.
        if e.not_before > at {
            step.model_attempt = step.model_attempt.saturating_add(1);
        } else {
            (step.model_index, step.model_attempt) = (step.model_index.saturating_add(1), 1);
        }
        Ok(())
    }

    fn step_done(&mut self, e: &StepDone) -> FoldResult {
        let step =
            self.steps.last_mut().filter(|step| step.stop_reason.is_none() && step.step == e.step).ok_or(FoldError)?;
        step.stop_reason = Some(e.stop_reason);
        step.usage = e.usage;
        step.model.clone_from(&e.model);
        self.usage.add(e.usage);
        Ok(())
    }

    fn tool_started(&mut self, e: &ToolStarted, private: Option<&PrivatePayload>) -> FoldResult {
        let started = StartedTool {
            attempt: e.attempt,
            arguments: e.arguments.clone(),
            idempotent: private.and_then(|private| private.idempotent).unwrap_or_default(),
            on_crash: private.and_then(|private| private.on_crash).unwrap_or_default(),
            deadline: private.and_then(|private| private.deadline),
            blocks_before: self.result(&e.call_id).map_or(0, |(_, result)| result.item.blocks().len()),
        };
        let fold = self.call_mut(&e.call_id).ok_or(FoldError)?;
        fold.started = Some(started);
        fold.attempts = e.attempt;
        if let Item::ToolCall(call) = &mut fold.item {
            call.set_executed_arguments(&e.arguments, e.original_arguments.as_deref());
        }
        Ok(())
    }

    fn resolve(&mut self, e: &ApprovalResolved) -> FoldResult {
        let asked = self.approvals.iter_mut().find(|(asked, answer)| asked.key == e.key && answer.is_none());
        let (asked, answer) = asked.ok_or(FoldError)?;
        *answer = Some(e.clone());
        let call_id = asked.call_id.clone();
        let decision = e.decisions.first().filter(|decision| decision.kind == ApprovalDecisionKind::Edit);
        // Tools of the client have no start: an edit counts from the decision on.
        if let Some(args) = decision.and_then(|decision| decision.args.as_ref())
            && let Some(Item::ToolCall(call)) = self.call_mut(&call_id).map(|fold| &mut fold.item)
            && call.kind == Some(CallKind::Client)
            && !call.has_same_arguments(args)
        {
            let written = call.written_arguments().map(str::to_owned);
            call.set_executed_arguments(&args.to_string(), written.as_deref());
        }
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
        self.status = event.terminal_status().filter(|_| !loose).ok_or(FoldError)?;
        self.ended_at = Some(at);
        self.pending = Vec::new();
        match event {
            Event::Completed(e) => self.total_usage = Some(e.usage),
            Event::Incomplete(e) => {
                self.total_usage = Some(e.usage);
                self.reason = Some(e.reason.as_str().to_owned());
            }
            Event::Failed(e) => {
                self.total_usage = Some(e.usage);
                self.error = Some(e.error.clone());
            }
            Event::Cancelled(e) => {
                self.total_usage = Some(e.usage);
                self.reason = Some(e.by.as_str().to_owned());
            }
            _ => {}
        }
        Ok(())
    }
}
