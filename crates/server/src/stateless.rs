//! Messages and Chat Completions: protocols whose clients bring their whole history and know neither threads nor runs.
//!
//! What such a client sends back is known by the ids of the tools that were called, and of the thoughts where the protocol
//! has any. What it says after the last of these has no names at all, so that it is compared with the log: words that began
//! a run of the same thread are history, and the first that did not begin one is where the conversation goes on.

use crate::app::App;
use crate::attachments::uploads::{self, Uploads};
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::native_api;
use crate::problem::Problem;
use crate::resolve_run::{self, ConversationRef, ResolvedRun};
use crate::routes::parse_idempotency_key;
use crate::sse::{self, SseStyle};
use crate::stream_start::{self, StreamStart, StreamView};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use engine::NewRun;
use model::content::ContentPart;
use model::error::{ErrorCode, truncate_text};
use model::event::{Event, TaskCreated};
use model::json::JsonObject;
use model::ports::{Frames, IdempotencyKey, ListPage, PageLimit, Projection, RunFilter, RunRow};
use model::{TaskId, UserId};
use protocol::client_input::{ClientInput, InputKind, InvalidField};
use protocol::stateless::{RunFailure, RunFailureKind, StatelessRequest, is_client_tool_pause};
use serde_json::Value;

/// How many of a thread's newest runs are looked at for words that are known.
const RECENT_RUNS_MAX: usize = 100;
/// Tells the SDKs of these protocols whether they may ask again by themselves.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An answer of one of these protocols.
pub(crate) trait StatelessResponse: Projection + Clone + 'static {
    /// The answer, whole.
    fn object(&self) -> Value;
    /// Why there is none.
    fn failure(&self) -> Option<&RunFailure>;
    /// Is it whole, or is there none?
    fn is_over(&self) -> bool;
}

/// What one of these protocols has of its own.
pub(crate) struct StatelessProtocol<A> {
    /// Its route.
    pub(crate) route: &'static str,
    /// How its streams are greeted and ended.
    pub(crate) sse_style: SseStyle,
    /// Reads a request.
    pub(crate) parse_request: fn(&JsonObject) -> Result<StatelessRequest, InvalidField>,
    /// The answer to it: a segment of a run, and whether its stream says what it cost.
    pub(crate) new_response: fn(TaskId, u32, bool) -> A,
}

/// Answers a request.
pub(crate) async fn handle<A: StatelessResponse>(
    app: App,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
    dialect: StatelessProtocol<A>,
) -> Result<Response, Problem> {
    let mut json = JsonBody::read(&headers, body, &app.limits).await?;
    let large = json.take_permit();
    let idempotency = parse_idempotency_key(&headers, dialect.route, &json.digest())?;
    let body: JsonObject = json.into_object()?;
    let mut asked = (dialect.parse_request)(&body).map_err(Problem::from)?;
    drop(body);
    check_stateless_request(&app, &caller.user, &asked, idempotency.as_ref()).await?;
    let (stream, include_usage) = (asked.stream, asked.include_usage);
    let room = stream.then(|| sse::acquire_stream_permit(&app, &caller)).transpose()?;
    // The log has the addresses of pictures: what comes back is held against these.
    let luggage = Uploads::extract(&app, "messages", uploads::parts_of_client_input(&mut asked.input)).await?;
    let (said, context) = split_resent_history(&app, &caller.user, asked.input).await?;
    let new = NewRun {
        agent: asked.model,
        tools: native_api::check_client_tools(asked.tools, &app.limits)?,
        metadata: asked.metadata,
        model_settings: asked.model_settings,
        idempotency,
        ..NewRun::default()
    };
    let turn = Box::pin(resolve_run::resolve_run(&app, &caller.user, (said, luggage), context, new)).await?;
    drop(large);
    let segment = segment_of_run(&app, &caller.user, &turn).await?;
    let answer = (dialect.new_response)(turn.run.clone(), segment, include_usage);
    let name = format!("{}/{}/{segment}/{include_usage}", dialect.route, turn.run);
    let place = stateless_stream_start(&app, &caller.user, &turn, name, answer.clone()).await?;
    if let Some(room) = room {
        return Ok(sse::sse_response_with_permit(&app, &caller, place, dialect.sse_style, room));
    }
    stream_start::wait_for_end(&app, &caller.user, place).await?;
    read_full_response(&app, &caller.user, &turn, answer).await
}

/// What can be said of a request without looking at what was said before.
async fn check_stateless_request(
    app: &App,
    user: &UserId,
    asked: &StatelessRequest,
    key: Option<&IdempotencyKey>,
) -> Result<(), Problem> {
    let most = app.limits.input_parts_max;
    let is_too_much = |said: &ClientInput| match &said.kind {
        InputKind::User(parts) | InputKind::ToolResult { content: parts, .. } => parts.len() > most,
        _ => false,
    };
    if asked.input.iter().any(is_too_much) {
        return Err(Problem::invalid_field("messages", format!("a message can have {most} parts at most")));
    }
    let is_known = app.engine.ports().definitions.resolve_agent(&asked.model).is_some();
    // A request that was taken before is the same request still, whatever agents there are now.
    if is_known || app.engine.find_submission(user, key).await?.is_some() {
        return Ok(());
    }
    let name = truncate_text(&asked.model, 80);
    let detail = format!("no agent `{name}`, and no such model of a provider");
    Err(Problem::new(ErrorCode::ModelNotFound, detail).with_field("model"))
}

/// What is new in a history that comes back, and what it goes on from.
async fn split_resent_history(
    app: &App,
    user: &UserId,
    mut said: Vec<ClientInput>,
) -> Result<(Vec<ClientInput>, ConversationRef), Problem> {
    // A result names its call, and with that everything.
    let is_words = |said: &ClientInput| matches!(said.kind, InputKind::User(_));
    if !said.last().is_some_and(is_words) {
        return Ok((said, ConversationRef::Unspecified));
    }
    let (known, context) = resolve_run::find_known_prefix(app, user, &said, ConversationRef::Unspecified).await?;
    let ConversationRef::AfterRun(run) = context else { return Ok((said, context)) };
    let mut rest = said.split_off(known);
    let run = follow_resent_runs(app, user, *run, &mut rest).await?;
    // What stands before the first words is what the run answered.
    let is_new = |said: &ClientInput| matches!(said.kind, InputKind::User(_) | InputKind::System(_));
    let new = rest.iter().position(is_new).unwrap_or(rest.len());
    Ok((rest.split_off(new), ConversationRef::AfterRun(Box::new(run))))
}

/// Goes from a run to the later ones that were begun with the same words, as far as there are any. Those words are taken
/// off; the last ones stay, for they are what is said now.
async fn follow_resent_runs(
    app: &App,
    user: &UserId,
    mut run: RunRow,
    rest: &mut Vec<ClientInput>,
) -> Result<RunRow, Problem> {
    let groups = user_message_groups(rest);
    let Some((_, earlier)) = groups.split_last().filter(|(_, earlier)| !earlier.is_empty()) else { return Ok(run) };
    let later = later_runs_of_thread(app, user, &run).await?;
    let mut known = 0;
    for (words, end) in earlier {
        // Where a request was made twice, the newer answer is the one that was seen last.
        let next = later.iter().rev().find(|later| later.previous == run.id && later.input == *words);
        let Some(next) = next else { break };
        run = next.row.clone();
        known = *end;
    }
    rest.drain(..known);
    Ok(run)
}

/// The words that people said, message after message in one, each with the place after it.
fn user_message_groups(said: &[ClientInput]) -> Vec<(Vec<ContentPart>, usize)> {
    let mut groups: Vec<(Vec<ContentPart>, usize)> = Vec::new();
    for (place, said) in said.iter().enumerate() {
        let InputKind::User(parts) = &said.kind else { continue };
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
struct LaterRun {
    row: RunRow,
    /// The run that it goes on from.
    previous: TaskId,
    /// What it was begun with.
    input: Vec<ContentPart>,
}

async fn later_runs_of_thread(app: &App, user: &UserId, run: &RunRow) -> Result<Vec<LaterRun>, Problem> {
    let ports = app.engine.ports();
    let filter = RunFilter { thread: Some(run.thread.clone()), ..RunFilter::default() };
    let newest = ports.directory.runs(user, filter, ListPage { before: None, limit: RECENT_RUNS_MAX }).await?;
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
        later.push(LaterRun { row, previous: after, input: words });
    }
    Ok(later)
}

/// Which answer of its run a turn is. Pauses for people are none of ours.
async fn segment_of_run(app: &App, user: &UserId, turn: &ResolvedRun) -> Result<u32, Problem> {
    let (mut pauses, mut segment) = (1, 1);
    let (row, mut at) = stream_start::find_run_start(app, user, &turn.run).await?;
    while pauses < turn.segment {
        let page = app.engine.ports().journal.read_page(user, &row.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { break };
        at = last.seq;
        for record in page.records.iter().take_while(|record| record.run == row.id) {
            if pauses < turn.segment && matches!(record.event(), Event::Paused(_)) {
                pauses += 1;
                segment += u32::from(is_client_tool_pause(record.event()));
            }
        }
    }
    Ok(segment)
}

async fn stateless_stream_start(
    app: &App,
    user: &UserId,
    turn: &ResolvedRun,
    name: String,
    projection: impl Projection + 'static,
) -> Result<StreamStart, Problem> {
    let (row, from) = stream_start::find_run_start(app, user, &turn.run).await?;
    let queued = row.first_seq.is_none().then(|| row.id.clone());
    let shown = StreamView { name, dialect: "", projection: Box::new(projection) };
    Ok(StreamStart::new(turn.thread.clone(), shown, from, (from, 0)).with_queued_run(queued))
}

/// The answer in one piece, once it has ended.
async fn read_full_response(
    app: &App,
    user: &UserId,
    turn: &ResolvedRun,
    mut answer: impl StatelessResponse,
) -> Result<Response, Problem> {
    let (_, mut at) = stream_start::find_run_start(app, user, &turn.run).await?;
    while !answer.is_over() {
        let page = app.engine.ports().journal.read_page(user, &turn.thread, at, PageLimit::WIDE).await?;
        // A run that was given up before it began has left nothing.
        let Some(last) = page.records.last() else { return Err(problem_of_failure(&cancelled_before_start())) };
        at = last.seq;
        let mut unseen = Frames::default();
        page.records.iter().for_each(|record| answer.project(record, &mut unseen));
    }
    match answer.failure() {
        Some(failure) => Err(problem_of_failure(failure)),
        None => Ok(axum::Json(answer.object()).into_response()),
    }
}

fn cancelled_before_start() -> RunFailure {
    let message = "The run was given up before it began.".to_owned();
    RunFailure { kind: RunFailureKind::Cancelled, message, retryable: false }
}

fn problem_of_failure(failure: &RunFailure) -> Problem {
    let code = match failure.kind {
        RunFailureKind::RateLimited => ErrorCode::RateLimited,
        RunFailureKind::Overloaded => ErrorCode::Overloaded,
        RunFailureKind::Cancelled => ErrorCode::Cancelled,
        RunFailureKind::Other => ErrorCode::RunFailed,
    };
    let again = if failure.retryable { "true" } else { "false" };
    Problem::new(code, failure.message.clone()).with_header(SHOULD_RETRY, again)
}
