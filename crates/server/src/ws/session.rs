//! The conversation that a socket is about: how it is found, followed and spoken to.

use super::message::{Answer, Chat, Resume};
use crate::app::App;
use crate::auth::Caller;
use crate::begin;
use crate::files::intake::Luggage;
use crate::problem::Problem;
use crate::routes::to_its_end;
use crate::schema;
use crate::shares;
use crate::watch::{self, Shown};
use axum::http::StatusCode;
use bytes::Bytes;
use engine::{NewRun, REQUEST_BYTES_MAX, StartError, Viewer};
use model::block::{ContentPart, FileRef};
use model::command::CancelCommand;
use model::cursor::Cursor;
use model::event::{CancelMode, ClientIds};
use model::id::is_valid_id;
use model::ports::{AliasRow, ListPage, PageLimit, RunFilter, RunRow, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, Seq, TaskId, ThreadId, UserId};
use protocol::blocks::{Blocks, NAME};
use serde::Deserialize;
use uuid::Uuid;

/// The agent of the demo.
const AGENT: &str = "demo";
/// How many runs are stopped at once.
const RUNS_AT_ONCE: usize = 100;

/// A conversation, as its socket knows it.
pub(crate) struct Session {
    /// The name that is shown.
    pub(crate) name: String,
    pub(crate) thread: ThreadId,
    viewer: Viewer,
    /// Nothing is shown before this run's turn begins: it was somebody else's, or was asked for earlier.
    since: Option<TaskId>,
    /// Has this socket resumed here? Then it misses nothing, and once is enough.
    resumed: bool,
}

/// What somebody who follows a conversation finds.
pub(crate) enum Next {
    /// Frames, a line each.
    Lines(Bytes),
    /// There will be nothing more: the thread is gone, or the server stops.
    Over,
}

impl Session {
    /// What follows. May be given up at any moment: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Next, Problem> {
        loop {
            let Some(lines) = self.viewer.next().await? else { return Ok(Next::Over) };
            let lines = self.awaited(lines);
            if !lines.is_empty() {
                return Ok(Next::Lines(lines));
            }
        }
    }

    /// The lines from the awaited turn's beginning on. Names of runs begin with their time, so a later run's will do.
    fn awaited(&mut self, lines: Bytes) -> Bytes {
        let Some(since) = &self.since else { return lines };
        let mut at = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if begins(line).is_some_and(|run| run.as_str() >= since.as_str()) {
                self.since = None;
                return lines.slice(at..);
            }
            at += line.len();
        }
        Bytes::new()
    }
}

/// The run whose turn this line begins.
fn begins(line: &[u8]) -> Option<TaskId> {
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
pub(crate) async fn chat(app: &App, caller: &Caller, now: &mut Option<Session>, chat: Chat) -> Result<(), Problem> {
    if app.is_stopping() {
        return Err(Problem::stopping());
    }
    let user = &caller.user;
    let known = now.as_ref().map(|session| (session.name.clone(), session.thread.clone()));
    let known = known.filter(|_| chat.share.is_none());
    let (name, thread, promised) = match (chat.session_id, known) {
        (Some(name), _) => promise(app, user, name).await?,
        (None, Some((name, thread))) => (name, thread, false),
        (None, None) => {
            let thread = ThreadId::from_uuid(Uuid::now_v7());
            (thread.to_string(), thread, true)
        }
    };
    let (shown, mut luggage) = match &chat.share {
        Some(_) if app.engine.ports().directory.thread(user, &thread).await?.is_some() => {
            return Err(Problem::invalid_body("`share` begins a session: `session_id` must be a new name, or none"));
        }
        Some(token) => shares::go_on(app, token).await?,
        None => (NewRun::default(), Luggage::default()),
    };
    let mut input = input(app, chat.content_urls.unwrap_or_default(), chat.content)?;
    luggage.extend(Luggage::unpack(app, "content_urls", input.iter_mut()).await?);
    let agent = match chat.agent {
        Some(agent) => agent,
        None => begin::last_agent(app, user, &thread).await?.unwrap_or_else(|| default_agent(app)),
    };
    let client = ClientIds { protocol: NAME.to_owned(), thread_id: Some(name.clone()), run_id: None };
    let new = NewRun {
        agent,
        input,
        thread: Some(thread.clone()),
        create_if_missing: promised,
        display_mode: chat.display_mode,
        client: Some(client),
        ..shown
    };
    let started = begin::begin(app, user, new, luggage).await?;
    // A name may have been given anew since, when its thread was deleted.
    if now.as_ref().is_none_or(|session| session.name != name || session.thread != thread) {
        let (_, before) = watch::begun(app, user, &started.task).await?;
        let mut session = follow(app, user, (name, thread), at(before)).await?;
        session.since = Some(started.task);
        *now = Some(session);
    }
    Ok(())
}

/// Files first, then words about them.
fn input(app: &App, files: Vec<String>, words: String) -> Result<Vec<ContentPart>, Problem> {
    let most = app.limits.input_files_max;
    if files.len() > most {
        return Err(Problem::invalid_body(format!("`content_urls`: {} files; {most} is the most", files.len())));
    }
    let file = |url| ContentPart::File { file: FileRef { url: Some(url), ..FileRef::default() } };
    let words = Some(words).filter(|words| !words.is_empty()).map(ContentPart::text);
    Ok(files.into_iter().map(file).chain(words).collect())
}

/// Goes on where the client was; without a place, with the oldest run that has not ended, else with the latest.
pub(crate) async fn resume(
    app: &App,
    caller: &Caller,
    now: &mut Option<Session>,
    Resume { session_id: name, after, .. }: Resume,
) -> Result<(), Problem> {
    let user = &caller.user;
    let thread = find(app, user, &name).await?;
    let cursor = match after {
        Some(after) => after.parse()?,
        None => at(beginning(app, user, &thread).await?),
    };
    let session = follow(app, user, (name, thread), cursor).await?;
    // Once is enough. But a place that does not fit is said to be none, however often it is asked for.
    if !now.as_ref().is_some_and(|now| now.resumed && now.name == session.name && now.thread == session.thread) {
        *now = Some(Session { resumed: true, ..session });
    }
    Ok(())
}

/// Stops everything that runs or waits, the newest first: nothing may begin because something else was stopped.
pub(crate) async fn stop(app: &App, caller: &Caller, thread: Option<ThreadId>) -> Result<(), Problem> {
    let Some(thread) = thread else {
        let detail = "this socket has no session yet: chat, or resume one";
        return Err(Problem::new(StatusCode::CONFLICT, "no_session", detail));
    };
    let status = vec![TaskStatus::Queued, TaskStatus::Running, TaskStatus::Paused];
    let filter = RunFilter { status, thread: Some(thread.clone()) };
    let (engine, user) = (app.engine.clone(), caller.user.clone());
    to_its_end(async move {
        let mut before = None;
        loop {
            let page = ListPage { before, limit: RUNS_AT_ONCE };
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
pub(crate) async fn decide(app: &App, caller: &Caller, answer: Answer) -> Result<(), Problem> {
    let key = ApprovalKey::from(answer.approval_key.as_str());
    let decision = answer.decision()?;
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
        schema::check(&tool.spec.parameters, arguments).map_err(|complaints| {
            let detail = format!("`args` do not fit `{}`: {complaints}", question.action.name);
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_arguments", detail)
        })?;
    }
    let (engine, user) = (app.engine.clone(), user.clone());
    to_its_end(async move { engine.decide_approval(&user, &run, (key, decision), None).await }).await
}

/// The thread that a client means by a name, and whether it may have to be made.
async fn promise(app: &App, user: &UserId, name: String) -> Result<(String, ThreadId, bool), Problem> {
    if let Ok(thread) = ThreadId::parse(&name) {
        return Ok((name, thread, false));
    }
    if !is_valid_id(&name) {
        return Err(Problem::invalid_body("`session_id` has 1 to 64 letters, digits, `_` or `-`"));
    }
    let ports = app.engine.ports();
    let row = AliasRow {
        protocol: NAME.to_owned(),
        name: name.clone(),
        thread: ThreadId::from_uuid(Uuid::now_v7()),
        note: String::new(),
        created_at: ports.clock.now(),
    };
    let thread = ports.directory.create_alias(user, row).await?.thread;
    Ok((name, thread, true))
}

/// The thread of this name: one of ours, or one that the client named.
async fn find(app: &App, user: &UserId, name: &str) -> Result<ThreadId, Problem> {
    let directory = &app.engine.ports().directory;
    let thread = match ThreadId::parse(name) {
        Ok(thread) => Some(thread),
        Err(_) if is_valid_id(name) => directory.alias(user, NAME, name).await?.map(|row| row.thread),
        Err(_) => None,
    };
    let thread = thread.ok_or_else(Problem::not_found)?;
    // A name may be older than its thread.
    directory.thread(user, &thread).await?.ok_or_else(Problem::not_found)?;
    Ok(thread)
}

async fn follow(
    app: &App,
    user: &UserId,
    (name, thread): (String, ThreadId),
    cursor: Cursor,
) -> Result<Session, Problem> {
    let projection = Box::new(Blocks::new(name.clone()));
    let shown = Shown { name: format!("{NAME}/{name}"), dialect: NAME, projection };
    let place = watch::shown(app, user, &thread, shown, cursor).await?;
    let viewer = watch::open(app, user, place);
    Ok(Session { name, thread, viewer, since: None, resumed: false })
}

async fn beginning(app: &App, user: &UserId, thread: &ThreadId) -> Result<Seq, Problem> {
    // First the head, then the runs: one that has not begun by then begins after that head.
    let head = watch::head(app, user, thread).await?;
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

const fn at(seq: Seq) -> Cursor {
    Cursor { seq, checksum: None, frame: None }
}

/// Who answers where nobody has answered yet: the demo, else the first whom no other agent asks or hands over to.
fn default_agent(app: &App) -> String {
    let definitions = &app.engine.ports().definitions;
    if definitions.agents.contains_key(AGENT) {
        return AGENT.to_owned();
    }
    let first = begin::first_agents(definitions).first().copied();
    first.or_else(|| definitions.agents.keys().next().map(String::as_str)).unwrap_or(AGENT).to_owned()
}
