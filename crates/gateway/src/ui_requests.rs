//! Which run answers a request of the AI SDK.
//!
//! The SDK resends its history, and the log is the source of truth. A request continues the message of a paused run with
//! answers, generates an answer again, replaces a message of the user, or adds one. Repeated requests, which have no key, get
//! the run that the first one started.

use crate::attachments::uploads::{self, Uploads};
use crate::client_tools::check_client_tools;
use crate::context::Gateway;
use crate::known_items::ConversationRef;
use crate::rejection::Rejection;
use crate::resolve_run::{RequestInput, ResolvedRun, resolve_run};
use crate::run_lookup::for_each_record_of_run;
use crate::secret_token::sha256_hex;
use crate::start_run::{check_client_instructions, choose_agent, start_run};
use crate::ui_chats::{UiChat, UiChatRun};
use crate::ui_streams::current_segment;
use engine::{NewRun, OnBusy, RunPredecessor};
use model::content::ContentPart;
use model::error::ErrorCode;
use model::event::{ApprovalDecision, ApprovalDecisionKind, ClientIds, Event};
use model::history::PriorHistory;
use model::item::{Item, Role};
use model::json::ExactValue;
use model::ports::{IdempotencyKey, RunRow};
use model::task::TaskStatus;
use model::{TaskId, UserId};
use protocol::client_input::{ClientInput, InputKind, history_entries};
use protocol::task::OnBusyParam;
use protocol::ui_stream::{
    UI_STREAM_PROTOCOL, UiAnsweredCall, UiApprovalAnswer, UiChatRequest, UiClientOutput, UiRequestMessage, UiTrigger,
};
use std::ops::ControlFlow;

/// Runs among which the message that a client edits is looked for.
const EDITED_RUNS_MAX: usize = 1_000;
/// Runs among which a message is looked for that a client may have sent before.
const REPEATED_RUNS_MAX: usize = 8;

/// Answers a request: the run, and the segment of it that the response shows. `base` has the key and the credentials.
pub async fn resolve_ui_run(
    gateway: &Gateway,
    user: &UserId,
    mut request: UiChatRequest,
    base: NewRun,
) -> Result<ResolvedRun, Rejection> {
    let chat = UiChat::find_or_reserve(gateway, user, &request.chat_id).await?;
    let agent = match request.agent.take() {
        Some(agent) => agent,
        None => choose_agent(gateway, user, Some(&chat.thread)).await?,
    };
    let new = NewRun {
        agent,
        tools: check_client_tools(gateway, user, std::mem::take(&mut request.tools)).await?,
        metadata: std::mem::take(&mut request.metadata),
        thread: Some(chat.thread.clone()),
        create_if_missing: !chat.is_thread_id,
        client: Some(ClientIds {
            protocol: UI_STREAM_PROTOCOL.to_owned(),
            thread_id: Some(request.chat_id.clone()).filter(|_| !chat.is_thread_id),
            run_id: None,
            message_ids: Vec::new(),
        }),
        ..base
    };
    let chat_request = ChatRequest { gateway, user, chat: &chat, request: &request };
    match (request.trigger, request.messages.last()) {
        (UiTrigger::RegenerateMessage, _) => Box::pin(chat_request.regenerate(new)).await,
        (UiTrigger::SubmitMessage, Some(last)) if last.role == Role::Assistant => {
            Box::pin(chat_request.continue_message(last, new)).await
        }
        (UiTrigger::SubmitMessage, Some(last)) if last.role == Role::User => {
            Box::pin(chat_request.submit(last, new)).await
        }
        (UiTrigger::SubmitMessage, _) => {
            Err(Rejection::invalid_field("messages", "the last one must be the user's or the assistant's"))
        }
    }
}

/// A request in its chat.
#[derive(Clone, Copy)]
struct ChatRequest<'a> {
    gateway: &'a Gateway,
    user: &'a UserId,
    chat: &'a UiChat,
    request: &'a UiChatRequest,
}

impl ChatRequest<'_> {
    /// Starts a run with the input of an earlier one, in its place.
    async fn regenerate(self, new: NewRun) -> Result<ResolvedRun, Rejection> {
        let Self { gateway, user, chat, request } = self;
        let last_user = request.messages.iter().rev().find(|message| message.role == Role::User);
        let id = request.message_id.as_deref().or(last_user.map(|message| message.id.as_str()));
        let id = id.or(chat.chain.last().map(TaskId::as_str)).ok_or_else(|| unknown_message("messageId"))?;
        let run = chat.find_run_of_message(gateway, user, id, EDITED_RUNS_MAX).await?;
        let run = run.ok_or_else(|| unknown_message("messageId"))?;
        let before = last_user.map_or(0, |last| position_of(&request.messages, last));
        let new = self.replace_run(new, &run, before);
        let new = with_message_ids(NewRun { input: run.input, ..new }, run.client_message_ids);
        self.start(new, Uploads::default(), "regenerate").await
    }

    /// Answers what a run waits for. Without an answer, a run that was cut continues.
    async fn continue_message(self, last: &UiRequestMessage, new: NewRun) -> Result<ResolvedRun, Rejection> {
        let run = self.find_answered_run(last).await?.ok_or_else(|| unknown_message("messages"))?;
        self.request.check_new_messages(self.request.messages.len() - 1)?;
        let items = answers_of(last);
        if items.is_empty() {
            return match run.status.is_terminal() {
                true => self.start(new, Uploads::default(), "continue").await,
                false => {
                    let segment = current_segment(self.gateway, self.user, &run).await?;
                    Ok(ResolvedRun::existing(&run, segment))
                }
            };
        }
        self.answer(run, last, items, new).await
    }

    /// Adds a message, or replaces one.
    async fn submit(self, last: &UiRequestMessage, new: NewRun) -> Result<ResolvedRun, Rejection> {
        let Self { gateway, user, chat, request } = self;
        let is_user = |message: &&UiRequestMessage| message.role == Role::User;
        let user_count = request.messages.iter().rev().take_while(is_user).count();
        let (earlier, sent) = request.messages.split_at(request.messages.len() - user_count);
        if let Some(answered) = earlier.last()
            && let Some(run) = self.find_paused_run(answered).await?
        {
            request.check_new_messages(earlier.len() - 1)?;
            let mut items = answers_of(answered);
            items.extend(sent.iter().flat_map(|message| message.history.iter().cloned()));
            return self.answer(run, answered, items, new).await;
        }
        let edited = match &request.message_id {
            Some(id) => chat.find_run_of_message(gateway, user, id, EDITED_RUNS_MAX).await?,
            None => None,
        };
        if edited.is_none() && request.message_id.as_ref().is_some_and(|id| *id != last.id) {
            return Err(unknown_message("messageId"));
        }
        if request.message_id.is_none()
            && let Some(run) = chat.find_queued_run(&last.id)
            && let Some(row) = gateway.engine.run_of_task(user, run).await?
        {
            return Ok(ResolvedRun::existing(&row, 1));
        }
        let repeated = match edited {
            Some(run) => Some(run),
            None => chat.find_run_of_message(gateway, user, &last.id, REPEATED_RUNS_MAX).await?,
        };
        let (first, sent) = match &repeated {
            // The message alone: those before it have runs of their own, or belong to its run.
            Some(run) => messages_of_run(request, sent, run),
            None => self.unknown_messages(earlier.len(), sent).await?,
        };
        request.check_new_messages(first)?;
        let mut input: Vec<ContentPart> = sent.iter().flat_map(|message| message.content.iter().cloned()).collect();
        let uploads = Uploads::extract(&gateway.attachments, "messages", input.iter_mut()).await?;
        let ids = sent.iter().map(|message| message.id.clone()).collect();
        let new = match &repeated {
            // The SDK sends no key: the same message is the same request.
            Some(run) if run.input == input && chat.is_newest(&run.row.id) => {
                return Ok(ResolvedRun::existing(&run.row, 1));
            }
            Some(run) => self.replace_run(new, run, first),
            None => self.continue_chat(new, first).await?,
        };
        self.start(with_message_ids(NewRun { input, ..new }, ids), uploads, &last.id).await
    }

    /// The run whose message this is, if it belongs to the chat.
    async fn find_answered_run(self, message: &UiRequestMessage) -> Result<Option<RunRow>, Rejection> {
        let Some(run) = TaskId::parse(&message.id).ok().and_then(|id| id.run_id()) else { return Ok(None) };
        let row = self.gateway.engine.ports().directory.run(self.user, &run).await?;
        Ok(row.filter(|row| row.thread == self.chat.thread && row.id.as_str() == message.id))
    }

    /// The run that waits for answers of this message.
    async fn find_paused_run(self, message: &UiRequestMessage) -> Result<Option<RunRow>, Rejection> {
        if message.approvals.is_empty() && message.outputs.is_empty() {
            return Ok(None);
        }
        let run = self.find_answered_run(message).await?;
        let Some(run) = run.filter(|run| run.status == TaskStatus::Paused) else { return Ok(None) };
        let pending = self.gateway.engine.pending(self.user, &run).await?;
        let is_pending = |call: &UiAnsweredCall| pending.iter().any(|pending| pending.call_id.as_str() == call.call_id);
        let is_answered = answered_calls(message).any(is_pending);
        Ok(Some(run).filter(|_| is_answered))
    }

    async fn answer(
        self,
        run: RunRow,
        message: &UiRequestMessage,
        mut items: Vec<ClientInput>,
        new: NewRun,
    ) -> Result<ResolvedRun, Rejection> {
        self.check_calls(&run, message).await?;
        let parts = uploads::parts_of_client_input(&mut items);
        let uploads = Uploads::extract(&self.gateway.attachments, "messages", parts).await?;
        let new = NewRun { thread: None, create_if_missing: false, ..new };
        let conversation = ConversationRef::AfterRun(Box::new(run));
        Box::pin(resolve_run(self.gateway, self.user, RequestInput { items, uploads }, conversation, new)).await
    }

    /// A person decided about the call that the page showed: it must be the call that the run made.
    async fn check_calls(self, run: &RunRow, message: &UiRequestMessage) -> Result<(), Rejection> {
        let altered = for_each_record_of_run(self.gateway, self.user, run, |record| {
            let Event::ItemDone(done) = record.event() else { return ControlFlow::Continue(()) };
            let Item::ToolCall(call) = &done.item else { return ControlFlow::Continue(()) };
            let is_altered =
                |answered: &&UiAnsweredCall| answered.call_id == call.call_id.as_str() && !answered.is_same_call(call);
            match answered_calls(message).find(is_altered) {
                Some(answered) => ControlFlow::Break(answered.field.clone()),
                None => ControlFlow::Continue(()),
            }
        });
        match altered.await? {
            None => Ok(()),
            Some(field) => {
                let detail = format!("`{field}`: the run made another call than the one that is answered here");
                Err(Rejection::new(ErrorCode::AlteredHistory, detail).with_field(&field))
            }
        }
    }

    /// The last messages, without those that runs have read.
    async fn unknown_messages(
        self,
        first: usize,
        sent: &[UiRequestMessage],
    ) -> Result<(usize, &[UiRequestMessage]), Rejection> {
        let mut known = 0;
        for (index, message) in sent.iter().enumerate().rev() {
            let run = self.chat.find_run_of_message(self.gateway, self.user, &message.id, REPEATED_RUNS_MAX).await?;
            if run.is_some() || self.chat.find_queued_run(&message.id).is_some() {
                known = index + 1;
                break;
            }
        }
        Ok((first + known, sent.get(known..).unwrap_or_default()))
    }

    /// A run in the place of another, whose chat ends there.
    fn replace_run(self, new: NewRun, run: &UiChatRun, first_message: usize) -> NewRun {
        match self.chat.predecessor(&run.row.id) {
            Some(previous) => {
                NewRun { previous: RunPredecessor::After(previous.clone()), on_busy: OnBusy::Interrupt, ..new }
            }
            None => {
                let prior_history = self.history_before(first_message);
                NewRun { previous: RunPredecessor::None, on_busy: OnBusy::Interrupt, prior_history, ..new }
            }
        }
    }

    /// A run after the newest one. The first run of a chat reads the messages that the client has from elsewhere.
    async fn continue_chat(self, new: NewRun, first_message: usize) -> Result<NewRun, Rejection> {
        let Self { gateway, user, chat, request } = self;
        if chat.chain.is_empty() && chat.queued.is_empty() {
            let has_system = |message: &UiRequestMessage| message.role == Role::System;
            let field = request.messages.iter().any(has_system).then_some("system messages");
            check_client_instructions(gateway, user, &new, field).await?;
            return Ok(NewRun { prior_history: self.history_before(first_message), ..new });
        }
        let on_busy = match request.on_busy {
            Some(OnBusyParam::Enqueue) => OnBusy::Enqueue,
            Some(OnBusyParam::Reject) => OnBusy::Reject,
            Some(OnBusyParam::Interrupt) => OnBusy::Interrupt,
            Some(OnBusyParam::Steer) => OnBusy::Steer,
            // Continuing without answering cancels the pending calls.
            None if self.is_paused().await? => OnBusy::Interrupt,
            None => OnBusy::Enqueue,
        };
        Ok(NewRun { on_busy, ..new })
    }

    async fn is_paused(self) -> Result<bool, Rejection> {
        let Some(run) = self.gateway.engine.active_run(self.user, &self.chat.thread).await? else { return Ok(false) };
        let row = self.gateway.engine.run_of_task(self.user, &run).await?;
        Ok(row.is_some_and(|row| row.status == TaskStatus::Paused))
    }

    /// Messages that no run of this server has read.
    fn history_before(self, first_message: usize) -> Option<PriorHistory> {
        let earlier = self.request.messages.iter().take(first_message);
        let items: Vec<ClientInput> = earlier.flat_map(|message| message.history.iter().cloned()).collect();
        // Its last messages may be the user's; they are history all the same.
        let entries = history_entries(&items);
        (!entries.is_empty()).then_some(PriorHistory { entries, reference_count: 0 })
    }

    /// Starts a run. Requests that are sent at the same time, for the same reason, start one.
    async fn start(self, new: NewRun, uploads: Uploads, reason: &str) -> Result<ResolvedRun, Rejection> {
        let Self { gateway, user, chat, request } = self;
        let newest = chat.chain.last().map_or("", TaskId::as_str);
        let idempotency = new.idempotency.clone().or_else(|| {
            let request = serde_json::to_vec(&(&request.chat_id, newest, reason, &new.input)).unwrap_or_default();
            let request_digest = sha256_hex(&request);
            Some(IdempotencyKey { key: format!("{UI_STREAM_PROTOCOL} {request_digest}"), request_digest })
        });
        let is_steering = new.on_busy == OnBusy::Steer;
        let started = Box::pin(start_run(gateway, user, NewRun { idempotency, ..new }, uploads)).await?;
        let segment = match gateway.engine.run_of_task(user, &started.task).await? {
            Some(run) if is_steering => current_segment(gateway, user, &run).await?,
            _ => 1,
        };
        Ok(ResolvedRun { thread: started.thread, run: started.task, segment, is_new: true, after: started.after })
    }
}

fn with_message_ids(new: NewRun, message_ids: Vec<String>) -> NewRun {
    let client = new.client.map(|client| ClientIds { message_ids, ..client });
    NewRun { client, ..new }
}

fn position_of(messages: &[UiRequestMessage], message: &UiRequestMessage) -> usize {
    messages.iter().position(|other| other.id == message.id).unwrap_or_default()
}

/// The messages at the end of a request that are those of a run.
fn messages_of_run<'a>(
    request: &UiChatRequest,
    sent: &'a [UiRequestMessage],
    run: &UiChatRun,
) -> (usize, &'a [UiRequestMessage]) {
    let known = sent.iter().position(|message| run.has_message(&message.id)).unwrap_or(sent.len().saturating_sub(1));
    (request.messages.len() - sent.len() + known, sent.get(known..).unwrap_or_default())
}

fn answered_calls(message: &UiRequestMessage) -> impl Iterator<Item = &UiAnsweredCall> {
    let approvals = message.approvals.iter().map(|answer| &answer.call);
    approvals.chain(message.outputs.iter().map(|output| &output.call))
}

/// The answers of a message, as items. The outputs of earlier segments are among them.
fn answers_of(message: &UiRequestMessage) -> Vec<ClientInput> {
    let outputs = message.outputs.iter().map(|UiClientOutput { call, content, failed }| InputKind::ToolResult {
        call_id: call.call_id.clone(),
        content: content.clone(),
        failed: *failed,
        acknowledged_checks: Vec::new(),
    });
    let approvals = message
        .approvals
        .iter()
        .map(|answer| InputKind::ApprovalDecision { key: answer.approval_id.clone(), decision: decision_of(answer) });
    outputs.chain(approvals).map(|kind| ClientInput { id: None, kind }).collect()
}

fn decision_of(answer: &UiApprovalAnswer) -> ApprovalDecision {
    ApprovalDecision {
        kind: if answer.approved { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject },
        message: answer.reason.clone(),
        args: answer.arguments.clone().map(ExactValue::Object),
        always: false,
    }
}

fn unknown_message(field: &str) -> Rejection {
    Rejection::new(ErrorCode::NotFound, format!("`{field}`: the chat has no such message")).with_field(field)
}
