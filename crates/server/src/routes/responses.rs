//! `/v1/responses`: runs, as clients of OpenAI's Responses know them. Each segment of a run, from its beginning or a pause to
//! the next pause or its end, is one response.

pub(crate) mod cancel;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod input_items;

use crate::app::App;
use crate::problem::Problem;
use crate::stream_start::{self, StreamStart, StreamView};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use bytes::{Bytes, BytesMut};
use model::command::Command;
use model::error::{ErrorCode, truncate_text};
use model::ports::{AliasKind, Frames, PageLimit, Projection as _, RunRow};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::responses::{PendingResponse, PendingStatus, ResponsesProjection};
use serde_json::Value;

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
pub(crate) struct ResponseRef {
    pub(crate) run: RunRow,
    pub(crate) segment: u32,
}

/// A response as far as it is.
pub(crate) struct ResponseSnapshot {
    pub(crate) object: Value,
    /// How many frames have been shown.
    pub(crate) frame_count: u64,
    /// Has it ended?
    pub(crate) is_ended: bool,
}

pub(crate) fn response_not_found(id: &str) -> Problem {
    let short = truncate_text(id, 80);
    Problem::new(ErrorCode::NotFound, format!("Response with id '{short}' not found."))
}

/// The response of this name, and how far it is. What was not to be kept, or was deleted, does not exist.
pub(crate) async fn find_response(
    app: &App,
    user: &UserId,
    id: &str,
) -> Result<(ResponseRef, ResponseSnapshot), Problem> {
    let (run, segment) = ResponsesProjection::parse_response_id(id).ok_or_else(|| response_not_found(id))?;
    let run = app.engine.run_of_task(user, &run).await?.ok_or_else(|| response_not_found(id))?;
    if app.engine.ports().directory.alias(user, AliasKind::DeletedResponse, id).await?.is_some() {
        return Err(response_not_found(id));
    }
    let found = ResponseRef { run, segment };
    let read = read_response(app, user, &found).await?.ok_or_else(|| response_not_found(id))?;
    let is_kept = read.object.get("store").and_then(Value::as_bool).unwrap_or(true);
    if is_kept { Ok((found, read)) } else { Err(response_not_found(id)) }
}

/// How far a response is; `None` when its run has no such segment.
pub(crate) async fn read_response(
    app: &App,
    user: &UserId,
    found: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Problem> {
    let Some(first) = found.run.first_seq else { return queued_response(app, user, found).await };
    if let Some(read) = response_from_log(app, user, found, first).await? {
        return Ok(Some(read));
    }
    if found.segment == 1 {
        return Ok(None);
    }
    match response_from_pending_answer(app, user, found).await? {
        Some(read) => Ok(Some(read)),
        // Its answer may have been read in this moment, and then the log has it.
        None => response_from_log(app, user, found, first).await,
    }
}

/// How far a response is by its records; `None` when they do not tell of it.
async fn response_from_log(
    app: &App,
    user: &UserId,
    found: &ResponseRef,
    first: Seq,
) -> Result<Option<ResponseSnapshot>, Problem> {
    let ResponseRef { run, segment } = found;
    let mut projection = ResponsesProjection::new(run.id.clone(), *segment, &run.thread);
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
    let (frames, over) = (projection.frame_count(), frames.is_finished());
    Ok(projection.object().map(|object| ResponseSnapshot { object, frame_count: frames, is_ended: over }))
}

/// An answer that its run has not read yet waits in the inbox, and has been told which response it opens.
async fn response_from_pending_answer(
    app: &App,
    user: &UserId,
    found: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Problem> {
    let ResponseRef { run, segment } = found;
    let rows = app.engine.ports().directory.inbox(user, &run.thread).await?;
    let echo = rows.into_iter().find_map(|row| match row.command {
        Command::Answer(answer) if answer.task_id == run.id => Some(answer.request_echo),
        _ => None,
    });
    let Some(echo) = echo else { return Ok(None) };
    let asked = PendingResponse {
        agent: &run.agent,
        requested_at: run.created_at,
        status: PendingStatus::Queued,
        request_echo: echo.as_ref(),
    };
    let before = Box::pin(read_response(app, user, &ResponseRef { run: run.clone(), segment: segment - 1 })).await?;
    // Only the response after the last one that there is can be opened.
    let is_next = before.is_some_and(|before| before.is_ended);
    Ok(is_next.then(|| ResponseSnapshot {
        object: ResponsesProjection::pending_object(&run.id, *segment, asked),
        frame_count: 0,
        is_ended: false,
    }))
}

/// A run that has not begun has no records: what was asked waits in its thread's inbox.
async fn queued_response(app: &App, user: &UserId, found: &ResponseRef) -> Result<Option<ResponseSnapshot>, Problem> {
    let ResponseRef { run, segment } = found;
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
            Some(run) => Box::pin(read_response(app, user, &ResponseRef { run, segment: 1 })).await,
            None => Ok(None),
        };
    }
    let echo = echo.flatten();
    let asked = PendingResponse {
        agent: &run.agent,
        requested_at: run.created_at,
        status: if dropped { PendingStatus::Cancelled } else { PendingStatus::Queued },
        request_echo: echo.as_ref(),
    };
    let frames = if dropped { ResponsesProjection::cancelled_events(&run.id, asked).len() as u64 } else { 0 };
    let object = ResponsesProjection::pending_object(&run.id, 1, asked);
    Ok(Some(ResponseSnapshot { object, frame_count: frames, is_ended: dropped }))
}

/// Where the stream of a response begins, for a client that has so many frames of it.
pub(crate) async fn start_of_response(
    app: &App,
    user: &UserId,
    (run, thread, segment): (&TaskId, &ThreadId, u32),
    skip: u64,
) -> Result<StreamStart, Problem> {
    let (row, from) = stream_start::find_run_start(app, user, run).await?;
    let queued = row.first_seq.is_none().then(|| row.id.clone());
    let name = format!("responses/{}", ResponsesProjection::response_id(run, segment));
    let projection = Box::new(ResponsesProjection::new(run.clone(), segment, thread));
    let shown = StreamView { name, dialect: "", projection };
    let parting = queue_cancel_frames(&row, skip);
    Ok(StreamStart::new(thread.clone(), shown, from, (from, skip))
        .with_queued_run(queued)
        .with_queue_cancel_frames(parting)
        .with_inline_images())
}

/// What a stream says of a run that is given up before it began: no record does.
fn queue_cancel_frames(run: &RunRow, skip: u64) -> Bytes {
    let asked = PendingResponse {
        agent: &run.agent,
        requested_at: run.created_at,
        status: PendingStatus::Cancelled,
        request_echo: None,
    };
    let mut out = BytesMut::new();
    for (number, event) in ResponsesProjection::cancelled_events(&run.id, asked).iter().enumerate() {
        if number as u64 >= skip {
            let kind = event.get("type").and_then(Value::as_str);
            sse::write_event(&mut out, None, kind, &event.to_string());
        }
    }
    out.freeze()
}
