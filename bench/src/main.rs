//! The benchmark: what Headwater costs, compared with doing nothing.
//!
//! `bench all` starts a mock provider, a pass-through and a parsing proxy and Headwater as child processes, puts each
//! under the same load in turn, checks every stream, and writes the tables into `docs/performance.md`, which also says
//! how to read them. The other commands are its parts. The benchmark knows Headwater only from outside: its binary, its
//! routes and its frames.

mod append;
mod cell;
mod clock;
mod delta_stream;
mod event_reader;
mod fanout;
mod http_server;
mod load;
mod log_length;
mod memory;
mod mock_frames;
mod mock_provider;
mod open_files_limit;
mod overload;
mod plot;
mod probe;
mod process_usage;
mod proxy;
mod report;
mod resume;
mod server_process;
mod sse_splitter;
mod stats;
mod stores;
mod stream_check;
mod stream_protocol;
mod stream_table;
mod streams;
mod target;
mod thread_length;
mod websocket;
mod websocket_probe;
mod websocket_stream;

#[cfg(test)]
mod tests;

use clap::{Args, Parser, Subcommand};
use hyper::http::uri::Authority;
use report::SectionOutput;
use resume::LogScale;
use server_process::HeadwaterOptions;
use std::net::SocketAddr;
use stream_protocol::StreamProtocol;
use streams::StreamSelection;
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
        /// Also measure a run of 1,000,000 events and a log of 10,000,000.
        #[arg(long)]
        full: bool,
    },
    /// Measure streams through Headwater and the baselines.
    Streams {
        #[command(flatten)]
        suite: SuiteArgs,
        #[command(flatten)]
        selection: StreamSelection,
    },
    /// Measure several viewers of one task.
    Fanout(SuiteArgs),
    /// Measure the memory of live runs and of 10,000 idle viewers.
    Memory(PartArgs),
    /// Measure how a long run is continued and read.
    Resume(PartArgs),
    /// Measure a turn in a thread of 1,000 turns.
    Threads(PartArgs),
    /// Measure the cost of an event, and the time until a server is ready, against the length of the log.
    Log(PartArgs),
    /// Measure more streams than the server can carry: fairness, memory, and latency afterwards.
    Overload(PartArgs),
    /// Measure a node on PostgreSQL against one on SQLite; starts a PostgreSQL.
    Stores(SuiteArgs),
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
    /// Number of rounds; figures are medians [default: 3 for streams and stores, 2 for viewers].
    #[arg(long)]
    rounds: Option<usize>,
    /// Write the table into docs/performance.md.
    #[arg(long)]
    write: bool,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

/// The options of a part that has no rounds.
#[derive(Args)]
struct PartArgs {
    #[command(flatten)]
    headwater: HeadwaterOptions,
    /// Measure with as many events as the targets name, which takes long.
    #[arg(long)]
    full: bool,
    /// Write the table into docs/performance.md.
    #[arg(long)]
    write: bool,
    /// Fail if a target is missed.
    #[arg(long)]
    check: bool,
}

impl PartArgs {
    fn scale(&self) -> LogScale {
        log_scale(self.full)
    }
}

#[derive(Args)]
struct LoadArgs {
    /// Host and port of the server.
    #[arg(long, value_name = "HOST:PORT")]
    server: Authority,
    /// The server's process id, to measure its CPU time.
    #[arg(long)]
    pid: u32,
    /// Protocol of the streams.
    #[arg(long, default_value = "chat")]
    protocol: StreamProtocol,
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
        BenchCommand::All { headwater, check, full } => {
            ensure_release_build()?;
            ensure_targets(check, measure_all(&headwater, log_scale(full)).await?)
        }
        BenchCommand::Streams { suite: SuiteArgs { headwater, rounds, write, check }, selection } => {
            ensure_release_build()?;
            let rounds = rounds.unwrap_or(STREAM_ROUNDS);
            let is_met = streams::run(&headwater, &selection, rounds, section_output(write)).await?;
            ensure_targets(check, is_met)
        }
        BenchCommand::Fanout(SuiteArgs { headwater, rounds, write, check }) => {
            ensure_release_build()?;
            let is_met = fanout::run(&headwater, rounds.unwrap_or(FANOUT_ROUNDS), section_output(write)).await?;
            ensure_targets(check, is_met)
        }
        BenchCommand::Memory(part) => {
            ensure_release_build()?;
            ensure_targets(part.check, memory::run(&part.headwater, section_output(part.write)).await?)
        }
        BenchCommand::Resume(part) => {
            ensure_release_build()?;
            let is_met = resume::run(&part.headwater, part.scale(), section_output(part.write)).await?;
            ensure_targets(part.check, is_met)
        }
        BenchCommand::Threads(part) => {
            ensure_release_build()?;
            ensure_targets(part.check, thread_length::run(&part.headwater, section_output(part.write)).await?)
        }
        BenchCommand::Log(part) => {
            ensure_release_build()?;
            let is_met = log_length::run(&part.headwater, part.scale(), section_output(part.write)).await?;
            ensure_targets(part.check, is_met)
        }
        // Compared with nothing but itself, so any build will do.
        BenchCommand::Overload(part) => {
            ensure_targets(part.check, overload::run(&part.headwater, section_output(part.write)).await?)
        }
        BenchCommand::Stores(SuiteArgs { headwater, rounds, write, check }) => {
            ensure_release_build()?;
            let is_met = stores::run(&headwater, rounds.unwrap_or(STREAM_ROUNDS), section_output(write)).await?;
            ensure_targets(check, is_met)
        }
        BenchCommand::Append { rounds, write } => run_append_blocking(rounds, section_output(write)).await,
        BenchCommand::Load(options) => load(options).await,
        BenchCommand::Mock { listen } => mock_provider::run(listen).await,
        BenchCommand::Proxy { mode, upstream, listen } => proxy::run(mode, upstream, listen).await,
    }
}

/// Runs every part, writes the page, and returns whether every target was met.
async fn measure_all(headwater: &HeadwaterOptions, scale: LogScale) -> anyhow::Result<bool> {
    let page = SectionOutput::Page;
    let mut all_met = streams::run(headwater, &StreamSelection::default(), STREAM_ROUNDS, page).await?;
    run_append_blocking(APPEND_ROUNDS, page).await?;
    all_met &= stores::run(headwater, STREAM_ROUNDS, page).await?;
    all_met &= fanout::run(headwater, FANOUT_ROUNDS, page).await?;
    all_met &= memory::run(headwater, page).await?;
    all_met &= resume::run(headwater, scale, page).await?;
    all_met &= thread_length::run(headwater, page).await?;
    all_met &= log_length::run(headwater, scale, page).await?;
    all_met &= overload::run(headwater, page).await?;
    Ok(all_met)
}

/// What the flag `--full` means.
fn log_scale(full: bool) -> LogScale {
    if full { LogScale::Full } else { LogScale::Small }
}

/// What the flag `--check` means.
fn ensure_targets(check: bool, is_met: bool) -> anyhow::Result<()> {
    anyhow::ensure!(!check || is_met, "a target was missed");
    Ok(())
}

/// What the flag `--write` means.
fn section_output(write: bool) -> SectionOutput {
    if write { SectionOutput::Page } else { SectionOutput::Stdout }
}

/// An unoptimised baseline makes everything look fast.
fn ensure_release_build() -> anyhow::Result<()> {
    anyhow::ensure!(!cfg!(debug_assertions), "measure with `cargo run --profile dist -p bench`");
    Ok(())
}

/// The append measurement blocks its thread on the disk.
async fn run_append_blocking(rounds: usize, output: SectionOutput) -> anyhow::Result<()> {
    tokio::task::spawn_blocking(move || append::run(rounds, output)).await?
}

async fn load(options: LoadArgs) -> anyhow::Result<()> {
    let target = target::LoadTarget {
        name: "server",
        authority: options.server,
        pid: options.pid,
        protocol: options.protocol,
        model: "bench",
    };
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
