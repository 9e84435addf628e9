//! Which run a request of AG-UI means, and which run a stop does.
//!
//! Clients choose the ids of threads, runs and messages, and resend their history. Answers count first: a client may answer
//! an interrupt under the id of the run that it interrupted. Then the same run id means the same request again, and new
//! messages start a run.

use crate::agui_history::{find_run_by_agui_id, has_agui_run_id, known_message_count};
use crate::answers::{ResolvedRun, approval_not_found, count_pauses, is_recorded_decision};
use crate::attachments::uploads::{self, Uploads};
use crate::client_tools::check_client_tools;
use crate::context::Gateway;
use crate::known_items::ConversationRef;
use crate::rejection::{Rejection, unknown_agent_detail};
use crate::resolve_run::{RequestInput, answer_pending, drop_unmatched_outputs};
use crate::run_lookup::queued_runs;
use crate::start_run::{check_callable, check_client_instructions, start_run};
use crate::task_commands::submit_cancel;
use crate::thread_names::{find_named_thread, reserve_named_thread};
use engine::{NewRun, OnBusy, RunPredecessor, StartError};
use model::command::{CancelCause, CancelCommand};
use model::error::ErrorCode;
use model::event::{CancelMode, ClientIds, PendingKind, PendingRequest};
use model::id::is_valid_id;
use model::json::{ExactObject, ExactValue};
use model::ports::{AliasData, AliasKind, ApprovalRow, IdempotencyKey, RunRow, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use protocol::agui::{AG_UI_PROTOCOL, AgUiRequest, AgUiResume, AgUiVersion, parse_tool_message_decision};
use protocol::client_input::{ClientInput, InputKind, NewInput};
use protocol::task::OnBusyParam;
use sha2::{Digest as _, Sha256};

/// The member of a run's metadata that has what the application passes to its agent.
const FORWARDED_PROPS: &str = "forwardedProps";

const NO_INTERRUPT: &str = "no interrupt of the thread waits for an answer: it was answered, or has expired";

/// The run that answers a request.
pub struct ResolvedAgUiRun {
    pub resolved: ResolvedRun,
    pub version: AgUiVersion,
    /// The client's name of the thread.
    pub thread_name: String,
    /// The client's name of the run.
    pub run_id: String,
    /// Whether the client has messages for answered calls that are not the log's, and needs those of the log.
    pub needs_messages: bool,
}

/// Answers the interrupts of a run, attaches to the run of the same request, or starts a run. `base` has the credentials.
pub async fn resolve_agui_run(
    gateway: &Gateway,
    user: &UserId,
    agent: &str,
    mut request: AgUiRequest,
    base: NewRun,
) -> Result<ResolvedAgUiRun, Rejection> {
    check_agui_agent(gateway, user, agent)?;
    let new = new_run(gateway, user, agent, &mut request, base).await?;
    check_callable(gateway, user, &new).await?;
    let thread = find_agui_thread(gateway, user, &request.thread_id).await?;
    let known = match &thread {
        Some(thread) => known_message_count(gateway, user, thread, &request.messages).await?,
        None => 0,
    };
    request.check_new_messages(known)?;
    let digest = input_digest(&request.messages);
    let mut items = std::mem::take(&mut request.messages);
    let new_items = items.split_off(known);
    let decisions = read_decisions(gateway, user, &request, thread.as_ref(), (&items, &new_items)).await?;
    let first_new = items.len() + decisions.len();
    items.extend(decisions);
    items.extend(new_items);
    let parts = uploads::parts_of_client_input(&mut items);
    let uploads = Uploads::extract(&gateway.attachments, "messages", parts).await?;
    let mut input = RequestInput { items, uploads };
    let run_names = (request.version, request.thread_id.clone(), request.run_id.clone());
    let resolve = |resolved: ResolvedRun, needs_messages: bool| {
        let (version, thread_name, run_id) = run_names;
        ResolvedAgUiRun { resolved, version, thread_name, run_id, needs_messages }
    };
    if let Some(thread) = thread {
        let conversation = ConversationRef::InThread(thread);
        if let Some(resolved) = Box::pin(answer_pending(gateway, user, &input, &conversation, (&new, None))).await? {
            let needs_messages = has_own_tool_messages(&input.items, &resolved.run);
            return Ok(resolve(resolved, needs_messages));
        }
    }
    input.items.drain(..first_new);
    let started = Box::pin(start_agui_run(gateway, user, request, input, (new, digest))).await?;
    Ok(resolve(started, false))
}

/// Rejects an agent or model that does not exist: it is a part of the path.
pub fn check_agui_agent(gateway: &Gateway, user: &UserId, agent: &str) -> Result<(), Rejection> {
    let definitions = gateway.engine.ports().definitions.get();
    if definitions.resolve_agent(agent).is_some() {
        return Ok(());
    }
    let rejection = Rejection::new(ErrorCode::ModelNotFound, unknown_agent_detail(agent));
    Err(rejection.with_extension("agents", definitions.callable_agents(user).collect::<Vec<&str>>()))
}

/// The thread that a client calls by this name; `None` if it does not exist yet.
pub async fn find_agui_thread(gateway: &Gateway, user: &UserId, name: &str) -> Result<Option<ThreadId>, Rejection> {
    match find_named_thread(gateway, user, AliasKind::AgUiThread, name).await {
        Ok(thread) => Ok(Some(thread)),
        Err(rejection) if rejection.is_missing() => Ok(None),
        Err(rejection) => Err(rejection),
    }
}

/// The run that the request starts, without its input; takes the parts of the request that it keeps.
async fn new_run(
    gateway: &Gateway,
    user: &UserId,
    agent: &str,
    request: &mut AgUiRequest,
    base: NewRun,
) -> Result<NewRun, Rejection> {
    let tools = check_client_tools(gateway, user, std::mem::take(&mut request.tools)).await?;
    let mut metadata = ExactObject::new();
    if let Some(props) = request.forwarded_props.take() {
        metadata.insert(FORWARDED_PROPS.to_owned(), props);
    }
    let client = ClientIds {
        protocol: AG_UI_PROTOCOL.to_owned(),
        thread_id: Some(request.thread_id.clone()).filter(|name| ThreadId::parse(name).is_err()),
        run_id: Some(request.run_id.clone()),
        message_ids: Vec::new(),
    };
    Ok(NewRun {
        agent: agent.to_owned(),
        tools,
        metadata,
        client: Some(client),
        state: request.state.take(),
        context: Some(std::mem::take(&mut request.context)),
        ..base
    })
}

/// The decisions in a request: entries of `resume`, and tool messages for calls that wait for an approval.
async fn read_decisions(
    gateway: &Gateway,
    user: &UserId,
    request: &AgUiRequest,
    thread: Option<&ThreadId>,
    (known_items, new_items): (&[ClientInput], &[ClientInput]),
) -> Result<Vec<ClientInput>, Rejection> {
    let active = match thread {
        Some(thread) => active_run_row(gateway, user, thread).await?,
        None => None,
    };
    let pending = match &active {
        Some(run) => gateway.engine.pending(user, run).await?,
        None => Vec::new(),
    };
    let open: Vec<&str> = pending.iter().filter_map(|pending| Some(pending.key.as_ref()?.as_str())).collect();
    // Beside new messages, and beside answers that count, a late answer is history.
    let has_input = new_items.iter().any(|item| matches!(item.kind, InputKind::User(_)));
    let entries = match &request.legacy_answer {
        Some(answer) if request.answers.is_empty() => {
            let is_late = open.is_empty() && answer.is_for_open_interrupt();
            match (is_late, has_input) {
                (false, _) => answer.entries(&open)?,
                (true, true) => Vec::new(),
                (true, false) => return Err(Rejection::new(ErrorCode::NothingPending, NO_INTERRUPT)),
            }
        }
        _ => request.answers.clone(),
    };
    let mut decisions = Vec::new();
    let (current, late): (Vec<_>, Vec<_>) =
        entries.iter().partition(|entry| open.contains(&entry.interrupt_id.as_str()));
    for entry in current {
        let row = find_interrupt(gateway, user, thread, entry).await?;
        check_unaltered(&row, known_items.iter().chain(new_items))?;
        decisions.push(decision_item(entry, &row)?);
    }
    let is_pending_answer = !decisions.is_empty();
    decisions.extend(tool_message_decisions(known_items, &pending, &entries));
    for entry in late {
        let row = find_interrupt(gateway, user, thread, entry).await?;
        let item = decision_item(entry, &row)?;
        if is_pending_answer || has_input {
            continue;
        }
        if !matches!(&item.kind, InputKind::ApprovalDecision { decision, .. } if is_recorded_decision(&row, decision)) {
            return Err(SubmitError::AlreadyDecided(Box::new(row)).into());
        }
        decisions.push(item);
    }
    Ok(decisions)
}

fn decision_item(entry: &AgUiResume, row: &ApprovalRow) -> Result<ClientInput, Rejection> {
    let asked = if row.question.is_some() { PendingKind::Question } else { PendingKind::Approval };
    let (key, decision) = (entry.interrupt_id.clone(), entry.decision(asked)?);
    Ok(ClientInput { id: None, kind: InputKind::ApprovalDecision { key, decision } })
}

async fn find_interrupt(
    gateway: &Gateway,
    user: &UserId,
    thread: Option<&ThreadId>,
    entry: &AgUiResume,
) -> Result<ApprovalRow, Rejection> {
    let id = entry.interrupt_id.as_str();
    let row = match is_valid_id(id) {
        true => gateway.engine.ports().directory.approval(user, &ApprovalKey::from(id)).await?,
        false => None,
    };
    row.filter(|row| Some(&row.thread_id) == thread).ok_or_else(|| approval_not_found(id))
}

/// Some front ends answer an approval with a tool message in place of the result.
fn tool_message_decisions(
    items: &[ClientInput],
    pending: &[PendingRequest],
    entries: &[AgUiResume],
) -> Vec<ClientInput> {
    let open = pending.iter().filter(|pending| pending.kind == PendingKind::Approval);
    let open = open.filter_map(|pending| Some((pending.key.as_ref()?.as_str(), pending.call_id.as_str())));
    let unanswered = open.filter(|(key, _)| !entries.iter().any(|entry| entry.interrupt_id == *key));
    let decided = unanswered.filter_map(|(key, call)| {
        let decision = items.iter().rev().find_map(|item| match &item.kind {
            InputKind::ToolResult { call_id, content, .. } if call_id == call => parse_tool_message_decision(content),
            _ => None,
        })?;
        Some(ClientInput { id: None, kind: InputKind::ApprovalDecision { key: key.to_owned(), decision } })
    });
    decided.collect()
}

/// A person decides about the call that the client shows: it has to be the one that the run asked about.
fn check_unaltered<'a>(row: &ApprovalRow, mut items: impl Iterator<Item = &'a ClientInput>) -> Result<(), Rejection> {
    let is_altered = |item: &ClientInput| match &item.kind {
        InputKind::ToolCall { call_id, name, arguments } if call_id == row.call_id.as_str() => {
            let shown = ExactValue::parse(arguments).map(|arguments| arguments.to_value());
            *name != row.action.name || shown.ok() != Some(row.action.args.to_value())
        }
        _ => false,
    };
    if items.any(is_altered) {
        let detail = format!("the call {} is not in the form in which it waits for a decision", row.call_id);
        return Err(Rejection::new(ErrorCode::AlteredHistory, detail));
    }
    Ok(())
}

/// Whether a tool message for a call of the run has an id of the client's: the log's result has another id, and the client
/// would show both.
fn has_own_tool_messages(items: &[ClientInput], run: &TaskId) -> bool {
    items.iter().any(|item| match &item.kind {
        InputKind::ToolResult { call_id, .. } if TaskId::from(call_id.as_str()).run_id().as_ref() == Some(run) => {
            let number = call_id.strip_prefix("call_").unwrap_or_default();
            item.id.as_deref().and_then(|id| id.strip_prefix("fco_")) != Some(number)
        }
        _ => false,
    })
}

/// Starts a run with the new messages, or finds the run of the same request.
async fn start_agui_run(
    gateway: &Gateway,
    user: &UserId,
    request: AgUiRequest,
    RequestInput { items, uploads }: RequestInput,
    (new, digest): (NewRun, String),
) -> Result<ResolvedRun, Rejection> {
    let name = request.thread_id.as_str();
    let (thread, create_if_missing) = match ThreadId::parse(name) {
        Ok(thread) => (thread, false),
        Err(_) => (reserve_named_thread(gateway, user, AliasData::AgUiThread, name, "threadId").await?, true),
    };
    let key = format!("{AG_UI_PROTOCOL} {thread} {}", request.run_id);
    let idempotency = Some(IdempotencyKey { key, request_digest: digest });
    if let Some(started) = gateway.engine.find_submission(user, idempotency.as_ref()).await? {
        let run = gateway.engine.run_of_task(user, &started.task).await?.ok_or_else(Rejection::not_found)?;
        return Ok(ResolvedRun::existing(&run, 1));
    }
    let is_input =
        |item: &ClientInput| !matches!(item.kind, InputKind::ApprovalDecision { .. } | InputKind::ItemReference);
    let conversation = ConversationRef::InThread(thread.clone());
    let items = drop_unmatched_outputs(items.into_iter().filter(is_input).collect(), &conversation)?;
    check_part_counts(gateway, &items)?;
    let system_message = items.iter().any(|item| matches!(item.kind, InputKind::System(_)));
    check_client_instructions(gateway, user, &new, system_message.then_some("system and developer messages")).await?;
    let busy = active_run_row(gateway, user, &thread).await?;
    let input = NewInput::from_client_input(&items);
    if input.input.is_empty() && busy.is_some() {
        return Err(StartError::NoInput.into());
    }
    let client = new.client.map(|client| ClientIds { message_ids: input_ids(&items), ..client });
    let new = NewRun {
        prior_history: input.prior_history(),
        input: input.input,
        previous: predecessor(gateway, user, &thread, &request).await?,
        on_busy: on_busy(request.on_busy, busy.as_ref()),
        thread: Some(thread),
        create_if_missing,
        idempotency,
        client,
        ..new
    };
    let started = start_run(gateway, user, new, uploads).await?;
    match busy.filter(|busy| busy.id == started.task) {
        // The input went to the active run.
        Some(busy) => Ok(ResolvedRun::existing(&busy, count_pauses(gateway, user, &busy).await? + 1)),
        None => Ok(ResolvedRun {
            thread: started.thread,
            run: started.task,
            segment: 1,
            is_new: true,
            after: started.after,
        }),
    }
}

pub(crate) async fn active_run_row(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
) -> Result<Option<RunRow>, Rejection> {
    Ok(match gateway.engine.active_run(user, thread).await? {
        Some(run) => gateway.engine.run_of_task(user, &run).await?,
        None => None,
    })
}

/// Continuing without answering cancels the pending calls.
fn on_busy(asked: Option<OnBusyParam>, busy: Option<&RunRow>) -> OnBusy {
    match asked {
        Some(OnBusyParam::Enqueue) => OnBusy::Enqueue,
        Some(OnBusyParam::Reject) => OnBusy::Reject,
        Some(OnBusyParam::Interrupt) => OnBusy::Interrupt,
        Some(OnBusyParam::Steer) => OnBusy::Steer,
        None if busy.is_some_and(|busy| busy.status == TaskStatus::Paused) => OnBusy::Interrupt,
        None => OnBusy::Enqueue,
    }
}

fn check_part_counts(gateway: &Gateway, items: &[ClientInput]) -> Result<(), Rejection> {
    let parts_max = gateway.limits.parts_max;
    let has_too_many = |item: &ClientInput| matches!(&item.kind, InputKind::User(parts) if parts.len() > parts_max);
    match items.iter().any(has_too_many) {
        true => Err(Rejection::invalid_field("messages", format!("a message can have {parts_max} parts at most"))),
        false => Ok(()),
    }
}

/// The user messages at the end, which are the input.
fn input_messages(items: &[ClientInput]) -> &[ClientInput] {
    let count = items.iter().rev().take_while(|item| matches!(item.kind, InputKind::User(_))).count();
    items.get(items.len() - count..).unwrap_or_default()
}

fn input_ids(items: &[ClientInput]) -> Vec<String> {
    input_messages(items).iter().filter_map(|item| item.id.clone()).collect()
}

/// The digest by which the same request is recognised: that of its last user messages. When it comes again, the log has
/// them, and the client may have a part of the answer after them.
fn input_digest(items: &[ClientInput]) -> String {
    let last = items.iter().rposition(|item| matches!(item.kind, InputKind::User(_)));
    let until_last = last.and_then(|last| items.get(..=last)).unwrap_or_default();
    let mut digest = Sha256::new();
    for ClientInput { id, kind } in input_messages(until_last) {
        if let InputKind::User(parts) = kind {
            digest.update(serde_json::to_vec(&(id, parts)).unwrap_or_default());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The run that the new one continues: `previous`, or the parent, which clients may name without meaning one of this server.
async fn predecessor(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    request: &AgUiRequest,
) -> Result<RunPredecessor, Rejection> {
    let (name, is_required) = match (&request.previous, &request.parent_run_id) {
        (Some(previous), _) => (previous, true),
        (None, Some(parent)) => (parent, false),
        (None, None) => return Ok(RunPredecessor::Latest),
    };
    if TaskId::from(name.as_str()).is_no_run() {
        return Ok(RunPredecessor::None);
    }
    match find_run_by_agui_id(gateway, user, thread, name).await? {
        Some(run) => Ok(RunPredecessor::After(run)),
        None if is_required => {
            Err(Rejection::invalid_field("forwardedProps.headwater.previous", "the thread has no such run"))
        }
        None => Ok(RunPredecessor::Latest),
    }
}

/// Cancels the active run of a thread, or the run of this id if that waits or is active. Returns whether there was one.
pub async fn stop_agui_run(
    gateway: &Gateway,
    user: &UserId,
    thread: ThreadId,
    run_id: Option<&str>,
) -> Result<bool, Rejection> {
    let active = active_run_row(gateway, user, &thread).await?;
    let task_id = match (active, run_id) {
        (None, _) => return Ok(false),
        (Some(active), None) => active.id,
        (Some(active), Some(id)) if has_agui_run_id(gateway, user, &active, id).await? => active.id,
        (Some(_), Some(id)) => {
            let queued = queued_runs(gateway, user, &thread, AG_UI_PROTOCOL).await?;
            let named = queued.into_iter().find(|(_, client)| client.run_id.as_deref() == Some(id));
            let Some((run, _)) = named else { return Ok(false) };
            run
        }
    };
    let cancel = CancelCommand { task_id, mode: CancelMode::Immediate, cause: CancelCause::User };
    submit_cancel(gateway, user, thread, cancel, None).await?;
    Ok(true)
}
