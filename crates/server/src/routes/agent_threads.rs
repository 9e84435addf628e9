//! What the routes of agent runs share: threads by the names that clients gave them, and where their streams begin.

use crate::app::App;
use crate::problem::Problem;
use crate::stream_start::{self, StreamStart, StreamView};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use model::cursor::Cursor;
use model::id::is_valid_id;
use model::ports::{AliasData, AliasKind, AliasRow, PageLimit};
use model::{Seq, TaskId, ThreadId, UserId};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, AgentRunsProjection};
use uuid::Uuid;

/// The name of a thread in a path, whoever gave it.
pub(crate) struct ThreadNamePath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for ThreadNamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Ok(Self(super::path_param(parts, state, "thread").await?))
    }
}

/// The thread of this name: one of ours (`thr_…`), or one that the client named when it began the thread.
pub(crate) async fn find_named_thread(app: &App, user: &UserId, name: &str) -> Result<ThreadId, Problem> {
    let directory = &app.engine.ports().directory;
    let thread = match ThreadId::parse(name) {
        Ok(thread) => thread,
        Err(_) if is_valid_id(name) => {
            directory.alias(user, AliasKind::AgentRun, name).await?.ok_or_else(Problem::not_found)?.thread
        }
        Err(_) => return Err(Problem::not_found()),
    };
    // A name may be older than its thread.
    directory.thread(user, &thread).await?.ok_or_else(Problem::not_found)?;
    Ok(thread)
}

/// The thread that a client means by a name of its own, which may not be there yet.
pub(crate) async fn reserve_named_thread(app: &App, user: &UserId, name: &str) -> Result<ThreadId, Problem> {
    if !is_valid_id(name) {
        return Err(Problem::invalid_field("threadId", "must have 1 to 64 letters, digits, `_` or `-`"));
    }
    let row = AliasRow {
        name: name.to_owned(),
        thread: ThreadId::from_uuid(Uuid::now_v7()),
        data: AliasData::AgentRun,
        created_at: app.engine.ports().clock.now(),
    };
    Ok(app.engine.ports().directory.writer(user)?.create_alias(user, row).await?.thread)
}

/// Where the stream of a thread begins that is addressed by this name. Without a cursor it begins with the oldest run that
/// has not ended, be it only queued, else with the latest; and never after `run`.
pub(crate) async fn start_of_agent_runs(
    app: &App,
    user: &UserId,
    (name, thread): (&str, &ThreadId),
    cursor: Option<Cursor>,
    run: Option<&TaskId>,
) -> Result<StreamStart, Problem> {
    let projection = Box::new(AgentRunsProjection::new(name.to_owned()));
    let shown =
        StreamView { name: format!("{AGENT_RUNS_PROJECTION}/{name}"), dialect: AGENT_RUNS_PROJECTION, projection };
    if let Some(cursor) = cursor {
        return stream_start::resume_stream(app, user, thread, shown, cursor).await;
    }
    let mut from = default_start(app, user, thread).await?;
    if let Some(run) = run {
        from = from.min(seq_before_run(app, user, run).await?.unwrap_or(from));
    }
    Ok(StreamStart::new(thread.clone(), shown, from, (from, 0)))
}

async fn default_start(app: &App, user: &UserId, thread: &ThreadId) -> Result<Seq, Problem> {
    // First the head, then the runs: one that has not begun by then begins after that head.
    let head = stream_start::log_head(app, user, thread).await?;
    if let Some(busy) = app.engine.active_run(user, thread).await? {
        return Ok(seq_before_run(app, user, &busy).await?.unwrap_or(head));
    }
    let page = app.engine.ports().journal.read_page(user, thread, head.prev(), PageLimit::ONE).await?;
    let Some(last) = page.records.first() else { return Ok(head) };
    Ok(seq_before_run(app, user, &last.run).await?.unwrap_or(head))
}

/// The place before a run's first record, once it has begun.
async fn seq_before_run(app: &App, user: &UserId, run: &TaskId) -> Result<Option<Seq>, Problem> {
    let row = app.engine.ports().directory.run(user, run).await?;
    Ok(row.and_then(|row| row.first_seq).map(Seq::prev))
}
