//! Which run answers a request, for protocols whose clients resend their history.
//!
//! The log is the source of truth. Items that a client resends are recognized by their ids and are never input; answers to
//! pending calls and approvals resume the run that waits for them; new input starts the next run. A request that refers
//! to no run of this server starts a new thread.

use crate::approvals::check_decision;
use crate::attachments::uploads::{self, Uploads};
use crate::compaction_item::open_summaries;
use crate::context::Gateway;
pub use crate::known_items::{ConversationRef, find_known_prefix};
use crate::rejection::Rejection;
use crate::resent_runs::split_altered_history;
use crate::run_lookup::for_each_record_of_run;
use crate::start_run::{
    check_agent, check_callable, check_client_instructions, check_json_size, check_request_size, check_tool_names,
    check_web_file_count, start_run,
};
use engine::{AnsweringRequest, NewRun, OnBusy, REQUEST_BYTES_MAX, RunPredecessor, StartedRun};
use model::command::{AnswerBody, ClientToolResult, RequestUpdate};
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecision, ApprovalDecisionKind, Event, Initiator, PendingKind, PendingRequest};
use model::item::Item;
use model::json::{ExactValue, parse_exact_object};
use model::ports::{ApprovalRow, IdempotencyKey, RunRow, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind, NewInput};
use std::ops::ControlFlow;

/// Results of client tools are logged one by one, so together they may exceed a request; but they pass the inbox as one row.
const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

/// The run that answers a request, and which of its segments does.
pub struct ResolvedRun {
    pub thread: ThreadId,
    pub run: TaskId,
    /// Counted from 1; each pause starts another.
    pub segment: u32,
    /// Whether this request started the run.
    pub is_new: bool,
}

impl ResolvedRun {
    pub(crate) fn existing(run: &RunRow, segment: u32) -> Self {
        Self { thread: run.thread.clone(), run: run.id.clone(), segment, is_new: false }
    }
}

/// The items of a request. Their files have been extracted, so that they compare equal to the log's items.
pub struct RequestInput {
    pub items: Vec<ClientInput>,
    pub uploads: Uploads,
}

/// Answers a run's pending requests, or starts a run from `new`, to which `input` adds the input and the history.
pub async fn resolve_run(
    gateway: &Gateway,
    user: &UserId,
    mut input: RequestInput,
    conversation: ConversationRef,
    new: NewRun,
) -> Result<ResolvedRun, Rejection> {
    open_summaries(gateway, user, &mut input.items)?;
    check_callable(gateway, user, &new).await?;
    let is_instruction = |item: &ClientInput| matches!(item.kind, InputKind::System(_));
    let system_message = input.items.iter().any(is_instruction).then_some("system and developer messages");
    check_client_instructions(gateway, user, &new, system_message).await?;
    let repeated = gateway.engine.find_submission(user, new.idempotency.as_ref()).await?;
    let is_named = !matches!(conversation, ConversationRef::Unspecified);
    let (known, conversation) = find_known_prefix(gateway, user, &input.items, conversation).await?;
    // A request that was interrupted has used up its key: the rest of it is processed without one.
    let key = new.idempotency.clone().filter(|_| repeated.is_none());
    if let Some(resolved) = answer_pending(gateway, user, &input, &conversation, (&new, key)).await? {
        return Ok(resolved);
    }
    if let Some(started) = repeated {
        return resolve_repeated_request(gateway, user, &input, started, &new).await;
    }
    let RequestInput { mut items, uploads } = input;
    let (items, conversation) = match conversation {
        ConversationRef::AfterRun(run) if !is_named => {
            let rest = items.split_off(known);
            let (rest, run) = split_altered_history(gateway, user, *run, rest).await?;
            (rest, ConversationRef::AfterRun(Box::new(run)))
        }
        named => (items.split_off(known), named),
    };
    let is_input =
        |item: &ClientInput| !matches!(item.kind, InputKind::ApprovalDecision { .. } | InputKind::ItemReference);
    let items = drop_unmatched_outputs(items.into_iter().filter(is_input).collect(), &conversation)?;
    let new_input = NewInput::from_client_input(&items);
    let new = NewRun { prior_history: new_input.prior_history(), input: new_input.input, ..new };
    let new = choose_thread(gateway, user, conversation, new).await?;
    let started = start_run(gateway, user, new, uploads).await?;
    Ok(ResolvedRun { thread: started.thread, run: started.task, segment: 1, is_new: true })
}

/// Removes tool outputs without a call before them: after a run of this server they are history, elsewhere an error.
fn drop_unmatched_outputs(
    items: Vec<ClientInput>,
    conversation: &ConversationRef,
) -> Result<Vec<ClientInput>, Rejection> {
    let unmatched = |(index, item): (usize, &ClientInput)| unmatched_call_id(&items, index, item).map(str::to_owned);
    let unmatched: Vec<Option<String>> = items.iter().enumerate().map(unmatched).collect();
    if let Some(call_id) = unmatched.iter().flatten().next()
        && !matches!(conversation, ConversationRef::AfterRun(_))
    {
        return Err(call_not_found(call_id));
    }
    let matched = items.into_iter().zip(unmatched).filter(|(_, unmatched)| unmatched.is_none());
    Ok(matched.map(|(item, _)| item).collect())
}

/// The call id of an output without a call before it.
fn unmatched_call_id<'a>(items: &[ClientInput], index: usize, item: &'a ClientInput) -> Option<&'a str> {
    let InputKind::ToolResult { call_id, .. } = &item.kind else { return None };
    let is_call = |item: &ClientInput| matches!(&item.kind, InputKind::ToolCall { call_id: id, .. } if id == call_id);
    (!items.iter().take(index).any(is_call)).then_some(call_id)
}

/// Answers the run's pending requests. Returns `None` if the request has no answers or only repeats earlier ones.
async fn answer_pending(
    gateway: &Gateway,
    user: &UserId,
    input: &RequestInput,
    conversation: &ConversationRef,
    (new, key): (&NewRun, Option<IdempotencyKey>),
) -> Result<Option<ResolvedRun>, Rejection> {
    let RequestInput { items, uploads } = input;
    let run = match conversation {
        ConversationRef::Unspecified => None,
        ConversationRef::AfterRun(row) => Some(RunRow::clone(row)),
        ConversationRef::InThread(thread) => match gateway.engine.active_run(user, thread).await? {
            Some(run) => gateway.engine.run_of_task(user, &run).await?,
            None => None,
        },
    };
    let pending = match &run {
        Some(run) => gateway.engine.pending(user, run).await?,
        None => Vec::new(),
    };
    let mut answers = match_answers(items, &pending)?;
    let Some(run) = run.filter(|_| !answers.is_empty()) else {
        return resolve_earlier_answer(gateway, user, items, conversation).await;
    };
    let resolved = ResolvedRun::existing(&run, count_pauses(gateway, user, &run).await? + 1);
    check_json_size(&answers, ANSWERS_BYTES_MAX)?;
    check_answers(gateway, user, &answers).await?;
    let extra_input = input_after_answers(gateway, items)?;
    check_agent(gateway, user, &new.agent)?;
    check_tool_names(gateway, user, new).await?;
    // Responses repeats to the client what the request declared, so no tools are none. In the other protocols a loop over
    // tools may declare them in its first request alone: the runner of Anthropic's SDK does.
    let has_tools = !new.tools.is_empty() || new.request_echo.is_some();
    let update = RequestUpdate {
        agent: new.agent.clone(),
        tools: has_tools.then(|| new.tools.clone()),
        model_settings: new.model_settings.clone(),
        state: new.state.clone(),
        context: new.context.clone(),
    };
    check_request_size(&(&update, &new.request_echo))?;
    let parts = uploads::parts_of_answers(&mut answers);
    uploads.store_in_thread(&gateway.attachments, user, &run.thread, parts).await?;
    let (request_echo, client) = (new.request_echo.clone(), new.client.clone());
    let request = AnsweringRequest { request_echo, update: Some(Box::new(update)), client };
    gateway.engine.keep_credentials(&run.id, new.mcp_credentials.clone());
    gateway.engine.submit_answers(user, &run, answers, request, key).await?;
    steer_extra_input(gateway, user, (extra_input, uploads), &run, new).await?;
    Ok(Some(resolved))
}

/// The user's input after the last answer.
fn input_after_answers(gateway: &Gateway, items: &[ClientInput]) -> Result<Vec<ContentPart>, Rejection> {
    let input = if has_input_after_answers(items) { NewInput::from_client_input(items).input } else { Vec::new() };
    check_web_file_count(gateway, &input)?;
    check_request_size(&input)?;
    Ok(input)
}

/// Sends the input after the answers to the run that they resume.
async fn steer_extra_input(
    gateway: &Gateway,
    user: &UserId,
    (mut input, uploads): (Vec<ContentPart>, &Uploads),
    run: &RunRow,
    new: &NewRun,
) -> Result<(), Rejection> {
    if !input.is_empty() {
        let extra_key = |key: &IdempotencyKey| IdempotencyKey { key: format!("{} beside", key.key), ..key.clone() };
        let key = new.idempotency.as_ref().map(extra_key);
        uploads.store_in_thread(&gateway.attachments, user, &run.thread, input.iter_mut()).await?;
        gateway.engine.steer(user, &run.thread, run.id.clone(), input, key).await?;
    }
    Ok(())
}

/// Resolves a request whose key was used before. Its answers determine which segment it opened.
async fn resolve_repeated_request(
    gateway: &Gateway,
    user: &UserId,
    RequestInput { items, uploads }: &RequestInput,
    started: StartedRun,
    new: &NewRun,
) -> Result<ResolvedRun, Rejection> {
    let run = gateway.engine.run_of_task(user, &started.task).await?.ok_or_else(Rejection::not_found)?;
    let answer = items.iter().rev().find(|item| is_answer(item) && item.run_id().as_ref() == Some(&run.id));
    let Some(answer) = answer else { return Ok(ResolvedRun::existing(&run, 1)) };
    steer_extra_input(gateway, user, (input_after_answers(gateway, items)?, uploads), &run, new).await?;
    let segment = segment_opened_by(gateway, user, &run, answer).await?;
    Ok(ResolvedRun::existing(&run, segment.unwrap_or(1)))
}

fn is_answer(item: &ClientInput) -> bool {
    matches!(item.kind, InputKind::ToolResult { .. } | InputKind::ApprovalDecision { .. })
}

/// Whether a user message follows the last answer: such a message is new.
fn has_input_after_answers(items: &[ClientInput]) -> bool {
    let answer = items.iter().rposition(is_answer);
    let message = items.iter().rposition(|item| matches!(item.kind, InputKind::User(_)));
    message > answer
}

/// The answers to pending requests. Equal duplicates count once; conflicting ones are rejected before any is submitted.
fn match_answers(items: &[ClientInput], pending: &[PendingRequest]) -> Result<Vec<AnswerBody>, Rejection> {
    let (mut answers, mut results): (Vec<AnswerBody>, Vec<ClientToolResult>) = (Vec::new(), Vec::new());
    for item in items {
        match &item.kind {
            InputKind::ApprovalDecision { key, decision } => {
                let is_key = |pending: &&PendingRequest| pending.key.as_ref().is_some_and(|id| id.as_str() == key);
                if let Some(pending) = pending.iter().find(is_key) {
                    let decision = complete_decision(decision, pending.kind);
                    let (key, by) = (ApprovalKey::from(key.as_str()), Initiator::User);
                    push_unique_answer(&mut answers, AnswerBody::Approval { key, decision, by }, is_same_approval)?;
                }
            }
            InputKind::ToolResult { call_id, content, failed, acknowledged_checks } => {
                let is_call = |pending: &PendingRequest| {
                    pending.kind == PendingKind::ClientTool && pending.call_id.as_str() == call_id
                };
                if pending.iter().any(is_call) {
                    let error = failed.then(|| ErrorInfo::new(ErrorCode::ToolFailed, "the client's tool failed"));
                    let call_id = CallId::from(call_id.as_str());
                    let (content, acknowledged_checks) = (content.clone(), acknowledged_checks.clone());
                    let result = ClientToolResult { call_id, content, error, acknowledged_checks };
                    push_unique_answer(&mut results, result, |one, other| one.call_id == other.call_id)?;
                }
            }
            InputKind::System(_)
            | InputKind::User(_)
            | InputKind::Assistant(_)
            | InputKind::GeneratedImages(_)
            | InputKind::ToolCall { .. }
            | InputKind::SealedSummary { .. }
            | InputKind::Summary { .. }
            | InputKind::ItemReference => {}
        }
    }
    if !results.is_empty() {
        answers.push(AnswerBody::ClientTools { results });
    }
    Ok(answers)
}

/// A decision about what was asked. The answer to a question is in its arguments; clients whose types have no such field
/// write it as JSON into the reason. An approval has none: those beside it are the call's own.
fn complete_decision(decision: &ApprovalDecision, asked: PendingKind) -> ApprovalDecision {
    let decision = decision.clone();
    match (decision.kind, asked) {
        (ApprovalDecisionKind::Edit, _) => decision,
        (ApprovalDecisionKind::Approve, PendingKind::Question) if decision.args.is_none() => {
            let answer = decision.message.as_deref().and_then(|reason| parse_exact_object(reason).ok());
            // A reason that is the answer is not repeated beside it.
            let message = decision.message.filter(|_| answer.is_none());
            ApprovalDecision { message, args: answer.map(ExactValue::Object), ..decision }
        }
        (ApprovalDecisionKind::Approve, PendingKind::Question) => decision,
        (ApprovalDecisionKind::Approve | ApprovalDecisionKind::Reject, _) => {
            ApprovalDecision { args: None, ..decision }
        }
    }
}

/// Checks answers to questions before any answer is submitted.
async fn check_answers(gateway: &Gateway, user: &UserId, answers: &[AnswerBody]) -> Result<(), Rejection> {
    for answer in answers {
        let AnswerBody::Approval { key, decision, .. } = answer else { continue };
        if let Some(row) = gateway.engine.ports().directory.approval(user, key).await? {
            check_decision(gateway, user, &row, decision, "arguments").await?;
        }
    }
    Ok(())
}

fn push_unique_answer<T: PartialEq>(
    all: &mut Vec<T>,
    one: T,
    is_same: impl Fn(&T, &T) -> bool,
) -> Result<(), Rejection> {
    match all.iter().find(|other| is_same(&one, other)) {
        None => all.push(one),
        Some(other) if *other == one => {}
        Some(_) => return Err(Rejection::invalid_body("one thing is answered twice, and not in the same way")),
    }
    Ok(())
}

fn is_same_approval(one: &AnswerBody, other: &AnswerBody) -> bool {
    matches!((one, other), (AnswerBody::Approval { key: one, .. }, AnswerBody::Approval { key: other, .. }) if one == other)
}

/// Resolves a request whose last item repeats an earlier answer: it is that request again, and gets the same segment. A
/// different answer comes too late and is rejected; before other items it is only history.
async fn resolve_earlier_answer(
    gateway: &Gateway,
    user: &UserId,
    items: &[ClientInput],
    conversation: &ConversationRef,
) -> Result<Option<ResolvedRun>, Rejection> {
    let Some(last) = items.last().filter(|item| is_answer(item)) else { return Ok(None) };
    let run = match (run_of_answer(gateway, user, last, conversation).await?, conversation, &last.kind) {
        (Some(run), _, _) => run,
        (
            None,
            ConversationRef::AfterRun(_) | ConversationRef::InThread(_),
            InputKind::ApprovalDecision { key, .. },
        ) => return Err(approval_not_found(key)),
        (None, ConversationRef::AfterRun(_), InputKind::ToolResult { call_id, .. }) => {
            return Err(call_not_found(call_id));
        }
        // The request may contain its call.
        (None, _, _) => return Ok(None),
    };
    if let InputKind::ApprovalDecision { key, decision } = &last.kind {
        let row = gateway.engine.ports().directory.approval(user, &ApprovalKey::from(key.as_str())).await?;
        let Some(row) = row else { return Err(approval_not_found(key)) };
        if !is_recorded_decision(&row, decision) {
            return Err(SubmitError::AlreadyDecided(Box::new(row)).into());
        }
    }
    match (segment_opened_by(gateway, user, &run, last).await?, &last.kind) {
        (Some(segment), _) => Ok(Some(ResolvedRun::existing(&run, segment))),
        (None, InputKind::ToolResult { call_id, .. }) => Err(call_not_found(call_id)),
        (None, _) => Ok(None),
    }
}

/// Whether a request was decided as this decision says. The arguments of an approval may be left out.
fn is_recorded_decision(row: &ApprovalRow, decision: &ApprovalDecision) -> bool {
    let asked = if row.question.is_some() { PendingKind::Question } else { PendingKind::Approval };
    let decision = complete_decision(decision, asked);
    let Some(recorded) = row.answer.as_ref().map(|answer| &answer.decision) else { return false };
    let is_rejected = |decision: &ApprovalDecision| decision.kind == ApprovalDecisionKind::Reject;
    let is_same_args = decision.args.is_none() || recorded.args == decision.args;
    is_rejected(recorded) == is_rejected(&decision) && is_same_args
}

/// The run that this answers, if it belongs to the request's conversation.
async fn run_of_answer(
    gateway: &Gateway,
    user: &UserId,
    answer: &ClientInput,
    conversation: &ConversationRef,
) -> Result<Option<RunRow>, Rejection> {
    let Some(run) = answer.run_id() else { return Ok(None) };
    let row = gateway.engine.run_of_task(user, &run).await?;
    Ok(row.filter(|row| match conversation {
        ConversationRef::Unspecified => false,
        ConversationRef::AfterRun(run) => run.id == row.id,
        ConversationRef::InThread(thread) => row.thread == *thread,
    }))
}

fn approval_not_found(key: &str) -> Rejection {
    let detail = format!("No approval request found with id {key}.");
    Rejection::new(ErrorCode::UnmatchedApproval, detail)
}

fn call_not_found(call_id: &str) -> Rejection {
    let detail = format!("No tool call found for function call output with call_id {call_id}.");
    Rejection::new(ErrorCode::CallNotFound, detail)
}

/// The number of a run's pauses.
async fn count_pauses(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<u32, Rejection> {
    let mut pauses = 0;
    for_each_record_of_run(gateway, user, run, |record| {
        pauses += u32::from(matches!(record.event(), Event::Paused(_)));
        ControlFlow::<()>::Continue(())
    })
    .await?;
    Ok(pauses)
}

async fn segment_opened_by(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    answer: &ClientInput,
) -> Result<Option<u32>, Rejection> {
    let mut segment = 1;
    let found = for_each_record_of_run(gateway, user, run, |record| {
        let event = record.event();
        segment += u32::from(matches!(event, Event::Resumed(_)));
        let is_answer = match (event, &answer.kind) {
            (Event::ApprovalResolved(resolved), InputKind::ApprovalDecision { key, .. }) => {
                resolved.key.as_str() == key
            }
            (Event::ItemAdded(added), InputKind::ToolResult { call_id, .. }) => {
                matches!(&added.item, Item::ToolResult(result) if result.call_id.as_str() == call_id)
            }
            _ => false,
        };
        if is_answer { ControlFlow::Break(segment) } else { ControlFlow::Continue(()) }
    });
    Ok(found.await?)
}

/// Sets the thread of a new run, its predecessor, and what happens if the thread is busy.
async fn choose_thread(
    gateway: &Gateway,
    user: &UserId,
    conversation: ConversationRef,
    new: NewRun,
) -> Result<NewRun, Rejection> {
    let (thread, previous) = match conversation {
        ConversationRef::Unspecified => return Ok(new),
        ConversationRef::InThread(thread) => (thread, None),
        ConversationRef::AfterRun(run) => (run.thread.clone(), Some(*run)),
    };
    let busy = match gateway.engine.active_run(user, &thread).await? {
        Some(busy) => gateway.engine.run_of_task(user, &busy).await?,
        None => None,
    };
    let new = NewRun { create_if_missing: previous.is_none(), thread: Some(thread), ..new };
    let new = match (&busy, previous) {
        // A predecessor that has not ended yet gets its turn, and this run after it.
        (Some(busy), Some(run)) if busy.id != run.id && run.status.is_terminal() => {
            fork_from_run(gateway, user, &run, new).await?
        }
        (_, run) => NewRun { previous: run.map(|run| run.id).into(), ..new },
    };
    // Continuing without answering cancels the pending calls.
    let interrupts = busy.is_some_and(|busy| busy.status == TaskStatus::Paused) && new.thread.is_some();
    Ok(NewRun { on_busy: if interrupts { OnBusy::Interrupt } else { OnBusy::Enqueue }, ..new })
}

/// The thread is busy with another run: the new run gets a thread of its own and a copy of the history. A history that does
/// not fit a record leaves the run in the queue instead.
async fn fork_from_run(gateway: &Gateway, user: &UserId, run: &RunRow, new: NewRun) -> Result<NewRun, Rejection> {
    let mut history = gateway.engine.history_until(user, run).await?;
    history.entries.extend(new.prior_history.iter().flat_map(|prior| prior.entries.clone()));
    let size = serde_json::to_vec(&history).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX / 2 {
        return Ok(NewRun { previous: RunPredecessor::After(run.id.clone()), ..new });
    }
    Ok(NewRun { thread: None, create_if_missing: false, prior_history: Some(history), ..new })
}
