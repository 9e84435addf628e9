//! A minute of fuzzing for every target of `fuzz/`, which is a separate workspace and needs a nightly compiler.

use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{OutputMode, ProcessOutcome, run_process};
use crate::test::StepReport;
use crate::test_output::TestCounts;
use crate::workspace::Repo;

const TARGETS_DIR: &str = "fuzz/fuzz_targets";
const CORPUS_DIR: &str = "fuzz/corpus";
const NEW_CORPUS_DIR: &str = "fuzz/target/found";
const SECONDS_PER_TARGET: u32 = 60;

pub(crate) fn has_fuzz_targets(repo: &Repo) -> bool {
    repo.root.join(TARGETS_DIR).is_dir()
}

/// Fuzzes every target in turn. Without a nightly compiler the step is reported as skipped.
pub(crate) fn run_fuzz(repo: &Repo) -> anyhow::Result<StepReport> {
    let mut tally = TestCounts::default();
    if !succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        tally
            .skipped
            .push("SKIPPED fuzz: there is no nightly toolchain (`rustup toolchain install nightly`)".to_owned());
        return Ok(StepReport { counts: tally, failure: None });
    }
    if !succeeds(Command::new("cargo").args(["fuzz", "--version"])) {
        let ran =
            run_process(Command::new("cargo").args(["install", "cargo-fuzz", "--locked"]), OutputMode::Show, None)?;
        if ran.outcome != ProcessOutcome::Success {
            bail!("cargo-fuzz is missing and could not be installed");
        }
    }
    if run_process(cargo_fuzz(repo).arg("build"), OutputMode::Show, None)?.outcome != ProcessOutcome::Success {
        bail!("the fuzz targets do not build");
    }
    let mut failed = Vec::new();
    for target in fuzz_targets(repo)? {
        println!("fuzz {target} for {SECONDS_PER_TARGET} s");
        // New inputs go into the first folder; the seeds are only read.
        let found = format!("{NEW_CORPUS_DIR}/{target}");
        std::fs::create_dir_all(repo.root.join(&found)).with_context(|| format!("cannot create {found}"))?;
        let seeds = Some(format!("{CORPUS_DIR}/{target}")).filter(|seeds| repo.root.join(seeds).is_dir());
        let mut command = cargo_fuzz(repo);
        command.args(["run", &target, &found]).args(seeds);
        command.args(["--", &format!("-max_total_time={SECONDS_PER_TARGET}")]);
        let ran = run_process(&mut command, OutputMode::Hide, None)?;
        if ran.outcome == ProcessOutcome::Success {
            tally.passed += 1;
            // "Done 123 runs in 61 second(s)"
            ran.output.lines().filter(|line| line.starts_with("Done ")).for_each(|line| println!("    {line}"));
        } else {
            tally.failed += 1;
            ran.print_tail();
            failed.push(target);
        }
    }
    let failure = (!failed.is_empty())
        .then(|| format!("{} found an input that breaks it: keep that input as a test", failed.join(", ")));
    Ok(StepReport { counts: tally, failure })
}

fn cargo_fuzz(repo: &Repo) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(&repo.root);
    command
}

fn fuzz_targets(repo: &Repo) -> anyhow::Result<Vec<String>> {
    let folder = repo.root.join(TARGETS_DIR);
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {TARGETS_DIR}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

/// Whether the command exits successfully.
fn succeeds(command: &mut Command) -> bool {
    run_process(command, OutputMode::Hide, None).is_ok_and(|ran| ran.outcome == ProcessOutcome::Success)
}
