//! A request of a protocol whose clients bring their history along: which run answers it?
//!
//! With a thread the log is the truth. What a client sends back of it is known by its ids and is never input; what answers
//! something that a run waits for lets that run go on; what is new begins the next one. A request that names nothing of
//! ours begins a thread of its own.

use crate::app::App;
use crate::begin::{begin, check_addresses};
use crate::files::intake::{self, Luggage};
use crate::problem::Problem;
use crate::routes::check_size;
use axum::http::StatusCode;
use engine::{NewRun, OnBusy, REQUEST_BYTES_MAX, StartError, StartedRun};
use model::block::ContentPart;
use model::command::{AnswerBody, ClientToolResult};
use model::event::{ApprovalDecision, ApprovalDecisionKind, Event, Initiator, PendingKind, PendingRequest};
use model::item::Item;
use model::ports::{IdempotencyKey, PageLimit, RunRow};
use model::task::TaskStatus;
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use protocol::said::{News, Said, What};

/// How many ids that name no run of the user's are looked up before a history counts as foreign.
const LOOKUPS_MAX: usize = 100;
/// What a client's tools gave is logged piece by piece, so that it may be more than a request; but it is written down first.
const ANSWERS_BYTES_MAX: usize = 1024 * 1024;

/// What a request names.
pub(crate) enum Context {
    /// Nothing: its items may.
    Open,
    /// The run that it goes on from.
    After(Box<RunRow>),
    /// A thread, which may not be there yet.
    Thread(ThreadId),
}

impl Context {
    fn thread(&self) -> Option<&ThreadId> {
        match self {
            Self::Open => None,
            Self::After(run) => Some(&run.thread),
            Self::Thread(thread) => Some(thread),
        }
    }
}

/// What a request came to: a run, and which of its segments answers.
pub(crate) struct Turn {
    pub(crate) thread: ThreadId,
    pub(crate) run: TaskId,
    /// From 1; a run has one more with each pause.
    pub(crate) segment: u32,
    /// Has it begun with this request? Else it was there before.
    pub(crate) is_new: bool,
}

impl Turn {
    fn of(run: &RunRow, segment: u32) -> Self {
        Self { thread: run.thread.clone(), run: run.id.clone(), segment, is_new: false }
    }
}

/// Takes a request: `new` is what a run would begin with, less what the items say. What came along with these was unpacked
/// before, so that they can be held against the log; what of it is needed is kept here.
pub(crate) async fn take(
    app: &App,
    user: &UserId,
    (said, luggage): (Vec<Said>, Luggage),
    context: Context,
    new: NewRun,
) -> Result<Turn, Problem> {
    let again = app.engine.find_submission(user, new.idempotency.as_ref()).await?;
    let (known, context) = known(app, user, &said, context).await?;
    // A request that was cut short when it was first made has used up its key: what is left of it counts all the same.
    let key = new.idempotency.clone().filter(|_| again.is_none());
    if let Some(turn) = answers(app, user, (&said, &luggage), &context, (&new, key)).await? {
        return Ok(turn);
    }
    if let Some(started) = again {
        return repeated(app, user, (&said, &luggage), started, &new).await;
    }
    let is_news = |said: &Said| !matches!(said.what, What::Decision { .. } | What::Other);
    let news = asked_for(said.into_iter().skip(known).filter(is_news).collect(), &context)?;
    let news = News::of(&news);
    let new = NewRun { prior_history: news.before(), input: news.input, ..new };
    let started = begin(app, user, placed(app, user, context, new).await?, luggage).await?;
    Ok(Turn { thread: started.thread, run: started.task, segment: 1, is_new: true })
}

/// How many of the items are known: everything up to the last one that a run of the user's gave. That run is what an open
/// request goes on from; where a thread is named, only what was said in that one is known.
pub(crate) async fn known(
    app: &App,
    user: &UserId,
    said: &[Said],
    context: Context,
) -> Result<(usize, Context), Problem> {
    let mut missed: Vec<TaskId> = Vec::new();
    for (place, said) in said.iter().enumerate().rev() {
        let Some(run) = said.run().filter(|run| !missed.contains(run)) else { continue };
        if missed.len() >= LOOKUPS_MAX {
            break;
        }
        match app.engine.run_of_task(user, &run).await? {
            Some(row) if context.thread().is_none_or(|thread| *thread == row.thread) => {
                let context = match context {
                    Context::Open => Context::After(Box::new(row)),
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
fn asked_for(news: Vec<Said>, context: &Context) -> Result<Vec<Said>, Problem> {
    let stray = |(place, said): (usize, &Said)| unasked(&news, place, said).map(str::to_owned);
    let strays: Vec<Option<String>> = news.iter().enumerate().map(stray).collect();
    if let (Some(call_id), false) = (strays.iter().flatten().next(), matches!(context, Context::After(_))) {
        return Err(no_call(call_id));
    }
    Ok(news.into_iter().zip(strays).filter(|(_, stray)| stray.is_none()).map(|(said, _)| said).collect())
}

/// The call of an output that no call before it asked for.
fn unasked<'a>(all: &[Said], place: usize, said: &'a Said) -> Option<&'a str> {
    let What::Result { call_id, .. } = &said.what else { return None };
    let asks = |said: &Said| matches!(&said.what, What::Call { call_id: asked, .. } if asked == call_id);
    (!all.iter().take(place).any(asks)).then_some(call_id)
}

/// Answers what the run waits for. `None` when the request answers nothing, or only what was answered before.
async fn answers(
    app: &App,
    user: &UserId,
    (said, luggage): (&[Said], &Luggage),
    context: &Context,
    (new, key): (&NewRun, Option<IdempotencyKey>),
) -> Result<Option<Turn>, Problem> {
    let run = match context {
        Context::Open => None,
        Context::After(row) => Some(RunRow::clone(row)),
        Context::Thread(thread) => match app.engine.active_run(user, thread).await? {
            Some(run) => app.engine.run_of_task(user, &run).await?,
            None => None,
        },
    };
    let pending = match &run {
        Some(run) => app.engine.pending(user, run).await?,
        None => Vec::new(),
    };
    let mut answers = matching(said, &pending)?;
    let Some(run) = run.filter(|_| !answers.is_empty()) else {
        return answered_before(app, user, said, context).await;
    };
    let turn = Turn::of(&run, pauses(app, user, &run).await? + 1);
    check_answers(&answers)?;
    let beside = beside(app, said)?;
    luggage.add(app, (user, &run.thread), intake::of_answers(&mut answers)).await?;
    app.engine.submit_answers(user, &run, answers, new.request_echo.clone(), key).await?;
    say_beside(app, user, (beside, luggage), &run, new).await?;
    Ok(Some(turn))
}

/// All of it is written down together.
fn check_answers(answers: &[AnswerBody]) -> Result<(), Problem> {
    let size = serde_json::to_vec(answers).map_or(usize::MAX, |text| text.len());
    if size > ANSWERS_BYTES_MAX { Err(StartError::TooLarge(ANSWERS_BYTES_MAX).into()) } else { Ok(()) }
}

/// What is said beside answers.
fn beside(app: &App, said: &[Said]) -> Result<Vec<ContentPart>, Problem> {
    let input = if is_last(said) { News::of(said).input } else { Vec::new() };
    check_addresses(app, &input)?;
    check_size(&input)?;
    Ok(input)
}

/// It is said to the same run.
async fn say_beside(
    app: &App,
    user: &UserId,
    (mut input, luggage): (Vec<ContentPart>, &Luggage),
    run: &RunRow,
    new: &NewRun,
) -> Result<(), Problem> {
    if !input.is_empty() {
        let beside = |key: &IdempotencyKey| IdempotencyKey { key: format!("{} beside", key.key), ..key.clone() };
        let key = new.idempotency.as_ref().map(beside);
        luggage.add(app, (user, &run.thread), input.iter_mut()).await?;
        app.engine.steer(user, &run.thread, run.id.clone(), input, key).await?;
    }
    Ok(())
}

/// The same request once more, by its key. What it answered says which segment it opened.
async fn repeated(
    app: &App,
    user: &UserId,
    (said, luggage): (&[Said], &Luggage),
    started: StartedRun,
    new: &NewRun,
) -> Result<Turn, Problem> {
    let run = app.engine.run_of_task(user, &started.task).await?.ok_or_else(Problem::not_found)?;
    let answer = said.iter().rev().find(|said| is_answer(said) && said.run().as_ref() == Some(&run.id));
    let Some(answer) = answer else { return Ok(Turn::of(&run, 1)) };
    say_beside(app, user, (beside(app, said)?, luggage), &run, new).await?;
    let segment = opened_by(app, user, &run, answer).await?;
    Ok(Turn::of(&run, segment.unwrap_or(1)))
}

fn is_answer(said: &Said) -> bool {
    matches!(said.what, What::Result { .. } | What::Decision { .. })
}

/// Do people's words stand behind an answer, so that they are new?
fn is_last(said: &[Said]) -> bool {
    let answer = said.iter().rposition(is_answer);
    let words = said.iter().rposition(|said| matches!(said.what, What::User(_)));
    words > answer
}

/// The answers to what is pending. The same one twice is one; two that differ are a mistake, before any of them counts.
fn matching(said: &[Said], pending: &[PendingRequest]) -> Result<Vec<AnswerBody>, Problem> {
    let (mut answers, mut results): (Vec<AnswerBody>, Vec<ClientToolResult>) = (Vec::new(), Vec::new());
    for said in said {
        match &said.what {
            What::Decision { key, approve, reason } => {
                let asked = |pending: &PendingRequest| pending.key.as_ref().is_some_and(|asked| asked.as_str() == key);
                if pending.iter().any(asked) {
                    let (key, by) = (ApprovalKey::from(key.as_str()), Initiator::User);
                    let decision = decision(*approve, reason.clone());
                    add(&mut answers, AnswerBody::Approval { key, decision, by }, is_same_question)?;
                }
            }
            What::Result { call_id, content, failed } => {
                let waits = |pending: &PendingRequest| {
                    pending.kind == PendingKind::ClientTool && pending.call_id.as_str() == call_id
                };
                if pending.iter().any(waits) {
                    let error = failed.then(|| model::event::ErrorInfo::new("tool_failed", "the client's tool failed"));
                    let call_id = CallId::from(call_id.as_str());
                    let result = ClientToolResult { call_id, content: content.clone(), error };
                    add(&mut results, result, |one, other| one.call_id == other.call_id)?;
                }
            }
            What::System(_) | What::User(_) | What::Assistant(_) | What::Drawn(_) | What::Call { .. } | What::Other => {
            }
        }
    }
    if !results.is_empty() {
        answers.push(AnswerBody::ClientTools { results });
    }
    Ok(answers)
}

fn add<T: PartialEq>(all: &mut Vec<T>, one: T, is_same: impl Fn(&T, &T) -> bool) -> Result<(), Problem> {
    match all.iter().find(|other| is_same(&one, other)) {
        None => all.push(one),
        Some(other) if *other == one => {}
        Some(_) => return Err(Problem::invalid_body("one thing is answered twice, and not in the same way")),
    }
    Ok(())
}

fn is_same_question(one: &AnswerBody, other: &AnswerBody) -> bool {
    matches!((one, other), (AnswerBody::Approval { key: one, .. }, AnswerBody::Approval { key: other, .. }) if one == other)
}

fn decision(approve: bool, message: Option<String>) -> ApprovalDecision {
    let kind = if approve { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject };
    ApprovalDecision { kind, always: false, message, args: None }
}

/// A request whose last word was said before is that request again: it is shown what came of it. Another word than the one
/// that was taken comes too late, and is said so; in the middle of a history it is just history.
async fn answered_before(app: &App, user: &UserId, said: &[Said], context: &Context) -> Result<Option<Turn>, Problem> {
    let Some(last) = said.last().filter(|said| is_answer(said)) else { return Ok(None) };
    let run = match (asked_in(app, user, last, context).await?, context, &last.what) {
        (Some(run), _, _) => run,
        (None, Context::After(_) | Context::Thread(_), What::Decision { key, .. }) => return Err(no_question(key)),
        (None, Context::After(_), What::Result { call_id, .. }) => return Err(no_call(call_id)),
        // Its call may stand before it.
        (None, _, _) => return Ok(None),
    };
    if let What::Decision { key, approve, .. } = &last.what {
        let row = app.engine.ports().directory.approval(user, &ApprovalKey::from(key.as_str())).await?;
        let Some(row) = row else { return Err(no_question(key)) };
        let approved = row.answer.as_ref().map(|answer| answer.decision.kind != ApprovalDecisionKind::Reject);
        if approved != Some(*approve) {
            return Err(model::ports::SubmitError::AlreadyDecided(Box::new(row)).into());
        }
    }
    match (opened_by(app, user, &run, last).await?, &last.what) {
        (Some(segment), _) => Ok(Some(Turn::of(&run, segment))),
        (None, What::Result { call_id, .. }) => Err(no_call(call_id)),
        (None, _) => Ok(None),
    }
}

/// The run that asked what this answers, if the request is about it.
async fn asked_in(app: &App, user: &UserId, answer: &Said, context: &Context) -> Result<Option<RunRow>, Problem> {
    let Some(run) = answer.run() else { return Ok(None) };
    let row = app.engine.run_of_task(user, &run).await?;
    Ok(row.filter(|row| match context {
        Context::Open => false,
        Context::After(run) => run.id == row.id,
        Context::Thread(thread) => row.thread == *thread,
    }))
}

fn no_question(key: &str) -> Problem {
    let detail = format!("No approval request found with id {key}.");
    Problem::new(StatusCode::BAD_REQUEST, "approval_not_found", detail)
}

fn no_call(call_id: &str) -> Problem {
    let detail = format!("No tool call found for function call output with call_id {call_id}.");
    Problem::new(StatusCode::BAD_REQUEST, "call_not_found", detail)
}

/// How often a run has paused.
async fn pauses(app: &App, user: &UserId, run: &RunRow) -> Result<u32, Problem> {
    let mut pauses = 0;
    each(app, user, run, |event| {
        pauses += u32::from(matches!(event, Event::Paused(_)));
        false
    })
    .await?;
    Ok(pauses)
}

/// The segment in which an answer counts.
async fn opened_by(app: &App, user: &UserId, run: &RunRow, answer: &Said) -> Result<Option<u32>, Problem> {
    let mut segment = 1;
    let found = each(app, user, run, |event| {
        segment += u32::from(matches!(event, Event::Resumed(_)));
        match (event, &answer.what) {
            (Event::ApprovalResolved(resolved), What::Decision { key, .. }) => resolved.key.as_str() == key,
            (Event::ItemAdded(added), What::Result { call_id, .. }) => {
                matches!(&added.item, Item::ToolResult(result) if result.call_id.as_str() == call_id)
            }
            _ => false,
        }
    });
    Ok(found.await?.then_some(segment))
}

/// Goes through a run's events until one is what is looked for.
async fn each(app: &App, user: &UserId, run: &RunRow, mut is_it: impl FnMut(&Event) -> bool) -> Result<bool, Problem> {
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
async fn placed(app: &App, user: &UserId, context: Context, new: NewRun) -> Result<NewRun, Problem> {
    let (thread, previous) = match context {
        Context::Open => return Ok(new),
        Context::Thread(thread) => (thread, None),
        Context::After(run) => (run.thread.clone(), Some(*run)),
    };
    let busy = match app.engine.active_run(user, &thread).await? {
        Some(busy) => app.engine.run_of_task(user, &busy).await?,
        None => None,
    };
    let new = NewRun { create_if_missing: previous.is_none(), thread: Some(thread), ..new };
    let new = match (&busy, previous) {
        // What has not ended yet comes to its turn, and this after it.
        (Some(busy), Some(run)) if busy.id != run.id && run.status.is_terminal() => {
            forked(app, user, &run, new).await?
        }
        (_, run) => NewRun { previous: run.map(|run| run.id), ..new },
    };
    // Whoever goes on without an answer does not wait for one.
    let waits = busy.is_some_and(|busy| busy.status == TaskStatus::Paused) && new.thread.is_some();
    Ok(NewRun { on_busy: if waits { OnBusy::Interrupt } else { OnBusy::Enqueue }, ..new })
}

/// The thread is busy with something else: the new run goes on by itself, with a copy of what was said until then. Where
/// that is too much for one record, it waits for its turn instead.
async fn forked(app: &App, user: &UserId, run: &RunRow, new: NewRun) -> Result<NewRun, Problem> {
    let mut before = app.engine.history_until(user, run).await?;
    before.entries.extend(new.prior_history.iter().flat_map(|before| before.entries.clone()));
    let size = serde_json::to_vec(&before).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX / 2 {
        return Ok(NewRun { previous: Some(run.id.clone()), ..new });
    }
    Ok(NewRun { thread: None, create_if_missing: false, prior_history: Some(before), ..new })
}
