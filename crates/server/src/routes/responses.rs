//! `/v1/responses`: runs, as clients of OpenAI's Responses know them. Each segment of a run, from its beginning or a pause to
//! the next pause or its end, is one response.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod input_items;

use crate::app::App;
use crate::problem::Problem;
use crate::watch::{self, Place, Shown};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use bytes::{Bytes, BytesMut};
use model::command::Command;
use model::ports::{Frames, PageLimit, Projection as _, RunRow};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::responses::{Segment, Unbegun};
use serde_json::Value;

/// Under this protocol the names of responses stand that were deleted.
pub(crate) const DELETED: &str = "responses.deleted";

/// The response that a path names.
pub(crate) struct ResponsePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ResponsePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let params = RawPathParams::from_request_parts(parts, state).await.map_err(|_| Problem::not_found())?;
        let id = params.iter().find(|(key, _)| *key == "response").map(|(_, value)| value.to_owned());
        id.map(Self).ok_or_else(Problem::not_found)
    }
}

/// A response that there is: its run, and which segment of that.
pub(crate) struct Found {
    pub(crate) run: RunRow,
    pub(crate) segment: u32,
}

/// A response as far as it is.
pub(crate) struct Read {
    pub(crate) object: Value,
    /// How many frames have been shown.
    pub(crate) frames: u64,
    /// Has it ended?
    pub(crate) over: bool,
}

pub(crate) fn no_response(id: &str) -> Problem {
    let short: String = id.chars().take(80).collect();
    Problem::new(StatusCode::NOT_FOUND, "not_found", format!("Response with id '{short}' not found."))
}

/// The response of this name, and how far it is. What was not to be kept, or was deleted, does not exist.
pub(crate) async fn find(app: &App, user: &UserId, id: &str) -> Result<(Found, Read), Problem> {
    let (run, segment) = Segment::parse_id(id).ok_or_else(|| no_response(id))?;
    let run = app.engine.run_of_task(user, &run).await?.ok_or_else(|| no_response(id))?;
    if app.engine.ports().directory.alias(user, DELETED, id).await?.is_some() {
        return Err(no_response(id));
    }
    let found = Found { run, segment };
    let read = read(app, user, &found).await?.ok_or_else(|| no_response(id))?;
    let is_kept = read.object.get("store").and_then(Value::as_bool).unwrap_or(true);
    if is_kept { Ok((found, read)) } else { Err(no_response(id)) }
}

/// How far a response is; `None` when its run has no such segment.
pub(crate) async fn read(app: &App, user: &UserId, found: &Found) -> Result<Option<Read>, Problem> {
    let Some(first) = found.run.first_seq else { return queued(app, user, found).await };
    if let Some(read) = logged(app, user, found, first).await? {
        return Ok(Some(read));
    }
    if found.segment == 1 {
        return Ok(None);
    }
    match answered(app, user, found).await? {
        Some(read) => Ok(Some(read)),
        // Its answer may have been read in this moment, and then the log has it.
        None => logged(app, user, found, first).await,
    }
}

/// How far a response is by its records; `None` when they do not tell of it.
async fn logged(app: &App, user: &UserId, found: &Found, first: Seq) -> Result<Option<Read>, Problem> {
    let Found { run, segment } = found;
    let mut projection = Segment::new(run.id.clone(), *segment, &run.thread);
    let mut frames = Frames::default();
    let mut at = first.prev();
    while !frames.is_finished() {
        let page = app.engine.ports().journal.read_page(user, &run.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { break };
        at = last.seq;
        let of_run = page.records.iter().take_while(|record| record.run == run.id);
        let mut count = 0;
        for record in of_run {
            count += 1;
            projection.project(record, &mut frames);
        }
        if count < page.records.len() {
            break;
        }
        // Only the object is wanted.
        let over = frames.is_finished();
        frames = Frames::default();
        if over {
            frames.finish();
        }
    }
    let (frames, over) = (projection.frames_so_far(), frames.is_finished());
    Ok(projection.object().map(|object| Read { object, frames, over }))
}

/// An answer that its run has not read yet waits in the inbox, and has been told which response it opens.
async fn answered(app: &App, user: &UserId, found: &Found) -> Result<Option<Read>, Problem> {
    let Found { run, segment } = found;
    let rows = app.engine.ports().directory.inbox(user, &run.thread).await?;
    let echo = rows.into_iter().find_map(|row| match row.command {
        Command::Answer(answer) if answer.task_id == run.id => Some(answer.request_echo),
        _ => None,
    });
    let Some(echo) = echo else { return Ok(None) };
    let asked = Unbegun { agent: &run.agent, at: run.created_at, given_up: false, echo: echo.as_ref() };
    let before = Box::pin(read(app, user, &Found { run: run.clone(), segment: segment - 1 })).await?;
    // Only the response after the last one that there is can be opened.
    let is_next = before.is_some_and(|before| before.over);
    Ok(is_next.then(|| Read { object: Segment::unbegun(&run.id, *segment, asked), frames: 0, over: false }))
}

/// A run that has not begun has no records: what was asked waits in its thread's inbox.
async fn queued(app: &App, user: &UserId, found: &Found) -> Result<Option<Read>, Problem> {
    let Found { run, segment } = found;
    if *segment != 1 {
        return Ok(None);
    }
    let rows = app.engine.ports().directory.inbox(user, &run.thread).await?;
    let echo = rows.into_iter().find_map(|row| match row.command {
        Command::Start(start) if start.task_id == run.id => Some(start.request_echo),
        _ => None,
    });
    let dropped = run.status.is_terminal();
    if echo.is_none() && !dropped {
        // It has begun in this moment, and its records say what was asked.
        let run = app.engine.run_of_task(user, &run.id).await?;
        return match run.filter(|run| run.first_seq.is_some() || run.status.is_terminal()) {
            Some(run) => Box::pin(read(app, user, &Found { run, segment: 1 })).await,
            None => Ok(None),
        };
    }
    let echo = echo.flatten();
    let asked = Unbegun { agent: &run.agent, at: run.created_at, given_up: dropped, echo: echo.as_ref() };
    let frames = if dropped { Segment::given_up(&run.id, asked).len() as u64 } else { 0 };
    let object = Segment::unbegun(&run.id, 1, asked);
    Ok(Some(Read { object, frames, over: dropped }))
}

/// Where the stream of a response begins, for a client that has so many frames of it.
pub(crate) async fn place(
    app: &App,
    user: &UserId,
    (run, thread, segment): (&TaskId, &ThreadId, u32),
    skip: u64,
) -> Result<Place, Problem> {
    let (row, from) = watch::begun(app, user, run).await?;
    let queued = row.first_seq.is_none().then(|| row.id.clone());
    let name = format!("responses/{}", Segment::id(run, segment));
    let projection = Box::new(Segment::new(run.clone(), segment, thread));
    let shown = Shown { name, dialect: "", projection };
    let parting = parting(&row, skip);
    Ok(Place::new(thread.clone(), shown, from, (from, skip)).queued(queued).parting(parting).with_pictures())
}

/// What a stream says of a run that is given up before it began: no record does.
fn parting(run: &RunRow, skip: u64) -> Bytes {
    let asked = Unbegun { agent: &run.agent, at: run.created_at, given_up: true, echo: None };
    let mut out = BytesMut::new();
    for (number, event) in Segment::given_up(&run.id, asked).iter().enumerate() {
        if number as u64 >= skip {
            let kind = event.get("type").and_then(Value::as_str);
            sse::frame(&mut out, None, kind, &event.to_string());
        }
    }
    out.freeze()
}

/// What stands after the `?`, of the names that a route knows. Others are left alone: SDKs send new ones all the time.
pub(crate) fn query<const N: usize>(uri: &Uri, names: [&str; N]) -> Result<[Option<String>; N], Problem> {
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
        .map_err(|_| Problem::invalid_query("the query cannot be read"))?;
    let mut found = [const { None }; N];
    for (name, value) in pairs.0 {
        if let Some(slot) = names.iter().position(|known| *known == name).and_then(|place| found.get_mut(place)) {
            *slot = Some(value);
        }
    }
    Ok(found)
}
