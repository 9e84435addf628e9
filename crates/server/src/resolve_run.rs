//! A request of a protocol whose clients bring their history along: which run answers it?
//!
//! With a thread the log is the truth. What a client sends back of it is known by its ids and is never input; what answers
//! something that a run waits for lets that run go on; what is new begins the next one. A request that names nothing of
//! ours begins a thread of its own.

use crate::app::App;
use crate::attachments::uploads::{self, Uploads};
use crate::problem::Problem;
use crate::routes::check_request_size;
use crate::start_run::{check_web_file_count, start_run};
use engine::{NewRun, OnBusy, REQUEST_BYTES_MAX, StartError, StartedRun};
use model::command::{AnswerBody, ClientToolResult};
use model::content::ContentPart;
use model::error::ErrorCode;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Event, Initiator, PendingKind, PendingRequest};
use model::item::Item;
use model::ports::{IdempotencyKey, PageLimit, RunRow};
use model::task::TaskStatus;
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use protocol::client_input::{ClientInput, InputKind, NewInput};

/// How many ids that name no run of the user's are looked up before a history counts as foreign.
const UNKNOWN_RUN_LOOKUPS_MAX: usize = 100;
/// What a client's tools gave is logged piece by piece, so that it may be more than a request; but it is written down first.
const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

/// What a request names.
pub(crate) enum ConversationRef {
    /// Nothing: its items may.
    Unspecified,
    /// The run that it goes on from.
    AfterRun(Box<RunRow>),
    /// A thread, which may not be there yet.
    InThread(ThreadId),
}

impl ConversationRef {
    fn thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Unspecified => None,
            Self::AfterRun(run) => Some(&run.thread),
            Self::InThread(thread) => Some(thread),
        }
    }
}

/// What a request came to: a run, and which of its segments answers.
pub(crate) struct ResolvedRun {
    pub(crate) thread: ThreadId,
    pub(crate) run: TaskId,
    /// From 1; a run has one more with each pause.
    pub(crate) segment: u32,
    /// Has it begun with this request? Else it was there before.
    pub(crate) is_new: bool,
}

impl ResolvedRun {
    fn existing(run: &RunRow, segment: u32) -> Self {
        Self { thread: run.thread.clone(), run: run.id.clone(), segment, is_new: false }
    }
}

/// Takes a request: `new` is what a run would begin with, less what the items say. What came along with these was unpacked
/// before, so that they can be held against the log; what of it is needed is kept here.
pub(crate) async fn resolve_run(
    app: &App,
    user: &UserId,
    (said, luggage): (Vec<ClientInput>, Uploads),
    context: ConversationRef,
    new: NewRun,
) -> Result<ResolvedRun, Problem> {
    let again = app.engine.find_submission(user, new.idempotency.as_ref()).await?;
    let (known, context) = find_known_prefix(app, user, &said, context).await?;
    // A request that was cut short when it was first made has used up its key: what is left of it counts all the same.
    let key = new.idempotency.clone().filter(|_| again.is_none());
    if let Some(turn) = answer_pending(app, user, (&said, &luggage), &context, (&new, key)).await? {
        return Ok(turn);
    }
    if let Some(started) = again {
        return resolve_repeated_request(app, user, (&said, &luggage), started, &new).await;
    }
    let is_news =
        |said: &ClientInput| !matches!(said.kind, InputKind::ApprovalDecision { .. } | InputKind::ItemReference);
    let news = drop_stray_outputs(said.into_iter().skip(known).filter(is_news).collect(), &context)?;
    let news = NewInput::from_client_input(&news);
    let new = NewRun { prior_history: news.prior_history(), input: news.input, ..new };
    let started = start_run(app, user, choose_thread(app, user, context, new).await?, luggage).await?;
    Ok(ResolvedRun { thread: started.thread, run: started.task, segment: 1, is_new: true })
}

/// How many of the items are known: everything up to the last one that a run of the user's gave. That run is what an open
/// request goes on from; where a thread is named, only what was said in that one is known.
pub(crate) async fn find_known_prefix(
    app: &App,
    user: &UserId,
    said: &[ClientInput],
    context: ConversationRef,
) -> Result<(usize, ConversationRef), Problem> {
    let mut missed: Vec<TaskId> = Vec::new();
    for (place, said) in said.iter().enumerate().rev() {
        let Some(run) = said.run_id().filter(|run| !missed.contains(run)) else { continue };
        if missed.len() >= UNKNOWN_RUN_LOOKUPS_MAX {
            break;
        }
        match app.engine.run_of_task(user, &run).await? {
            Some(row) if context.thread().is_none_or(|thread| *thread == row.thread) => {
                let context = match context {
                    ConversationRef::Unspecified => ConversationRef::AfterRun(Box::new(row)),
                    named => named,
                };
                return Ok((place + 1, context));
            }
            Some(_) | None => missed.push(run),
        }
    }
    Ok((0, context))
}

/// What is new, without outputs that no call before them asked for: where the past is ours they are history, else a
/// mistake.
fn drop_stray_outputs(news: Vec<ClientInput>, context: &ConversationRef) -> Result<Vec<ClientInput>, Problem> {
    let stray = |(place, said): (usize, &ClientInput)| stray_call_id(&news, place, said).map(str::to_owned);
    let strays: Vec<Option<String>> = news.iter().enumerate().map(stray).collect();
    if let (Some(call_id), false) = (strays.iter().flatten().next(), matches!(context, ConversationRef::AfterRun(_))) {
        return Err(call_not_found(call_id));
    }
    Ok(news.into_iter().zip(strays).filter(|(_, stray)| stray.is_none()).map(|(said, _)| said).collect())
}

/// The call of an output that no call before it asked for.
fn stray_call_id<'a>(all: &[ClientInput], place: usize, said: &'a ClientInput) -> Option<&'a str> {
    let InputKind::ToolResult { call_id, .. } = &said.kind else { return None };
    let asks =
        |said: &ClientInput| matches!(&said.kind, InputKind::ToolCall { call_id: asked, .. } if asked == call_id);
    (!all.iter().take(place).any(asks)).then_some(call_id)
}

/// Answers what the run waits for. `None` when the request answers nothing, or only what was answered before.
async fn answer_pending(
    app: &App,
    user: &UserId,
    (said, luggage): (&[ClientInput], &Uploads),
    context: &ConversationRef,
    (new, key): (&NewRun, Option<IdempotencyKey>),
) -> Result<Option<ResolvedRun>, Problem> {
    let run = match context {
        ConversationRef::Unspecified => None,
        ConversationRef::AfterRun(row) => Some(RunRow::clone(row)),
        ConversationRef::InThread(thread) => match app.engine.active_run(user, thread).await? {
            Some(run) => app.engine.run_of_task(user, &run).await?,
            None => None,
        },
    };
    let pending = match &run {
        Some(run) => app.engine.pending(user, run).await?,
        None => Vec::new(),
    };
    let mut answers = match_answers(said, &pending)?;
    let Some(run) = run.filter(|_| !answers.is_empty()) else {
        return resolve_earlier_answer(app, user, said, context).await;
    };
    let turn = ResolvedRun::existing(&run, count_pauses(app, user, &run).await? + 1);
    check_answers_size(&answers)?;
    let beside = input_beside_answers(app, said)?;
    luggage.store_in_thread(app, (user, &run.thread), uploads::parts_of_answers(&mut answers)).await?;
    app.engine.submit_answers(user, &run, answers, new.request_echo.clone(), key).await?;
    send_input_beside_answers(app, user, (beside, luggage), &run, new).await?;
    Ok(Some(turn))
}

/// All of it is written down together.
fn check_answers_size(answers: &[AnswerBody]) -> Result<(), Problem> {
    let size = serde_json::to_vec(answers).map_or(usize::MAX, |text| text.len());
    if size > ANSWERS_BYTES_MAX { Err(StartError::TooLarge(ANSWERS_BYTES_MAX).into()) } else { Ok(()) }
}

/// What is said beside answers.
fn input_beside_answers(app: &App, said: &[ClientInput]) -> Result<Vec<ContentPart>, Problem> {
    let input = if has_input_after_answers(said) { NewInput::from_client_input(said).input } else { Vec::new() };
    check_web_file_count(app, &input)?;
    check_request_size(&input)?;
    Ok(input)
}

/// It is said to the same run.
async fn send_input_beside_answers(
    app: &App,
    user: &UserId,
    (mut input, luggage): (Vec<ContentPart>, &Uploads),
    run: &RunRow,
    new: &NewRun,
) -> Result<(), Problem> {
    if !input.is_empty() {
        let beside = |key: &IdempotencyKey| IdempotencyKey { key: format!("{} beside", key.key), ..key.clone() };
        let key = new.idempotency.as_ref().map(beside);
        luggage.store_in_thread(app, (user, &run.thread), input.iter_mut()).await?;
        app.engine.steer(user, &run.thread, run.id.clone(), input, key).await?;
    }
    Ok(())
}

/// The same request once more, by its key. What it answered says which segment it opened.
async fn resolve_repeated_request(
    app: &App,
    user: &UserId,
    (said, luggage): (&[ClientInput], &Uploads),
    started: StartedRun,
    new: &NewRun,
) -> Result<ResolvedRun, Problem> {
    let run = app.engine.run_of_task(user, &started.task).await?.ok_or_else(Problem::not_found)?;
    let answer = said.iter().rev().find(|said| is_answer(said) && said.run_id().as_ref() == Some(&run.id));
    let Some(answer) = answer else { return Ok(ResolvedRun::existing(&run, 1)) };
    send_input_beside_answers(app, user, (input_beside_answers(app, said)?, luggage), &run, new).await?;
    let segment = segment_opened_by(app, user, &run, answer).await?;
    Ok(ResolvedRun::existing(&run, segment.unwrap_or(1)))
}

fn is_answer(said: &ClientInput) -> bool {
    matches!(said.kind, InputKind::ToolResult { .. } | InputKind::ApprovalDecision { .. })
}

/// Do people's words stand behind an answer, so that they are new?
fn has_input_after_answers(said: &[ClientInput]) -> bool {
    let answer = said.iter().rposition(is_answer);
    let words = said.iter().rposition(|said| matches!(said.kind, InputKind::User(_)));
    words > answer
}

/// The answers to what is pending. The same one twice is one; two that differ are a mistake, before any of them counts.
fn match_answers(said: &[ClientInput], pending: &[PendingRequest]) -> Result<Vec<AnswerBody>, Problem> {
    let (mut answers, mut results): (Vec<AnswerBody>, Vec<ClientToolResult>) = (Vec::new(), Vec::new());
    for said in said {
        match &said.kind {
            InputKind::ApprovalDecision { key, approve, reason } => {
                let asked = |pending: &PendingRequest| pending.key.as_ref().is_some_and(|asked| asked.as_str() == key);
                if pending.iter().any(asked) {
                    let (key, by) = (ApprovalKey::from(key.as_str()), Initiator::User);
                    let decision = new_decision(*approve, reason.clone());
                    push_unique_answer(&mut answers, AnswerBody::Approval { key, decision, by }, is_same_approval)?;
                }
            }
            InputKind::ToolResult { call_id, content, failed } => {
                let waits = |pending: &PendingRequest| {
                    pending.kind == PendingKind::ClientTool && pending.call_id.as_str() == call_id
                };
                if pending.iter().any(waits) {
                    let error =
                        failed.then(|| model::error::ErrorInfo::new(ErrorCode::ToolFailed, "the client's tool failed"));
                    let call_id = CallId::from(call_id.as_str());
                    let result = ClientToolResult { call_id, content: content.clone(), error };
                    push_unique_answer(&mut results, result, |one, other| one.call_id == other.call_id)?;
                }
            }
            InputKind::System(_)
            | InputKind::User(_)
            | InputKind::Assistant(_)
            | InputKind::GeneratedImages(_)
            | InputKind::ToolCall { .. }
            | InputKind::ItemReference => {}
        }
    }
    if !results.is_empty() {
        answers.push(AnswerBody::ClientTools { results });
    }
    Ok(answers)
}

fn push_unique_answer<T: PartialEq>(all: &mut Vec<T>, one: T, is_same: impl Fn(&T, &T) -> bool) -> Result<(), Problem> {
    match all.iter().find(|other| is_same(&one, other)) {
        None => all.push(one),
        Some(other) if *other == one => {}
        Some(_) => return Err(Problem::invalid_body("one thing is answered twice, and not in the same way")),
    }
    Ok(())
}

fn is_same_approval(one: &AnswerBody, other: &AnswerBody) -> bool {
    matches!((one, other), (AnswerBody::Approval { key: one, .. }, AnswerBody::Approval { key: other, .. }) if one == other)
}

fn new_decision(approve: bool, message: Option<String>) -> ApprovalDecision {
    let kind = if approve { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject };
    ApprovalDecision { kind, always: false, message, args: None }
}

/// A request whose last word was said before is that request again: it is shown what came of it. Another word than the one
/// that was taken comes too late, and is said so; in the middle of a history it is just history.
async fn resolve_earlier_answer(
    app: &App,
    user: &UserId,
    said: &[ClientInput],
    context: &ConversationRef,
) -> Result<Option<ResolvedRun>, Problem> {
    let Some(last) = said.last().filter(|said| is_answer(said)) else { return Ok(None) };
    let run = match (run_of_answer(app, user, last, context).await?, context, &last.kind) {
        (Some(run), _, _) => run,
        (
            None,
            ConversationRef::AfterRun(_) | ConversationRef::InThread(_),
            InputKind::ApprovalDecision { key, .. },
        ) => return Err(approval_not_found(key)),
        (None, ConversationRef::AfterRun(_), InputKind::ToolResult { call_id, .. }) => {
            return Err(call_not_found(call_id));
        }
        // Its call may stand before it.
        (None, _, _) => return Ok(None),
    };
    if let InputKind::ApprovalDecision { key, approve, .. } = &last.kind {
        let row = app.engine.ports().directory.approval(user, &ApprovalKey::from(key.as_str())).await?;
        let Some(row) = row else { return Err(approval_not_found(key)) };
        let approved = row.answer.as_ref().map(|answer| answer.decision.kind != ApprovalDecisionKind::Reject);
        if approved != Some(*approve) {
            return Err(model::ports::SubmitError::AlreadyDecided(Box::new(row)).into());
        }
    }
    match (segment_opened_by(app, user, &run, last).await?, &last.kind) {
        (Some(segment), _) => Ok(Some(ResolvedRun::existing(&run, segment))),
        (None, InputKind::ToolResult { call_id, .. }) => Err(call_not_found(call_id)),
        (None, _) => Ok(None),
    }
}

/// The run that asked what this answers, if the request is about it.
async fn run_of_answer(
    app: &App,
    user: &UserId,
    answer: &ClientInput,
    context: &ConversationRef,
) -> Result<Option<RunRow>, Problem> {
    let Some(run) = answer.run_id() else { return Ok(None) };
    let row = app.engine.run_of_task(user, &run).await?;
    Ok(row.filter(|row| match context {
        ConversationRef::Unspecified => false,
        ConversationRef::AfterRun(run) => run.id == row.id,
        ConversationRef::InThread(thread) => row.thread == *thread,
    }))
}

fn approval_not_found(key: &str) -> Problem {
    let detail = format!("No approval request found with id {key}.");
    Problem::new(ErrorCode::UnmatchedApproval, detail)
}

fn call_not_found(call_id: &str) -> Problem {
    let detail = format!("No tool call found for function call output with call_id {call_id}.");
    Problem::new(ErrorCode::CallNotFound, detail)
}

/// How often a run has paused.
async fn count_pauses(app: &App, user: &UserId, run: &RunRow) -> Result<u32, Problem> {
    let mut pauses = 0;
    any_event_of_run(app, user, run, |event| {
        pauses += u32::from(matches!(event, Event::Paused(_)));
        false
    })
    .await?;
    Ok(pauses)
}

/// The segment in which an answer counts.
async fn segment_opened_by(
    app: &App,
    user: &UserId,
    run: &RunRow,
    answer: &ClientInput,
) -> Result<Option<u32>, Problem> {
    let mut segment = 1;
    let found = any_event_of_run(app, user, run, |event| {
        segment += u32::from(matches!(event, Event::Resumed(_)));
        match (event, &answer.kind) {
            (Event::ApprovalResolved(resolved), InputKind::ApprovalDecision { key, .. }) => {
                resolved.key.as_str() == key
            }
            (Event::ItemAdded(added), InputKind::ToolResult { call_id, .. }) => {
                matches!(&added.item, Item::ToolResult(result) if result.call_id.as_str() == call_id)
            }
            _ => false,
        }
    });
    Ok(found.await?.then_some(segment))
}

/// Goes through a run's events until one is what is looked for.
async fn any_event_of_run(
    app: &App,
    user: &UserId,
    run: &RunRow,
    mut is_it: impl FnMut(&Event) -> bool,
) -> Result<bool, Problem> {
    let Some(first) = run.first_seq else { return Ok(false) };
    let mut at = first.prev();
    loop {
        let page = app.engine.ports().journal.read_page(user, &run.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(false) };
        at = last.seq;
        for record in &page.records {
            if record.run != run.id {
                return Ok(false);
            }
            if is_it(record.event()) {
                return Ok(true);
            }
        }
    }
}

/// Where a new run belongs.
async fn choose_thread(app: &App, user: &UserId, context: ConversationRef, new: NewRun) -> Result<NewRun, Problem> {
    let (thread, previous) = match context {
        ConversationRef::Unspecified => return Ok(new),
        ConversationRef::InThread(thread) => (thread, None),
        ConversationRef::AfterRun(run) => (run.thread.clone(), Some(*run)),
    };
    let busy = match app.engine.active_run(user, &thread).await? {
        Some(busy) => app.engine.run_of_task(user, &busy).await?,
        None => None,
    };
    let new = NewRun { create_if_missing: previous.is_none(), thread: Some(thread), ..new };
    let new = match (&busy, previous) {
        // What has not ended yet comes to its turn, and this after it.
        (Some(busy), Some(run)) if busy.id != run.id && run.status.is_terminal() => {
            fork_from_run(app, user, &run, new).await?
        }
        (_, run) => NewRun { previous: run.map(|run| run.id), ..new },
    };
    // Whoever goes on without an answer does not wait for one.
    let waits = busy.is_some_and(|busy| busy.status == TaskStatus::Paused) && new.thread.is_some();
    Ok(NewRun { on_busy: if waits { OnBusy::Interrupt } else { OnBusy::Enqueue }, ..new })
}

/// The thread is busy with something else: the new run goes on by itself, with a copy of what was said until then. Where
/// that is too much for one record, it waits for its turn instead.
async fn fork_from_run(app: &App, user: &UserId, run: &RunRow, new: NewRun) -> Result<NewRun, Problem> {
    let mut before = app.engine.history_until(user, run).await?;
    before.entries.extend(new.prior_history.iter().flat_map(|before| before.entries.clone()));
    let size = serde_json::to_vec(&before).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX / 2 {
        return Ok(NewRun { previous: Some(run.id.clone()), ..new });
    }
    Ok(NewRun { thread: None, create_if_missing: false, prior_history: Some(before), ..new })
}
