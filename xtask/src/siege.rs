//! `cargo xtask siege [--full]`: attacks on the real binary while a second user works.
//!
//! The quick form takes about a minute and uses the binaries of `cargo xtask test`, so that nothing is built twice. The
//! full form builds with optimisations, and writes the table of `docs/guarantees.md` with `--write`.

use std::path::Path;
use std::process::Command;

use clap::Args;

use crate::process::{OutputMode, ProcessOutcome, run_process};
use crate::test::{StepReport, TestEffort};
use crate::test_output;
use crate::test_program::build_test_program;
use crate::workspace::Repo;

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SiegeArgs {
    /// The numbers of the table, with an optimised build, under a memory limit of 1 GiB; takes five minutes and the build
    #[arg(long)]
    pub(crate) full: bool,
    /// Repeats the random choices of an earlier siege
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Only the attacks with these names
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Write the table into docs/guarantees.md
    #[arg(long, requires = "full")]
    pub(crate) write: bool,
}

/// Builds both programs and runs the siege.
pub(crate) fn run_siege(repo: &Repo, args: &SiegeArgs) -> anyhow::Result<StepReport> {
    let folder = build_test_program(repo, "siege", TestEffort::from_full(args.full))?;
    let mut command = Command::new(folder.join("siege"));
    command.current_dir(&repo.root).args(program_arguments(&folder, args));
    let ran = run_process(&mut command, OutputMode::Show, None)?;
    let failure = (ran.outcome != ProcessOutcome::Success).then(|| "a guarantee does not hold: see above".to_owned());
    Ok(StepReport { counts: test_output::parse_test_output(&ran.output), failure })
}

fn program_arguments(folder: &Path, args: &SiegeArgs) -> Vec<String> {
    let mut list = vec!["--headwater".to_owned(), folder.join("headwater").display().to_string()];
    list.extend(args.full.then(|| "--full".to_owned()));
    list.extend(args.write.then(|| "--write".to_owned()));
    list.extend(args.seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    list.extend(args.only.iter().flat_map(|name| ["--only".to_owned(), name.clone()]));
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_arguments_reach_the_program() {
        let args = SiegeArgs { full: true, seed: Some(7), only: vec!["kills".to_owned()], write: true };
        let list = program_arguments(Path::new("build"), &args).join(" ");
        assert_eq!(list, "--headwater build/headwater --full --write --seed 7 --only kills");
    }
}
