//! Chaos: three nodes on one PostgreSQL, seeded faults, and a check of what every viewer of every protocol saw.
//!
//! The program starts the real binary three times. Users start runs, watch them in every protocol, approve and cancel, each
//! request at a random node; viewers are cut and go on from their cursors elsewhere. Meanwhile nodes are killed, suspended and
//! cut off, PostgreSQL crashes, clocks jump, notifications are lost, and runs that have ended go to an archive. Then one checker compares what everybody was told
//! with what the nodes have at the end. Every fault is proven to have happened. The program knows the server from outside,
//! except for six tables of its database.

mod archive;
mod checker;
mod cluster;
mod context;
mod database;
mod database_proxy;
mod faults;
mod final_log;
mod history;
mod http_client;
mod monitor;
mod namespace;
mod node;
mod program;
mod protocol;
mod report;
mod viewer;
mod workload;

use anyhow::{Context, bail};
use clap::Parser;
use context::ChaosForm;
use faults::FaultKind;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Injects faults into a cluster while users work, and checks what they saw.
#[derive(Parser)]
struct Cli {
    /// The server's binary.
    #[arg(long, value_name = "PATH", required_unless_present = "relay")]
    headwater: Option<PathBuf>,
    /// 50 runs, 200 viewers, every fault three times; else a minute.
    #[arg(long)]
    full: bool,
    /// Repeats the random choices of an earlier program.
    #[arg(long)]
    seed: Option<u64>,
    /// Only the faults with these names.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Write the table into docs/guarantees.md.
    #[arg(long, requires = "full", conflicts_with = "only")]
    write: bool,
    /// Keep the folder with the logs of the nodes.
    #[arg(long)]
    keep: bool,
    /// Only relay connections from this address to the same port of the loopback address.
    #[arg(long, hide = true)]
    relay: Option<SocketAddr>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when nothing is broken.
fn run(cli: &Cli) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if let Some(address) = cli.relay {
        return runtime.block_on(namespace::relay(address)).map(|()| true);
    }
    let form = if cli.full { ChaosForm::FULL } else { ChaosForm::SHORT };
    let kinds = FaultKind::choose(&cli.only)?;
    let seed = cli.seed.unwrap_or_else(|| RandomState::new().hash_one("chaos") % 1_000_000_000);
    println!("seed {seed}: repeat with `cargo xtask chaos{} --seed {seed}`", if cli.full { " --full" } else { "" });
    let binary = cli.headwater.as_ref().context("no binary")?;
    let binary = binary.canonicalize().with_context(|| format!("no {}", binary.display()))?;
    let outcome = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the program ends its nodes and its PostgreSQL.
        tokio::select! {
            outcome = program::run_program(form, seed, &kinds, &binary, cli.keep) => outcome,
            () = tokio::time::sleep(form.time_max) => bail!("did not end within {:?}", form.time_max),
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    });
    // The tasks of users and faults hold the nodes: they end here, also after an interruption.
    runtime.shutdown_timeout(STOP_TIMEOUT);
    let report = outcome?;
    println!("\n{report}");
    if cli.write {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let took = report.took.as_secs();
        let is_debug = binary.parent().is_some_and(|folder| folder.ends_with("debug"));
        let build = if is_debug { "a build without optimisation" } else { "an optimised build" };
        let origin =
            format!("{cores} cores, three nodes, {build}, seed {seed}, {took} s, `cargo xtask chaos --full --write`:");
        report::write_section(&root, &report.to_markdown(&origin))?;
    }
    Ok(!report.is_broken())
}
