//! The session of a content-blocks connection: finding, following and continuing it.

use crate::approvals::decide_approval;
use crate::attachments::uploads::Uploads;
use crate::context::Gateway;
use crate::fork_share::fork_share;
use crate::queue_cancel::cancelled_turn;
use crate::rejection::Rejection;
use crate::run_lookup::{default_start, find_run_start};
use crate::start_run::{entry_agents, last_agent_of_thread, start_run};
use crate::stream_start::{StreamPosition, StreamStart, StreamView, open_viewer, resume_stream};
use crate::task_commands::{cancel_all_runs, submit_cancel};
use crate::thread_names::{find_named_thread, reserve_named_thread};
use bytes::Bytes;
use engine::{NewRun, StartedRun, Viewer};
use model::command::{CancelCause, CancelCommand};
use model::cursor::Cursor;
use model::error::ErrorCode;
use model::event::{CancelMode, ClientIds};
use model::ports::{AliasData, AliasKind};
use model::{ApprovalKey, Seq, TaskId, ThreadId, UserId};
use protocol::blocks::{BLOCKS_PROJECTION, BlocksApprovalResponse, BlocksChat, BlocksProjection};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

const DEMO_AGENT: &str = "demo";
/// How often a session looks whether one of its queued runs was cancelled.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A run leaves the queue within this time after its cancel, unless the thread is very busy.
const CANCEL_CHECK_DELAY: Duration = Duration::from_millis(50);

pub struct BlocksSession {
    /// The name that the client uses.
    pub name: String,
    pub thread: ThreadId,
    viewer: Viewer,
    /// Lines before this run's first are skipped: they belong to other requests.
    skip_until_run: Option<TaskId>,
    /// While lines are skipped: the runs that this connection sent.
    own_runs: Vec<TaskId>,
    /// When to look whether one of them was cancelled in the queue, which leaves no record.
    next_queue_check: Instant,
    /// How this connection resumed the session. The same resume again is a no-op: the connection misses nothing.
    resumed: Option<ResumePoint>,
}

/// The `after` of a resume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResumePoint(Option<String>);

pub enum SessionOutput {
    /// Frames, one per line.
    Lines(Bytes),
    /// The thread was deleted, the frozen end of a share is reached, or the engine stops.
    Ended,
}

impl BlocksSession {
    fn new(gateway: &Gateway, user: &UserId, name: String, thread: ThreadId, stream: StreamStart) -> Self {
        let viewer = open_viewer(gateway, user, stream);
        let next_queue_check = Instant::now() + QUEUE_POLL_INTERVAL;
        let (skip_until_run, own_runs, resumed) = Default::default();
        Self { name, thread, viewer, skip_until_run, own_runs, next_queue_check, resumed }
    }

    /// Waits for the next lines. Cancel-safe.
    pub async fn next(&mut self, gateway: &Gateway, user: &UserId) -> Result<SessionOutput, Rejection> {
        loop {
            let lines = tokio::select! {
                lines = self.viewer.next() => {
                    let Some(lines) = lines? else { return Ok(SessionOutput::Ended) };
                    self.skip_to_awaited_run(lines)
                }
                () = sleep_until(self.next_queue_check), if !self.own_runs.is_empty() => {
                    self.end_cancelled_runs(gateway, user).await?
                }
            };
            if !lines.is_empty() {
                return Ok(SessionOutput::Lines(lines));
            }
        }
    }

    /// The turns of own runs that were cancelled in the queue.
    async fn end_cancelled_runs(&mut self, gateway: &Gateway, user: &UserId) -> Result<Bytes, Rejection> {
        let mut cancelled = Vec::new();
        for run in &self.own_runs {
            let row = gateway.engine.run_of_task(user, run).await?;
            if row.is_none_or(|row| row.first_seq.is_none() && row.status.is_terminal()) {
                cancelled.push(run.clone());
            }
        }
        self.next_queue_check = Instant::now() + QUEUE_POLL_INTERVAL;
        self.own_runs.retain(|run| !cancelled.contains(run));
        let now = gateway.engine.ports().clock.now();
        let turns = cancelled.iter().map(|run| cancelled_turn(&self.name, &self.thread, run, now));
        Ok(turns.collect::<Vec<Bytes>>().concat().into())
    }

    /// The lines from the awaited run on. Run ids sort by time, so a later run ends the wait as well.
    fn skip_to_awaited_run(&mut self, lines: Bytes) -> Bytes {
        let Some(awaited) = &self.skip_until_run else { return lines };
        let mut offset = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if started_run(line).is_some_and(|run| run.as_str() >= awaited.as_str()) {
                self.skip_until_run = None;
                self.own_runs.clear();
                return lines.slice(offset..);
            }
            offset += line.len();
        }
        Bytes::new()
    }
}

/// The run that starts with this line.
fn started_run(line: &[u8]) -> Option<TaskId> {
    #[derive(Deserialize)]
    struct Frame {
        #[serde(rename = "type")]
        kind: String,
        message_id: TaskId,
    }
    let frame: Frame = serde_json::from_slice(line).ok()?;
    (frame.kind == "message_start").then_some(frame.message_id)
}

/// Starts a run. `current` becomes the run's session, and follows it from this run on.
pub async fn send_chat(
    gateway: &Gateway,
    user: &UserId,
    current: &mut Option<BlocksSession>,
    mut chat: BlocksChat,
) -> Result<(), Rejection> {
    let known = current.as_ref().filter(|_| chat.share.is_none()).map(|session| SessionThread {
        name: session.name.clone(),
        thread: session.thread.clone(),
        origin: ThreadOrigin::Existing,
    });
    let session_thread = choose_session_thread(gateway, user, chat.session_id.take(), known).await?;
    let SessionThread { name, thread, origin } = session_thread;
    let (forked, mut uploads) = match &chat.share {
        Some(_) if gateway.engine.ports().directory.thread(user, &thread).await?.is_some() => {
            let reason = "starts a new session: `session_id` must be a new name or absent";
            return Err(Rejection::invalid_field("share", reason));
        }
        Some(token) => fork_share(gateway, token).await?,
        None => (NewRun::default(), Uploads::default()),
    };
    let mut input = chat.take_input(gateway.limits.web_files_max)?;
    uploads.extend(Uploads::extract(&gateway.attachments, "content_urls", input.iter_mut()).await?);
    let agent = match chat.agent {
        Some(agent) => agent,
        None if origin == ThreadOrigin::New => default_agent(gateway, user),
        None => last_agent_of_thread(gateway, user, &thread).await?.unwrap_or_else(|| default_agent(gateway, user)),
    };
    let client = ClientIds {
        protocol: BLOCKS_PROJECTION.to_owned(),
        thread_id: Some(name.clone()),
        run_id: None,
        message_ids: Vec::new(),
    };
    let new = NewRun {
        agent,
        input,
        thread: Some(thread.clone()),
        create_if_missing: origin != ThreadOrigin::Existing,
        is_new_thread: origin == ThreadOrigin::New,
        display_mode: chat.display_mode,
        client: Some(client),
        ..forked
    };
    let started = start_run(gateway, user, new, uploads).await?;
    // A name may refer to another thread since, if its thread was deleted.
    if current.as_ref().is_none_or(|session| session.name != name || session.thread != thread) {
        let session = open_session_before(gateway, user, name, &started).await?;
        let own_runs = vec![started.task.clone()];
        *current = Some(BlocksSession { skip_until_run: Some(started.task), own_runs, ..session });
    } else if let Some(session) = current.as_mut().filter(|session| session.skip_until_run.is_some()) {
        session.own_runs.push(started.task);
    }
    Ok(())
}

struct SessionThread {
    name: String,
    thread: ThreadId,
    origin: ThreadOrigin,
}

/// Who has made the id of a session's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ThreadOrigin {
    /// An earlier request.
    Existing,
    /// The name's first request, perhaps at the same time as another one.
    Named,
    /// This request.
    New,
}

/// The thread of a message: the one that it names, else the connection's, else a new one.
async fn choose_session_thread(
    gateway: &Gateway,
    user: &UserId,
    name: Option<String>,
    current: Option<SessionThread>,
) -> Result<SessionThread, Rejection> {
    match (name, current) {
        (Some(name), _) => {
            let (thread, origin) = match ThreadId::parse(&name) {
                Ok(thread) => (thread, ThreadOrigin::Existing),
                Err(_) => {
                    let alias = AliasData::BlockSession;
                    (reserve_named_thread(gateway, user, alias, &name, "session_id").await?, ThreadOrigin::Named)
                }
            };
            Ok(SessionThread { name, thread, origin })
        }
        (None, Some(current)) => Ok(current),
        (None, None) => {
            let thread = ThreadId::from_uuid(Uuid::now_v7());
            Ok(SessionThread { name: thread.to_string(), thread, origin: ThreadOrigin::New })
        }
    }
}

/// Follows a session from a cursor; without one, from the oldest run that has not ended, else from the latest. A resume
/// from another cursor restarts the output there.
pub async fn resume_session(
    gateway: &Gateway,
    user: &UserId,
    current: &mut Option<BlocksSession>,
    name: String,
    after: Option<String>,
) -> Result<(), Rejection> {
    let thread = find_named_thread(gateway, user, AliasKind::BlockSession, &name).await?;
    let cursor = match &after {
        Some(after) => after.parse()?,
        None => cursor_at(default_start(gateway, user, &thread).await?),
    };
    let session = open_session(gateway, user, name, thread, cursor).await?;
    // A repeated resume is a no-op, but its cursor is checked every time.
    let resumed = Some(ResumePoint(after));
    let is_current = |current: &BlocksSession| {
        current.resumed == resumed && current.name == session.name && current.thread == session.thread
    };
    if !current.as_ref().is_some_and(is_current) {
        *current = Some(BlocksSession { resumed, ..session });
    }
    Ok(())
}

/// Stops what the connection sees: while it waits for its turn, the runs that it sent itself; else all runs of its session.
/// Of a session that the connection does not follow, `name` stops all runs.
pub async fn stop_session(
    gateway: &Gateway,
    user: &UserId,
    current: Option<&mut BlocksSession>,
    name: Option<String>,
) -> Result<(), Rejection> {
    let named = match name {
        Some(name) => Some(find_named_thread(gateway, user, AliasKind::BlockSession, &name).await?),
        None => None,
    };
    match (current, named) {
        (Some(session), named) if named.as_ref().is_none_or(|thread| *thread == session.thread) => {
            if session.skip_until_run.is_none() {
                return cancel_all_runs(gateway, user, session.thread.clone()).await;
            }
            // The newest first, so that none starts because another was cancelled.
            for task_id in session.own_runs.iter().rev().cloned() {
                let cancel = CancelCommand { task_id, mode: CancelMode::Immediate, cause: CancelCause::User };
                submit_cancel(gateway, user, session.thread.clone(), cancel, None).await?;
            }
            session.next_queue_check = Instant::now() + CANCEL_CHECK_DELAY;
            Ok(())
        }
        (_, Some(thread)) => cancel_all_runs(gateway, user, thread).await,
        (_, None) => {
            let detail = "this socket has no session yet: chat, or resume one";
            Err(Rejection::new(ErrorCode::NoSession, detail))
        }
    }
}

/// Decides an approval of the named session, else of the one that the connection follows, which has the thread `current`. A
/// connection without a session may decide any approval of its user.
pub async fn decide_session_approval(
    gateway: &Gateway,
    user: &UserId,
    current: Option<ThreadId>,
    response: BlocksApprovalResponse,
) -> Result<(), Rejection> {
    let thread = match &response.session_id {
        Some(name) => Some(find_named_thread(gateway, user, AliasKind::BlockSession, name).await?),
        None => current,
    };
    let key = ApprovalKey::from(response.approval_key.as_str());
    decide_approval(gateway, user, thread.as_ref(), key, response.into_decision()?).await
}

/// Opens the session at a record before this run's.
async fn open_session_before(
    gateway: &Gateway,
    user: &UserId,
    name: String,
    started: &StartedRun,
) -> Result<BlocksSession, Rejection> {
    let thread = started.thread.clone();
    let before = match started.after {
        // The thread had no records, so there is nothing to look up.
        Some(Seq::ZERO) => {
            let stream = StreamStart::new(thread.clone(), session_view(&name), StreamPosition::after(Seq::ZERO));
            return Ok(BlocksSession::new(gateway, user, name, thread, stream));
        }
        Some(after) => after,
        None => find_run_start(gateway, user, &started.task).await?.before,
    };
    open_session(gateway, user, name, thread, cursor_at(before)).await
}

async fn open_session(
    gateway: &Gateway,
    user: &UserId,
    name: String,
    thread: ThreadId,
    cursor: Cursor,
) -> Result<BlocksSession, Rejection> {
    let stream = resume_stream(gateway, user, &thread, session_view(&name), cursor).await?;
    Ok(BlocksSession::new(gateway, user, name, thread, stream))
}

fn session_view(name: &str) -> StreamView {
    let projection = Box::new(BlocksProjection::new(name.to_owned()));
    StreamView { name: format!("{BLOCKS_PROJECTION}/{name}"), dialect: BLOCKS_PROJECTION, projection }
}

const fn cursor_at(seq: Seq) -> Cursor {
    Cursor { seq, checksum: None, frame: None }
}

/// The agent of a new session: the demo, else the first that no other agent calls or hands over to, else the first; of
/// those that the user may call.
fn default_agent(gateway: &Gateway, user: &UserId) -> String {
    let definitions = gateway.engine.ports().definitions.get();
    let callable: Vec<&str> = definitions.callable_agents(user).collect();
    if callable.contains(&DEMO_AGENT) {
        return DEMO_AGENT.to_owned();
    }
    let first = entry_agents(&definitions).into_iter().find(|name| callable.contains(name));
    first.or_else(|| callable.first().copied()).unwrap_or(DEMO_AGENT).to_owned()
}
