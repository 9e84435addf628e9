//! The stream of a response from any of its frames.
//!
//! Clients count frames, and only folding the run tells which record a frame belongs to. The records are read once: the
//! projection that has counted them is the one that the stream continues with.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::responses::{ResponseRef, find_response_ref, read_response, response_not_found, start_of_response};
use crate::run_lookup::for_each_record_of_run;
use crate::stream_start::StreamStart;
use model::ports::{Frames, Projection as _};
use model::{Record, Seq, UserId};
use protocol::responses::ResponsesProjection;
use std::ops::ControlFlow;

/// More frames than a record nearly ever has. A record that has more only makes the stream read the run again.
const RECORD_FRAMES: u64 = 16;

/// Finds a response and its stream without the first `skip_frames` frames. One with `store: false`, and one that was deleted,
/// do not exist.
pub async fn find_response_stream(
    gateway: &Gateway,
    user: &UserId,
    id: &str,
    skip_frames: u64,
) -> Result<StreamStart, Rejection> {
    let response = find_response_ref(gateway, user, id).await?;
    let found = find_frame(gateway, user, &response, skip_frames).await?;
    let place = match found {
        Some(FrameSearch { is_stored: false, .. }) => return Err(response_not_found(id)),
        // While the response is in progress, the stream waits for the frame.
        Some(FrameSearch { is_ended: true, frames_left: 1.., frame_count, .. }) => return Err(ahead_of(frame_count)),
        Some(search) => search.place,
        // It has not started: the inbox has it.
        None => {
            let snapshot = read_response(gateway, user, &response).await?;
            let snapshot = snapshot.filter(|snapshot| snapshot.is_stored()).ok_or_else(|| response_not_found(id))?;
            if snapshot.is_ended && skip_frames > snapshot.frame_count {
                return Err(ahead_of(snapshot.frame_count));
            }
            None
        }
    };
    let stream = start_of_response(gateway, user, &response.into(), skip_frames).await?;
    let Some(FramePlace { projection, seq, frames_left }) = place else { return Ok(stream) };
    let mut stream = stream.resumed_at(projection, seq, frames_left);
    match stream.read_ahead(gateway, user).await? {
        0 => Ok(stream),
        missing => Err(ahead_of(skip_frames.saturating_sub(missing))),
    }
}

fn ahead_of(frame_count: u64) -> Rejection {
    let head = frame_count.saturating_sub(1);
    let detail = format!("is ahead of the response, whose last event has the number {head}");
    Rejection::invalid_param("starting_after", detail)
}

/// A position shortly before a frame.
struct FramePlace {
    /// As it is after the record at `seq`.
    projection: Box<ResponsesProjection>,
    seq: Seq,
    /// The frames between the record and the position.
    frames_left: u64,
}

/// What reading the run up to a frame has found.
struct FrameSearch {
    /// `None` if the frame is among the response's first ones, or does not exist.
    place: Option<FramePlace>,
    /// More than zero if the log ends before the frame.
    frames_left: u64,
    frame_count: u64,
    is_stored: bool,
    is_ended: bool,
}

/// Reads a response up to shortly before a frame; `None` if the log does not have the response.
async fn find_frame(
    gateway: &Gateway,
    user: &UserId,
    ResponseRef { run, segment }: &ResponseRef,
    skip_frames: u64,
) -> Result<Option<FrameSearch>, Rejection> {
    let mut projection = Box::new(ResponsesProjection::new(run.id.clone(), *segment, &run.thread));
    let (mut frames_left, mut is_ended, mut last_seq) = (skip_frames, false, Seq::ZERO);
    let found = for_each_record_of_run(gateway, user, run, |record: &Record| {
        let has_started = projection.frame_count() > 0;
        if has_started && frames_left <= record.record_count() + RECORD_FRAMES {
            return ControlFlow::Break(true);
        }
        let mut frames = Frames::discarded();
        projection.project(record, &mut frames);
        frames_left = frames_left.saturating_sub(u64::MAX - frames.remaining_skip());
        last_seq = record.seq;
        is_ended = frames.is_finished();
        let is_passed = frames_left == 0 && projection.frame_count() > 0;
        if is_ended || is_passed { ControlFlow::Break(false) } else { ControlFlow::Continue(()) }
    })
    .await?;
    let (frame_count, is_stored) = (projection.frame_count(), projection.is_stored());
    let place = (found == Some(true)).then_some(FramePlace { projection, seq: last_seq, frames_left });
    let frames_left = if place.is_some() { 0 } else { frames_left };
    Ok((frame_count > 0).then_some(FrameSearch { place, frames_left, frame_count, is_stored, is_ended }))
}
