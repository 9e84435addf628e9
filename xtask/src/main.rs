//! The house's own chores: `cargo xtask tidy`, `defects`, `mutants`, `test [--full]`.
//!
//! One file or folder per verb. A check is a pure function (text in, complaints out) so that it can be tested on a
//! few lines in memory; reading the repository is [`workspace`]'s business and starting processes is [`run`]'s.
//! Nothing here is linked into the server, and no crate of the house may be linked here.

mod defects;
mod finding;
mod fuzz;
mod mutants;
mod process;
mod test;
mod test_output;
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
    verb: XtaskCommand,
}

#[derive(Clone, Copy, Subcommand)]
enum XtaskCommand {
    /// Checks what the compiler does not: map, floors, licences, promises, file sizes, leftovers
    Tidy,
    /// Plants each known defect and requires that the test that guards against it turns red
    Defects,
    /// Changes `machine` and `model` one line at a time and requires that a test turns red; takes hours
    Mutants,
    /// Runs every check and test there is, in order, and stops at the first that fails
    Test {
        /// More seeds, more repeats, a minute of fuzzing per target, and the mutants
        #[arg(long)]
        full: bool,
    },
}

fn main() -> ExitCode {
    match run_command(Cli::parse().verb) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// True when all is well. An error means that the verb could not do its work at all.
fn run_command(verb: XtaskCommand) -> anyhow::Result<bool> {
    let repo = Repo::locate().context("cannot find the repository")?;
    match verb {
        XtaskCommand::Tidy => tidy::run_tidy(&repo),
        XtaskCommand::Defects => Ok(defects::run_defects(&repo)?.failure.is_none()),
        XtaskCommand::Mutants => Ok(mutants::run_mutants(&repo)?.failure.is_none()),
        XtaskCommand::Test { full } => {
            let effort = if full { test::TestEffort::Full } else { test::TestEffort::Quick };
            Ok(test::run_all_steps(&repo, effort))
        }
    }
}
