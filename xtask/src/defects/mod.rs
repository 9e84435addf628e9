//! `cargo xtask defects`: proves that tests can fail.
//!
//! For every row of [`table::DEFECT_CASES`] the named test is run twice with the feature `defects` built in: without a
//! defect it must pass, with the defect planted it must fail. A build that breaks, a name that no longer matches and a
//! process that dies are not failures of the test, whatever the exit code says; [`outcome`] tells them apart.
//!
//! The test binaries are those of `cargo xtask test`, built with the same arguments, so that nothing is built twice.

mod outcome;
mod table;
mod test_binaries;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;

use crate::process::{FinishedProcess, OutputMode, run_process};
use crate::test::{StepReport, tests_at_once};
use crate::test_output::TestCounts;
use crate::workspace::Repo;
use outcome::DefectVerdict;
use table::{DEFECT_CASES, DefectCase};
use test_binaries::TestBinaries;

/// What `cargo test` is given to build all tests with the defects in them. They do nothing until one is named.
pub(crate) const TEST_ARGUMENTS: &str = "test --locked --workspace --features model/defects";

/// A test must fail by itself and not hang.
const RUN_DURATION_MAX: Duration = Duration::from_secs(3 * 60);
pub(crate) const DEFECT_VARIABLE: &str = "HEADWATER_DEFECT";

/// Plants every defect and reports whether its test noticed. Several run at once, because most tests wait.
pub(crate) fn run_defects(repo: &Repo) -> anyhow::Result<StepReport> {
    let binaries = TestBinaries::build(repo, TEST_ARGUMENTS)?;
    let next = AtomicUsize::new(0);
    let check_until_done = || {
        let cases = std::iter::from_fn(|| DEFECT_CASES.get(next.fetch_add(1, Ordering::Relaxed)));
        let checked = cases.map(|defect| {
            let verdict = check_defect(&binaries, defect)?;
            println!("defect {:<28}{verdict}", defect.name);
            Ok((defect, verdict))
        });
        checked.collect::<anyhow::Result<Vec<_>>>()
    };
    let verdicts: anyhow::Result<Vec<_>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..tests_at_once()).map(|_| scope.spawn(check_until_done)).collect();
        let joined =
            workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| bail!("a defect's thread died")));
        joined.collect()
    });
    let mut tally = TestCounts::default();
    for (defect, verdict) in verdicts?.into_iter().flatten() {
        match verdict {
            DefectVerdict::Caught => tally.passed += 1,
            DefectVerdict::NotProven(_) => tally.failed += 1,
            DefectVerdict::Skipped(why) => tally.skipped.push(format!("SKIPPED defect {}: {why}", defect.name)),
        }
    }
    let failure = (tally.failed > 0)
        .then(|| format!("{} of {} defects were not caught by their tests", tally.failed, DEFECT_CASES.len()));
    Ok(StepReport { counts: tally, failure })
}

fn check_defect(binaries: &TestBinaries, defect: &DefectCase) -> anyhow::Result<DefectVerdict> {
    let without = run_guard_test(binaries, defect, None)?;
    let (judgement, ran) = match outcome::verdict_without_defect(&outcome::classify_run(&without), defect) {
        Some(judgement) => (judgement, without),
        None => {
            let with = run_guard_test(binaries, defect, Some(defect.name))?;
            (outcome::verdict_with_defect(&outcome::classify_run(&with), defect), with)
        }
    };
    if let DefectVerdict::NotProven(_) = judgement {
        ran.print_tail();
    }
    Ok(judgement)
}

fn run_guard_test(
    binaries: &TestBinaries,
    defect: &DefectCase,
    planted: Option<&str>,
) -> anyhow::Result<FinishedProcess> {
    let binary = binaries.integration_tests(defect.package)?;
    let mut command = Command::new(&binary.program);
    command.args(["--exact", defect.test]).current_dir(&binary.crate_folder);
    command.env_remove(DEFECT_VARIABLE);
    if let Some(name) = planted {
        command.env(DEFECT_VARIABLE, name);
    }
    run_process(&mut command, OutputMode::Hide, Some(RUN_DURATION_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_defect_has_its_own_name_and_an_exact_test() {
        let mut names: Vec<_> = DEFECT_CASES.iter().map(|defect| defect.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), DEFECT_CASES.len());
        for defect in DEFECT_CASES {
            assert!(!defect.test.is_empty() && !defect.test.contains(' '), "{}", defect.name);
        }
    }
}
