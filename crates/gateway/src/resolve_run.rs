//! Which run answers a request, for protocols whose clients resend their history.
//!
//! The log is the source of truth. Items that a client resends are recognized by their ids and are never input; answers to
//! pending calls and approvals resume the run that waits for them; new input starts the next run. A request that refers
//! to no run of this server starts a new thread.

pub use crate::answers::ResolvedRun;
use crate::answers::{
    call_not_found, check_answers, count_pauses, is_answer, match_answers, resolve_earlier_answer, segment_opened_by,
};
use crate::attachments::uploads::{self, Uploads};
use crate::compaction_item::open_summaries;
use crate::context::Gateway;
pub use crate::known_items::{ConversationRef, find_known_prefix};
use crate::rejection::Rejection;
use crate::resent_runs::split_altered_history;
use crate::start_run::{
    check_agent, check_callable, check_client_instructions, check_json_size, check_request_size, check_tool_names,
    check_web_file_count, start_run,
};
use engine::{AnsweringRequest, NewRun, OnBusy, REQUEST_BYTES_MAX, RunPredecessor, StartedRun};
use model::UserId;
use model::command::RequestUpdate;
use model::content::ContentPart;
use model::ports::{IdempotencyKey, RunRow};
use model::task::TaskStatus;
use protocol::client_input::{ClientInput, InputKind, NewInput};

/// Results of client tools are logged one by one, so together they may exceed a request; but they pass the inbox as one row.
const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

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
    Ok(ResolvedRun { thread: started.thread, run: started.task, segment: 1, is_new: true, after: started.after })
}

/// Removes tool outputs without a call before them: after a run of this server they are history, elsewhere an error.
pub(crate) fn drop_unmatched_outputs(
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
pub(crate) async fn answer_pending(
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

/// Whether a user message follows the last answer: such a message is new.
fn has_input_after_answers(items: &[ClientInput]) -> bool {
    let answer = items.iter().rposition(is_answer);
    let message = items.iter().rposition(|item| matches!(item.kind, InputKind::User(_)));
    message > answer
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
