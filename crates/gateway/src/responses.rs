//! Runs as responses of OpenAI's Responses API: each segment of a run, from its start or a pause to the next pause or its
//! end, is one response.

use crate::answers::ResolvedStart;
use crate::context::Gateway;
use crate::queue_cancel::QueueCancelFrames;
use crate::rejection::{Rejection, truncate_id};
use crate::resolve_run::{ConversationRef, ResolvedRun};
use crate::run_lookup::for_each_record_of_run;
use crate::stream_start::{StreamEnd, StreamPosition, StreamStart, StreamView, wait_for_end};
use crate::task_commands::submit_cancel;
use crate::thread_names::create_alias;
use bytes::{Bytes, BytesMut};
use heavy_work::run_in_place;
use model::command::{CancelCause, CancelCommand, Command, StartCommand};
use model::error::ErrorCode;
use model::event::CancelMode;
use model::ports::{AliasData, AliasKind, Frames, Projection as _, RunRow};
use model::{TaskId, UserId};
use protocol::responses::{InputItems, PendingResponse, PendingStatus, ResponsesProjection};
use serde_json::Value;
use std::ops::ControlFlow;

/// One segment of a run.
pub struct ResponseRef {
    pub run: RunRow,
    pub segment: u32,
}

/// The state of a response.
pub struct ResponseSnapshot {
    content: SnapshotContent,
    pub frame_count: u64,
    pub is_ended: bool,
}

enum SnapshotContent {
    /// The object of a response that has not started.
    Pending(Value),
    /// Not rendered before it is wanted: a long response takes a while, and a stream only needs the number of its frames.
    Logged(Box<ResponsesProjection>),
}

impl ResponseSnapshot {
    pub fn object(&self) -> Value {
        match &self.content {
            SnapshotContent::Pending(object) => object.clone(),
            SnapshotContent::Logged(projection) => run_in_place(|| projection.object()).unwrap_or_default(),
        }
    }

    /// The JSON text of [`Self::object`] in consecutive pieces: long items are not copied.
    pub fn object_json(&self) -> Vec<Bytes> {
        match &self.content {
            SnapshotContent::Pending(object) => vec![object.to_string().into()],
            SnapshotContent::Logged(projection) => run_in_place(|| projection.object_json()).unwrap_or_default(),
        }
    }

    pub(crate) fn is_stored(&self) -> bool {
        match &self.content {
            SnapshotContent::Pending(object) => object.get("store").and_then(Value::as_bool).unwrap_or(true),
            SnapshotContent::Logged(projection) => projection.is_stored(),
        }
    }
}

impl From<ResponseRef> for ResolvedRun {
    fn from(ResponseRef { run, segment }: ResponseRef) -> Self {
        Self::existing(&run, segment)
    }
}

pub(crate) fn response_not_found(id: &str) -> Rejection {
    Rejection::new(ErrorCode::NotFound, format!("Response with id '{}' not found.", truncate_id(id)))
}

/// Finds a response and its current state. One with `store: false`, and one that was deleted, do not exist.
pub async fn find_response(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
) -> Result<(ResponseRef, ResponseSnapshot), Rejection> {
    let (response, snapshot) = find_any_response(gateway, user, id).await?;
    if snapshot.is_stored() { Ok((response, snapshot)) } else { Err(response_not_found(id)) }
}

/// The run of a response that was not deleted, whether or not the run has such a segment.
pub(crate) async fn find_response_ref(gateway: &Gateway, user: &UserId, id: &str) -> Result<ResponseRef, Rejection> {
    let (run, segment) = ResponsesProjection::parse_response_id(id).ok_or_else(|| response_not_found(id))?;
    let run = gateway.engine.run_of_task(user, &run).await?.ok_or_else(|| response_not_found(id))?;
    if gateway.engine.ports().directory.alias(user, AliasKind::DeletedResponse, id).await?.is_some() {
        return Err(response_not_found(id));
    }
    Ok(ResponseRef { run, segment })
}

/// Finds the conversation of a `previous_response_id`.
pub async fn find_previous_response(gateway: &Gateway, user: &UserId, id: &str) -> Result<ConversationRef, Rejection> {
    let found = find_response(gateway, user, id).await;
    conversation_after(id, found.map(|(response, _)| response))
}

/// The same for a response that need not be stored, because the caller has made it.
pub async fn find_unstored_response(gateway: &Gateway, user: &UserId, id: &str) -> Result<ConversationRef, Rejection> {
    conversation_after(id, find_response_ref(gateway, user, id).await)
}

fn conversation_after(id: &str, found: Result<ResponseRef, Rejection>) -> Result<ConversationRef, Rejection> {
    let not_found = || {
        let detail = format!("Previous response with id '{}' not found.", truncate_id(id));
        Rejection::new(ErrorCode::PreviousResponseNotFound, detail)
    };
    let ResponseRef { run, .. } = found.map_err(|error| if error.is_missing() { not_found() } else { error })?;
    // A run that was cancelled before it started has left nothing to continue.
    if run.first_seq.is_none() && run.status.is_terminal() {
        return Err(not_found());
    }
    Ok(ConversationRef::AfterRun(Box::new(run)))
}

/// Reads a response; `None` if its run has no such segment.
pub async fn read_response(
    gateway: &Gateway,
    user: &UserId,
    response: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Rejection> {
    if response.run.first_seq.is_none() {
        return read_queued_response(gateway, user, response).await;
    }
    if let Some(snapshot) = read_from_log(gateway, user, response).await? {
        return Ok(Some(snapshot));
    }
    if response.segment == 1 {
        return Ok(None);
    }
    match read_from_pending_answer(gateway, user, response).await? {
        Some(snapshot) => Ok(Some(snapshot)),
        // The run may have consumed the answer since the first read; then the log has it.
        None => read_from_log(gateway, user, response).await,
    }
}

/// Reads a response from its run's records; `None` if they have no such segment.
async fn read_from_log(
    gateway: &Gateway,
    user: &UserId,
    ResponseRef { run, segment }: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Rejection> {
    let mut projection = ResponsesProjection::new(run.id.clone(), *segment, &run.thread);
    let ended = for_each_record_of_run(gateway, user, run, |record| {
        // Only the object is wanted, so no frame is written.
        let mut frames = Frames::discarded();
        projection.project(record, &mut frames);
        if frames.is_finished() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let is_ended = ended.await?.is_some();
    let frame_count = projection.frame_count();
    let content = SnapshotContent::Logged(Box::new(projection));
    // Every response starts with a frame.
    Ok((frame_count > 0).then_some(ResponseSnapshot { content, frame_count, is_ended }))
}

/// Reads a response whose answer still waits in the inbox: the client that sent it knows the response's id already.
async fn read_from_pending_answer(
    gateway: &Gateway,
    user: &UserId,
    ResponseRef { run, segment }: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Rejection> {
    let rows = gateway.engine.ports().directory.inbox(user, &run.thread).await?;
    let echo = rows.into_iter().find_map(|row| match row.command {
        Command::Answer(answer) if answer.task_id == run.id => Some(answer.request_echo),
        _ => None,
    });
    let Some(echo) = echo else { return Ok(None) };
    let previous = ResponseRef { run: run.clone(), segment: segment - 1 };
    let previous = Box::pin(read_response(gateway, user, &previous)).await?;
    // An answer opens the response after the last one, and no other.
    let is_next = previous.is_some_and(|previous| previous.is_ended);
    Ok(is_next.then(|| ResponseSnapshot {
        content: SnapshotContent::Pending(pending_object(run, *segment, echo.as_ref())),
        frame_count: 0,
        is_ended: false,
    }))
}

/// Reads a response whose run has not started: its request waits in the inbox.
async fn read_queued_response(
    gateway: &Gateway,
    user: &UserId,
    ResponseRef { run, segment }: &ResponseRef,
) -> Result<Option<ResponseSnapshot>, Rejection> {
    if *segment != 1 {
        return Ok(None);
    }
    let echo = find_start_command(gateway, user, run).await?.map(|start| start.request_echo);
    let cancelled = run.status.is_terminal();
    if echo.is_none() && !cancelled {
        // The run has started since the first read, and its records have the request.
        let run = gateway.engine.run_of_task(user, &run.id).await?;
        return match run.filter(|run| run.first_seq.is_some() || run.status.is_terminal()) {
            Some(run) => Box::pin(read_response(gateway, user, &ResponseRef { run, segment: 1 })).await,
            None => Ok(None),
        };
    }
    let echo = echo.flatten();
    let status = if cancelled { PendingStatus::Cancelled } else { PendingStatus::Queued };
    let request = PendingResponse { status, ..pending_response(run, echo.as_ref()) };
    let frame_count = if cancelled { ResponsesProjection::cancelled_events(&run.id, request).len() as u64 } else { 0 };
    let content = SnapshotContent::Pending(ResponsesProjection::pending_object(&run.id, 1, request));
    Ok(Some(ResponseSnapshot { content, frame_count, is_ended: cancelled }))
}

fn pending_response<'a>(run: &'a RunRow, request_echo: Option<&'a Value>) -> PendingResponse<'a> {
    PendingResponse { agent: &run.agent, requested_at: run.created_at, status: PendingStatus::Queued, request_echo }
}

fn pending_object(run: &RunRow, segment: u32, request_echo: Option<&Value>) -> Value {
    ResponsesProjection::pending_object(&run.id, segment, pending_response(run, request_echo))
}

/// The current state of the response that a request resolved to.
pub async fn read_resolved_response(
    gateway: &Gateway,
    user: &UserId,
    resolved: &ResolvedRun,
    request_echo: Option<&Value>,
) -> Result<Vec<Bytes>, Rejection> {
    let run = gateway.engine.run_of_task(user, &resolved.run).await?.ok_or_else(Rejection::not_found)?;
    let response = ResponseRef { run, segment: resolved.segment };
    Ok(match read_response(gateway, user, &response).await? {
        Some(snapshot) => snapshot.object_json(),
        // The answer is stored, and the run has not resumed yet.
        None => vec![pending_object(&response.run, resolved.segment, request_echo).to_string().into()],
    })
}

/// The stream of a response, without its first `skip_frames` frames.
pub async fn start_of_response(
    gateway: &Gateway,
    user: &UserId,
    response: &ResolvedRun,
    skip_frames: u64,
) -> Result<StreamStart, Rejection> {
    let ResolvedRun { run, thread, segment, .. } = response;
    let ResolvedStart { before, queued_run, row } = response.find_start(gateway, user).await?;
    let view = StreamView {
        name: format!("responses/{}", ResponsesProjection::response_id(run, *segment)),
        dialect: "",
        projection: Box::new(ResponsesProjection::new(run.clone(), *segment, thread)),
    };
    let position = StreamPosition { skip_frames, ..StreamPosition::after(before) };
    Ok(StreamStart::new(thread.clone(), view, position)
        .with_queued_run(queued_run, Some(queue_cancel_frames(run.clone(), row, skip_frames)))
        .with_inline_images())
}

/// The frames of a response whose run is cancelled in the queue: it has no records to project.
fn queue_cancel_frames(run: TaskId, row: Option<RunRow>, skip_frames: u64) -> QueueCancelFrames {
    Box::new(move |cancelled| {
        let row = row.as_ref().or(cancelled)?;
        let request = PendingResponse { status: PendingStatus::Cancelled, ..pending_response(row, None) };
        let mut out = BytesMut::new();
        for (number, event) in ResponsesProjection::cancelled_events(&run, request).iter().enumerate() {
            if number as u64 >= skip_frames {
                let event_type = event.get("type").and_then(Value::as_str);
                sse::write_event(&mut out, None, event_type, &event.to_string());
            }
        }
        Some(out.freeze())
    })
}

/// Finds a response that need not be stored, and its current state.
pub async fn find_any_response(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
) -> Result<(ResponseRef, ResponseSnapshot), Rejection> {
    let response = find_response_ref(gateway, user, id).await?;
    let snapshot = read_response(gateway, user, &response).await?.ok_or_else(|| response_not_found(id))?;
    Ok((response, snapshot))
}

/// Cancels the run of a response and waits for the response's end. One that has ended stays as it is. A response that is not
/// stored can be cancelled, too, as long as it is in progress.
pub async fn cancel_response(gateway: &Gateway, user: &UserId, id: &str) -> Result<StreamEnd, Rejection> {
    let (ResponseRef { run, segment }, snapshot) = find_any_response(gateway, user, id).await?;
    if snapshot.is_ended && !snapshot.is_stored() {
        return Err(response_not_found(id));
    }
    if run.status.is_terminal() {
        return Ok(StreamEnd::Complete);
    }
    let cancel = CancelCommand { task_id: run.id.clone(), mode: CancelMode::Immediate, cause: CancelCause::User };
    submit_cancel(gateway, user, run.thread.clone(), cancel, None).await?;
    if snapshot.is_ended {
        return Ok(StreamEnd::Complete);
    }
    let response = ResolvedRun::existing(&run, segment);
    let stream = start_of_response(gateway, user, &response, 0).await?;
    wait_for_end(gateway, user, &run.id, stream).await
}

/// Hides a response. Its thread keeps the log.
pub async fn delete_response(gateway: &Gateway, user: &UserId, id: &str) -> Result<(), Rejection> {
    let (response, _) = find_response(gateway, user, id).await?;
    create_alias(gateway, user, AliasData::DeletedResponse, id, response.run.thread).await?;
    Ok(())
}

/// The input items of a run's segment.
pub async fn input_items_of_run(
    gateway: &Gateway,
    user: &UserId,
    ResponseRef { run, segment }: &ResponseRef,
) -> Result<Vec<Value>, Rejection> {
    if run.first_seq.is_none() {
        return queued_input_items(gateway, user, run).await;
    }
    let (mut current_segment, mut reader, mut items) = (1, InputItems::default(), Vec::new());
    for_each_record_of_run(gateway, user, run, |record| {
        current_segment += u32::from(record.event_type() == "task.resumed");
        let new_items = reader.read_record(record);
        if *segment == current_segment {
            items.extend(new_items);
        }
        ControlFlow::<()>::Continue(())
    })
    .await?;
    Ok(items)
}

/// The input items of a run that has not started.
async fn queued_input_items(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<Vec<Value>, Rejection> {
    let start = find_start_command(gateway, user, run).await?;
    Ok(start.map(|start| InputItems::of_start_command(&start)).unwrap_or_default())
}

/// The command of a run that waits in the inbox.
async fn find_start_command(gateway: &Gateway, user: &UserId, run: &RunRow) -> Result<Option<StartCommand>, Rejection> {
    let rows = gateway.engine.ports().directory.inbox(user, &run.thread).await?;
    Ok(rows.into_iter().find_map(|row| match row.command {
        Command::Start(start) if start.task_id == run.id => Some(*start),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ThreadId;
    use model::task::TaskStatus;

    #[test]
    fn the_first_run_of_a_thread_is_cancelled_with_the_row_that_is_read_then() {
        let (run, thread) = (TaskId::from("task_1"), ThreadId::from("thr_1"));
        let row = RunRow {
            id: run.clone(),
            thread,
            agent: "demo".to_owned(),
            status: TaskStatus::Cancelled,
            first_seq: None,
            last_seq: None,
            created_at: 1_710_000_000_000,
            ended_at: None,
        };
        let frames = queue_cancel_frames(run.clone(), None, 0)(Some(&row)).unwrap();
        assert_eq!(Some(&frames), queue_cancel_frames(run.clone(), Some(row), 0)(None).as_ref());
        let text = String::from_utf8(frames.to_vec()).unwrap();
        assert!(text.contains("\"model\":\"demo\"") && text.contains("\"created_at\":1710000000"), "{text}");
        assert_eq!(queue_cancel_frames(run, None, 0)(None), None, "the thread was deleted");
    }
}
