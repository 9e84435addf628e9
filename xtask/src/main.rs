//! The repository's own chores: `cargo xtask tidy`, `defects`, `siege [--full]`, `chaos [--full]`, `mutants`, `test [--full]`.
//!
//! One file or folder per subcommand. A check is a pure function from text to findings, so that its tests need a few
//! lines in memory; [`workspace`] reads the repository and [`process`] starts processes. Nothing here is linked into
//! the server, and no crate of the workspace may be linked here.

mod chaos;
mod defects;
mod finding;
mod fuzz;
mod mutants;
mod process;
mod siege;
mod test;
mod test_output;
mod test_program;
mod tidy;
mod workspace;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

use crate::workspace::Repo;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the Headwater repository")]
struct Cli {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Clone, Subcommand)]
enum XtaskCommand {
    /// Checks what the compiler does not: map, floors, licences, promises, names, import cycles, sizes
    Tidy {
        /// Only print the product lines of each crate
        #[arg(long)]
        figures: bool,
    },
    /// Plants each known defect and requires that its test fails
    Defects,
    /// Attacks the real binary while a second user works, and checks what it has acknowledged
    Siege(siege::SiegeArgs),
    /// Injects faults into three nodes on one PostgreSQL, and checks what every viewer saw
    Chaos(chaos::ChaosArgs),
    /// Changes `machine` and `model` one line at a time and requires that a test fails; takes hours
    Mutants,
    /// Runs every check and test in order, and stops at the first that fails
    Test {
        /// More seeds, more repeats, a minute of fuzzing per target, and the mutants
        #[arg(long)]
        full: bool,
    },
}

fn main() -> ExitCode {
    match run_command(Cli::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when nothing is wrong. An error means that the command could not do its work.
fn run_command(command: XtaskCommand) -> anyhow::Result<bool> {
    let repo = Repo::locate().context("cannot find the repository")?;
    match command {
        XtaskCommand::Tidy { figures: true } => tidy::print_figures(&repo).map(|()| true),
        XtaskCommand::Tidy { figures: false } => tidy::run_tidy(&repo),
        XtaskCommand::Defects => Ok(defects::run_defects(&repo)?.failure.is_none()),
        XtaskCommand::Siege(args) => Ok(siege::run_siege(&repo, &args)?.failure.is_none()),
        XtaskCommand::Chaos(args) => Ok(chaos::run_chaos(&repo, &args)?.failure.is_none()),
        XtaskCommand::Mutants => Ok(mutants::run_mutants(&repo)?.failure.is_none()),
        XtaskCommand::Test { full } => Ok(test::run_all_steps(&repo, test::TestEffort::from_full(full))),
    }
}
