//! The benchmark kit: what Headwater costs, held against what nothing costs.
//!
//! `bench all` starts a mock provider, a do-nothing and a parsing proxy and Headwater as child processes, puts them
//! under the same load in turn, checks every stream, and writes the tables into `docs/performance.md`, which also says
//! how to read them. The other commands are its parts. The kit knows Headwater from outside only: its binary, its
//! routes and its frames.

mod append;
mod clock;
mod delta_stream;
mod fanout;
mod http_server;
mod load;
mod mock_provider;
mod open_files_limit;
mod process_usage;
mod proxy;
mod report;
mod server_process;
mod sse_splitter;
mod stats;
mod stream_check;
mod streams;
mod target;

#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand};
use hyper::http::uri::Authority;
use server_process::HeadwaterOptions;
use std::net::SocketAddr;
use tokio::signal::unix::{SignalKind, signal};

const STREAM_ROUNDS: usize = 3;
const FANOUT_ROUNDS: usize = 2;
const APPEND_ROUNDS: usize = 3;

/// Measures Headwater against a do-nothing proxy.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Everything below that measures, written into docs/performance.md.
    All {
        #[command(flatten)]
        headwater: HeadwaterOptions,
        /// Fail if a bar is missed.
        #[arg(long)]
        check: bool,
    },
    /// Streams through Headwater and the yardsticks.
    Streams(SuiteArgs),
    /// Viewers of one task.
    Fanout(SuiteArgs),
    /// Durable appends against a bare fdatasync loop.
    Append {
        /// Rounds; a figure is their median.
        #[arg(long, default_value_t = APPEND_ROUNDS)]
        rounds: usize,
        /// Write the table into docs/performance.md.
        #[arg(long)]
        write: bool,
    },
    /// Load on a server that is already running.
    Load(LoadArgs),
    /// The mock provider.
    Mock {
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// A yardstick.
    Proxy {
        /// What it does with a stream.
        #[arg(long)]
        mode: proxy::ProxyMode,
        /// Host and port of what is behind it.
        #[arg(long, value_name = "HOST:PORT")]
        upstream: Authority,
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

#[derive(Args)]
struct SuiteArgs {
    #[command(flatten)]
    headwater: HeadwaterOptions,
    /// Rounds; a figure is their median [default: 3 for streams, 2 for viewers].
    #[arg(long)]
    rounds: Option<usize>,
    /// Write the table into docs/performance.md.
    #[arg(long)]
    write: bool,
}

#[derive(Args)]
struct LoadArgs {
    /// Host and port of the server.
    #[arg(long, value_name = "HOST:PORT")]
    server: Authority,
    /// The server's process, whose CPU time is counted.
    #[arg(long)]
    pid: u32,
    /// How a story is asked for.
    #[arg(long, default_value = "stream")]
    dialect: target::TargetApi,
    /// Streams at once.
    #[arg(long, default_value_t = 50)]
    streams: u32,
    /// Deltas per stream.
    #[arg(long, default_value_t = 100)]
    deltas: u32,
    /// Milliseconds between deltas; 0 is full speed.
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
    /// Streams that follow one another in each place.
    #[arg(long, default_value_t = 1)]
    waves: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    open_files_limit::raise_open_files_limit()?;
    let mut terminate = signal(SignalKind::terminate())?;
    // On a signal the work is dropped, and its child processes with it.
    tokio::select! {
        outcome = Box::pin(run(cli.command)) => outcome,
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminate.recv() => anyhow::bail!("terminated"),
    }
}

async fn run(command: BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::All { headwater, check } => {
            ensure_release_build()?;
            let is_met = streams::run(&headwater, STREAM_ROUNDS, true).await?;
            run_append_blocking(APPEND_ROUNDS, true).await?;
            let is_good = fanout::run(&headwater, FANOUT_ROUNDS, true).await?;
            anyhow::ensure!(!check || (is_met && is_good), "a bar was missed");
            Ok(())
        }
        BenchCommand::Streams(SuiteArgs { headwater, rounds, write }) => {
            ensure_release_build()?;
            streams::run(&headwater, rounds.unwrap_or(STREAM_ROUNDS), write).await.map(drop)
        }
        BenchCommand::Fanout(SuiteArgs { headwater, rounds, write }) => {
            ensure_release_build()?;
            fanout::run(&headwater, rounds.unwrap_or(FANOUT_ROUNDS), write).await.map(drop)
        }
        BenchCommand::Append { rounds, write } => run_append_blocking(rounds, write).await,
        BenchCommand::Load(options) => load(options).await,
        BenchCommand::Mock { listen } => mock_provider::run(listen).await,
        BenchCommand::Proxy { mode, upstream, listen } => proxy::run(mode, upstream, listen).await,
    }
}

/// Figures of an unoptimised yardstick flatter everyone.
fn ensure_release_build() -> anyhow::Result<()> {
    anyhow::ensure!(!cfg!(debug_assertions), "measure with `cargo run --release -p bench`");
    Ok(())
}

/// The append measurement blocks its thread on the disk.
async fn run_append_blocking(rounds: usize, write: bool) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || append::run(rounds, write)).await?
}

async fn load(options: LoadArgs) -> anyhow::Result<()> {
    let target =
        target::LoadTarget { name: "server", authority: options.server, pid: options.pid, dialect: options.dialect };
    let plan = load::LoadPlan {
        streams: options.streams,
        deltas: options.deltas,
        interval_ms: options.interval_ms,
        waves: options.waves,
    };
    let sample = load::run_load(&target, plan).await?;
    println!("{}: {}", plan.label(), streams::format_sample(&sample));
    anyhow::ensure!(sample.faults.total() == 0, "{} of {} streams were bad", sample.faults.total(), sample.streams);
    Ok(())
}
