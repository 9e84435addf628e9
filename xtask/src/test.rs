//! `cargo xtask test [--full]`: everything that a pull request must pass.
//!
//! Cheap steps run first. The first step that fails ends the run with a line that says how to repeat it alone. Skipped
//! tests, the time of each step and the totals come last, so that the end of a log is enough to read.

use std::fmt::Write;
use std::process::Command;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

use crate::process::{FinishedProcess, OutputMode, ProcessOutcome, run_process};
use crate::test_output::{self, TestCounts};
use crate::test_program::WITH_POSTGRES;
use crate::tidy::promises;
use crate::workspace::Repo;
use crate::{chaos, defects, fuzz, mutants, siege, tidy};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TestEffort {
    Quick,
    Full,
}

impl TestEffort {
    /// By the flag `--full`.
    pub(crate) const fn from_full(is_full: bool) -> Self {
        if is_full { Self::Full } else { Self::Quick }
    }
}

/// The result of a step, which failed if `failure` is set.
#[derive(Debug, Default)]
pub(crate) struct StepReport {
    pub(crate) counts: TestCounts,
    pub(crate) failure: Option<String>,
}

/// Tests read this variable to run more seeds and repeats.
const FULL_VARIABLE: &str = "HEADWATER_TEST_FULL";
const E2E: &str = "e2e/run";
/// Brings what `e2e/run` needs. It mostly waits for the network, so it runs beside the first steps.
const E2E_INSTALL: &str = "e2e/install";
/// Brings PostgreSQL for the tests, in the same way.
const POSTGRES_INSTALL: &str = "crates/postgres-testing/install";

struct TestStep {
    name: &'static str,
    repro_command: &'static str,
    run: fn(&Repo, TestEffort) -> anyhow::Result<StepReport>,
}

const STEPS: &[TestStep] = &[
    TestStep {
        name: "fmt",
        repro_command: "cargo fmt --all",
        run: |repo, effort| cargo_step(repo, effort, "fmt --all --check"),
    },
    TestStep { name: "tidy", repro_command: "cargo xtask tidy", run: |repo, _| tidy_step(repo) },
    TestStep {
        name: "clippy",
        repro_command: "cargo clippy --workspace --all-targets -- -D warnings",
        run: |repo, effort| cargo_step(repo, effort, "clippy --locked --workspace --all-targets -- -D warnings"),
    },
    STEP_TEST,
    TestStep { name: "defects", repro_command: "cargo xtask defects", run: |repo, _| defects::run_defects(repo) },
];
const STEP_TEST: TestStep = TestStep { name: "test", repro_command: "cargo test --workspace", run: tests_step };
const STEP_E2E: TestStep = TestStep { name: "e2e", repro_command: E2E, run: e2e_step };
const STEP_E2E_CLUSTER: TestStep = TestStep {
    name: "e2e-cluster",
    repro_command: "HEADWATER_E2E_NODES=2 cargo run --package postgres-testing --example with_postgres e2e/run",
    run: |repo, effort| e2e_on_database(repo, effort, "2"),
};
const STEP_E2E_DATABASE: TestStep = TestStep {
    name: "e2e-database",
    repro_command: "HEADWATER_E2E_NODES=1 cargo run --package postgres-testing --example with_postgres e2e/run",
    run: |repo, effort| e2e_on_database(repo, effort, "1"),
};
const STEP_SIEGE: TestStep = TestStep { name: "siege", repro_command: "cargo xtask siege", run: siege_step };
const STEP_CHAOS: TestStep = TestStep { name: "chaos", repro_command: "cargo xtask chaos", run: chaos_step };
const STEP_FUZZ: TestStep =
    TestStep { name: "fuzz", repro_command: "cargo +nightly fuzz run <target>", run: |repo, _| fuzz::run_fuzz(repo) };
const STEP_MUTANTS: TestStep =
    TestStep { name: "mutants", repro_command: "cargo xtask mutants", run: |repo, _| mutants::run_mutants(repo) };

/// Runs all steps; true when all of them passed.
pub(crate) fn run_all_steps(repo: &Repo, effort: TestEffort) -> bool {
    let mut steps: Vec<&TestStep> = STEPS.iter().collect();
    if repo.root.join(E2E).is_file() {
        steps.push(&STEP_E2E);
        steps.push(&STEP_E2E_CLUSTER);
        // Two nodes do all that one does, and more.
        if effort == TestEffort::Full {
            steps.push(&STEP_E2E_DATABASE);
        }
    }
    steps.push(&STEP_SIEGE);
    steps.push(&STEP_CHAOS);
    if effort == TestEffort::Full && fuzz::has_fuzz_targets(repo) {
        steps.push(&STEP_FUZZ);
    }
    if effort == TestEffort::Full {
        steps.push(&STEP_MUTANTS);
    }
    let (postgres_installed, installing) = spawn_installs(repo, effort);
    let mut installing = Some(installing);
    let mut rows: Vec<StepRow> = steps.iter().map(|step| StepRow { name: step.name, took: None }).collect();
    let mut sum = TestCounts::default();
    let mut failure = None;
    for (step, row) in steps.iter().zip(&mut rows) {
        println!("==> {}", step.name);
        let started = Instant::now();
        if step.name == STEP_TEST.name
            && let Ok(failed) = postgres_installed.recv()
        {
            failed.print_tail();
        }
        if let Some(installing) = installing.take_if(|_| step.name == STEP_E2E.name) {
            // It says again what went wrong: the step installs what is missing.
            drop(installing.join());
        }
        let report = (step.run)(repo, effort)
            .unwrap_or_else(|error| StepReport { counts: TestCounts::default(), failure: Some(format!("{error:#}")) });
        let took = started.elapsed();
        row.took = Some(took);
        sum.add(&report.counts);
        if let Some(why) = report.failure {
            println!("==> FAILED at step {} after {}: {why}", step.name, format_seconds(took));
            println!("    to repeat it alone: {}", step.repro_command);
            failure = Some(step.name);
            break;
        }
        println!("==> {} passed in {}", step.name, format_seconds(took));
    }
    print!("\n{}", summary(&rows, &sum, failure));
    failure.is_none()
}

fn tidy_step(repo: &Repo) -> anyhow::Result<StepReport> {
    let failure = (!tidy::run_tidy(repo)?).then(|| "see the errors above".to_owned());
    Ok(StepReport { counts: TestCounts::default(), failure })
}

fn cargo_step(repo: &Repo, effort: TestEffort, arguments: &str) -> anyhow::Result<StepReport> {
    let ran = run_process(new_command("cargo", repo, effort).args(arguments.split(' ')), OutputMode::Show, None)?;
    let failure = (ran.outcome != ProcessOutcome::Success).then(|| "see the output above".to_owned());
    Ok(StepReport { counts: TestCounts::default(), failure })
}

const THREADS_VARIABLE: &str = "RUST_TEST_THREADS";

/// Twice the cores, because most tests wait: for a clock, a disk or another process.
pub(crate) fn tests_at_once() -> usize {
    2 * available_parallelism().map_or(1, usize::from)
}

fn tests_step(repo: &Repo, effort: TestEffort) -> anyhow::Result<StepReport> {
    let mut command = new_command("cargo", repo, effort);
    command.args(defects::TEST_ARGUMENTS.split(' ')).arg("--no-fail-fast");
    command.env(THREADS_VARIABLE, tests_at_once().to_string());
    let FinishedProcess { outcome, mut output } = run_process(&mut command, OutputMode::Show, None)?;
    let (mut failed, mut unstable) = (false, Vec::new());
    if outcome != ProcessOutcome::Success {
        match repeat_failed_tests(repo, effort, &output)? {
            Some(again) => {
                unstable.extend(test_output::failed_test_paths(&output).into_iter().map(str::to_owned));
                output.push_str(&again.output);
            }
            None => failed = true,
        }
    }
    let mut tally = test_output::parse_test_output(&output);
    // libtest counts a test that skipped itself as passed.
    tally.passed = tally.passed.saturating_sub(tally.skipped.len());
    tally.failed = tally.failed.saturating_sub(unstable.len());
    tally.unstable = unstable;
    if failed {
        let failure = match tally.failed {
            0 => "the tests did not build, or a test process died".to_owned(),
            failed => format!("{failed} tests failed"),
        };
        return Ok(StepReport { counts: tally, failure: Some(failure) });
    }
    let page = repo.read_file(promises::PROMISES_FILE)?.unwrap_or_default();
    let failure = missing_promised_tests(&page, &output);
    Ok(StepReport { counts: tally, failure })
}

/// Failures of more tests are no accident.
const REPEATED_TESTS_MAX: usize = 3;

/// Runs a few failed tests again, one at a time: on a machine that stood still for seconds even a right one can fail. A test
/// that passes then is named at the end of the log, and is to be mended. Returns `None` if one fails again.
fn repeat_failed_tests(repo: &Repo, effort: TestEffort, output: &str) -> anyhow::Result<Option<FinishedProcess>> {
    let failed = test_output::failed_test_paths(output);
    let (begun, ended) = test_output::count_test_binaries(output);
    if begun != ended || !(1..=REPEATED_TESTS_MAX).contains(&failed.len()) {
        return Ok(None);
    }
    println!("==> {} failed; each runs once more, alone", failed.iter().copied().collect::<Vec<_>>().join(", "));
    let mut command = new_command("cargo", repo, effort);
    command.args(defects::TEST_ARGUMENTS.split(' ')).args(["--", "--exact"]).args(&failed).env(THREADS_VARIABLE, "1");
    let again = run_process(&mut command, OutputMode::Show, None)?;
    let passed = test_output::parse_test_output(&again.output).passed;
    Ok(Some(again).filter(|again| again.outcome == ProcessOutcome::Success && passed >= failed.len()))
}

/// Promises whose test exists, which tidy checks, but did not run: its file is in no module, or behind a feature.
fn missing_promised_tests(page: &str, output: &str) -> Option<String> {
    let passed = test_output::passed_test_names(output);
    let promised = promises::rust_test_references(page);
    let missing: Vec<String> = promised
        .iter()
        .filter(|reference| !passed.contains(reference.name.as_str()))
        .map(|reference| {
            format!("{}:{}: {}::{}", promises::PROMISES_FILE, reference.line, reference.path, reference.name)
        })
        .collect();
    let skipped = test_output::skipped_test_names(output);
    let skipped = promised.iter().filter(|reference| skipped.contains(reference.name.as_str())).count();
    let kept = promised.len() - missing.len() - skipped;
    println!("promises: of {} named tests {kept} ran and passed, {skipped} skipped themselves", promised.len());
    (!missing.is_empty()).then(|| format!("promised tests that did not run:\n    {}", missing.join("\n    ")))
}

/// Runs both, one after the other, because apt-get has one lock. The receiver gets the output of an installation of
/// PostgreSQL that failed, and is closed when that has ended.
fn spawn_installs(repo: &Repo, effort: TestEffort) -> (Receiver<FinishedProcess>, JoinHandle<()>) {
    let install_command = |script| new_command(&repo.root.join(script).to_string_lossy(), repo, effort);
    let (mut postgres, mut e2e) = (install_command(POSTGRES_INSTALL), install_command(E2E_INSTALL));
    let (sender, failed) = sync_channel(1);
    let installing = std::thread::spawn(move || {
        if let Ok(ran) = run_process(&mut postgres, OutputMode::Hide, None)
            && ran.outcome != ProcessOutcome::Success
        {
            // The receiver is gone if an earlier step failed.
            drop(sender.send(ran));
        }
        drop(sender);
        drop(run_process(&mut e2e, OutputMode::Hide, None));
    });
    (failed, installing)
}

fn e2e_step(repo: &Repo, effort: TestEffort) -> anyhow::Result<StepReport> {
    // The binary that the tests ran against is beside this one; another build would only take longer.
    let program = repo.root.join(E2E);
    let mut clients = new_command(&program.to_string_lossy(), repo, effort);
    clients.env("HEADWATER_BIN", std::env::current_exe()?.with_file_name("headwater"));
    let ran = run_process(&mut clients, OutputMode::Show, None)?;
    let failure = (ran.outcome != ProcessOutcome::Success).then(|| "see the output above".to_owned());
    Ok(StepReport { counts: test_output::parse_test_output(&ran.output), failure })
}

/// The same clients against nodes on one database.
fn e2e_on_database(repo: &Repo, effort: TestEffort, nodes: &str) -> anyhow::Result<StepReport> {
    // The step `test` has built it. `cargo run` would build it with the features that its package needs alone, and TLS anew.
    let beside = std::env::current_exe()?;
    let with_postgres = beside.with_file_name("examples").join(WITH_POSTGRES);
    let mut clients = new_command(&with_postgres.to_string_lossy(), repo, effort);
    clients.arg(repo.root.join(E2E)).env("HEADWATER_E2E_NODES", nodes);
    clients.env("HEADWATER_BIN", beside.with_file_name("headwater"));
    let ran = run_process(&mut clients, OutputMode::Show, None)?;
    let failure = (ran.outcome != ProcessOutcome::Success).then(|| "see the output above".to_owned());
    Ok(StepReport { counts: test_output::parse_test_output(&ran.output), failure })
}

fn siege_step(repo: &Repo, effort: TestEffort) -> anyhow::Result<StepReport> {
    siege::run_siege(repo, &siege::SiegeArgs { full: effort == TestEffort::Full, ..siege::SiegeArgs::default() })
}

fn chaos_step(repo: &Repo, effort: TestEffort) -> anyhow::Result<StepReport> {
    chaos::run_chaos(repo, &chaos::ChaosArgs { full: effort == TestEffort::Full, ..chaos::ChaosArgs::default() })
}

fn new_command(program: &str, repo: &Repo, effort: TestEffort) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&repo.root);
    if effort == TestEffort::Full {
        command.env(FULL_VARIABLE, "1");
    }
    command
}

/// A row of the closing table; `took` is none if the step was not reached.
struct StepRow {
    name: &'static str,
    took: Option<Duration>,
}

fn summary(rows: &[StepRow], sum: &TestCounts, failed: Option<&str>) -> String {
    let mut text = String::new();
    for line in &sum.skipped {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    }
    for test in &sum.unstable {
        let _ = writeln!(text, "UNSTABLE {test}: it failed, and passed when it was run again");
    }
    for row in rows {
        let (word, took) = match row.took {
            None => ("not run", String::new()),
            Some(took) if failed == Some(row.name) => ("FAILED", format_seconds(took)),
            Some(took) => ("passed", format_seconds(took)),
        };
        let _ = writeln!(text, "{}", format!("{:<14}{word:<9}{took:>9}", row.name).trim_end());
    }
    let total = format_seconds(rows.iter().filter_map(|row| row.took).sum());
    let done = rows.iter().filter(|row| row.took.is_some() && failed != Some(row.name)).count();
    if let Some(name) = failed {
        let _ = write!(text, "FAILED at {name}: ");
    }
    let _ = writeln!(
        text,
        "{} passed, {} failed, {} ignored, {} skipped; {done} of {} steps passed in {total}",
        sum.passed,
        sum.failed,
        sum.ignored,
        sum.skipped.len(),
        rows.len()
    );
    text
}

fn format_seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(took_ms: [Option<u64>; 3]) -> Vec<StepRow> {
        let rows = ["fmt", "tidy", "test"].into_iter().zip(took_ms);
        rows.map(|(name, took_ms)| StepRow { name, took: took_ms.map(Duration::from_millis) }).collect()
    }

    #[test]
    fn a_successful_run_ends_with_a_summary() {
        let sum = TestCounts {
            passed: 12,
            skipped: vec!["SKIPPED power_cut: needs root".to_owned()],
            unstable: vec!["kill::loses_nothing".to_owned()],
            ..TestCounts::default()
        };
        assert_eq!(
            summary(&rows([Some(1200), Some(300), Some(60_000)]), &sum, None),
            "SKIPPED power_cut: needs root\n\
             UNSTABLE kill::loses_nothing: it failed, and passed when it was run again\n\
             fmt           passed       1.2 s\n\
             tidy          passed       0.3 s\n\
             test          passed      60.0 s\n\
             12 passed, 0 failed, 0 ignored, 1 skipped; 3 of 3 steps passed in 61.5 s\n"
        );
    }

    #[test]
    fn a_failed_run_names_the_failed_step() {
        let text = summary(&rows([Some(1000), Some(500), None]), &TestCounts::default(), Some("tidy"));
        assert!(text.contains("tidy          FAILED"), "{text}");
        assert!(text.contains("test          not run"), "{text}");
        let end = "FAILED at tidy: 0 passed, 0 failed, 0 ignored, 0 skipped; 1 of 3 steps passed in 1.5 s\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_promised_test_that_did_not_run_is_named() {
        let page = "| promise | test |\n|---|---|\n| It folds. | `a.rs::folds` |\n| It resumes. | `b.rs::resumes` |\n";
        let failure = missing_promised_tests(page, "test laws::folds ... ok\n").unwrap();
        assert!(failure.contains("docs/promises.md:4: b.rs::resumes"), "{failure}");
        assert_eq!(missing_promised_tests(page, "test laws::folds ... ok\ntest resumes ... ok\n"), None);
    }
}
