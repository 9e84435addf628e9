//! The benchmark: what Headwater costs, compared with doing nothing.
//!
//! `bench all` starts a mock provider, a pass-through and a parsing proxy and Headwater as child processes, puts each
//! under the same load in turn, checks every stream, and writes the tables into `docs/performance.md`, which also says
//! how to read them. The other commands are its parts. The benchmark knows Headwater only from outside: its binary, its
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
use report::SectionOutput;
use server_process::HeadwaterOptions;
use std::net::SocketAddr;
use tokio::signal::unix::{SignalKind, signal};

const STREAM_ROUNDS: usize = 3;
const FANOUT_ROUNDS: usize = 2;
const APPEND_ROUNDS: usize = 3;

/// Measures Headwater against a proxy that does nothing.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Run all measurements and write them into docs/performance.md.
    All {
        #[command(flatten)]
        headwater: HeadwaterOptions,
        /// Fail if a target is missed.
        #[arg(long)]
        check: bool,
    },
    /// Measure streams through Headwater and the baselines.
    Streams(SuiteArgs),
    /// Measure several viewers of one task.
    Fanout(SuiteArgs),
    /// Measure durable appends against a bare fdatasync loop.
    Append {
        /// Number of rounds; figures are medians.
        #[arg(long, default_value_t = APPEND_ROUNDS)]
        rounds: usize,
        /// Write the table into docs/performance.md.
        #[arg(long)]
        write: bool,
    },
    /// Put load on a server that is already running.
    Load(LoadArgs),
    /// Run the mock provider.
    Mock {
        /// Address to listen on.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
    /// Run a baseline proxy.
    Proxy {
        /// What the proxy does with a stream.
        #[arg(long)]
        mode: proxy::ProxyMode,
        /// Host and port of the upstream.
        #[arg(long, value_name = "HOST:PORT")]
        upstream: Authority,
        /// Address to listen on.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

#[derive(Args)]
struct SuiteArgs {
    #[command(flatten)]
    headwater: HeadwaterOptions,
    /// Number of rounds; figures are medians [default: 3 for streams, 2 for viewers].
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
    /// The server's process id, to measure its CPU time.
    #[arg(long)]
    pid: u32,
    /// API of the server.
    #[arg(long, default_value = "stream")]
    dialect: target::TargetApi,
    /// Concurrent streams.
    #[arg(long, default_value_t = 50)]
    streams: u32,
    /// Deltas per stream.
    #[arg(long, default_value_t = 100)]
    deltas: u32,
    /// Milliseconds between deltas; 0 is full speed.
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
    /// Streams that each slot reads one after the other.
    #[arg(long, default_value_t = 1)]
    waves: u32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    open_files_limit::raise_open_files_limit()?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Dropping the future also kills the child processes.
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
            let is_met = streams::run(&headwater, STREAM_ROUNDS, SectionOutput::Page).await?;
            run_append_blocking(APPEND_ROUNDS, SectionOutput::Page).await?;
            let is_good = fanout::run(&headwater, FANOUT_ROUNDS, SectionOutput::Page).await?;
            anyhow::ensure!(!check || (is_met && is_good), "a target was missed");
            Ok(())
        }
        BenchCommand::Streams(SuiteArgs { headwater, rounds, write }) => {
            ensure_release_build()?;
            streams::run(&headwater, rounds.unwrap_or(STREAM_ROUNDS), section_output(write)).await.map(drop)
        }
        BenchCommand::Fanout(SuiteArgs { headwater, rounds, write }) => {
            ensure_release_build()?;
            fanout::run(&headwater, rounds.unwrap_or(FANOUT_ROUNDS), section_output(write)).await.map(drop)
        }
        BenchCommand::Append { rounds, write } => run_append_blocking(rounds, section_output(write)).await,
        BenchCommand::Load(options) => load(options).await,
        BenchCommand::Mock { listen } => mock_provider::run(listen).await,
        BenchCommand::Proxy { mode, upstream, listen } => proxy::run(mode, upstream, listen).await,
    }
}

/// What the flag `--write` means.
fn section_output(write: bool) -> SectionOutput {
    if write { SectionOutput::Page } else { SectionOutput::Stdout }
}

/// An unoptimised baseline makes everything look fast.
fn ensure_release_build() -> anyhow::Result<()> {
    anyhow::ensure!(!cfg!(debug_assertions), "measure with `cargo run --release -p bench`");
    Ok(())
}

/// The append measurement blocks its thread on the disk.
async fn run_append_blocking(rounds: usize, output: SectionOutput) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || append::run(rounds, output)).await?
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
