//! Did the test fail, or did something else go wrong?

use std::fmt;

use super::table::DefectCase;
use crate::process::{FinishedProcess, ProcessOutcome};
use crate::test_output;

#[derive(Debug, PartialEq)]
pub(crate) enum TestOutcome {
    Passed,
    Failed,
    /// The test skipped itself on this machine.
    Skipped(String),
    NotStarted,
    NotFound,
    Ignored,
    /// The process ended without a result: an abort or a signal, not an assertion.
    Crashed,
    TimedOut,
}

#[derive(Debug, PartialEq)]
pub(crate) enum DefectVerdict {
    Caught,
    Skipped(String),
    NotProven(String),
}

pub(crate) fn classify_run(ran: &FinishedProcess) -> TestOutcome {
    if ran.outcome == ProcessOutcome::TimedOut {
        return TestOutcome::TimedOut;
    }
    let tally = test_output::parse_test_output(&ran.output);
    let (begun, ended) = test_output::count_test_binaries(&ran.output);
    let ran_tests = tally.passed + tally.failed;
    match () {
        () if begun == 0 => TestOutcome::NotStarted,
        () if begun > ended => TestOutcome::Crashed,
        () if tally.failed == 1 => TestOutcome::Failed,
        () if tally.ignored > 0 => TestOutcome::Ignored,
        () if ran_tests == 0 => TestOutcome::NotFound,
        () => match tally.skipped.first() {
            None => TestOutcome::Passed,
            Some(line) => TestOutcome::Skipped(line.trim_start_matches("SKIPPED ").to_owned()),
        },
    }
}

/// The verdict after the run without the defect: none when the test passes, and the defect can be planted.
pub(crate) fn verdict_without_defect(verdict: &TestOutcome, defect: &DefectCase) -> Option<DefectVerdict> {
    match verdict {
        TestOutcome::Passed => None,
        TestOutcome::Skipped(why) => Some(DefectVerdict::Skipped(why.clone())),
        TestOutcome::Failed => Some(not_proven(defect, "fails without any defect: repair it first")),
        other => Some(unusable_outcome(other, defect)),
    }
}

/// The verdict after the run with the defect planted.
pub(crate) fn verdict_with_defect(verdict: &TestOutcome, defect: &DefectCase) -> DefectVerdict {
    match verdict {
        TestOutcome::Failed => DefectVerdict::Caught,
        TestOutcome::Skipped(why) => DefectVerdict::Skipped(why.clone()),
        TestOutcome::Passed => not_proven(defect, "passes with the defect planted: it does not guard against it"),
        other => unusable_outcome(other, defect),
    }
}

fn unusable_outcome(verdict: &TestOutcome, defect: &DefectCase) -> DefectVerdict {
    not_proven(
        defect,
        match verdict {
            TestOutcome::NotStarted => "was not started",
            TestOutcome::NotFound => "does not exist: correct its row in xtask/src/defects/table.rs",
            TestOutcome::Ignored => "is ignored: a guard must run",
            TestOutcome::Crashed => "died without a result: it must fail by an assertion",
            TestOutcome::TimedOut => "did not end in time: it must fail by itself, not hang",
            TestOutcome::Passed | TestOutcome::Failed | TestOutcome::Skipped(_) => "gave no usable answer",
        },
    )
}

fn not_proven(defect: &DefectCase, what: &str) -> DefectVerdict {
    DefectVerdict::NotProven(format!("{} of {} {what}", defect.test, defect.package))
}

impl fmt::Display for DefectVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => write!(f, "caught"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::NotProven(why) => write!(f, "NOT SHOWN: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFECT: DefectCase = DefectCase { name: "d", package: "store", test: "laws::t" };

    fn verdict(end: ProcessOutcome, output: &str) -> TestOutcome {
        classify_run(&FinishedProcess { outcome: end, output: output.to_owned() })
    }

    fn one(result: &str, passed: usize, failed: usize) -> String {
        format!(
            "   Compiling store\n     Running tests/it/main.rs\n\nrunning 1 test\ntest laws::t ... {result}\n\n\
             test result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.1s\n"
        )
    }

    const NONE: &str = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.0s\n";

    #[test]
    fn a_failed_test_is_red_and_a_passed_one_green() {
        assert_eq!(verdict(ProcessOutcome::Failure, &one("FAILED", 0, 1)), TestOutcome::Failed);
        assert_eq!(verdict(ProcessOutcome::Success, &one("ok", 1, 0)), TestOutcome::Passed);
        assert_eq!(verdict(ProcessOutcome::Success, &format!("{NONE}{}{NONE}", one("ok", 1, 0))), TestOutcome::Passed);
    }

    #[test]
    fn a_process_that_ran_no_test_is_not_red() {
        assert_eq!(verdict(ProcessOutcome::Failure, "cannot open shared object file\n"), TestOutcome::NotStarted);
    }

    #[test]
    fn no_test_of_that_name_is_not_red() {
        assert_eq!(verdict(ProcessOutcome::Success, NONE), TestOutcome::NotFound);
        let ignored =
            "running 1 test\ntest laws::t ... ignored\n\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n";
        assert_eq!(verdict(ProcessOutcome::Success, ignored), TestOutcome::Ignored);
    }

    #[test]
    fn a_process_that_died_or_hung_is_not_red() {
        let died = "running 1 test\nerror: test failed, to rerun pass `--test it`\nprocess didn't exit successfully (signal: 6)\n";
        assert_eq!(verdict(ProcessOutcome::Failure, died), TestOutcome::Crashed);
        assert_eq!(verdict(ProcessOutcome::TimedOut, "running 1 test\n"), TestOutcome::TimedOut);
    }

    #[test]
    fn a_skipped_test_proves_nothing_and_says_so() {
        let skipped = verdict(ProcessOutcome::Success, &format!("SKIPPED t: needs root\n{}", one("ok", 1, 0)));
        assert_eq!(skipped, TestOutcome::Skipped("t: needs root".to_owned()));
        assert!(matches!(verdict_without_defect(&skipped, &DEFECT), Some(DefectVerdict::Skipped(_))));
    }

    #[test]
    fn only_green_before_and_red_after_counts() {
        assert_eq!(verdict_without_defect(&TestOutcome::Passed, &DEFECT), None);
        assert!(matches!(verdict_without_defect(&TestOutcome::Failed, &DEFECT), Some(DefectVerdict::NotProven(_))));
        assert_eq!(verdict_with_defect(&TestOutcome::Failed, &DEFECT), DefectVerdict::Caught);
        for other in [
            TestOutcome::Passed,
            TestOutcome::NotStarted,
            TestOutcome::NotFound,
            TestOutcome::Crashed,
            TestOutcome::TimedOut,
        ] {
            assert!(matches!(verdict_with_defect(&other, &DEFECT), DefectVerdict::NotProven(_)), "{other:?}");
        }
    }
}
