//! Where a stream begins, and whether there is anything to begin with.
//!
//! A cursor that a client holds is good in its thread's whole log. On a task's stream a place before the task is the
//! task's beginning, and one after its end is the end: 204, which tells a browser to stop asking.

use crate::app::App;
use crate::problem::Problem;
use axum::http::{HeaderMap, StatusCode, header};
use engine::{View, Viewer};
use model::cursor::{Cursor, CursorError};
use model::ports::{Frames, PageLimit, Projection as _, RunRow};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::task::{Scope, Task};
use std::sync::Arc;

const LAST_EVENT_ID: &str = "last-event-id";

/// The place that a client goes on from; `None` is the beginning. The header wins: a browser that reconnects by itself
/// sends it along with the URL that it began with.
pub(crate) fn cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Option<Cursor>, Problem> {
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
    let Some(text) = text else { return Ok(None) };
    let cursor: Cursor = text.parse()?;
    // This projection makes one frame of each record: a place inside one is another's.
    if cursor.inner.is_some() { Err(CursorError::Foreign.into()) } else { Ok(Some(cursor)) }
}

/// Refuses a client that could not read the stream.
pub(crate) fn check_accept(headers: &HeaderMap) -> Result<(), Problem> {
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
    Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail))
}

/// Where a stream begins. Nobody watches yet.
pub(crate) struct Place {
    thread: ThreadId,
    scope: Scope,
    /// Before the first record that the scope can have.
    from: Seq,
    /// Before the first record that is asked for.
    start: Seq,
    /// The run that has not begun: it may be given up, and then nothing ever comes.
    pub(crate) queued: Option<TaskId>,
}

/// Where the stream of a new thread's first run begins: nothing was there before it, and nobody need look.
pub(crate) fn first_run(thread: ThreadId, run: TaskId) -> Place {
    let queued = Some(run.clone());
    Place { thread, scope: Scope::Run(run), from: Seq::ZERO, start: Seq::ZERO, queued }
}

/// Where a task's stream begins; `None` when there is nothing left to see.
pub(crate) async fn task(
    app: &App,
    user: &UserId,
    task: &TaskId,
    cursor: Option<Cursor>,
) -> Result<Option<Place>, Problem> {
    let Some(mut row) = app.engine.run_of(user, task).await? else { return Err(Problem::not_found()) };
    let mut before = Seq::ZERO;
    if row.first.is_none() {
        // First the head, then the row: a run that has not begun by then begins after that head.
        before = head(app, user, &row.thread).await?;
        row = app.engine.run_of(user, task).await?.ok_or_else(Problem::not_found)?;
    }
    let scope = if row.id == *task { Scope::Run(task.clone()) } else { Scope::Task(task.clone()) };
    let from = row.first.map_or(before, Seq::before);
    if matches!(scope, Scope::Task(_)) && app.engine.object(user, task).await?.is_none() {
        return Err(Problem::not_found());
    }
    if let Some(cursor) = &cursor {
        app.engine.check_cursor(user, &row.thread, cursor).await?;
    }
    let start = cursor.map_or(from, |cursor| cursor.seq.max(from));
    if is_over(app, user, &row, &scope, start).await? {
        return Ok(None);
    }
    let queued = row.first.is_none().then(|| row.id.clone());
    Ok(Some(Place { thread: row.thread, scope, from, start, queued }))
}

/// Where a thread's stream begins. It never ends.
pub(crate) async fn thread(
    app: &App,
    user: &UserId,
    thread: &ThreadId,
    cursor: Option<Cursor>,
) -> Result<Place, Problem> {
    let cursor = cursor.unwrap_or(Cursor::START);
    app.engine.check_cursor(user, thread, &cursor).await?;
    let (thread, scope, from, start) = (thread.clone(), Scope::Thread, Seq::ZERO, cursor.seq);
    Ok(Place { thread, scope, from, start, queued: None })
}

/// Begins to watch.
pub(crate) fn open(app: &App, user: &UserId, place: Place) -> Viewer {
    let Place { thread, scope, from, start, .. } = place;
    let name: Arc<str> = match &scope {
        Scope::Thread => "task/thread".into(),
        Scope::Run(task) => format!("task/run/{task}").into(),
        Scope::Task(task) => format!("task/task/{task}").into(),
    };
    let view = View { name, projection: Box::new(Task::new(scope)), from };
    app.engine.watch_at(user, &thread, view, start)
}

/// Is everything of the scope before this place?
async fn is_over(app: &App, user: &UserId, row: &RunRow, scope: &Scope, start: Seq) -> Result<bool, Problem> {
    if row.first.is_none() {
        return Ok(row.status.is_terminal());
    }
    if row.status.is_terminal() && row.last.is_some_and(|last| start >= last) {
        return Ok(true);
    }
    let (Scope::Task(_), Some(first)) = (scope, row.first) else { return Ok(false) };
    // A sub-agent ends before its run does, and only its records say where.
    let mut projection = Task::new(scope.clone());
    let mut at = first.before();
    while at < start {
        let page = app.engine.ports().journal.read(user, &row.thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(false) };
        at = last.seq;
        let mut frames = Frames::default();
        for record in page.records.iter().take_while(|record| record.seq <= start) {
            projection.project(record, &mut frames);
        }
        if frames.is_over() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where a thread's log ends now.
pub(crate) async fn head(app: &App, user: &UserId, thread: &ThreadId) -> Result<Seq, Problem> {
    let page = app.engine.ports().journal.read(user, thread, Seq(u64::MAX), PageLimit::ONE).await?;
    Ok(page.head)
}
