//! `headwater tail`: follows a task in the terminal, and reconnects when the connection drops.
//!
//! The crate `client` reads the stream, keeps the cursor and formats events. The output of the model and its tools
//! goes to stdout and messages about the connection to stderr, so that `headwater tail … > answer.txt` contains the
//! answer alone. It is an HTTP client like any other.

use super::print_text;
use super::server_args::{ColorArgs, ServerArgs};
use clap::Args;
use client::{ApiClientError, Renderer, TailEvent, TaskFollower, escape_control, last_message_text, raw_line};
use model::TaskId;
use model::task::TaskStatus;
use std::io::ErrorKind;
use std::process::ExitCode;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code 0: completed, 1: failed, 2: cancelled or incomplete, 3: the task could not be followed."
)]
pub(crate) struct TailArgs {
    /// The task to follow.
    task: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Start after this cursor or sequence number.
    #[arg(long)]
    after: Option<String>,
    /// Print each event as a line of JSON.
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    colors: ColorArgs,
}

/// The task could not be followed to its end.
const EXIT_NOT_FOLLOWED: u8 = 3;

pub(crate) async fn run(args: TailArgs) -> anyhow::Result<ExitCode> {
    match tail(args).await {
        Ok(status) => Ok(ExitCode::from(exit_code(status))),
        // The reader has seen enough, like `head`.
        Err(ApiClientError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("headwater: {}", escape_control(&error.to_string()).replace('\n', " "));
            Ok(ExitCode::from(EXIT_NOT_FOLLOWED))
        }
    }
}

async fn tail(args: TailArgs) -> Result<TaskStatus, ApiClientError> {
    let api = args.server.client()?;
    let task = TaskId::parse(&args.task).map_err(|_| ApiClientError::TaskNotFound(args.task))?;
    let mut renderer = Renderer::new(task.clone(), args.colors.palette());
    let mut follower = TaskFollower::new(api, task, args.after);
    loop {
        match follower.next(|note| eprintln!("headwater: {}", escape_control(note))).await? {
            TailEvent::Event { data, event } => {
                let output = if args.raw { raw_line(&data) } else { renderer.render(&event) };
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
                    print_output(&last_message_text(&object))?;
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

fn print_output(text: &str) -> Result<(), ApiClientError> {
    if text.is_empty() { Ok(()) } else { print_text(text).map_err(ApiClientError::Output) }
}
