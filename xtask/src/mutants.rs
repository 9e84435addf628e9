//! `cargo xtask mutants`: would a test notice if a line of `machine` or `model` were wrong?
//!
//! cargo-mutants changes `machine` and `model` one line at a time and runs their tests. A change that no test notices
//! fails this command, unless `.cargo/mutants.toml` names it and says why. A change that makes the tests hang counts as
//! noticed. The results are in `target/mutants/<crate>/mutants.out`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::process::{OutputMode, ProcessOutcome, run_process};
use crate::test::StepReport;
use crate::test_output::TestCounts;
use crate::workspace::Repo;

const CARGO_MUTANTS_VERSION: &str = "27.1.0";
const TOOLS_DIR: &str = "target/tools";
const OUTPUT_DIR: &str = "target/mutants";
const EXCLUDES_FILE: &str = ".cargo/mutants.toml";
/// Randomised tests try one seed: what they alone would notice deserves a test of its own.
const SEED: (&str, &str) = ("SEED", "7");
/// Tests that run longer are in an endless loop.
const TEST_SECONDS_MAX: &str = "120";
/// Memory limit in kilobytes: an endless loop may fill the memory long before its time-out.
const MEMORY_KB_MAX: u32 = 8 * 1024 * 1024;

/// A crate to change, and the crates whose tests run. Half of the tests of the fold are one floor up.
struct MutantTarget {
    package: &'static str,
    test_packages: &'static [&'static str],
}

const TARGETS: &[MutantTarget] = &[
    MutantTarget { package: "machine", test_packages: &["machine"] },
    MutantTarget { package: "model", test_packages: &["model", "machine"] },
];

/// Changes both crates line by line, which takes hours.
pub(crate) fn run_mutants(repo: &Repo) -> anyhow::Result<StepReport> {
    let list = repo.read_file(EXCLUDES_FILE)?.unwrap_or_default();
    if let Some(entry) = entries_without_reason(&list).first() {
        bail!("{EXCLUDES_FILE} says of {entry} not why: write the reason above it");
    }
    let tool = repo.root.join(TOOLS_DIR).join("bin/cargo-mutants");
    install_cargo_mutants(repo, &tool)?;
    let mut sum = TestCounts::default();
    let mut unnoticed = Vec::new();
    for target in TARGETS {
        let (noticed, missed) = mutate_crate(repo, &tool, target)?;
        sum.add(&TestCounts { passed: noticed, failed: missed.len(), ..TestCounts::default() });
        unnoticed.extend(missed);
    }
    unnoticed.iter().for_each(|mutant| println!("no test notices: {mutant}"));
    let failure = (!unnoticed.is_empty())
        .then(|| format!("{} changes go unnoticed: write a test, or a reason in {EXCLUDES_FILE}", unnoticed.len()));
    Ok(StepReport { counts: sum, failure })
}

fn install_cargo_mutants(repo: &Repo, tool: &Path) -> anyhow::Result<()> {
    let asked = run_process(Command::new(tool).args(["mutants", "--version"]), OutputMode::Hide, None);
    if asked.is_ok_and(|ran| ran.output.trim_end().ends_with(CARGO_MUTANTS_VERSION)) {
        return Ok(());
    }
    let mut command = Command::new("cargo");
    command.args(["install", "cargo-mutants", "--locked", "--version", CARGO_MUTANTS_VERSION, "--root", TOOLS_DIR]);
    if run_process(command.current_dir(&repo.root), OutputMode::Show, None)?.outcome != ProcessOutcome::Success {
        bail!("cargo-mutants {CARGO_MUTANTS_VERSION} could not be installed");
    }
    Ok(())
}

/// Changes one crate. Returns how many changes were noticed, and those that were not.
fn mutate_crate(repo: &Repo, tool: &Path, target: &MutantTarget) -> anyhow::Result<(usize, Vec<String>)> {
    let output = format!("{OUTPUT_DIR}/{}", target.package);
    std::fs::create_dir_all(repo.root.join(&output)).with_context(|| format!("cannot create {output}"))?;
    let mut command = Command::new("sh");
    command.args(["-c", &format!(r#"ulimit -v {MEMORY_KB_MAX}; exec "$0" "$@""#)]).arg(tool);
    command.args(["mutants", "--package", target.package, "--output", &output, "--timeout", TEST_SECONDS_MAX]);
    command.args(["--no-shuffle", "--colors", "never"]);
    command.args(target.test_packages.iter().flat_map(|package| ["--test-package", package]));
    let ran = run_process(command.env(SEED.0, SEED.1).current_dir(&repo.root), OutputMode::Show, None)?;
    // It also fails when a test hung, which counts as noticed. The lists of an aborted run are incomplete.
    if !is_complete_run(&ran.output) {
        bail!("the changes of {} were not all tried: see the output above", target.package);
    }
    let lines = |name: &str| -> anyhow::Result<Vec<String>> {
        let text = repo.read_file(&format!("{output}/mutants.out/{name}.txt"))?.unwrap_or_default();
        Ok(text.lines().map(str::to_owned).collect())
    };
    Ok((lines("caught")?.len() + lines("timeout")?.len(), lines("missed")?))
}

/// Whether the run reached its closing line. Otherwise it was aborted, or the tests fail without any change.
fn is_complete_run(output: &str) -> bool {
    output.lines().any(|line| line.contains(" tested in "))
}

/// The entries of the list of exceptions that have no comment above them. Of several in a row the first one's counts.
fn entries_without_reason(list: &str) -> Vec<&str> {
    let mut explained = false;
    let mut entries = Vec::new();
    for line in list.lines().map(str::trim) {
        match line {
            _ if line.starts_with('#') => explained = true,
            _ if line.starts_with('"') => entries.extend((!explained).then_some(line)),
            _ => explained = false,
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exception_has_its_reason() {
        let list =
            "exclude_re = [\n    \"a\",\n    # Why.\n    \"b\",\n    \"c\",\n]\n\nexclude_globs = [\n    \"d\",\n]\n";
        assert_eq!(entries_without_reason(list), ["\"a\",", "\"d\","]);
        let ours = Repo::locate().unwrap().read_file(EXCLUDES_FILE).unwrap().unwrap();
        assert_eq!(entries_without_reason(&ours), [""; 0]);
    }

    #[test]
    fn an_interrupted_run_is_incomplete() {
        let begun = "Found 2 mutants to test\nok       Unmutated baseline in 9s build + 2s test\n";
        assert!(is_complete_run(&format!("{begun}2 mutants tested in 20s: 1 missed, 1 caught\n")));
        assert!(!is_complete_run(begun));
        assert!(!is_complete_run("ERROR cargo test failed in an unmutated tree, so no mutants were tested\n"));
    }
}
