//! The siege: attacks on a running server while a second user works, and a check of everything that was acknowledged.
//!
//! The program starts the real binary with API keys, a mock of the model's service and a tool with an effect on disk. A
//! probe, the second user, does what users do and measures it. One attack after the other is tried on a server process of
//! its own; at the end of each the server gets SIGTERM while the attack goes on. Then one checker goes over everybody's
//! histories. `docs/guarantees.md` is the output of the full form. The siege knows the server from outside.

mod attacks;
mod bounds;
mod checker;
mod figures;
mod history;
mod http_client;
mod installation;
mod machine;
mod memory_limit;
mod probe;
mod report;
mod runner;
mod server_process;
mod small_disk;
mod upstream;

use anyhow::{Context, bail};
use attacks::{ATTACKS, Attack, SiegeForm};
use clap::Parser;
use installation::InstallationPlan;
use memory_limit::MemoryLimit;
use runner::Siege;
use rustix::process::{Resource, Rlimit, getrlimit, setpriority_process, setrlimit};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// How much lower the attacker's priority is: its load would come from other machines.
const LOAD_NICENESS: i32 = 10;

/// Attacks a server while a second user works, and checks what it has acknowledged.
#[derive(Parser)]
struct Cli {
    /// The binary under siege.
    #[arg(long, value_name = "PATH")]
    headwater: PathBuf,
    /// The numbers of the table, under a memory limit of 1 GiB; else a minute for all attacks.
    #[arg(long)]
    full: bool,
    /// Repeats the random choices of an earlier siege.
    #[arg(long)]
    seed: Option<u64>,
    /// Only the attacks with these names.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Write the table into docs/guarantees.md.
    #[arg(long, requires = "full", conflicts_with = "only")]
    write: bool,
}

fn main() -> ExitCode {
    match lay_siege(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("siege: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when nothing is broken.
fn lay_siege(cli: &Cli) -> anyhow::Result<bool> {
    let attacks = choose_attacks(&cli.only)?;
    raise_open_files_limit()?;
    let form = if cli.full { SiegeForm::Full } else { SiegeForm::Quick };
    let seed = cli.seed.unwrap_or_else(|| RandomState::new().hash_one("siege") % 1_000_000_000);
    println!("seed {seed}: repeat with `cargo xtask siege{} --seed {seed}`", if cli.full { " --full" } else { "" });
    let binary = cli.headwater.canonicalize().with_context(|| format!("no {}", cli.headwater.display()))?;
    let is_debug = binary.parent().is_some_and(|folder| folder.ends_with("debug"));
    let memory = cli.full.then(MemoryLimit::create);
    let machine_facts = machine::describe_machine();
    let load = load_runtime()?;
    let plan = InstallationPlan {
        binary,
        upstream_port: upstream::start_upstream()?,
        stop_grace: form.choose(Duration::from_millis(500), Duration::from_secs(5)),
        memory: memory.clone(),
        users: None,
    };
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut siege = Siege { form, seed, plan, load: load.handle().clone() };
    let report = control.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        // Dropping the siege also ends its server and takes back what it changed on the machine.
        tokio::select! {
            report = siege.run(&attacks) => report,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    });
    drop(siege);
    load.shutdown_background();
    if let Some(memory) = &memory {
        control.block_on(memory.remove());
    }
    let report = report?;
    let limit = memory.map_or_else(|| "no memory limit".to_owned(), |memory| memory.describe().to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let origin = format!(
        "{}, commit {}, {}, {}, {limit}, seed {seed}, {} s, `cargo xtask siege{}`:",
        machine::today(),
        machine::describe_revision(&root),
        machine_facts,
        if is_debug { "a build without optimisation" } else { "an optimised build" },
        report.took.as_secs(),
        if cli.full { " --full --write" } else { "" },
    );
    let section = report.to_markdown(&origin);
    println!("\n{section}");
    if cli.write {
        report::write_section(&root, &section)?;
    }
    report.broken_lines().iter().for_each(|line| println!("{line}"));
    Ok(!report.is_broken())
}

fn choose_attacks(names: &[String]) -> anyhow::Result<Vec<&'static dyn Attack>> {
    if let Some(unknown) = names.iter().find(|name| !ATTACKS.iter().any(|attack| attack.name() == **name)) {
        let known: Vec<&str> = ATTACKS.iter().map(|attack| attack.name()).collect();
        bail!("there is no attack `{unknown}`; there are: {}", known.join(", "));
    }
    let is_chosen = |attack: &&&dyn Attack| names.is_empty() || names.iter().any(|name| name == attack.name());
    Ok(ATTACKS.iter().filter(is_chosen).copied().collect())
}

/// Ten thousand viewers need as many sockets here and in the server.
fn raise_open_files_limit() -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).context("cannot raise the limit on open files")
}

/// The threads of the attacker.
fn load_runtime() -> anyhow::Result<Runtime> {
    let lower_priority = || {
        // On Linux this is the priority of the thread alone. Without it the attacker takes more of the shared cores.
        let _ = setpriority_process(None, LOAD_NICENESS);
    };
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).thread_name("load").on_thread_start(lower_priority).enable_all().build()?)
}
