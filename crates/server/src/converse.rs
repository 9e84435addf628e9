//! A request of a protocol whose clients bring their history along: which run answers it?
//!
//! With a thread the log is the truth. What a client sends back of it is known by its ids and is never input; what answers
//! something that a run waits for lets that run go on; what is new begins the next one. A request that names nothing of
//! ours begins a thread of its own.

use crate::app::App;
use crate::begin::begin;
use crate::problem::Problem;
use axum::http::StatusCode;
use engine::{NewRun, OnBusy, REQUEST_BYTES_MAX};
use model::command::{AnswerTo, ClientResult};
use model::event::{Actor, Decision, DecisionKind, Event, Pending, PendingKind};
use model::item::Item;
use model::object::TaskStatus;
use model::ports::{PageLimit, RunRow};
use model::{ApprovalKey, CallId, TaskId, ThreadId, UserId};
use protocol::said::{News, Said, What};

/// How many ids that name no run of the user's are looked up before a history counts as foreign.
const LOOKUPS_MAX: usize = 100;

/// What a request names.
pub(crate) enum Context {
    /// Nothing: its items may.
    Open,
    /// The run that it goes on from.
    After(Box<RunRow>),
    /// A thread, which may not be there yet.
    Thread(ThreadId),
}

/// What a request came to: a run, and which of its segments answers.
pub(crate) struct Turn {
    pub(crate) thread: ThreadId,
    pub(crate) run: TaskId,
    /// From 1; a run has one more with each pause.
    pub(crate) segment: u32,
}

/// Takes a request: `new` is what a run would begin with, less what the items say.
pub(crate) async fn take(
    app: &App,
    user: &UserId,
    said: Vec<Said>,
    context: Context,
    new: NewRun,
) -> Result<Turn, Problem> {
    let (known, context) = known(app, user, &said, context).await?;
    if let Some(turn) = answers(app, user, &said, &context, &new).await? {
        return Ok(turn);
    }
    let is_news = |said: &Said| !matches!(said.what, What::Decision { .. } | What::Other) && !is_stray(said, &context);
    let news: Vec<Said> = said.into_iter().skip(known).filter(is_news).collect();
    if let Some(stray) = news.iter().enumerate().find_map(|(place, said)| unasked(&news, place, said)) {
        return Err(no_call(stray));
    }
    let news = News::of(&news);
    let new = NewRun { before: news.before(), input: news.input, ..new };
    let started = begin(app, user, placed(app, user, context, new).await?).await?;
    Ok(Turn { thread: started.thread, run: started.task, segment: 1 })
}

/// How many of the items are known: everything up to the last one that a run of the user's gave. That run is what an open
/// request goes on from.
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
        match app.engine.run_of(user, &run).await? {
            Some(row) => {
                let context = match context {
                    Context::Open => Context::After(Box::new(row)),
                    named => named,
                };
                return Ok((place + 1, context));
            }
            None => missed.push(run),
        }
    }
    Ok((0, context))
}

/// An output whose call nobody here made is history in an open request, and a mistake where the past is ours.
fn is_stray(said: &Said, context: &Context) -> bool {
    matches!(said.what, What::Result { .. }) && matches!(context, Context::After(_))
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
    said: &[Said],
    context: &Context,
    new: &NewRun,
) -> Result<Option<Turn>, Problem> {
    let run = match context {
        Context::Open => None,
        Context::After(row) => Some(RunRow::clone(row)),
        Context::Thread(thread) => match app.engine.busy_with(user, thread).await? {
            Some(run) => app.engine.run_of(user, &run).await?,
            None => None,
        },
    };
    let Some(run) = run else { return Ok(None) };
    let pending = app.engine.pending(user, &run).await?;
    let answers = matching(said, &pending);
    if answers.is_empty() {
        return answered_before(app, user, said, &run).await;
    }
    let turn = Turn { thread: run.thread.clone(), run: run.id.clone(), segment: pauses(app, user, &run).await? + 1 };
    app.engine.answer_all(user, &run, answers, new.echo.clone(), new.idempotency.clone()).await?;
    // What is said beside the answers is said to the same run.
    let news = News::of(said);
    if !news.input.is_empty() && is_last(said) {
        app.engine.say(user, &run.thread, run.id, news.input, None).await?;
    }
    Ok(Some(turn))
}

/// Do people's words stand behind an answer, so that they are new?
fn is_last(said: &[Said]) -> bool {
    let answer = said.iter().rposition(|said| matches!(said.what, What::Result { .. } | What::Decision { .. }));
    let words = said.iter().rposition(|said| matches!(said.what, What::User(_)));
    words > answer
}

fn matching(said: &[Said], pending: &[Pending]) -> Vec<AnswerTo> {
    let (mut answers, mut results) = (Vec::new(), Vec::new());
    for said in said {
        match &said.what {
            What::Decision { key, approve, reason } => {
                let asked = |pending: &&Pending| pending.key.as_ref().is_some_and(|asked| asked.as_str() == key);
                if pending.iter().any(|pending| asked(&pending)) {
                    let (key, by) = (ApprovalKey::from(key.as_str()), Actor::User);
                    answers.push(AnswerTo::Approval { key, decision: decision(*approve, reason.clone()), by });
                }
            }
            What::Result { call_id, content, failed } => {
                let waits =
                    |pending: &Pending| pending.kind == PendingKind::ClientTool && pending.call_id.as_str() == call_id;
                if pending.iter().any(waits) {
                    let error = failed.then(|| model::event::ErrorInfo::new("tool_failed", "the client's tool failed"));
                    results.push(ClientResult {
                        call_id: CallId::from(call_id.as_str()),
                        content: content.clone(),
                        error,
                    });
                }
            }
            What::System(_) | What::User(_) | What::Assistant(_) | What::Call { .. } | What::Other => {}
        }
    }
    if !results.is_empty() {
        answers.push(AnswerTo::ClientTools { results });
    }
    answers
}

fn decision(approve: bool, message: Option<String>) -> Decision {
    let kind = if approve { DecisionKind::Approve } else { DecisionKind::Reject };
    Decision { kind, always: false, message, args: None }
}

/// A request whose last word was said before is that request again: it is shown what came of it. Another word than the one
/// that was taken comes too late, and is said so; in the middle of a history it is just history.
async fn answered_before(app: &App, user: &UserId, said: &[Said], run: &RunRow) -> Result<Option<Turn>, Problem> {
    let Some(last) = said.last() else { return Ok(None) };
    let segment = match &last.what {
        What::Decision { key, approve, .. } => {
            let row = app.engine.ports().directory.approval(user, &ApprovalKey::from(key.as_str())).await?;
            let Some(row) = row else { return Err(no_question(key)) };
            let approved = row.answer.as_ref().map(|answer| answer.decision.kind != DecisionKind::Reject);
            if approved != Some(*approve) {
                return Err(model::ports::SubmitError::Decided(Box::new(row)).into());
            }
            opened_by(app, user, run, |event| matches!(event, Event::ApprovalResolved(e) if e.key == row.key)).await?
        }
        What::Result { call_id, .. } => {
            let gives = |event: &Event| match event {
                Event::ItemAdded(added) => match &added.item {
                    Item::ToolResult(result) => result.call_id.as_str() == call_id,
                    _ => false,
                },
                _ => false,
            };
            let opened = opened_by(app, user, run, gives).await?;
            Some(opened.ok_or_else(|| no_call(call_id))?)
        }
        What::System(_) | What::User(_) | What::Assistant(_) | What::Call { .. } | What::Other => return Ok(None),
    };
    Ok(segment.map(|segment| Turn { thread: run.thread.clone(), run: run.id.clone(), segment }))
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

/// The segment in which something happens first.
async fn opened_by(
    app: &App,
    user: &UserId,
    run: &RunRow,
    happens: impl Fn(&Event) -> bool,
) -> Result<Option<u32>, Problem> {
    let mut segment = 1;
    let found = each(app, user, run, |event| {
        segment += u32::from(matches!(event, Event::Resumed(_)));
        happens(event)
    });
    Ok(found.await?.then_some(segment))
}

/// Goes through a run's events until one is what is looked for.
async fn each(app: &App, user: &UserId, run: &RunRow, mut is_it: impl FnMut(&Event) -> bool) -> Result<bool, Problem> {
    let Some(first) = run.first else { return Ok(false) };
    let mut at = first.before();
    loop {
        let page = app.engine.ports().journal.read(user, &run.thread, at, PageLimit::WIDE).await?;
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
    let busy = match app.engine.busy_with(user, &thread).await? {
        Some(busy) => app.engine.run_of(user, &busy).await?,
        None => None,
    };
    let new = NewRun { promised: previous.is_none(), thread: Some(thread), ..new };
    let new = match (&busy, previous) {
        (Some(busy), Some(run)) if busy.id != run.id => forked(app, user, &run, new).await?,
        (_, run) => NewRun { previous: run.map(|run| run.id), ..new },
    };
    // Whoever goes on without an answer does not wait for one.
    let waits = busy.is_some_and(|busy| busy.status == TaskStatus::Paused) && new.thread.is_some();
    Ok(NewRun { on_busy: if waits { OnBusy::Interrupt } else { OnBusy::Enqueue }, ..new })
}

/// The thread is busy with something else: the new run goes on by itself, with a copy of what was said until then. Where
/// that is too much for one record, it waits for its turn instead.
async fn forked(app: &App, user: &UserId, run: &RunRow, new: NewRun) -> Result<NewRun, Problem> {
    let mut before = app.engine.said_until(user, run).await?;
    before.entries.extend(new.before.iter().flat_map(|before| before.entries.clone()));
    let size = serde_json::to_vec(&before).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX / 2 {
        return Ok(NewRun { previous: Some(run.id.clone()), ..new });
    }
    Ok(NewRun { thread: None, promised: false, before: Some(before), ..new })
}
