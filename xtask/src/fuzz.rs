//! A minute of fuzzing for every target of `fuzz/`, which is a workspace of its own and wants a nightly compiler.

use std::process::Command;

use anyhow::{Context, bail};

use crate::run::{Echo, End, run};
use crate::tally::Tally;
use crate::test::Report;
use crate::workspace::Repo;

const TARGETS: &str = "fuzz/fuzz_targets";
const SEEDS: &str = "fuzz/corpus";
const FOUND: &str = "fuzz/target/found";
const SECONDS_PER_TARGET: u32 = 60;

/// Whether there is anything to fuzz.
pub(crate) fn exists(repo: &Repo) -> bool {
    repo.root.join(TARGETS).is_dir()
}

/// Fuzzes every target in turn. Without a nightly compiler this is skipped, and says so.
pub(crate) fn fuzz(repo: &Repo) -> anyhow::Result<Report> {
    let mut tally = Tally::default();
    if !succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        tally
            .skipped
            .push("SKIPPED fuzz: there is no nightly toolchain (`rustup toolchain install nightly`)".to_owned());
        return Ok(Report { tally, failure: None });
    }
    if !succeeds(Command::new("cargo").args(["fuzz", "--version"])) {
        let ran = run(Command::new("cargo").args(["install", "cargo-fuzz", "--locked"]), Echo::Show, None)?;
        if ran.end != End::Success {
            bail!("cargo-fuzz is missing and could not be installed");
        }
    }
    if run(cargo_fuzz(repo).arg("build"), Echo::Show, None)?.end != End::Success {
        bail!("the fuzz targets do not build");
    }
    let mut failed = Vec::new();
    for target in targets(repo)? {
        println!("fuzz {target} for {SECONDS_PER_TARGET} s");
        // What a run finds goes into the first folder; the seeds are only read.
        let found = format!("{FOUND}/{target}");
        std::fs::create_dir_all(repo.root.join(&found)).with_context(|| format!("cannot create {found}"))?;
        let seeds = Some(format!("{SEEDS}/{target}")).filter(|seeds| repo.root.join(seeds).is_dir());
        let mut command = cargo_fuzz(repo);
        command.args(["run", &target, &found]).args(seeds);
        command.args(["--", &format!("-max_total_time={SECONDS_PER_TARGET}")]);
        let ran = run(&mut command, Echo::Hide, None)?;
        if ran.end == End::Success {
            tally.passed += 1;
            // "Done 123 runs in 61 second(s)"
            ran.output.lines().filter(|line| line.starts_with("Done ")).for_each(|line| println!("    {line}"));
        } else {
            tally.failed += 1;
            ran.show_tail();
            failed.push(target);
        }
    }
    let failure = (!failed.is_empty())
        .then(|| format!("{} found an input that breaks it: keep that input as a test", failed.join(", ")));
    Ok(Report { tally, failure })
}

fn cargo_fuzz(repo: &Repo) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]).current_dir(&repo.root);
    command
}

fn targets(repo: &Repo) -> anyhow::Result<Vec<String>> {
    let folder = repo.root.join(TARGETS);
    let mut targets = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {TARGETS}"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            targets.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    targets.sort();
    Ok(targets)
}

/// Whether a question such as "are you there?" is answered with yes.
fn succeeds(command: &mut Command) -> bool {
    run(command, Echo::Hide, None).is_ok_and(|ran| ran.end == End::Success)
}
