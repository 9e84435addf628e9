//! `headwater chat`: talks to an agent in the terminal.
//!
//! [`terminal`] reads lines and Ctrl-C, [`questions`] asks what a run waits for. A run is followed like `headwater tail`
//! follows it, so the chat continues when the server was away.

mod questions;
mod terminal;

use super::print_text;
use super::server_args::{ColorArgs, ServerArgs};
use clap::Args;
use client::{
    ApiClient, ApiClientError, Backoff, Palette, Renderer, ResultText, TailEvent, TaskFollower, escape_control,
    last_message_text,
};
use model::event::{CancelMode, Event};
use model::task::{TaskObject, TaskStatus};
use model::{TaskId, ThreadId};
use questions::{PendingCalls, QuestionEnd};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::process::ExitCode;
use terminal::{Terminal, TerminalInput};

/// Characters of a tool's result that are shown.
const RESULT_CHARS_MAX: usize = 200;
/// The agent that is preferred if there are several.
const DEMO_AGENT: &str = "demo";

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C stops an answer after its turn, and a second Ctrl-C at once. At the prompt, Ctrl-C and Ctrl-D end \
    the chat.\n\nA call that needs an approval is shown with its arguments: `y` approves it, `n` rejects it, `e` edits the \
    arguments."
)]
pub(crate) struct ChatArgs {
    /// The thread to continue (`thr_…`); otherwise a new one.
    thread: Option<String>,
    /// The agent [default: that of the thread, or the only one].
    #[arg(long)]
    agent: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    colors: ColorArgs,
}

pub(crate) async fn run(args: ChatArgs) -> anyhow::Result<ExitCode> {
    match chat(args).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reader has seen enough, like `head`.
        Err(ApiClientError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            note(&error.to_string().replace('\n', " "));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn chat(args: ChatArgs) -> Result<(), ApiClientError> {
    let (palette, api) = (args.colors.palette(), args.server.client()?);
    let latest = match &args.thread {
        Some(thread) => Some(find_latest_task(&api, thread).await?),
        None => None,
    };
    let agent = match (args.agent, &latest) {
        (Some(agent), _) => agent,
        (None, Some(task)) => task.agent.clone(),
        (None, None) => choose_agent(&api).await?,
    };
    let terminal = Terminal::open().map_err(ApiClientError::Input)?;
    let thread = latest.as_ref().map(|task| task.thread_id.clone());
    let mut session = ChatSession { api, palette, terminal, agent, thread };
    note(&format!("agent {}; Ctrl-D ends the chat", session.agent));
    let mut flow = match latest {
        Some(task) => session.follow(&task.task_id).await?,
        None => ChatFlow::Continue,
    };
    while flow == ChatFlow::Continue {
        flow = match session.terminal.ask("> ").await {
            TerminalInput::Line(line) if line.trim().is_empty() => ChatFlow::Continue,
            TerminalInput::Line(line) => session.send(&line).await?,
            TerminalInput::Interrupt | TerminalInput::End => ChatFlow::Leave,
        };
    }
    if let Some(thread) = &session.thread {
        note(&format!("continue with `headwater chat {thread}`"));
    }
    Ok(())
}

/// A run of a list.
#[derive(Deserialize)]
struct ListedTask {
    task_id: TaskId,
    thread_id: ThreadId,
    agent: String,
}

#[derive(Deserialize)]
struct Page<T> {
    data: Vec<T>,
}

async fn find_latest_task(api: &ApiClient, thread: &str) -> Result<ListedTask, ApiClientError> {
    let not_found = || ApiClientError::ThreadNotFound(thread.to_owned());
    let id = ThreadId::parse(thread).map_err(|_| not_found())?;
    let mut url = api.url("/v1/tasks");
    url.query_pairs_mut().append_pair("thread_id", id.as_str()).append_pair("limit", "1");
    let page: Page<ListedTask> = api.get(url).await?;
    page.data.into_iter().next().ok_or_else(not_found)
}

async fn choose_agent(api: &ApiClient) -> Result<String, ApiClientError> {
    #[derive(Deserialize)]
    struct ListedAgent {
        id: String,
    }
    let page: Page<ListedAgent> = api.get(api.url("/v1/models")).await?;
    let names: Vec<String> = page.data.into_iter().map(|agent| agent.id).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        several if several.iter().any(|name| name == DEMO_AGENT) => Ok(DEMO_AGENT.to_owned()),
        several => Err(ApiClientError::AgentNotChosen(several.join(", "))),
    }
}

/// Tells something on stderr.
fn note(text: &str) {
    eprintln!("headwater: {}", escape_control(text));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChatFlow {
    Continue,
    Leave,
}

struct ChatSession {
    api: ApiClient,
    palette: Palette,
    terminal: Terminal,
    agent: String,
    /// Set by the first run.
    thread: Option<ThreadId>,
}

impl ChatSession {
    /// Starts a run with this input and shows it to its end.
    async fn send(&mut self, input: &str) -> Result<ChatFlow, ApiClientError> {
        let mut body = json!({"model": self.agent, "input": input});
        if let (Some(thread), Some(members)) = (&self.thread, body.as_object_mut()) {
            members.insert("thread_id".to_owned(), json!(thread));
        }
        let key = format!("chat-{:016x}", getrandom::u64().unwrap_or_default());
        let api = self.api.clone();
        let starting = api.post_until_answered::<TaskObject>(api.url("/v1/tasks"), &body, &key, note);
        let started = tokio::select! {
            started = starting => started,
            () = self.terminal.wait_for_interrupt() => {
                note("not sent");
                return Ok(ChatFlow::Continue);
            }
        };
        match started {
            Ok(task) => {
                self.thread = Some(task.thread_id);
                self.follow(&task.task_id).await
            }
            Err(error @ ApiClientError::Rejected(..)) => {
                note(&error.to_string());
                Ok(ChatFlow::Continue)
            }
            Err(error) => Err(error),
        }
    }

    /// Shows a run to its end, and asks what it waits for.
    async fn follow(&mut self, task: &TaskId) -> Result<ChatFlow, ApiClientError> {
        let mut renderer =
            Renderer::new(task.clone(), self.palette).with_result_text(ResultText::AtMost(RESULT_CHARS_MAX));
        let mut follower = TaskFollower::new(self.api.clone(), task.clone(), None);
        let mut calls = PendingCalls::default();
        let mut stops = StopRequests::default();
        loop {
            let next = tokio::select! {
                next = follower.next(note) => next?,
                () = self.terminal.wait_for_interrupt() => {
                    if self.stop(task, &mut stops).await == ChatFlow::Leave {
                        return Ok(ChatFlow::Leave);
                    }
                    continue;
                }
            };
            let event = match next {
                TailEvent::Event { event, .. } => event,
                TailEvent::Ended(object) => {
                    if renderer.is_blank() {
                        print_output(&last_message_text(&object))?;
                    }
                    return Ok(ChatFlow::Continue);
                }
            };
            print_output(&renderer.render(&event))?;
            calls.remember(&event);
            if let Some(status) = renderer.terminal_status(&event) {
                print_output(&renderer.finish())?;
                if status != TaskStatus::Completed {
                    note(&Renderer::summary_line(&event));
                }
                return Ok(ChatFlow::Continue);
            }
            if matches!(&*event, Event::Paused(_)) && self.answer(task, &calls, &mut stops).await? == ChatFlow::Leave {
                return Ok(ChatFlow::Leave);
            }
        }
    }

    /// Asks what the run waits for now: a paused run that is shown again may have been answered long ago.
    async fn answer(
        &mut self,
        task: &TaskId,
        calls: &PendingCalls,
        stops: &mut StopRequests,
    ) -> Result<ChatFlow, ApiClientError> {
        let mut backoff = Backoff::default();
        let object: TaskObject = loop {
            match self.api.get(self.api.task_url(task)).await {
                Err(error) if error.is_transient() => backoff.wait(&error.to_string(), note).await,
                answer => break answer?,
            }
        };
        for pending in &object.pending {
            match questions::ask(&self.api, &mut self.terminal, task, pending, calls).await? {
                QuestionEnd::Answered => {}
                QuestionEnd::Interrupted => return Ok(self.stop(task, stops).await),
                QuestionEnd::InputEnded => return Ok(ChatFlow::Leave),
            }
        }
        Ok(ChatFlow::Continue)
    }

    /// Stops the run after its turn, then at once, then leaves it.
    async fn stop(&self, task: &TaskId, stops: &mut StopRequests) -> ChatFlow {
        stops.0 += 1;
        let (mode, what) = match stops.0 {
            1 => (CancelMode::AfterTurn, "stopping after this turn; Ctrl-C again stops at once"),
            2 => (CancelMode::Immediate, "stopping at once; Ctrl-C again leaves the run to itself"),
            _ => return ChatFlow::Leave,
        };
        note(what);
        let url = self.api.url(&format!("/v1/tasks/{task}/cancel"));
        if let Err(error) = self.api.post::<Value>(url, &json!({ "mode": mode })).await {
            note(&error.to_string());
        }
        ChatFlow::Continue
    }
}

/// How often Ctrl-C was pressed during a run.
#[derive(Default)]
struct StopRequests(u32);

fn print_output(text: &str) -> Result<(), ApiClientError> {
    if text.is_empty() { Ok(()) } else { print_text(text).map_err(ApiClientError::Output) }
}
