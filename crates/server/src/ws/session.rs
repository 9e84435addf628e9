//! The conversation that a socket is about: how it is found, followed and spoken to.

use super::client_message::{WsApprovalResponse, WsChat, WsResume};
use crate::app::App;
use crate::attachments::uploads::Uploads;
use crate::auth::Caller;
use crate::json_schema;
use crate::problem::Problem;
use crate::routes::run_to_completion;
use crate::shares;
use crate::start_run;
use crate::stream_start::{self, StreamView};
use bytes::Bytes;
use engine::{NewRun, REQUEST_BYTES_MAX, StartError, Viewer};
use model::command::CancelCommand;
use model::content::{ContentPart, FileRef};
use model::cursor::Cursor;
use model::error::ErrorCode;
use model::event::{CancelMode, ClientIds};
use model::id::is_valid_id;
use model::ports::{AliasData, AliasKind, AliasRow, ListPage, PageLimit, RunFilter, RunRow, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, Seq, TaskId, ThreadId, UserId};
use protocol::blocks::{BLOCKS_PROJECTION, BlocksProjection};
use serde::Deserialize;
use uuid::Uuid;

/// The agent of the demo.
const DEMO_AGENT: &str = "demo";
/// How many runs are stopped at once.
const RUNS_PAGE_SIZE: usize = 100;

/// A conversation, as its socket knows it.
pub(crate) struct BlocksSession {
    /// The name that is shown.
    pub(crate) name: String,
    pub(crate) thread: ThreadId,
    viewer: Viewer,
    /// Nothing is shown before this run's turn begins: it was somebody else's, or was asked for earlier.
    skip_until_run: Option<TaskId>,
    /// Has this socket resumed here? Then it misses nothing, and once is enough.
    resumed: bool,
}

/// What somebody who follows a conversation finds.
pub(crate) enum SessionOutput {
    /// Frames, a line each.
    Lines(Bytes),
    /// There will be nothing more: the thread is gone, or the server stops.
    Ended,
}

impl BlocksSession {
    /// What follows. May be given up at any moment: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<SessionOutput, Problem> {
        loop {
            let Some(lines) = self.viewer.next().await? else { return Ok(SessionOutput::Ended) };
            let lines = self.skip_to_awaited_run(lines);
            if !lines.is_empty() {
                return Ok(SessionOutput::Lines(lines));
            }
        }
    }

    /// The lines from the awaited turn's beginning on. Names of runs begin with their time, so a later run's will do.
    fn skip_to_awaited_run(&mut self, lines: Bytes) -> Bytes {
        let Some(since) = &self.skip_until_run else { return lines };
        let mut at = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if started_run(line).is_some_and(|run| run.as_str() >= since.as_str()) {
                self.skip_until_run = None;
                return lines.slice(at..);
            }
            at += line.len();
        }
        Bytes::new()
    }
}

/// The run whose turn this line begins.
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

/// Says something. The socket's session is then that one, and follows it from this run on.
pub(crate) async fn send_chat(
    app: &App,
    caller: &Caller,
    now: &mut Option<BlocksSession>,
    chat: WsChat,
) -> Result<(), Problem> {
    if app.is_shutting_down() {
        return Err(Problem::shutting_down());
    }
    let user = &caller.user;
    let known = now.as_ref().map(|session| (session.name.clone(), session.thread.clone()));
    let known = known.filter(|_| chat.share.is_none());
    let (name, thread, promised) = match (chat.session_id, known) {
        (Some(name), _) => reserve_session_thread(app, user, name).await?,
        (None, Some((name, thread))) => (name, thread, false),
        (None, None) => {
            let thread = ThreadId::from_uuid(Uuid::now_v7());
            (thread.to_string(), thread, true)
        }
    };
    let (shown, mut luggage) = match &chat.share {
        Some(_) if app.engine.ports().directory.thread(user, &thread).await?.is_some() => {
            return Err(Problem::invalid_field(
                "share",
                "starts a new session: `session_id` must be a new name or absent",
            ));
        }
        Some(token) => shares::fork_share(app, token).await?,
        None => (NewRun::default(), Uploads::default()),
    };
    let mut input = chat_input(app, chat.content_urls.unwrap_or_default(), chat.content)?;
    luggage.extend(Uploads::extract(app, "content_urls", input.iter_mut()).await?);
    let agent = match chat.agent {
        Some(agent) => agent,
        None => start_run::last_agent_of_thread(app, user, &thread).await?.unwrap_or_else(|| default_agent(app)),
    };
    let client = ClientIds { protocol: BLOCKS_PROJECTION.to_owned(), thread_id: Some(name.clone()), run_id: None };
    let new = NewRun {
        agent,
        input,
        thread: Some(thread.clone()),
        create_if_missing: promised,
        display_mode: chat.display_mode,
        client: Some(client),
        ..shown
    };
    let started = start_run::start_run(app, user, new, luggage).await?;
    // A name may have been given anew since, when its thread was deleted.
    if now.as_ref().is_none_or(|session| session.name != name || session.thread != thread) {
        let (_, before) = stream_start::find_run_start(app, user, &started.task).await?;
        let mut session = open_session(app, user, (name, thread), cursor_at(before)).await?;
        session.skip_until_run = Some(started.task);
        *now = Some(session);
    }
    Ok(())
}

/// Files first, then words about them.
fn chat_input(app: &App, files: Vec<String>, words: String) -> Result<Vec<ContentPart>, Problem> {
    let most = app.limits.input_files_max;
    if files.len() > most {
        return Err(Problem::invalid_field("content_urls", format!("{} files; the maximum is {most}", files.len())));
    }
    let file = |url| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
    let words = Some(words).filter(|words| !words.is_empty()).map(ContentPart::text);
    Ok(files.into_iter().map(file).chain(words).collect())
}

/// Goes on where the client was; without a place, with the oldest run that has not ended, else with the latest.
pub(crate) async fn resume_session(
    app: &App,
    caller: &Caller,
    now: &mut Option<BlocksSession>,
    WsResume { session_id: name, after, .. }: WsResume,
) -> Result<(), Problem> {
    let user = &caller.user;
    let thread = find_session_thread(app, user, &name).await?;
    let cursor = match after {
        Some(after) => after.parse()?,
        None => cursor_at(default_session_start(app, user, &thread).await?),
    };
    let session = open_session(app, user, (name, thread), cursor).await?;
    // Once is enough. But a place that does not fit is said to be none, however often it is asked for.
    if !now.as_ref().is_some_and(|now| now.resumed && now.name == session.name && now.thread == session.thread) {
        *now = Some(BlocksSession { resumed: true, ..session });
    }
    Ok(())
}

/// Stops everything that runs or waits, the newest first: nothing may begin because something else was stopped.
pub(crate) async fn stop_session(app: &App, caller: &Caller, thread: Option<ThreadId>) -> Result<(), Problem> {
    let Some(thread) = thread else {
        let detail = "this socket has no session yet: chat, or resume one";
        return Err(Problem::new(ErrorCode::NoSession, detail));
    };
    let status = vec![TaskStatus::Queued, TaskStatus::Running, TaskStatus::Paused];
    let filter = RunFilter { status, thread: Some(thread.clone()) };
    let (engine, user) = (app.engine.clone(), caller.user.clone());
    run_to_completion(async move {
        let mut before = None;
        loop {
            let page = ListPage { before, limit: RUNS_PAGE_SIZE };
            let runs = engine.ports().directory.runs(&user, filter.clone(), page).await?;
            let Some(last) = runs.last().map(|run| run.id.to_string()) else { return Ok::<(), SubmitError>(()) };
            for RunRow { id: task_id, .. } in runs {
                let cancel = CancelCommand { task_id, mode: CancelMode::Immediate };
                engine.cancel(&user, &thread, cancel, None).await?;
            }
            before = Some(last);
        }
    })
    .await
}

/// Answers a question, in whichever conversation it was asked.
pub(crate) async fn decide_approval(app: &App, caller: &Caller, answer: WsApprovalResponse) -> Result<(), Problem> {
    let key = ApprovalKey::from(answer.approval_key.as_str());
    let decision = answer.into_decision()?;
    let size = serde_json::to_vec(&decision).map_or(usize::MAX, |text| text.len());
    if size > REQUEST_BYTES_MAX {
        return Err(StartError::TooLarge(REQUEST_BYTES_MAX).into());
    }
    let (directory, user) = (&app.engine.ports().directory, &caller.user);
    let found = if is_valid_id(key.as_str()) { directory.approval(user, &key).await? } else { None };
    let question = found.ok_or(SubmitError::ApprovalNotFound)?;
    let run = directory.run(user, &question.run_id).await?.ok_or(SubmitError::ApprovalNotFound)?;
    let tool = app.engine.ports().definitions.tools.get(&question.action.name);
    if let (Some(tool), Some(arguments)) = (tool, &decision.args) {
        // The run looks again, at what it started with.
        json_schema::validate_arguments(&tool.spec.parameters, arguments).map_err(|complaints| {
            let detail = format!("`args` do not fit `{}`: {complaints}", question.action.name);
            Problem::new(ErrorCode::InvalidArguments, detail)
        })?;
    }
    let (engine, user) = (app.engine.clone(), user.clone());
    run_to_completion(async move { engine.decide_approval(&user, &run, key, decision, None).await }).await
}

/// The thread that a client means by a name, and whether it may have to be made.
async fn reserve_session_thread(app: &App, user: &UserId, name: String) -> Result<(String, ThreadId, bool), Problem> {
    if let Ok(thread) = ThreadId::parse(&name) {
        return Ok((name, thread, false));
    }
    if !is_valid_id(&name) {
        return Err(Problem::invalid_field("session_id", "must have 1 to 64 letters, digits, `_` or `-`"));
    }
    let ports = app.engine.ports();
    let row = AliasRow {
        name: name.clone(),
        thread: ThreadId::from_uuid(Uuid::now_v7()),
        data: AliasData::BlockSession,
        created_at: ports.clock.now(),
    };
    let thread = ports.directory.writer(user)?.create_alias(user, row).await?.thread;
    Ok((name, thread, true))
}

/// The thread of this name: one of ours, or one that the client named.
async fn find_session_thread(app: &App, user: &UserId, name: &str) -> Result<ThreadId, Problem> {
    let directory = &app.engine.ports().directory;
    let thread = match ThreadId::parse(name) {
        Ok(thread) => Some(thread),
        Err(_) if is_valid_id(name) => {
            directory.alias(user, AliasKind::BlockSession, name).await?.map(|row| row.thread)
        }
        Err(_) => None,
    };
    let thread = thread.ok_or_else(Problem::not_found)?;
    // A name may be older than its thread.
    directory.thread(user, &thread).await?.ok_or_else(Problem::not_found)?;
    Ok(thread)
}

async fn open_session(
    app: &App,
    user: &UserId,
    (name, thread): (String, ThreadId),
    cursor: Cursor,
) -> Result<BlocksSession, Problem> {
    let projection = Box::new(BlocksProjection::new(name.clone()));
    let shown = StreamView { name: format!("{BLOCKS_PROJECTION}/{name}"), dialect: BLOCKS_PROJECTION, projection };
    let place = stream_start::resume_stream(app, user, &thread, shown, cursor).await?;
    let viewer = stream_start::open_viewer(app, user, place);
    Ok(BlocksSession { name, thread, viewer, skip_until_run: None, resumed: false })
}

async fn default_session_start(app: &App, user: &UserId, thread: &ThreadId) -> Result<Seq, Problem> {
    // First the head, then the runs: one that has not begun by then begins after that head.
    let head = stream_start::log_head(app, user, thread).await?;
    let run = match app.engine.active_run(user, thread).await? {
        Some(busy) => Some(busy),
        None => {
            let journal = &app.engine.ports().journal;
            let page = journal.read_page(user, thread, head.prev(), PageLimit::ONE).await?;
            page.records.first().map(|record| record.run.clone())
        }
    };
    let Some(run) = run else { return Ok(head) };
    let row = app.engine.ports().directory.run(user, &run).await?;
    Ok(row.and_then(|row| row.first_seq).map_or(head, Seq::prev))
}

const fn cursor_at(seq: Seq) -> Cursor {
    Cursor { seq, checksum: None, frame: None }
}

/// Who answers where nobody has answered yet: the demo, else the first whom no other agent asks or hands over to.
fn default_agent(app: &App) -> String {
    let definitions = &app.engine.ports().definitions;
    if definitions.agents.contains_key(DEMO_AGENT) {
        return DEMO_AGENT.to_owned();
    }
    let first = start_run::entry_agents(definitions).first().copied();
    first.or_else(|| definitions.agents.keys().next().map(String::as_str)).unwrap_or(DEMO_AGENT).to_owned()
}
