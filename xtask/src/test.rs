//! `cargo xtask test [--full]`: the one command that says whether the house stands.
//!
//! Steps run in the order in which they are cheapest to fail. The first that fails ends the run with a line that says
//! how to repeat it alone. What was skipped, what each step took and what it all amounts to comes last, so that the
//! end of a log is enough to read.

use std::fmt::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::run::{Echo, End, run};
use crate::tally::{self, Tally};
use crate::tidy::promises;
use crate::workspace::Repo;
use crate::{defects, fuzz, mutants, tidy};

/// How hard the random tests try.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Effort {
    Everyday,
    Full,
}

/// What a step amounts to. It failed if it says why.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) tally: Tally,
    pub(crate) failure: Option<String>,
}

/// Tests read this for more seeds and repeats.
const FULL_VARIABLE: &str = "HEADWATER_TEST_FULL";
const E2E: &str = "e2e/run";

struct Step {
    name: &'static str,
    /// How to repeat it by hand.
    alone: &'static str,
    run: fn(&Repo, Effort) -> anyhow::Result<Report>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", alone: "cargo fmt --all", run: |repo, effort| cargo(repo, effort, "fmt --all --check") },
    Step { name: "tidy", alone: "cargo xtask tidy", run: |repo, _| house(repo) },
    Step {
        name: "clippy",
        alone: "cargo clippy --workspace --all-targets -- -D warnings",
        run: |repo, effort| cargo(repo, effort, "clippy --locked --workspace --all-targets -- -D warnings"),
    },
    Step { name: "test", alone: "cargo test --workspace", run: tests },
    Step { name: "defects", alone: "cargo xtask defects", run: |repo, _| defects::defects(repo) },
];
const STEP_E2E: Step = Step { name: "e2e", alone: E2E, run: e2e };
const STEP_FUZZ: Step =
    Step { name: "fuzz", alone: "cargo +nightly fuzz run <target>", run: |repo, _| fuzz::fuzz(repo) };
const STEP_MUTANTS: Step =
    Step { name: "mutants", alone: "cargo xtask mutants", run: |repo, _| mutants::mutants(repo) };

/// Runs all steps; true when all of them passed.
pub(crate) fn test(repo: &Repo, effort: Effort) -> bool {
    let mut steps: Vec<&Step> = STEPS.iter().collect();
    if repo.root.join(E2E).is_file() {
        steps.push(&STEP_E2E);
    }
    if effort == Effort::Full && fuzz::exists(repo) {
        steps.push(&STEP_FUZZ);
    }
    if effort == Effort::Full {
        steps.push(&STEP_MUTANTS);
    }
    let mut rows: Vec<Row> = steps.iter().map(|step| Row { name: step.name, took: None }).collect();
    let mut sum = Tally::default();
    let mut failure = None;
    for (step, row) in steps.iter().zip(&mut rows) {
        println!("==> {}", step.name);
        let started = Instant::now();
        let report = (step.run)(repo, effort)
            .unwrap_or_else(|error| Report { tally: Tally::default(), failure: Some(format!("{error:#}")) });
        let took = started.elapsed();
        row.took = Some(took);
        sum.add(&report.tally);
        if let Some(why) = report.failure {
            println!("==> FAILED at step {} after {}: {why}", step.name, seconds(took));
            println!("    to repeat it alone: {}", step.alone);
            failure = Some(step.name);
            break;
        }
        println!("==> {} passed in {}", step.name, seconds(took));
    }
    print!("\n{}", summary(&rows, &sum, failure));
    failure.is_none()
}

fn house(repo: &Repo) -> anyhow::Result<Report> {
    let failure = (!tidy::tidy(repo)?).then(|| "see the errors above".to_owned());
    Ok(Report { tally: Tally::default(), failure })
}

fn cargo(repo: &Repo, effort: Effort, arguments: &str) -> anyhow::Result<Report> {
    let ran = run(command("cargo", repo, effort).args(arguments.split(' ')), Echo::Show, None)?;
    let failure = (ran.end != End::Success).then(|| "see the output above".to_owned());
    Ok(Report { tally: Tally::default(), failure })
}

/// The tests, and those that need a build of their own: the hub under a scheduler that tries its interleavings.
const TEST_COMMANDS: &[&str] = &[
    "test --locked --workspace --no-fail-fast",
    "test --locked --package engine --features shuttle --lib --no-fail-fast",
];

fn tests(repo: &Repo, effort: Effort) -> anyhow::Result<Report> {
    let (mut output, mut failed) = (String::new(), false);
    for arguments in TEST_COMMANDS {
        let ran = run(command("cargo", repo, effort).args(arguments.split(' ')), Echo::Show, None)?;
        output.push_str(&ran.output);
        failed |= ran.end != End::Success;
    }
    let mut tally = tally::read(&output);
    // libtest has no word for a test that found that it cannot run here: it says that it passed.
    tally.passed = tally.passed.saturating_sub(tally.skipped.len());
    if failed {
        let failure = match tally.failed {
            0 => "the tests did not build, or a test process died".to_owned(),
            failed => format!("{failed} tests failed"),
        };
        return Ok(Report { tally, failure: Some(failure) });
    }
    let page = repo.read(promises::FILE)?.unwrap_or_default();
    let failure = unkept(&page, &output);
    Ok(Report { tally, failure })
}

/// Promises whose test exists, as tidy saw, but did not run: its file is in no module, or behind a feature.
fn unkept(page: &str, output: &str) -> Option<String> {
    let passed = tally::passed_names(output);
    let promised = promises::rust_names(page);
    let missing: Vec<String> = promised
        .iter()
        .filter(|reference| !passed.contains(reference.name.as_str()))
        .map(|reference| format!("{}:{}: {}::{}", promises::FILE, reference.line, reference.path, reference.name))
        .collect();
    let skipped = tally::skipped_names(output);
    let skipped = promised.iter().filter(|reference| skipped.contains(reference.name.as_str())).count();
    let kept = promised.len() - missing.len() - skipped;
    println!("promises: of {} named tests {kept} ran and passed, {skipped} skipped themselves", promised.len());
    (!missing.is_empty()).then(|| format!("promised tests that did not run:\n    {}", missing.join("\n    ")))
}

fn e2e(repo: &Repo, effort: Effort) -> anyhow::Result<Report> {
    // The binary that the tests ran against is there already, beside this one; a release build would only take longer.
    let built = cargo(repo, effort, "build --locked --bin headwater")?;
    if built.failure.is_some() {
        return Ok(built);
    }
    let program = repo.root.join(E2E);
    let mut clients = command(&program.to_string_lossy(), repo, effort);
    clients.env("HEADWATER_BIN", std::env::current_exe()?.with_file_name("headwater"));
    let ran = run(&mut clients, Echo::Show, None)?;
    let failure = (ran.end != End::Success).then(|| "see the output above".to_owned());
    Ok(Report { tally: tally::read(&ran.output), failure })
}

fn command(program: &str, repo: &Repo, effort: Effort) -> Command {
    let mut command = Command::new(program);
    command.current_dir(&repo.root);
    if effort == Effort::Full {
        command.env(FULL_VARIABLE, "1");
    }
    command
}

/// A step in the closing table; it took no time if it was not reached.
struct Row {
    name: &'static str,
    took: Option<Duration>,
}

fn summary(rows: &[Row], sum: &Tally, failed: Option<&str>) -> String {
    let mut text = String::new();
    for line in &sum.skipped {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}");
    }
    for row in rows {
        let (word, took) = match row.took {
            None => ("not run", String::new()),
            Some(took) if failed == Some(row.name) => ("FAILED", seconds(took)),
            Some(took) => ("passed", seconds(took)),
        };
        let _ = writeln!(text, "{}", format!("{:<10}{word:<9}{took:>9}", row.name).trim_end());
    }
    let total = seconds(rows.iter().filter_map(|row| row.took).sum());
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

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(took_ms: [Option<u64>; 3]) -> Vec<Row> {
        let rows = ["fmt", "tidy", "test"].into_iter().zip(took_ms);
        rows.map(|(name, took_ms)| Row { name, took: took_ms.map(Duration::from_millis) }).collect()
    }

    #[test]
    fn the_end_of_a_good_run_says_what_it_amounts_to() {
        let sum = Tally { passed: 12, skipped: vec!["SKIPPED power_cut: needs root".to_owned()], ..Tally::default() };
        assert_eq!(
            summary(&rows([Some(1200), Some(300), Some(60_000)]), &sum, None),
            "SKIPPED power_cut: needs root\n\
             fmt       passed       1.2 s\n\
             tidy      passed       0.3 s\n\
             test      passed      60.0 s\n\
             12 passed, 0 failed, 0 ignored, 1 skipped; 3 of 3 steps passed in 61.5 s\n"
        );
    }

    #[test]
    fn the_end_of_a_bad_run_says_where_it_stopped() {
        let text = summary(&rows([Some(1000), Some(500), None]), &Tally::default(), Some("tidy"));
        assert!(text.contains("tidy      FAILED"), "{text}");
        assert!(text.contains("test      not run"), "{text}");
        let end = "FAILED at tidy: 0 passed, 0 failed, 0 ignored, 0 skipped; 1 of 3 steps passed in 1.5 s\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_promised_test_that_did_not_run_is_named() {
        let page = "| promise | test |\n|---|---|\n| It folds. | `a.rs::folds` |\n| It resumes. | `b.rs::resumes` |\n";
        let failure = unkept(page, "test laws::folds ... ok\n").unwrap();
        assert!(failure.contains("docs/promises.md:4: b.rs::resumes"), "{failure}");
        assert_eq!(unkept(page, "test laws::folds ... ok\ntest resumes ... ok\n"), None);
    }
}
