//! Streams of AG-UI: of the run that answers a request, and of a thread that a client joins.
//!
//! A client that joins has nothing of the thread, and the protocol has no history: a prelude brings it to the head of the
//! log, and the stream goes on from there. Its frames have no ids, because no record stands behind them.

use crate::agui_requests::ResolvedAgUiRun;
use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_lookup::{RunStart, find_run_start, for_each_record_of_run, log_head};
use crate::stream_start::{StreamPosition, StreamStart, StreamView, resume_stream, seq_before_current_run};
use bytes::Bytes;
use heavy_work::{acquire_permit, run_in_place};
use model::cursor::Cursor;
use model::event::Event;
use model::ports::RunRow;
use model::{Record, Seq, TaskId, ThreadId, UserId};
use protocol::agui::{
    AgUiHistory, AgUiProjection, AgUiRunSnapshot, AgUiScope, AgUiVersion, SNAPSHOT_BYTES_MAX, agui_cancelled_frames,
    agui_messages_frame, agui_prelude, agui_run_id,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// A thread under the name that its client uses, in the client's version.
#[derive(Clone, Copy)]
pub struct AgUiThread<'a> {
    pub version: AgUiVersion,
    pub name: &'a str,
    pub thread: &'a ThreadId,
}

impl AgUiThread<'_> {
    fn view(&self, scope: AgUiScope) -> StreamView {
        let Self { version, name, .. } = self;
        let dialect = version.projection_name();
        let lane = match &scope {
            AgUiScope::Thread => format!("{dialect}/thread/{name}"),
            AgUiScope::Segments { run, first, last } => format!("{dialect}/{run}/{first}-{last}/{name}"),
        };
        let projection = Box::new(AgUiProjection::new(*version, (*name).to_owned(), scope));
        StreamView { name: lane, dialect, projection }
    }
}

/// The stream of the segment that answers a request.
pub async fn start_of_agui_run(
    gateway: &Gateway,
    user: &UserId,
    ResolvedAgUiRun { resolved, version, thread_name, run_id, needs_messages }: ResolvedAgUiRun,
) -> Result<StreamStart, Rejection> {
    let run_start = find_run_start(gateway, user, &resolved.run).await?;
    let thread = AgUiThread { version, name: &thread_name, thread: &resolved.thread };
    let segment = resolved.segment;
    // An answer that comes before a pause opens no segment.
    let messages = match needs_messages && segment > 1 {
        true => {
            let until = seq_of_pause(gateway, user, &run_start.run, segment.saturating_sub(1)).await?;
            let snapshot = read_snapshot(gateway, user, thread, until).await?;
            heavy_frames(user, || agui_messages_frame(&snapshot.runs)).await
        }
        false => Bytes::new(),
    };
    Ok(start_of_segment(gateway, thread, run_start, segment, run_id).with_inserted(messages))
}

/// The stream of a thread, which never ends: from a cursor, or from the head, after what a client without one needs.
pub async fn join_agui_thread(
    gateway: &Gateway,
    user: &UserId,
    joined: AgUiThread<'_>,
    cursor: Option<Cursor>,
) -> Result<StreamStart, Rejection> {
    let (view, thread) = (joined.view(AgUiScope::Thread), joined.thread);
    if let Some(cursor) = cursor {
        return resume_stream(gateway, user, thread, view, cursor).await;
    }
    let head = log_head(gateway, user, thread).await?;
    let snapshot = read_snapshot(gateway, user, joined, head).await?;
    let prelude = heavy_frames(user, || agui_prelude(&snapshot.runs, snapshot.history)).await;
    let history_start = seq_before_current_run(gateway, user, thread, head).await?;
    let position = StreamPosition { history_start, start: head, skip_frames: 0 };
    Ok(StreamStart::new(thread.clone(), view, position).with_prelude(prelude))
}

/// What a client that connects is sent.
pub enum AgUiConnection {
    /// The thread as it is: no run is active.
    Settled(Bytes),
    /// The thread as it is, and the active run until it pauses or ends.
    Active(StreamStart),
}

/// Connects a client to the active run of a thread.
pub async fn connect_agui_thread(
    gateway: &Gateway,
    user: &UserId,
    joined: AgUiThread<'_>,
) -> Result<AgUiConnection, Rejection> {
    let head = log_head(gateway, user, joined.thread).await?;
    let snapshot = read_snapshot(gateway, user, joined, head).await?;
    let prelude = heavy_frames(user, || agui_prelude(&snapshot.runs, snapshot.history)).await;
    let Some((run, segment)) = snapshot.active_segment() else {
        return connect_next_run(gateway, user, joined, (&snapshot, prelude)).await;
    };
    let RunStart { before, .. } = find_run_start(gateway, user, run).await?;
    let view = joined.view(AgUiScope::Segments { run: run.clone(), first: segment, last: segment });
    let position = StreamPosition { history_start: before, start: head, skip_frames: 0 };
    let stream = StreamStart::new(joined.thread.clone(), view, position);
    Ok(AgUiConnection::Active(stream.with_prelude(prelude)))
}

/// Follows the run that was accepted but is not in the snapshot yet: a page that is loaded again in that moment shows it.
async fn connect_next_run(
    gateway: &Gateway,
    user: &UserId,
    joined: AgUiThread<'_>,
    (snapshot, prelude): (&ThreadSnapshot, Bytes),
) -> Result<AgUiConnection, Rejection> {
    let next = gateway.engine.active_run(user, joined.thread).await?;
    // A run that has paused waits for an answer, and the next one for that.
    let Some(next) = next.filter(|run| snapshot.last_run.as_ref() != Some(run)) else {
        return Ok(AgUiConnection::Settled(prelude));
    };
    let run_start = find_run_start(gateway, user, &next).await?;
    let stream = start_of_segment(gateway, joined, run_start, 1, agui_run_id(&next, 1));
    Ok(AgUiConnection::Active(stream.with_prelude(prelude)))
}

/// The stream of one segment. `run_id` is for a run that is cancelled in the queue.
fn start_of_segment(
    gateway: &Gateway,
    thread: AgUiThread<'_>,
    run_start: RunStart,
    segment: u32,
    run_id: String,
) -> StreamStart {
    let queued_run = run_start.queued_run();
    let RunStart { run, before } = run_start;
    let view = thread.view(AgUiScope::Segments { run: run.id, first: segment, last: segment });
    let (version, name, now) = (thread.version, thread.name.to_owned(), gateway.engine.ports().clock.now());
    let cancelled = Box::new(move |_: Option<&RunRow>| Some(agui_cancelled_frames(version, &name, &run_id, now)));
    StreamStart::new(run.thread, view, StreamPosition::after(before)).with_queued_run(queued_run, Some(cancelled))
}

/// The visible runs of a thread as of a record.
struct ThreadSnapshot {
    /// Oldest first.
    runs: Vec<AgUiRunSnapshot>,
    last_run: Option<TaskId>,
    history: AgUiHistory,
}

impl ThreadSnapshot {
    /// The run that is neither paused nor ended, and its segment.
    fn active_segment(&self) -> Option<(&TaskId, u32)> {
        let last = self.runs.last().filter(|last| last.is_active())?;
        Some((self.last_run.as_ref()?, last.segment()))
    }
}

/// Reads the runs that lead to the newest one, from that on, until a snapshot would be too large.
async fn read_snapshot(
    gateway: &Gateway,
    user: &UserId,
    AgUiThread { version, name, thread }: AgUiThread<'_>,
    until: Seq,
) -> Result<ThreadSnapshot, Rejection> {
    let mut chain = gateway.engine.runs_of_chain(user, thread, until).await?;
    let mut hidden: HashSet<TaskId> = HashSet::new();
    let mut snapshot = ThreadSnapshot { runs: Vec::new(), last_run: None, history: AgUiHistory::Complete };
    let mut bytes = 0;
    while let Some(run) = chain.pop() {
        let mut read = AgUiRunSnapshot::new(version, name);
        read_run(gateway, user, &run, until, &mut hidden, |record| read.read_record(record)).await?;
        if hidden.contains(&run) {
            continue;
        }
        bytes += read.message_bytes();
        // The newest run is shown, however long it is: the stream goes on in it.
        if bytes > SNAPSHOT_BYTES_MAX && !snapshot.runs.is_empty() {
            snapshot.history = AgUiHistory::Truncated;
            break;
        }
        snapshot.last_run.get_or_insert(run);
        snapshot.runs.push(read);
    }
    snapshot.runs.reverse();
    Ok(snapshot)
}

/// Reads the records of a run. The thread's own records after it have its id: they may hide runs.
async fn read_run(
    gateway: &Gateway,
    user: &UserId,
    run: &TaskId,
    until: Seq,
    hidden: &mut HashSet<TaskId>,
    mut read: impl FnMut(&Record),
) -> Result<(), Rejection> {
    let Some(row) = gateway.engine.run_of_task(user, run).await? else { return Ok(()) };
    let Some(first) = row.first_seq else { return Ok(()) };
    let journal = &*gateway.engine.ports().journal;
    engine::for_each_condensed_record(journal, user, &row.thread, first.prev(), until, |record| {
        if record.run != row.id {
            return ControlFlow::Break(());
        }
        match record.event() {
            Event::RunHidden(event) => drop(hidden.insert(event.run_id.clone())),
            Event::HistoryCompacted(_) => {}
            _ => read(record),
        }
        ControlFlow::Continue(())
    })
    .await?;
    Ok(())
}

/// The record of a run's pause, counted from 1.
async fn seq_of_pause(gateway: &Gateway, user: &UserId, run: &RunRow, pause: u32) -> Result<Seq, Rejection> {
    let mut pauses = 0;
    let found = for_each_record_of_run(gateway, user, run, |record| {
        pauses += u32::from(matches!(record.event(), Event::Paused(_)));
        if pauses == pause { ControlFlow::Break(record.seq) } else { ControlFlow::Continue(()) }
    });
    let found = found.await?;
    Ok(found.unwrap_or(Seq::MAX))
}

/// A snapshot may take megabytes.
async fn heavy_frames(user: &UserId, write: impl FnOnce() -> Bytes) -> Bytes {
    let _permit = acquire_permit(user).await;
    run_in_place(write)
}
