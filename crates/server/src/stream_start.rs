//! Where a stream begins, and whether there is anything to begin with.
//!
//! A cursor that a client holds is good in its thread's whole log. On a task's stream a place before the task is the
//! task's beginning, and one after its end is the end: 204, which tells a browser to stop asking.

use crate::app::App;
use crate::attachments::ThreadImages;
use crate::problem::Problem;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use engine::{View, Viewer};
use model::cursor::{Cursor, CursorError};
use model::error::ErrorCode;
use model::ports::{Frames, PageLimit, Projection, RunRow, StoreError};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::record_frames;
use protocol::run_items::{self, RunItemsProjection};
use protocol::task::{RecordScope, TaskProjection};
use std::time::Duration;

/// How often whoever waits for a run looks whether it was given up in the queue, which leaves no record.
pub(crate) const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(1);

const LAST_EVENT_ID: &str = "last-event-id";

/// The place that a client goes on from; `None` is the beginning. The header wins: a browser that reconnects by itself
/// sends it along with the URL that it began with.
pub(crate) fn parse_request_cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Option<Cursor>, Problem> {
    let mut given = headers.get_all(LAST_EVENT_ID).iter();
    let text = match (given.next(), given.next()) {
        (None, _) => after,
        (Some(id), None) => match id.to_str() {
            // What a browser sends that has not seen an id yet.
            Ok("") => None,
            Ok(id) => Some(id),
            Err(_) => return Err(CursorError::Malformed("?".to_owned()).into()),
        },
        (Some(_), Some(_)) => return Err(CursorError::Malformed("two at once".to_owned()).into()),
    };
    Ok(text.map(str::parse).transpose()?)
}

/// Refuses a client that could not read the stream.
pub(crate) fn check_accepts_sse(headers: &HeaderMap) -> Result<(), Problem> {
    let mut accepts = headers.get_all(header::ACCEPT).iter().peekable();
    if accepts.peek().is_none() {
        return Ok(());
    }
    let texts = accepts.filter_map(|value| value.to_str().ok());
    let fits = |range: &str| {
        let mut pieces = range.split(';').map(str::trim);
        let kind = pieces.next().unwrap_or_default().to_ascii_lowercase();
        let refused = pieces.any(|piece| matches!(piece, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        !refused && matches!(kind.as_str(), "text/event-stream" | "text/*" | "*/*" | "")
    };
    if texts.flat_map(|text| text.split(',')).any(fits) {
        return Ok(());
    }
    let detail = "this is an event stream: accept text/event-stream";
    Err(Problem::new(ErrorCode::NotAcceptable, detail))
}

/// What a stream shows: a projection, and the names that it goes by.
pub(crate) struct StreamView {
    /// Viewers of the same name share frames: protocol, options and scope.
    pub(crate) name: String,
    /// How the projection calls itself in the cursors of inner frames.
    pub(crate) dialect: &'static str,
    /// The projection before its first record.
    pub(crate) projection: Box<dyn Projection>,
}

/// The native protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NativeFormat {
    /// Events as they are logged.
    Task,
    /// The items of a run, as an SDK for agents tells of them.
    RunItems,
}

impl NativeFormat {
    /// Reads `?format=`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Problem> {
        match text {
            None | Some("task") => Ok(Self::Task),
            Some("run-items") => Ok(Self::RunItems),
            Some(_) => Err(Problem::invalid_param("format", "must be `task` or `run-items`")),
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

/// Here a record is one frame, so that there is no place inside one.
const NO_DIALECT: &str = "";

fn task_view(scope: RecordScope, name: String) -> StreamView {
    StreamView { name, dialect: NO_DIALECT, projection: Box::new(TaskProjection::new(scope)) }
}

/// Where a stream begins. Nobody watches yet.
pub(crate) struct StreamStart {
    thread: ThreadId,
    view: View,
    /// Before the first record that is asked for.
    start: Seq,
    /// The run that has not begun: it may be given up, and then nothing ever comes.
    pub(crate) queued_run: Option<TaskId>,
    /// What is said then, where a protocol has words for it.
    pub(crate) queue_cancel_frames: Option<Bytes>,
    /// Do its clients want pictures where frames say where they are?
    inline_images: bool,
}

impl StreamStart {
    /// A stream of a thread: its history begins at `from`, and the client has everything up to `start` and `skip` frames
    /// after that.
    pub(crate) fn new(thread: ThreadId, shown: StreamView, from: Seq, (start, skip): (Seq, u64)) -> Self {
        let view =
            View { lane: shown.name.into(), projection: shown.projection, history_start: from, skip_frames: skip };
        Self { thread, view, start, queued_run: None, queue_cancel_frames: None, inline_images: false }
    }

    /// Does it begin where everything that this user is shown has been shown?
    pub(crate) fn is_past_frozen_end(&self, app: &App, user: &UserId) -> bool {
        app.shares.frozen_at(user).is_some_and(|until| self.start >= until)
    }

    /// The same for a run that may not have begun.
    pub(crate) fn with_queued_run(self, run: Option<TaskId>) -> Self {
        Self { queued_run: run, ..self }
    }

    /// The same, with words for a run that is given up before it began.
    pub(crate) fn with_queue_cancel_frames(self, parting: Bytes) -> Self {
        Self { queue_cancel_frames: Some(parting), ..self }
    }

    /// The same in a native protocol.
    fn for_format(self, format: NativeFormat) -> Self {
        match format {
            NativeFormat::Task => self,
            // Its frames carry those of Responses.
            NativeFormat::RunItems => self.with_inline_images(),
        }
    }

    /// The same for clients that want pictures where frames say where they are.
    pub(crate) fn with_inline_images(self) -> Self {
        Self { inline_images: true, ..self }
    }

    /// The pictures that this user is shown with the frames, if any.
    pub(crate) fn inline_images_for(&self, app: &App, user: &UserId) -> Option<ThreadImages> {
        self.inline_images.then(|| ThreadImages::new(app, user, &self.thread))
    }
}

/// Where the stream of a new thread's first run begins: nothing was there before it, and nobody need look.
pub(crate) fn start_of_first_run(thread: ThreadId, run: TaskId, format: NativeFormat) -> StreamStart {
    let shown = format.run_view(&thread, &run);
    StreamStart::new(thread, shown, Seq::ZERO, (Seq::ZERO, 0)).with_queued_run(Some(run)).for_format(format)
}

/// Where a task's stream begins; `None` when there is nothing left to see.
pub(crate) async fn start_of_task(
    app: &App,
    user: &UserId,
    task: &TaskId,
    format: NativeFormat,
    cursor: Option<Cursor>,
) -> Result<Option<StreamStart>, Problem> {
    let (row, from) = find_run_start(app, user, task).await?;
    let is_root = row.id == *task;
    let shown = match format {
        NativeFormat::Task if !is_root => task_view(RecordScope::Task(task.clone()), format!("task/task/{task}")),
        NativeFormat::RunItems if !is_root => {
            return Err(Problem::invalid_param(
                "format",
                "a sub-agent has no `run-items` of its own: they are one call of its run",
            ));
        }
        _ => format.run_view(&row.thread, task),
    };
    if !is_root && app.engine.task_object(user, task).await?.is_none() {
        return Err(Problem::not_found());
    }
    let (start, skip) = resolve_cursor(app, user, &row.thread, cursor.as_ref(), shown.dialect).await?;
    // A place before the task is its beginning.
    let (start, skip) = if start < from { (from, 0) } else { (start, skip) };
    if is_task_over(app, user, &row, task, start).await? {
        return Ok(None);
    }
    check_frame_offset(app, user, &row.thread, shown.projection.boxed_clone(), (from, start, skip)).await?;
    let queued = row.first_seq.is_none().then(|| row.id.clone());
    Ok(Some(StreamStart::new(row.thread, shown, from, (start, skip)).with_queued_run(queued).for_format(format)))
}

/// The run of a task, and the place before its first record.
pub(crate) async fn find_run_start(app: &App, user: &UserId, task: &TaskId) -> Result<(RunRow, Seq), Problem> {
    let row = app.engine.run_of_task(user, task).await?.ok_or_else(Problem::not_found)?;
    if let Some(first) = row.first_seq {
        return Ok((row, first.prev()));
    }
    // First the head, then the row: a run that has not begun by then begins after that head.
    let before = log_head(app, user, &row.thread).await?;
    let row = app.engine.run_of_task(user, task).await?.ok_or_else(Problem::not_found)?;
    let from = row.first_seq.map_or(before, Seq::prev);
    Ok((row, from))
}

/// Where a thread's stream begins. It never ends.
pub(crate) async fn start_of_thread(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    format: NativeFormat,
    cursor: Option<Cursor>,
) -> Result<StreamStart, Problem> {
    let place = resume_stream(app, user, thread, format.thread_view(thread), cursor.unwrap_or(Cursor::START)).await?;
    Ok(place.for_format(format))
}

/// Where a stream of a thread goes on from a cursor, for any projection that goes through it run after run.
pub(crate) async fn resume_stream(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    shown: StreamView,
    cursor: Cursor,
) -> Result<StreamStart, Problem> {
    let (start, skip) = resolve_cursor(app, user, thread, Some(&cursor), shown.dialect).await?;
    let from = match shown.projection.needs_history() {
        true => seq_before_current_run(app, user, thread, start).await?,
        false => start,
    };
    check_frame_offset(app, user, thread, shown.projection.boxed_clone(), (from, start, skip)).await?;
    Ok(StreamStart::new(thread.clone(), shown, from, (start, skip)))
}

/// Whoever stands inside a record has some of its frames and not the last: a place beyond that was never given to anybody,
/// and would pass over what comes after it.
async fn check_frame_offset(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    mut projection: Box<dyn Projection>,
    (from, start, skip): (Seq, Seq, u64),
) -> Result<(), Problem> {
    if skip == 0 {
        return Ok(());
    }
    let mut at = from;
    loop {
        let page = app.engine.ports().journal.read_page(user, thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(()) };
        at = last.seq;
        for record in &page.records {
            let mut frames = Frames::default().with_skip(u64::MAX);
            projection.project(record, &mut frames);
            let count = u64::MAX - frames.remaining_skip();
            if record.seq > start {
                return if skip < count { Ok(()) } else { Err(CursorError::Mismatch.into()) };
            }
        }
    }
}

/// The place that a cursor means to this dialect, once it is known to be of this log.
async fn resolve_cursor(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    cursor: Option<&Cursor>,
    dialect: &str,
) -> Result<(Seq, u64), Problem> {
    let Some(cursor) = cursor else { return Ok((Seq::ZERO, 0)) };
    app.engine.check_cursor(user, thread, cursor).await?;
    Ok(record_frames::resume_position(cursor, dialect)?)
}

/// The place before the run that goes on after `start`; `start` itself where none does.
async fn seq_before_current_run(app: &App, user: &UserId, thread: &ThreadId, start: Seq) -> Result<Seq, Problem> {
    if start == Seq::ZERO {
        return Ok(start);
    }
    let page = app.engine.ports().journal.read_page(user, thread, start.prev(), PageLimit::ONE).await?;
    let Some(record) = page.records.first() else { return Ok(start) };
    let row = app.engine.ports().directory.run(user, &record.run).await?;
    let goes_on = row.filter(|row| !row.status.is_terminal() || row.last_seq.is_some_and(|last| start < last));
    Ok(goes_on.and_then(|row| row.first_seq).map_or(start, Seq::prev))
}

/// Begins to watch.
pub(crate) fn open_viewer(app: &App, user: &UserId, place: StreamStart) -> Viewer {
    let viewer = app.engine.watch_from(user, &place.thread, place.view, place.start);
    match app.shares.frozen_at(user) {
        Some(until) => viewer.with_end(until),
        None => viewer,
    }
}

/// Waits until a stream has come to its own end.
pub(crate) async fn wait_for_end(app: &App, user: &UserId, place: StreamStart) -> Result<(), Problem> {
    let queued = place.queued_run.clone();
    let mut viewer = open_viewer(app, user, place);
    loop {
        match tokio::time::timeout(QUEUE_POLL_INTERVAL, viewer.next()).await {
            Ok(Ok(Some(_))) => {}
            Ok(Ok(None)) if viewer.is_interrupted() => {
                return Err(if app.is_shutting_down() { Problem::shutting_down() } else { Problem::not_found() });
            }
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) if was_cancelled_in_queue(app, user, queued.as_ref()).await? => return Ok(()),
            Err(_) => {}
        }
    }
}

/// A run that is given up before it began leaves no record that could say so.
pub(crate) async fn was_cancelled_in_queue(
    app: &App,
    user: &UserId,
    queued: Option<&TaskId>,
) -> Result<bool, StoreError> {
    let Some(run) = queued else { return Ok(false) };
    let row = app.engine.run_of_task(user, run).await?;
    Ok(row.is_none_or(|row| row.first_seq.is_none() && row.status.is_terminal()))
}

/// Is everything of the task before this place?
async fn is_task_over(app: &App, user: &UserId, row: &RunRow, task: &TaskId, start: Seq) -> Result<bool, Problem> {
    if row.first_seq.is_none() {
        return Ok(row.status.is_terminal());
    }
    if row.status.is_terminal() && row.last_seq.is_some_and(|last| start >= last) {
        return Ok(true);
    }
    let (false, Some(first)) = (row.id == *task, row.first_seq) else { return Ok(false) };
    // A sub-agent ends before its run does, and only its records say where.
    let mut projection = TaskProjection::new(RecordScope::Task(task.clone()));
    let mut at = first.prev();
    while at < start {
        let page = app.engine.ports().journal.read_page(user, &row.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(false) };
        at = last.seq;
        let mut frames = Frames::default();
        for record in page.records.iter().take_while(|record| record.seq <= start) {
            projection.project(record, &mut frames);
        }
        if frames.is_finished() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a thread's log ends now.
pub(crate) async fn log_head(app: &App, user: &UserId, thread: &ThreadId) -> Result<Seq, Problem> {
    let page = app.engine.ports().journal.read_page(user, thread, Seq(u64::MAX), PageLimit::ONE).await?;
    Ok(page.head)
}
