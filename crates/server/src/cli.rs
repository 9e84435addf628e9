//! The command line: one module per subcommand.
//!
//! Every flag has an environment variable; `config::read_env` is the only other place that reads the environment.

mod chat;
mod check_config;
mod compact;
mod completions;
mod config_args;
mod import;
mod init;
mod keys;
mod man;
mod mcp;
mod openapi;
mod read_pdf;
mod replay;
mod serve;
mod server_args;
mod tail;
mod tool_guardian;
mod verify;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// A stateful streaming server for AI agents.
#[derive(Debug, Parser)]
#[command(name = "headwater", version)]
pub(crate) struct Cli {
    /// Log filter, for stderr: `error`, `warn`, `info`, `debug`, or a filter like `info,engine=debug`.
    #[arg(long, env = "HEADWATER_LOG", default_value = "info", global = true)]
    log: String,
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run the server. Without a config file it runs the demo, which needs no key and no network.
    Serve(serve::ServeArgs),
    /// Check a data folder that no server uses, or a database beside its servers, and the files for damage. Exit code 0:
    /// clean, 1: damaged, 2: the check failed.
    Verify(verify::VerifyArgs),
    /// Rewrite the database of a data folder without its free space while no server uses it. Prints the size before and
    /// after, needs room for the copy, and changes nothing if it fails.
    Compact(compact::CompactArgs),
    /// Copy a data folder that no server uses into an empty database, which several servers can share. The folder stays as
    /// it is; if the import fails, the database does, too.
    Import(import::ImportArgs),
    /// Manage API keys (`[auth] mode = "keys"`), also while servers are running.
    Keys(keys::KeysArgs),
    /// Check a config file and list all errors. Exit code 0: valid, 1: invalid.
    CheckConfig(check_config::CheckConfigArgs),
    /// Connect to an MCP server of the config and print its tools, with the hashes that pin them.
    Mcp(mcp::McpArgs),
    /// Write a commented starter config.
    Init(init::InitArgs),
    /// Print the OpenAPI document.
    Openapi,
    /// Follow a task in the terminal, and reconnect when the connection drops.
    Tail(tail::TailArgs),
    /// Talk to an agent in the terminal: tools, approvals, stopping and resuming.
    Chat(chat::ChatArgs),
    /// Stream a stored run again in any protocol, with its original timing or fast. Works while servers are running.
    Replay(replay::ReplayArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
    /// Print a manual page.
    Man(man::ManArgs),
    /// Extract the text of a PDF from stdin. The server runs this in a separate process, because parsers of PDFs crash.
    #[command(name = read_pdf::COMMAND_NAME, hide = true)]
    ReadPdf(read_pdf::ReadPdfArgs),
    /// End the tool programs of a server when stdin closes. The server runs this beside itself.
    #[command(name = tool_guardian::COMMAND_NAME, hide = true)]
    ToolGuardian(tool_guardian::ToolGuardianArgs),
}

/// A closed pipe is not an error: the reader has seen enough.
fn print_line(text: impl Display) {
    let _closed = print_text(format_args!("{text}\n"));
}

fn print_text(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush())
}

/// <https://no-color.org>: any value that is not empty.
fn is_color_disabled() -> bool {
    crate::config::read_env("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// Colours a text of a listing, if stdout is a terminal.
fn paint(text: impl Display, color: TextColor) -> String {
    if is_color_disabled() || !io::stdout().is_terminal() {
        return text.to_string();
    }
    let code = match color {
        TextColor::Red => "31",
        TextColor::Green => "32",
        TextColor::Yellow => "33",
        TextColor::Dim => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

#[derive(Clone, Copy)]
enum TextColor {
    Red,
    Green,
    Yellow,
    Dim,
}

/// One worker per core. One less, for the store's writer, would save a fifth of the CPU time of few streams; but on two cores
/// many streams would then wait for a single worker while the other core idles.
fn build_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // What the pool of database connections says of an outage, the store says once. The MCP library writes what servers send.
    let filter =
        EnvFilter::builder().parse(format!("deadpool=error,rmcp=warn,{}", cli.log)).context("invalid log filter")?;
    let ansi = io::stderr().is_terminal() && !is_color_disabled();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(ansi).compact().init();
    match cli.verb {
        CliCommand::Serve(args) => build_runtime()?.block_on(serve::run(args)),
        CliCommand::Verify(args) => Ok(build_runtime()?.block_on(verify::run(args))),
        CliCommand::Compact(args) => compact::run(args),
        CliCommand::Mcp(args) => build_runtime()?.block_on(mcp::run(args)),
        CliCommand::Import(args) => build_runtime()?.block_on(import::run(args)),
        CliCommand::Keys(args) => build_runtime()?.block_on(keys::run(args)),
        CliCommand::CheckConfig(args) => Ok(check_config::run(&args)),
        CliCommand::Init(args) => init::run(&args),
        CliCommand::Openapi => Ok(openapi::run()),
        CliCommand::Tail(args) => build_runtime()?.block_on(tail::run(args)),
        CliCommand::Chat(args) => build_runtime()?.block_on(chat::run(args)),
        CliCommand::Replay(args) => build_runtime()?.block_on(replay::run(args)),
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Man(args) => man::run(&args),
        CliCommand::ReadPdf(args) => Ok(read_pdf::run(&args)),
        CliCommand::ToolGuardian(args) => Ok(tool_guardian::run(&args)),
    }
}
