//! `headwater tail`: follows a task in the terminal, and reconnects when the connection drops.
//!
//! [`follower`] reads the stream and keeps the cursor; [`render`] formats events. The output of the model and its tools
//! goes to stdout and messages about the connection to stderr, so that `headwater tail … > answer.txt` contains the
//! answer alone. It is an HTTP client like any other.

mod follower;
mod render;

use super::print_text;
use clap::Args;
use follower::{TailError, TailEvent, TaskEndpoint, TaskFollower};
use model::task::TaskStatus;
use render::{Palette, Renderer, escape_control};
use std::io::{ErrorKind, IsTerminal as _};
use std::process::ExitCode;

#[derive(Args)]
#[command(
    after_help = "Exit code 0: completed, 1: failed, 2: cancelled or incomplete, 3: the task could not be followed."
)]
pub(crate) struct TailArgs {
    /// The task to follow.
    task: String,
    /// The server's URL.
    #[arg(long, env = "HEADWATER_URL", default_value = "http://127.0.0.1:8787")]
    url: String,
    /// The API key, if the server requires one.
    #[arg(long, env = "HEADWATER_KEY", hide_env_values = true)]
    key: Option<String>,
    /// Start after this cursor or sequence number.
    #[arg(long)]
    after: Option<String>,
    /// Print each event as a line of JSON.
    #[arg(long)]
    raw: bool,
    /// Print no colours. That is the default if the output is not a terminal.
    #[arg(long, env = "NO_COLOR", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "ANY")]
    no_color: Option<String>,
}

impl std::fmt::Debug for TailArgs {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TailArgs").field("task", &self.task).field("url", &self.url).finish_non_exhaustive()
    }
}

/// The task could not be followed to its end.
const EXIT_NOT_FOLLOWED: u8 = 3;

pub(crate) async fn run(args: TailArgs) -> anyhow::Result<ExitCode> {
    match tail(args).await {
        Ok(status) => Ok(ExitCode::from(exit_code(status))),
        // The reader has seen enough, like `head`.
        Err(TailError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("headwater: {}", escape_control(&error.to_string()).replace('\n', " "));
            Ok(ExitCode::from(EXIT_NOT_FOLLOWED))
        }
    }
}

async fn tail(args: TailArgs) -> Result<TaskStatus, TailError> {
    let has_colors = args.no_color.is_none_or(|word| word.is_empty()) && std::io::stdout().is_terminal();
    let palette = if has_colors { Palette::Colors } else { Palette::Plain };
    let endpoint = TaskEndpoint::new(&args.url, &args.task, args.key.as_deref())?;
    let mut renderer = Renderer::new(endpoint.task(), palette);
    let mut follower = TaskFollower::new(endpoint, args.after)?;
    loop {
        match follower.next(|note| eprintln!("headwater: {}", escape_control(note))).await? {
            TailEvent::Event { data, event } => {
                let output = if args.raw { render::raw_line(&data) } else { renderer.render(&event) };
                print_output(&output)?;
                if let Some(status) = renderer.terminal_status(&event) {
                    print_output(&renderer.finish())?;
                    eprintln!("headwater: {}", Renderer::summary_line(&event));
                    return Ok(status);
                }
            }
            TailEvent::Ended(object) => {
                eprintln!("headwater: already ended: {}", object.status.as_str());
                if !args.raw && renderer.is_blank() {
                    print_output(&render::last_message_text(&object))?;
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

fn print_output(text: &str) -> Result<(), TailError> {
    if text.is_empty() { Ok(()) } else { print_text(text).map_err(TailError::Output) }
}
