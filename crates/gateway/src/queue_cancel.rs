//! The last frames of a stream whose run is cancelled in the queue.
//!
//! Such a run never writes a record, so there is nothing to project and no position to resume from. Its clients get the
//! terminal event of their protocol, without an id.

use bytes::{Bytes, BytesMut};
use model::event::{CancelMode, DisplayMode, Event, Initiator, TaskCancelled, TaskCreated, TaskSpec};
use model::json::ExactObject;
use model::ports::{Frames, Projection, RunRow};
use model::record::RecordDraft;
use model::usage::Usage;
use model::{Epoch, Millis, Record, Seq, TaskId, ThreadId};
use protocol::blocks::BlocksProjection;

const CURSOR_MEMBER: &[u8] = b",\"cursor\":\"";

/// Builds the frames when they are needed, which is almost never. It gets the run's row. Without one, because the thread was
/// deleted, there may be no frames: the stream is interrupted.
pub type QueueCancelFrames = Box<dyn FnOnce(Option<&RunRow>) -> Option<Bytes> + Send>;

fn cancelled_event(run: &TaskId) -> Event {
    let (mode, by) = (CancelMode::Immediate, Initiator::User);
    Event::Cancelled(TaskCancelled { task_id: run.clone(), mode, by, usage: Usage::default(), duration_ms: 0 })
}

/// The frames of the native protocol: the event without `seq` and `at`, which only records have.
pub(crate) fn native_frames(run: TaskId) -> QueueCancelFrames {
    Box::new(move |_| {
        let data = serde_json::to_string(&cancelled_event(&run)).unwrap_or_default();
        let mut out = BytesMut::new();
        sse::write_event(&mut out, None, Some("task.cancelled"), &data);
        Some(out.freeze())
    })
}

/// The terminal frames that a projection has for a run that was created and cancelled.
pub(crate) fn projected_frames(
    mut projection: Box<dyn Projection>,
    thread: ThreadId,
    run: TaskId,
) -> QueueCancelFrames {
    Box::new(move |_| {
        let created = Event::Created(TaskCreated { task_id: run.clone(), task: Box::new(empty_spec(&thread)) });
        let mut project = |seq: u64, event: Event, skip: u64| {
            let draft = RecordDraft { seq: Seq(seq), at: 0, event, private: None };
            let mut frames = Frames::default().with_skip(skip);
            projection.project(&Record::seal(&thread, &run, Epoch(0), draft), &mut frames);
            frames.into_parts().0
        };
        project(1, created, u64::MAX);
        Some(without_ids(&project(2, cancelled_event(&run), 0)))
    })
}

/// The lines of a turn of content blocks whose run never started, without cursors.
pub(crate) fn cancelled_turn(session: &str, thread: &ThreadId, run: &TaskId, at: Millis) -> Bytes {
    let mut projection = BlocksProjection::new(session.to_owned());
    let mut out = BytesMut::new();
    let created = Event::Created(TaskCreated { task_id: run.clone(), task: Box::new(empty_spec(thread)) });
    for (seq, event) in (1..).zip([created, cancelled_event(run)]) {
        let draft = RecordDraft { seq: Seq(seq), at, event, private: None };
        let mut frames = Frames::default();
        projection.project(&Record::seal(thread, run, Epoch(0), draft), &mut frames);
        for line in frames.into_parts().0.split_inclusive(|byte| *byte == b'\n') {
            // The cursor is the last member.
            let end = line.windows(CURSOR_MEMBER.len()).rposition(|bytes| bytes == CURSOR_MEMBER);
            out.extend_from_slice(end.and_then(|end| line.get(..end)).unwrap_or_default());
            out.extend_from_slice(b"}\n");
        }
    }
    out.freeze()
}

fn empty_spec(thread: &ThreadId) -> TaskSpec {
    TaskSpec {
        thread_id: thread.clone(),
        agent: String::new(),
        model: String::new(),
        input: Vec::new(),
        parent_task_id: None,
        previous: None,
        tools: Vec::new(),
        metadata: ExactObject::new(),
        display_mode: DisplayMode::default(),
        origin: None,
        client: None,
    }
}

/// Removes the ids of SSE frames: no record stands behind them that a client could resume from.
fn without_ids(frames: &Bytes) -> Bytes {
    let lines = frames.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"id:"));
    lines.flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::chat::{ChatProjection, StreamUsage};
    use protocol::messages::MessagesProjection;
    use protocol::run_items::RunItemsProjection;

    #[test]
    fn every_protocol_has_a_terminal_event_without_an_id() {
        let (run, thread) = (TaskId::from("task_1"), ThreadId::from("thr_1"));
        let projected =
            |projection: Box<dyn Projection>| projected_frames(projection, thread.clone(), run.clone())(None).unwrap();
        let all = [
            (native_frames(run.clone())(None).unwrap(), "task.cancelled"),
            (projected(Box::new(RunItemsProjection::new(run.clone(), &thread))), "\"status\":\"cancelled\""),
            (projected(Box::new(MessagesProjection::new(run.clone(), 1))), "event: error"),
            (projected(Box::new(ChatProjection::new(run.clone(), 1, StreamUsage::Omitted))), "\"error\""),
        ];
        for (frames, wanted) in all {
            let text = String::from_utf8(frames.to_vec()).unwrap();
            assert!(text.contains(wanted) && text.ends_with("\n\n"), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("id:")), "{text}");
        }
    }
}
