//! `cargo xtask chaos [--full]`: faults of several nodes on one PostgreSQL while users work.
//!
//! The short form takes about a minute and uses the binaries of `cargo xtask test`, so that nothing is built twice. The full
//! form builds with optimisations, and writes its table of `docs/guarantees.md` with `--write`. `--defects` plants each
//! defect that only a cluster shows, and requires that the program notices.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::defects;
use crate::process::{FinishedProcess, OutputMode, ProcessOutcome, run_process};
use crate::test::{StepReport, TestEffort};
use crate::test_output::{self, TestCounts};
use crate::test_program::build_test_program;
use crate::workspace::Repo;

/// What `HEADWATER_DEFECT` is set to, one after the other.
const DEFECTS: &[&str] = &[
    // A viewer of another node's thread misses a record now and then.
    "tail-skips-a-record",
    // A lost notification is not made up for.
    "tails-not-polled",
    // A thread is taken over although the lease of its node is valid.
    "claim-ignores-lease",
    // An append is reported as durable and then committed.
    "commit-acknowledged-early",
    // A tool runs before its start is durable.
    "tool-before-durable",
    // A resume begins one record too late.
    "cursor-off-by-one",
    // A record is neither in the database nor in the archive.
    "archive-skips-a-record",
];
/// Some defects show only if a node dies in a certain moment, which not every program comes to.
const PROGRAMS_PER_DEFECT: u64 = 4;
/// What the program prints in front of each guarantee that does not hold.
const PROBLEM: &str = "problem: ";

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ChaosArgs {
    /// 50 runs, 200 viewers, every fault three times, in network namespaces; takes five minutes and the build
    #[arg(long)]
    pub(crate) full: bool,
    /// Repeats the random choices of an earlier program
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Only the faults with these names
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Write the table into docs/guarantees.md
    #[arg(long, requires = "full")]
    pub(crate) write: bool,
    /// Plant each defect in turn and require that one of four programs notices; takes ten minutes
    #[arg(long, conflicts_with = "full")]
    pub(crate) defects: bool,
}

/// Builds both programs and runs the faults.
pub(crate) fn run_chaos(repo: &Repo, args: &ChaosArgs) -> anyhow::Result<StepReport> {
    let folder = build_test_program(repo, "chaos", TestEffort::from_full(args.full))?;
    if args.defects {
        return run_defects(repo, &folder, args);
    }
    let ran = run_program(repo, &folder, args, None)?;
    let failure = (ran.outcome != ProcessOutcome::Success).then(|| "a guarantee does not hold: see above".to_owned());
    Ok(StepReport { counts: test_output::parse_test_output(&ran.output), failure })
}

fn run_program(repo: &Repo, folder: &Path, args: &ChaosArgs, defect: Option<&str>) -> anyhow::Result<FinishedProcess> {
    let mut command = Command::new(folder.join("chaos"));
    command.current_dir(&repo.root).args(program_arguments(folder, args)).env_remove(defects::DEFECT_VARIABLE);
    if let Some(name) = defect {
        command.env(defects::DEFECT_VARIABLE, name);
    }
    run_process(&mut command, if defect.is_some() { OutputMode::Hide } else { OutputMode::Show }, None)
}

fn run_defects(repo: &Repo, folder: &Path, args: &ChaosArgs) -> anyhow::Result<StepReport> {
    let mut counts = TestCounts::default();
    for name in DEFECTS {
        let programs = run_until_caught(repo, folder, args, name)?;
        if programs.last().is_some_and(is_caught) {
            println!("defect {name:<28}caught, by program {}", programs.len());
            counts.passed += 1;
        } else {
            println!("defect {name:<28}NOT CAUGHT");
            programs.iter().for_each(FinishedProcess::print_tail);
            counts.failed += 1;
        }
    }
    let failure =
        (counts.failed > 0).then(|| format!("{} of {} defects were not caught", counts.failed, DEFECTS.len()));
    Ok(StepReport { counts, failure })
}

/// The programs that ran; only the last of them may have noticed the defect.
fn run_until_caught(
    repo: &Repo,
    folder: &Path,
    args: &ChaosArgs,
    defect: &str,
) -> anyhow::Result<Vec<FinishedProcess>> {
    let mut programs = Vec::new();
    for number in 0..PROGRAMS_PER_DEFECT {
        let seed = args.seed.map(|seed| seed.wrapping_add(number));
        let ran = run_program(repo, folder, &ChaosArgs { seed, ..args.clone() }, Some(defect))?;
        let is_last = is_caught(&ran);
        programs.push(ran);
        if is_last {
            break;
        }
    }
    Ok(programs)
}

/// A program that broke down proves nothing: it has to name a guarantee.
fn is_caught(ran: &FinishedProcess) -> bool {
    ran.outcome == ProcessOutcome::Failure && ran.output.lines().any(|line| line.starts_with(PROBLEM))
}

fn program_arguments(folder: &Path, args: &ChaosArgs) -> Vec<String> {
    let mut list = vec!["--headwater".to_owned(), folder.join("headwater").display().to_string()];
    list.extend(args.full.then(|| "--full".to_owned()));
    list.extend(args.write.then(|| "--write".to_owned()));
    list.extend(args.only.iter().flat_map(|name| ["--only".to_owned(), name.clone()]));
    list.extend(args.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arguments_reach_the_program() {
        let args =
            ChaosArgs { full: true, seed: Some(7), only: vec!["kill-node".to_owned()], write: true, defects: false };
        let list = program_arguments(Path::new("build"), &args).join(" ");
        assert_eq!(list, "--headwater build/headwater --full --write --only kill-node --seed 7");
    }

    #[test]
    fn only_a_named_guarantee_counts_as_caught() {
        let ran = |outcome, output: &str| FinishedProcess { outcome, output: output.to_owned() };
        assert!(is_caught(&ran(ProcessOutcome::Failure, "seed 1\nproblem: viewer 1 saw a gap\n")));
        assert!(!is_caught(&ran(ProcessOutcome::Failure, "chaos: no connection\n")));
        assert!(!is_caught(&ran(ProcessOutcome::Success, "problem: none\n")));
    }
}
