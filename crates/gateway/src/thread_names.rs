//! Threads under the names that clients choose for them, one name space per protocol.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{default_start, seq_before_run};
use crate::stream_start::{StreamPosition, StreamStart, StreamView, resume_stream};
use model::cursor::Cursor;
use model::id::is_valid_id;
use model::ports::{AliasData, AliasKind, AliasRow, StoreError, ThreadRow};
use model::{TaskId, ThreadId, UserId};
use protocol::agent_runs::{AGENT_RUNS_PROJECTION, AgentRunsProjection};
use uuid::Uuid;

/// The protocols whose clients name threads.
const NAMED_KINDS: [AliasKind; 5] =
    [AliasKind::AgentRun, AliasKind::BlockSession, AliasKind::Conversation, AliasKind::AgUiThread, AliasKind::UiChat];

/// Finds an existing thread by its id (`thr_…`) or by the name that a client chose.
pub async fn find_named_thread(
    gateway: &Gateway,
    user: &UserId,
    kind: AliasKind,
    name: &str,
) -> Result<ThreadId, Rejection> {
    let directory = &gateway.engine.ports().directory;
    let thread = match ThreadId::parse(name) {
        Ok(thread) => Some(thread),
        Err(_) if is_valid_id(name) => directory.alias(user, kind, name).await?.map(|row| row.thread),
        Err(_) => None,
    };
    let thread = thread.ok_or_else(Rejection::not_found)?;
    // A name may be older than its thread.
    directory.thread(user, &thread).await?.ok_or_else(Rejection::not_found)?;
    Ok(thread)
}

/// Finds the threads that have this id or name in any protocol, newest first. Each protocol has at most one.
pub async fn find_threads_by_name(gateway: &Gateway, user: &UserId, name: &str) -> Result<Vec<ThreadRow>, Rejection> {
    let directory = &gateway.engine.ports().directory;
    let mut rows: Vec<ThreadRow> = Vec::new();
    for kind in NAMED_KINDS {
        let thread = match ThreadId::parse(name) {
            Ok(thread) => Some(thread),
            Err(_) if is_valid_id(name) => directory.alias(user, kind, name).await?.map(|row| row.thread),
            Err(_) => None,
        };
        let Some(thread) = thread.filter(|thread| rows.iter().all(|row| row.id != *thread)) else { continue };
        rows.extend(directory.thread(user, &thread).await?);
    }
    rows.sort_by(|one, other| other.id.cmp(&one.id));
    Ok(rows)
}

/// Like [`find_named_thread`]; a name that this protocol does not know may be another protocol's.
pub async fn find_thread_of_any_protocol(
    gateway: &Gateway,
    user: &UserId,
    kind: AliasKind,
    name: &str,
) -> Result<ThreadId, Rejection> {
    let found = find_named_thread(gateway, user, kind, name).await;
    match found {
        Ok(_) => found,
        Err(rejection) => {
            let others = find_threads_by_name(gateway, user, name).await?;
            others.into_iter().next().map(|row| row.id).ok_or(rejection)
        }
    }
}

/// The thread of a client's name, which need not exist yet. `field` is the field of the request that has the name.
pub async fn reserve_named_thread(
    gateway: &Gateway,
    user: &UserId,
    data: AliasData,
    name: &str,
    field: &str,
) -> Result<ThreadId, Rejection> {
    if !is_valid_id(name) {
        return Err(Rejection::invalid_field(field, "must have 1 to 64 letters, digits, `_` or `-`"));
    }
    Ok(create_alias(gateway, user, data, name, ThreadId::from_uuid(Uuid::now_v7())).await?.thread)
}

/// Creates a name for a thread. If the name exists, the existing row is returned.
pub(crate) async fn create_alias(
    gateway: &Gateway,
    user: &UserId,
    data: AliasData,
    name: &str,
    thread: ThreadId,
) -> Result<AliasRow, StoreError> {
    let ports = gateway.engine.ports();
    let row = AliasRow { name: name.to_owned(), thread, data, created_at: ports.clock.now() };
    ports.directory.writer(user)?.create_alias(user, row).await
}

/// A thread under the name that its client uses.
pub struct NamedThread<'a> {
    pub name: &'a str,
    pub thread: &'a ThreadId,
}

/// The stream of a thread's agent runs. Without a cursor it starts with the oldest run that has not ended, else with the
/// latest, and never after `first_run`.
pub async fn start_of_agent_runs(
    gateway: &Gateway,
    user: &UserId,
    NamedThread { name, thread }: NamedThread<'_>,
    cursor: Option<Cursor>,
    first_run: Option<&TaskId>,
) -> Result<StreamStart, Rejection> {
    let projection = Box::new(AgentRunsProjection::new(name.to_owned()));
    let view =
        StreamView { name: format!("{AGENT_RUNS_PROJECTION}/{name}"), dialect: AGENT_RUNS_PROJECTION, projection };
    if let Some(cursor) = cursor {
        return resume_stream(gateway, user, thread, view, cursor).await;
    }
    let mut start = default_start(gateway, user, thread).await?;
    if let Some(run) = first_run {
        start = start.min(seq_before_run(gateway, user, run).await?.unwrap_or(start));
    }
    Ok(StreamStart::new(thread.clone(), view, StreamPosition::after(start)))
}
