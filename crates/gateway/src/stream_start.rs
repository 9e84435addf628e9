//! Where a stream starts: from a cursor or a run to a position in the log and the projection's state there.
//!
//! A cursor is valid in its thread's whole log. On a task's stream a position before the task means the task's beginning, and
//! one after its end means that the stream is over.

use crate::attachments::BlobUrlSigner;
use crate::attachments::inline_images::ThreadImages;
use crate::context::Gateway;
use crate::queue_cancel::{QueueCancelFrames, native_frames, projected_frames};
use crate::rejection::Rejection;
use crate::run_lookup::{RunStart, find_run_start};
use crate::storage_alarm::reject_when_full;
pub use crate::stream_until::{StreamUntil, insert_after_first_frame};
use bytes::Bytes;
use engine::{View, Viewer};
use model::cursor::{Cursor, CursorError};
use model::ports::{Frames, PageLimit, Projection, RunRow, StoreError};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::record_frames;
use protocol::run_items::{self, RunItemsProjection};
use protocol::task::{RecordScope, TaskProjection};
use std::future::pending;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long the stream of a new run waits for the first record before it watches the queue.
pub const QUEUE_GRACE: Duration = Duration::from_secs(1);

/// A projection, and the names that identify it.
pub struct StreamView {
    /// Protocol, options and scope: subscribers to views of the same name share frames.
    pub name: String,
    /// The projection's name in cursors that point inside a record; empty if every record is one frame.
    pub dialect: &'static str,
    /// In its initial state.
    pub projection: Box<dyn Projection>,
}

/// Formats of the native API's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeFormat {
    /// Events as in the log.
    Task,
    /// Items of a run, as agent SDKs have them.
    RunItems,
}

impl NativeFormat {
    pub fn parse(text: Option<&str>) -> Result<Self, Rejection> {
        match text {
            None | Some("task") => Ok(Self::Task),
            Some("run-items") => Ok(Self::RunItems),
            Some(_) => Err(Rejection::invalid_param("format", "must be `task` or `run-items`")),
        }
    }

    /// Parses the `until` of a stream, which ends at a pause if it has one.
    pub fn parse_until(self, until: Option<&str>) -> Result<StreamUntil, Rejection> {
        match (until, self) {
            (None, _) => Ok(StreamUntil::End),
            (Some("pause"), Self::RunItems) => Ok(StreamUntil::Pause),
            (Some("pause"), Self::Task) => Err(Rejection::invalid_param("until", "is for `format=run-items` only")),
            (Some(_), _) => Err(Rejection::invalid_param("until", "must be `pause`")),
        }
    }

    fn run_view(self, thread: &ThreadId, run: &TaskId) -> StreamView {
        match self {
            Self::Task => task_view(RecordScope::Run(run.clone()), format!("task/run/{run}")),
            Self::RunItems => {
                let projection = Box::new(RunItemsProjection::new(run.clone(), thread));
                StreamView {
                    name: format!("run-items/run/{run}"),
                    dialect: run_items::RUN_ITEMS_PROJECTION,
                    projection,
                }
            }
        }
    }

    fn queue_cancel_frames(self, run: &TaskId) -> Option<QueueCancelFrames> {
        match self {
            Self::Task => Some(native_frames(run.clone())),
            Self::RunItems => None,
        }
    }

    fn thread_view(self, thread: &ThreadId) -> StreamView {
        match self {
            Self::Task => task_view(RecordScope::Thread, "task/thread".to_owned()),
            Self::RunItems => {
                let projection = Box::new(RunItemsProjection::for_thread(thread));
                StreamView { name: "run-items/thread".to_owned(), dialect: run_items::RUN_ITEMS_PROJECTION, projection }
            }
        }
    }
}

fn task_view(scope: RecordScope, name: String) -> StreamView {
    StreamView { name, dialect: "", projection: Box::new(TaskProjection::new(scope)) }
}

/// A position in a thread's log.
#[derive(Clone, Copy)]
pub struct StreamPosition {
    /// The projection needs the records after this one to reach its state at `start`.
    pub history_start: Seq,
    /// The last record that the client has in full.
    pub start: Seq,
    /// Number of leading frames after `start` to skip.
    pub skip_frames: u64,
}

impl StreamPosition {
    /// The position after a record, with a projection in its initial state.
    pub const fn after(seq: Seq) -> Self {
        Self { history_start: seq, start: seq, skip_frames: 0 }
    }
}

/// A stream without a subscriber yet.
pub struct StreamStart {
    thread: ThreadId,
    view: View,
    /// The last record that the client has in full.
    start: Seq,
    /// The projection at that record, if it was needed to find the record.
    projector: Option<Box<dyn Projection>>,
    /// Opened already, if the first frames were needed to find out whether they exist.
    viewer: Option<Box<Viewer>>,
    /// A run that has not started: if it is cancelled in the queue, it never writes a record.
    pub queued_run: Option<TaskId>,
    /// Frames to send in that case.
    pub queue_cancel_frames: Option<QueueCancelFrames>,
    /// Whether clients expect image bytes where frames have URLs.
    inline_images: bool,
    pub until: StreamUntil,
    /// Frames without ids, before those of the log.
    pub prelude: Option<Bytes>,
    /// Frames without ids, after the first one of the log.
    pub inserted: Option<Bytes>,
}

impl StreamStart {
    pub fn new(thread: ThreadId, view: StreamView, position: StreamPosition) -> Self {
        let StreamPosition { history_start, start, skip_frames } = position;
        let view = View { lane: view.name.into(), projection: view.projection, history_start, skip_frames };
        Self {
            thread,
            view,
            start,
            projector: None,
            viewer: None,
            queued_run: None,
            queue_cancel_frames: None,
            inline_images: false,
            until: StreamUntil::End,
            prelude: None,
            inserted: None,
        }
    }

    /// Starts after a record instead, with the projection as it is there.
    pub(crate) fn resumed_at(mut self, projector: Box<dyn Projection>, start: Seq, skip_frames: u64) -> Self {
        self.view.skip_frames = skip_frames;
        Self { start, projector: Some(projector), ..self }
    }

    /// Reads the log up to the first frames. Returns the number of frames that an ended log lacks of those to skip.
    pub(crate) async fn read_ahead(&mut self, gateway: &Gateway, user: &UserId) -> Result<u64, StoreError> {
        let View { lane, projection, history_start, skip_frames } = &self.view;
        let (lane, projection) = (Arc::clone(lane), projection.boxed_clone());
        let view = View { lane, projection, history_start: *history_start, skip_frames: *skip_frames };
        let mut viewer = open_viewer_at(gateway, user, &self.thread, view, self.start, self.projector.take());
        let missing = viewer.read_ahead().await?;
        // The end of a frozen share is not that of the run.
        let is_whole = viewer.has_ended() && gateway.shares.frozen_at(user).is_none();
        let missing = if is_whole { missing } else { 0 };
        self.viewer = Some(Box::new(viewer));
        Ok(missing)
    }

    /// Whether this user, the viewer of a frozen share, has seen every visible record.
    pub fn is_past_frozen_end(&self, gateway: &Gateway, user: &UserId) -> bool {
        gateway.shares.frozen_at(user).is_some_and(|until| self.start >= until)
    }

    #[must_use]
    pub fn with_until(self, until: StreamUntil) -> Self {
        Self { until, ..self }
    }

    /// Sends these frames first, for a client that has nothing before the position of the stream.
    pub(crate) fn with_prelude(self, frames: Bytes) -> Self {
        Self { prelude: Some(frames).filter(|frames| !frames.is_empty()), ..self }
    }

    pub(crate) fn with_inserted(self, frames: Bytes) -> Self {
        Self { inserted: Some(frames).filter(|frames| !frames.is_empty()), ..self }
    }

    /// Marks a run that has not started. `frames` end the stream if it is cancelled in the queue; those of the projection
    /// by default.
    pub(crate) fn with_queued_run(mut self, run: Option<TaskId>, frames: Option<QueueCancelFrames>) -> Self {
        let Some(run) = run else { return self };
        let projection = self.view.projection.boxed_clone();
        let projected = || projected_frames(projection, self.thread.clone(), run.clone());
        self.queue_cancel_frames = Some(frames.unwrap_or_else(projected));
        self.queued_run = Some(run);
        self
    }

    fn for_format(self, format: NativeFormat) -> Self {
        match format {
            NativeFormat::Task => self,
            // Its frames embed those of Responses.
            NativeFormat::RunItems => self.with_inline_images(),
        }
    }

    pub(crate) fn with_inline_images(self) -> Self {
        Self { inline_images: true, ..self }
    }

    /// Returns when the run is cancelled in the queue, which leaves its row and no record; never for a run that has started.
    pub fn cancelled_in_queue(
        &self,
        gateway: &Gateway,
        user: &UserId,
    ) -> impl Future<Output = Result<Option<RunRow>, StoreError>> + Send + 'static {
        let (engine, user, thread) = (gateway.engine.clone(), user.clone(), self.thread.clone());
        let queued_run = self.queued_run.clone();
        async move {
            let Some(run) = queued_run else { return pending().await };
            engine.wait_settled(&user, &run, &thread).await?;
            let row = engine.run_of_task(&user, &run).await?;
            match row.as_ref().is_none_or(|row| row.first_seq.is_none() && row.status.is_terminal()) {
                true => Ok(row),
                false => pending().await,
            }
        }
    }

    /// The images to insert into the frames for this user, if its clients expect them.
    pub fn inline_images_for(&self, gateway: &Gateway, user: &UserId) -> Option<ThreadImages> {
        self.inline_images.then(|| thread_images(gateway, user, &self.thread))
    }
}

pub fn thread_images(gateway: &Gateway, user: &UserId, thread: &ThreadId) -> ThreadImages {
    ThreadImages::new(&gateway.engine.ports().directory, &gateway.attachments, user, thread)
}

/// Signs the blob URLs in what this user is sent.
pub fn blob_url_signer(gateway: &Gateway, user: &UserId) -> BlobUrlSigner {
    BlobUrlSigner::new(&gateway.engine.ports().directory, &gateway.attachments, user)
}

/// The stream of a run that was just started: all of its records come after this one, so no lookup is needed.
pub fn start_of_new_run(thread: ThreadId, run: TaskId, after: Seq, format: NativeFormat) -> StreamStart {
    let view = format.run_view(&thread, &run);
    let position = StreamPosition::after(after);
    let cancel_frames = format.queue_cancel_frames(&run);
    StreamStart::new(thread, view, position).with_queued_run(Some(run), cancel_frames).for_format(format)
}

/// The stream of a task; `None` if the client has all of it.
pub async fn start_of_task(
    gateway: &Gateway,
    user: &UserId,
    task: &TaskId,
    format: NativeFormat,
    cursor: Option<Cursor>,
) -> Result<Option<StreamStart>, Rejection> {
    let run_start = find_run_start(gateway, user, task).await?;
    let queued_run = run_start.queued_run();
    let RunStart { run, before } = run_start;
    let is_root = run.id == *task;
    let view = match format {
        NativeFormat::Task if !is_root => task_view(RecordScope::Task(task.clone()), format!("task/task/{task}")),
        NativeFormat::RunItems if !is_root => {
            let reason = "a sub-agent has no `run-items` of its own: they are one call of its run";
            return Err(Rejection::invalid_param("format", reason));
        }
        _ => format.run_view(&run.thread, task),
    };
    if !is_root && gateway.engine.task_object(user, task).await?.is_none() {
        return Err(Rejection::not_found());
    }
    let (start, skip_frames) = resolve_cursor(gateway, user, &run.thread, cursor.as_ref(), view.dialect).await?;
    // A position before the task means its beginning.
    let (start, skip_frames) = if start < before { (before, 0) } else { (start, skip_frames) };
    if is_task_over(gateway, user, &run, task, start).await? {
        return Ok(None);
    }
    let position = StreamPosition { history_start: before, start, skip_frames };
    check_frame_offset(gateway, user, &run.thread, view.projection.boxed_clone(), position).await?;
    let stream = StreamStart::new(run.thread, view, position);
    Ok(Some(stream.with_queued_run(queued_run, format.queue_cancel_frames(task)).for_format(format)))
}

/// The stream of a thread, which never ends.
pub async fn start_of_thread(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    format: NativeFormat,
    cursor: Option<Cursor>,
) -> Result<StreamStart, Rejection> {
    let stream =
        resume_stream(gateway, user, thread, format.thread_view(thread), cursor.unwrap_or(Cursor::START)).await?;
    Ok(stream.for_format(format))
}

/// The stream of a thread from a cursor, for any projection that processes it run by run.
pub async fn resume_stream(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    view: StreamView,
    cursor: Cursor,
) -> Result<StreamStart, Rejection> {
    let (start, skip_frames) = resolve_cursor(gateway, user, thread, Some(&cursor), view.dialect).await?;
    let history_start = match view.projection.needs_history() {
        true => seq_before_current_run(gateway, user, thread, start).await?,
        false => start,
    };
    let position = StreamPosition { history_start, start, skip_frames };
    check_frame_offset(gateway, user, thread, view.projection.boxed_clone(), position).await?;
    Ok(StreamStart::new(thread.clone(), view, position))
}

/// Checks that the record after `start` has more than `skip` frames. A client holds a cursor inside a record only if it has
/// some of the record's frames but not the last; a larger offset would skip frames of later records.
pub(crate) async fn check_frame_offset(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    mut projection: Box<dyn Projection>,
    position: StreamPosition,
) -> Result<(), Rejection> {
    let StreamPosition { history_start, start, skip_frames } = position;
    if skip_frames == 0 {
        return Ok(());
    }
    let journal = &*gateway.engine.ports().journal;
    engine::for_each_condensed_record(journal, user, thread, history_start, start, |record| {
        projection.project(record, &mut Frames::discarded());
        ControlFlow::<()>::Continue(())
    })
    .await?;
    let page = journal.read_page(user, thread, start, PageLimit::ONE).await?;
    let frame_count = page.records.first().map(|record| {
        let mut frames = Frames::discarded();
        projection.project(record, &mut frames);
        u64::MAX - frames.remaining_skip()
    });
    match frame_count {
        Some(count) if skip_frames >= count => Err(CursorError::Mismatch.into()),
        Some(_) | None => Ok(()),
    }
}

/// Checks that a cursor belongs to this log, and returns its record and the number of frames to skip after it.
pub(crate) async fn resolve_cursor(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    cursor: Option<&Cursor>,
    dialect: &str,
) -> Result<(Seq, u64), Rejection> {
    let Some(cursor) = cursor else { return Ok((Seq::ZERO, 0)) };
    gateway.engine.check_cursor(user, thread, cursor).await?;
    Ok(record_frames::resume_position(cursor, dialect)?)
}

/// The position before the run that is in progress at `start`; `start` itself if there is none.
pub(crate) async fn seq_before_current_run(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    start: Seq,
) -> Result<Seq, Rejection> {
    if start == Seq::ZERO {
        return Ok(start);
    }
    let page = gateway.engine.ports().journal.read_page(user, thread, start.prev(), PageLimit::ONE).await?;
    let Some(record) = page.records.first() else { return Ok(start) };
    let row = gateway.engine.ports().directory.run(user, &record.run).await?;
    let in_progress = row.filter(|row| !row.status.is_terminal() || row.last_seq.is_some_and(|last| start < last));
    Ok(in_progress.and_then(|row| row.first_seq).map_or(start, Seq::prev))
}

pub fn open_viewer(gateway: &Gateway, user: &UserId, stream: StreamStart) -> Viewer {
    match stream.viewer {
        Some(viewer) => *viewer,
        None => open_viewer_at(gateway, user, &stream.thread, stream.view, stream.start, stream.projector),
    }
}

fn open_viewer_at(
    gateway: &Gateway,
    user: &UserId,
    thread: &ThreadId,
    view: View,
    start: Seq,
    projector: Option<Box<dyn Projection>>,
) -> Viewer {
    let viewer = gateway.engine.watch_from(user, thread, view, start).with_projector(projector);
    match gateway.shares.frozen_at(user) {
        Some(until) => viewer.with_end(until),
        None => viewer,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    Complete,
    /// The thread was deleted, or the engine stops.
    Interrupted,
}

/// Reads the stream of a run to its end, and drops the frames. Fails when the disk stays full.
pub async fn wait_for_end(
    gateway: &Gateway,
    user: &UserId,
    run: &TaskId,
    stream: StreamStart,
) -> Result<StreamEnd, Rejection> {
    let mut full = pin!(reject_when_full(gateway, run));
    let mut cancelled = pin!(stream.cancelled_in_queue(gateway, user));
    let mut viewer = open_viewer(gateway, user, stream);
    loop {
        tokio::select! {
            // The viewer first: the end of a deleted thread is not a cancellation.
            biased;
            frames = viewer.next() => match frames? {
                Some(_) => {}
                None if viewer.is_interrupted() => return Ok(StreamEnd::Interrupted),
                None => return Ok(StreamEnd::Complete),
            },
            cancelled = &mut cancelled => {
                cancelled?;
                return Ok(StreamEnd::Complete);
            }
            rejection = &mut full => return Err(rejection),
        }
    }
}

/// Whether all records of the task are at or before `start`.
async fn is_task_over(
    gateway: &Gateway,
    user: &UserId,
    run: &RunRow,
    task: &TaskId,
    start: Seq,
) -> Result<bool, Rejection> {
    let Some(first) = run.first_seq else { return Ok(run.status.is_terminal()) };
    if run.status.is_terminal() && run.last_seq.is_some_and(|last| start >= last) {
        return Ok(true);
    }
    if run.id == *task || start < first {
        return Ok(false);
    }
    // A sub-agent ends before its run, and has no row with its last seq.
    let mut projection = TaskProjection::new(RecordScope::Task(task.clone()));
    let journal = &*gateway.engine.ports().journal;
    let over = engine::for_each_condensed_record(journal, user, &run.thread, first.prev(), start, |record| {
        let mut frames = Frames::discarded();
        projection.project(record, &mut frames);
        if frames.is_finished() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    Ok(over.await?.is_some())
}
