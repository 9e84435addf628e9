//! The command line: one file per verb.
//!
//! Every flag has an environment twin, so this is also the one place where the environment is read.

mod check_config;
mod keys;
mod openapi;
mod read_pdf;
mod replay;
mod serve;
mod tail;
mod verify;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A stateful streaming server for AI agents.
#[derive(Debug, Parser)]
#[command(name = "headwater", version)]
pub(crate) struct Cli {
    /// What is logged, to stderr: `error`, `warn`, `info`, `debug`, or a filter like `info,engine=debug`.
    #[arg(long, env = "HEADWATER_LOG", default_value = "info", global = true)]
    log: String,
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Serve. Without a config file: the demo, with no key and no network.
    Serve(serve::ServeArgs),
    /// Look through a data folder that no server works in, and through its files, and list all damage. Exit code 0: clean, 1:
    /// damage, 2: could not look.
    Verify(verify::VerifyArgs),
    /// Let people in (`[auth] mode = "keys"`). Works while the server runs, too.
    Keys(keys::KeysArgs),
    /// Look through a config file and list all that is wrong. Exit code 0: it can be served, 1: it cannot.
    CheckConfig(check_config::CheckConfigArgs),
    /// Print the OpenAPI document.
    Openapi,
    /// Follow a task in the terminal; go on by itself when the connection drops.
    Tail(tail::TailArgs),
    /// Stream a logged run again, in any protocol, with its timing or fast. Works while the server runs, too.
    Replay(replay::ReplayArgs),
    /// Read a PDF on stdin. The server starts itself anew with this, because a PDF is best read in a process of its own.
    #[command(name = read_pdf::COMMAND_NAME, hide = true)]
    ReadPdf(read_pdf::ReadPdfArgs),
}

/// The folder that everything is in.
#[derive(Clone, Debug, Args)]
pub(crate) struct DataDir {
    /// The data folder.
    #[arg(long, env = "HEADWATER_DATA_DIR", default_value = crate::config::DEFAULT_DATA_DIR)]
    pub(crate) data_dir: PathBuf,
}

/// Says something on stdout. Whoever closed the pipe has had enough, which is no failure of ours.
fn print_line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _closed = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// One worker for each core, less the one that the store's writer keeps busy: a worker beyond that is woken for what
/// another would have done in the same breath, and a fifth of the time of few streams goes into waking.
fn build_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = cores.saturating_sub(1).max(1);
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build().context("no runtime")
}

/// Does what was asked.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let filter = EnvFilter::builder().parse(&cli.log).context("HEADWATER_LOG is not a filter")?;
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(ansi).compact().init();
    match cli.verb {
        CliCommand::Serve(args) => build_runtime()?.block_on(serve::run(args)),
        CliCommand::Verify(args) => Ok(build_runtime()?.block_on(verify::run(args))),
        CliCommand::Keys(args) => build_runtime()?.block_on(keys::run(args)),
        CliCommand::CheckConfig(args) => Ok(check_config::run(&args)),
        CliCommand::Openapi => Ok(openapi::run()),
        CliCommand::Tail(args) => build_runtime()?.block_on(tail::run(args)),
        CliCommand::Replay(args) => build_runtime()?.block_on(replay::run(args)),
        CliCommand::ReadPdf(args) => Ok(read_pdf::run(&args)),
    }
}
