//! `headwater tail`: follows a task in the terminal, and goes on by itself when the connection drops.
//!
//! `follow` reads the stream and knows where it was; `render` turns events into what a terminal shows. What the model and
//! its tools said goes to stdout, everything about the connection to stderr, so that `headwater tail … > answer.txt`
//! holds the answer alone. Nothing here is the server's: it speaks HTTP like any other client.

mod follower;
mod render;

use clap::Args;
use follower::{TailError, TailEvent, TaskEndpoint, TaskFollower};
use model::task::TaskStatus;
use render::{Palette, Renderer, escape_control};
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use std::process::ExitCode;

/// What `headwater tail` is told.
#[derive(Args)]
#[command(after_help = "Exit code 0: completed, 1: failed, 2: cancelled or incomplete, 3: it could not be followed.")]
pub(crate) struct TailArgs {
    /// The task to follow.
    task: String,
    /// Where the server is.
    #[arg(long, env = "HEADWATER_URL", default_value = "http://127.0.0.1:8787")]
    url: String,
    /// The key that lets you in, where the server asks for one.
    #[arg(long, env = "HEADWATER_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Begin after this place: a cursor, or a seq number.
    #[arg(long)]
    after: Option<String>,
    /// Print the events as they come, one line of JSON each.
    #[arg(long)]
    raw: bool,
    /// No colours. They are left out by themselves where the output is no terminal.
    #[arg(long, env = "NO_COLOR", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "ANY")]
    no_color: Option<String>,
}

impl std::fmt::Debug for TailArgs {
    /// Without the key: what can be printed, will be.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TailArgs").field("task", &self.task).field("url", &self.url).finish_non_exhaustive()
    }
}

/// The task could not be followed to its end. Smaller codes say how it ended.
const EXIT_NOT_FOLLOWED: u8 = 3;

/// Follows a task. Exit code 0: completed, 1: failed, 2: cancelled or incomplete, 3: it could not be followed.
pub(crate) async fn run(args: TailArgs) -> anyhow::Result<ExitCode> {
    match tail(args).await {
        Ok(status) => Ok(ExitCode::from(exit_code(status))),
        // Whoever read our output has had enough, as `head` does.
        Err(TailError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(refusal) => {
            eprintln!("headwater: {}", escape_control(&refusal.to_string()).replace('\n', " "));
            Ok(ExitCode::from(EXIT_NOT_FOLLOWED))
        }
    }
}

async fn tail(args: TailArgs) -> Result<TaskStatus, TailError> {
    let colours = args.no_color.is_none_or(|word| word.is_empty()) && std::io::stdout().is_terminal();
    let palette = if colours { Palette::Colors } else { Palette::Plain };
    let endpoint = TaskEndpoint::new(&args.url, &args.task, args.key.as_deref())?;
    let mut renderer = Renderer::new(endpoint.task(), palette);
    let mut follow = TaskFollower::new(endpoint, args.after)?;
    loop {
        match follow.next(|note| eprintln!("headwater: {}", escape_control(note))).await? {
            TailEvent::Event { data, event } => {
                let shown = if args.raw { render::raw_line(&data) } else { renderer.render(&event) };
                print_text(&shown)?;
                if let Some(status) = renderer.terminal_status(&event) {
                    print_text(&renderer.finish())?;
                    eprintln!("headwater: {}", Renderer::summary_line(&event));
                    return Ok(status);
                }
            }
            TailEvent::Ended(object) => {
                eprintln!("headwater: already ended: {}", object.status.as_str());
                if !args.raw && renderer.is_blank() {
                    print_text(&render::last_message_text(&object))?;
                }
                return Ok(object.status);
            }
        }
    }
}

const fn exit_code(status: TaskStatus) -> u8 {
    match status {
        TaskStatus::Completed => 0,
        TaskStatus::Failed => 1,
        TaskStatus::Cancelled | TaskStatus::Incomplete => 2,
        TaskStatus::Queued | TaskStatus::Running | TaskStatus::Paused => EXIT_NOT_FOLLOWED,
    }
}

fn print_text(text: &str) -> Result<(), TailError> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(TailError::Output)
}
