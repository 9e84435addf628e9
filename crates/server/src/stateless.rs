//! Messages and Chat Completions: protocols whose clients bring their whole history and know neither threads nor runs.
//!
//! What such a client sends back is known by the ids of the tools that were called, and of the thoughts where the protocol
//! has any. What it says after the last of these has no names at all, so that it is compared with the log: words that began
//! a run of the same thread are history, and the first that did not begin one is where the conversation goes on.

use crate::app::App;
use crate::auth::Caller;
use crate::body::Json;
use crate::converse::{self, Context, Turn};
use crate::files::intake::{self, Luggage};
use crate::problem::Problem;
use crate::routes::idempotency;
use crate::sse::{self, Manners};
use crate::watch::{self, Place, Shown};
use crate::wire;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use engine::NewRun;
use model::block::{ContentPart, JsonObject};
use model::event::{Event, TaskCreated};
use model::ports::{Frames, IdempotencyKey, ListPage, PageLimit, Projection, RunFilter, RunRow};
use model::{TaskId, UserId};
use protocol::said::{Said, What, Wrong};
use protocol::stateless::{Asked, Failure, FailureKind, is_handed_over};
use serde_json::Value;

/// How many of a thread's newest runs are looked at for words that are known.
const RUNS_LOOKED_AT: usize = 100;
/// Tells the SDKs of these protocols whether they may ask again by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An answer of one of these protocols.
pub(crate) trait Answer: Projection + Clone + 'static {
    /// The answer, whole.
    fn object(&self) -> Value;
    /// Why there is none.
    fn failure(&self) -> Option<&Failure>;
    /// Is it whole, or is there none?
    fn is_over(&self) -> bool;
}

/// What one of these protocols has of its own.
pub(crate) struct Dialect<A> {
    /// Its route.
    pub(crate) route: &'static str,
    /// How its streams are greeted and ended.
    pub(crate) manners: Manners,
    /// Reads a request.
    pub(crate) asked: fn(&JsonObject) -> Result<Asked, Wrong>,
    /// The answer to it: a segment of a run, and whether its stream says what it cost.
    pub(crate) answer: fn(TaskId, u32, bool) -> A,
}

/// Answers a request.
pub(crate) async fn handle<A: Answer>(
    app: App,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
    dialect: Dialect<A>,
) -> Result<Response, Problem> {
    let mut json = Json::read(&headers, body, &app.limits).await?;
    let large = json.room();
    let idempotency = idempotency(&headers, dialect.route, &json.digest())?;
    let body: JsonObject = json.object()?;
    let mut asked = (dialect.asked)(&body).map_err(|wrong| Problem::invalid_body(wrong.to_string()))?;
    drop(body);
    check(&app, &caller.user, &asked, idempotency.as_ref()).await?;
    let (stream, include_usage) = (asked.stream, asked.include_usage);
    let room = stream.then(|| sse::room(&app, &caller)).transpose()?;
    // The log has the addresses of pictures: what comes back is held against these.
    let luggage = Luggage::unpack(&app, "messages", intake::of_said(&mut asked.said)).await?;
    let (said, context) = resent(&app, &caller.user, asked.said).await?;
    let new = NewRun {
        agent: asked.model,
        tools: wire::declared(asked.tools, &app.limits)?,
        metadata: asked.metadata,
        model_settings: asked.wishes,
        idempotency,
        ..NewRun::default()
    };
    let turn = Box::pin(converse::take(&app, &caller.user, (said, luggage), context, new)).await?;
    drop(large);
    let segment = segment(&app, &caller.user, &turn).await?;
    let answer = (dialect.answer)(turn.run.clone(), segment, include_usage);
    let name = format!("{}/{}/{segment}/{include_usage}", dialect.route, turn.run);
    let place = place(&app, &caller.user, &turn, name, answer.clone()).await?;
    if let Some(room) = room {
        return Ok(sse::response_in(&app, &caller, place, dialect.manners, room));
    }
    watch::ended(&app, &caller.user, place).await?;
    whole(&app, &caller.user, &turn, answer).await
}

/// What can be said of a request without looking at what was said before.
async fn check(app: &App, user: &UserId, asked: &Asked, key: Option<&IdempotencyKey>) -> Result<(), Problem> {
    let most = app.limits.input_parts_max;
    let is_too_much = |said: &Said| match &said.what {
        What::User(parts) | What::Result { content: parts, .. } => parts.len() > most,
        _ => false,
    };
    if asked.said.iter().any(is_too_much) {
        return Err(Problem::invalid_body(format!("`messages`: {most} parts are the most that one may have")));
    }
    let is_known = app.engine.ports().definitions.resolve_agent(&asked.model).is_some();
    // A request that was taken before is the same request still, whatever agents there are now.
    if is_known || app.engine.find_submission(user, key).await?.is_some() {
        return Ok(());
    }
    let name: String = asked.model.chars().take(80).collect();
    let detail = format!("`model`: there is no agent `{name}`, and no such model of a provider");
    Err(Problem::new(StatusCode::NOT_FOUND, "model_not_found", detail))
}

/// What is new in a history that comes back, and what it goes on from.
async fn resent(app: &App, user: &UserId, mut said: Vec<Said>) -> Result<(Vec<Said>, Context), Problem> {
    // A result names its call, and with that everything.
    let is_words = |said: &Said| matches!(said.what, What::User(_));
    if !said.last().is_some_and(is_words) {
        return Ok((said, Context::Open));
    }
    let (known, context) = converse::known(app, user, &said, Context::Open).await?;
    let Context::After(run) = context else { return Ok((said, context)) };
    let mut rest = said.split_off(known);
    let run = follow(app, user, *run, &mut rest).await?;
    // What stands before the first words is what the run answered.
    let is_new = |said: &Said| matches!(said.what, What::User(_) | What::System(_));
    let new = rest.iter().position(is_new).unwrap_or(rest.len());
    Ok((rest.split_off(new), Context::After(Box::new(run))))
}

/// Goes from a run to the later ones that were begun with the same words, as far as there are any. Those words are taken
/// off; the last ones stay, for they are what is said now.
async fn follow(app: &App, user: &UserId, mut run: RunRow, rest: &mut Vec<Said>) -> Result<RunRow, Problem> {
    let groups = groups(rest);
    let Some((_, earlier)) = groups.split_last().filter(|(_, earlier)| !earlier.is_empty()) else { return Ok(run) };
    let later = later(app, user, &run).await?;
    let mut known = 0;
    for (words, end) in earlier {
        // Where a request was made twice, the newer answer is the one that was seen last.
        let next = later.iter().rev().find(|later| later.after == run.id && later.words == *words);
        let Some(next) = next else { break };
        run = next.row.clone();
        known = *end;
    }
    rest.drain(..known);
    Ok(run)
}

/// The words that people said, message after message in one, each with the place after it.
fn groups(said: &[Said]) -> Vec<(Vec<ContentPart>, usize)> {
    let mut groups: Vec<(Vec<ContentPart>, usize)> = Vec::new();
    for (place, said) in said.iter().enumerate() {
        let What::User(parts) = &said.what else { continue };
        match groups.last_mut() {
            Some((words, end)) if *end == place => {
                words.extend(parts.iter().cloned());
                *end = place + 1;
            }
            _ => groups.push((parts.clone(), place + 1)),
        }
    }
    groups
}

/// A run that came later in its thread.
struct Later {
    row: RunRow,
    /// The run that it goes on from.
    after: TaskId,
    /// What it was begun with.
    words: Vec<ContentPart>,
}

async fn later(app: &App, user: &UserId, run: &RunRow) -> Result<Vec<Later>, Problem> {
    let ports = app.engine.ports();
    let filter = RunFilter { thread: Some(run.thread.clone()), ..RunFilter::default() };
    let newest = ports.directory.runs(user, filter, ListPage { before: None, limit: RUNS_LOOKED_AT }).await?;
    let mut rows: Vec<RunRow> = newest.into_iter().take_while(|row| row.id != run.id).collect();
    rows.reverse();
    let mut later = Vec::new();
    let mut before = run.id.clone();
    for row in rows {
        let Some(first) = row.first_seq else { continue };
        let page = ports.journal.read_page(user, &row.thread, first.prev(), PageLimit::ONE).await?;
        let Some(Event::Created(TaskCreated { task, .. })) = page.records.first().map(|record| record.event()) else {
            continue;
        };
        let after = task.previous.clone().unwrap_or(before);
        before = row.id.clone();
        let words = task.input.iter().flat_map(|message| message.content.iter().cloned()).collect();
        later.push(Later { row, after, words });
    }
    Ok(later)
}

/// Which answer of its run a turn is. Pauses for people are none of ours.
async fn segment(app: &App, user: &UserId, turn: &Turn) -> Result<u32, Problem> {
    let (mut pauses, mut segment) = (1, 1);
    let (row, mut at) = watch::begun(app, user, &turn.run).await?;
    while pauses < turn.segment {
        let page = app.engine.ports().journal.read_page(user, &row.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { break };
        at = last.seq;
        for record in page.records.iter().take_while(|record| record.run == row.id) {
            if pauses < turn.segment && matches!(record.event(), Event::Paused(_)) {
                pauses += 1;
                segment += u32::from(is_handed_over(record.event()));
            }
        }
    }
    Ok(segment)
}

async fn place(
    app: &App,
    user: &UserId,
    turn: &Turn,
    name: String,
    projection: impl Projection + 'static,
) -> Result<Place, Problem> {
    let (row, from) = watch::begun(app, user, &turn.run).await?;
    let queued = row.first_seq.is_none().then(|| row.id.clone());
    let shown = Shown { name, dialect: "", projection: Box::new(projection) };
    Ok(Place::new(turn.thread.clone(), shown, from, (from, 0)).queued(queued))
}

/// The answer in one piece, once it has ended.
async fn whole(app: &App, user: &UserId, turn: &Turn, mut answer: impl Answer) -> Result<Response, Problem> {
    let (_, mut at) = watch::begun(app, user, &turn.run).await?;
    while !answer.is_over() {
        let page = app.engine.ports().journal.read_page(user, &turn.thread, at, PageLimit::WIDE).await?;
        // A run that was given up before it began has left nothing.
        let Some(last) = page.records.last() else { return Err(failed(&given_up())) };
        at = last.seq;
        let mut unseen = Frames::default();
        page.records.iter().for_each(|record| answer.project(record, &mut unseen));
    }
    match answer.failure() {
        Some(failure) => Err(failed(failure)),
        None => Ok(axum::Json(answer.object()).into_response()),
    }
}

fn given_up() -> Failure {
    let message = "The run was given up before it began.".to_owned();
    Failure { kind: FailureKind::Cancelled, message, may_retry: false }
}

fn failed(failure: &Failure) -> Problem {
    let (status, code) = match failure.kind {
        FailureKind::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "rate_limited"),
        FailureKind::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
        FailureKind::Cancelled => (StatusCode::INTERNAL_SERVER_ERROR, "cancelled"),
        FailureKind::Other => (StatusCode::INTERNAL_SERVER_ERROR, "run_failed"),
    };
    let again = if failure.may_retry { "true" } else { "false" };
    Problem::new(status, code, failure.message.clone()).header(SHOULD_RETRY, again)
}
