//! Was the test red, or did something else go wrong?

use std::fmt;

use super::table::Defect;
use crate::run::{End, Ran};
use crate::tally;

/// What one run of the one named test shows.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    Green,
    Red,
    /// The test itself said that this machine cannot run it.
    Skipped(String),
    NotBuilt,
    NoSuchTest,
    Ignored,
    /// The name matched tests in more than one binary.
    Several(usize),
    /// The process ended without a result: an abort or a signal, not an assertion.
    Died,
    OutOfTime,
}

/// What a defect proves about its test.
#[derive(Debug, PartialEq)]
pub(crate) enum Judgement {
    Caught,
    Skipped(String),
    NotShown(String),
}

pub(crate) fn of(ran: &Ran) -> Verdict {
    if ran.end == End::OutOfTime {
        return Verdict::OutOfTime;
    }
    let tally = tally::read(&ran.output);
    let (begun, ended) = tally::begun_and_ended(&ran.output);
    let ran_tests = tally.passed + tally.failed;
    match () {
        () if begun == 0 => Verdict::NotBuilt,
        () if begun > ended => Verdict::Died,
        () if ran_tests > 1 => Verdict::Several(ran_tests),
        () if tally.failed == 1 => Verdict::Red,
        () if tally.ignored > 0 => Verdict::Ignored,
        () if ran_tests == 0 => Verdict::NoSuchTest,
        () => match tally.skipped.first() {
            None => Verdict::Green,
            Some(line) => Verdict::Skipped(line.trim_start_matches("SKIPPED ").to_owned()),
        },
    }
}

/// The test without a defect: none when it is green, so that planting makes sense.
pub(crate) fn before_planting(verdict: &Verdict, defect: &Defect) -> Option<Judgement> {
    match verdict {
        Verdict::Green => None,
        Verdict::Skipped(why) => Some(Judgement::Skipped(why.clone())),
        Verdict::Red => Some(not_shown(defect, "fails without any defect: repair it first")),
        other => Some(trouble(other, defect)),
    }
}

/// The test with the defect planted.
pub(crate) fn after_planting(verdict: &Verdict, defect: &Defect) -> Judgement {
    match verdict {
        Verdict::Red => Judgement::Caught,
        Verdict::Skipped(why) => Judgement::Skipped(why.clone()),
        Verdict::Green => not_shown(defect, "stays green with the defect planted: it does not guard against it"),
        other => trouble(other, defect),
    }
}

fn trouble(verdict: &Verdict, defect: &Defect) -> Judgement {
    not_shown(
        defect,
        match verdict {
            Verdict::NotBuilt => "was not built: does its crate have the feature `defects`?",
            Verdict::NoSuchTest => "does not exist: correct its row in xtask/src/defects/table.rs",
            Verdict::Ignored => "is ignored: a guard must run",
            Verdict::Several(_) => "is several tests: narrow the arguments of its row to one test binary",
            Verdict::Died => "died without a result: it must fail by an assertion",
            Verdict::OutOfTime => "did not end in time: it must fail by itself, not hang",
            Verdict::Green | Verdict::Red | Verdict::Skipped(_) => "gave no usable answer",
        },
    )
}

fn not_shown(defect: &Defect, what: &str) -> Judgement {
    Judgement::NotShown(format!("{} of {} {what}", defect.test, defect.package))
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => write!(f, "caught"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::NotShown(why) => write!(f, "NOT SHOWN: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFECT: Defect = Defect { name: "d", package: "store", args: &[], test: "laws::t" };

    fn verdict(end: End, output: &str) -> Verdict {
        of(&Ran { end, output: output.to_owned() })
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
        assert_eq!(verdict(End::Failure, &one("FAILED", 0, 1)), Verdict::Red);
        assert_eq!(verdict(End::Success, &one("ok", 1, 0)), Verdict::Green);
        assert_eq!(verdict(End::Success, &format!("{NONE}{}{NONE}", one("ok", 1, 0))), Verdict::Green);
    }

    #[test]
    fn a_broken_build_is_not_red() {
        assert_eq!(
            verdict(End::Failure, "error[E0425]: cannot find value `x`\nerror: could not compile `store`\n"),
            Verdict::NotBuilt
        );
        assert_eq!(
            verdict(End::Failure, "error: the package 'store' does not contain this feature: defects\n"),
            Verdict::NotBuilt
        );
    }

    #[test]
    fn no_test_of_that_name_is_not_red() {
        assert_eq!(verdict(End::Success, NONE), Verdict::NoSuchTest);
        let ignored =
            "running 1 test\ntest laws::t ... ignored\n\ntest result: ok. 0 passed; 0 failed; 1 ignored; 0 measured\n";
        assert_eq!(verdict(End::Success, ignored), Verdict::Ignored);
        assert_eq!(verdict(End::Failure, &one("FAILED", 0, 1).repeat(2)), Verdict::Several(2));
    }

    #[test]
    fn a_process_that_died_or_hung_is_not_red() {
        let died = "running 1 test\nerror: test failed, to rerun pass `--test it`\nprocess didn't exit successfully (signal: 6)\n";
        assert_eq!(verdict(End::Failure, died), Verdict::Died);
        assert_eq!(verdict(End::OutOfTime, "running 1 test\n"), Verdict::OutOfTime);
    }

    #[test]
    fn a_skipped_test_proves_nothing_and_says_so() {
        let skipped = verdict(End::Success, &format!("SKIPPED t: needs root\n{}", one("ok", 1, 0)));
        assert_eq!(skipped, Verdict::Skipped("t: needs root".to_owned()));
        assert!(matches!(before_planting(&skipped, &DEFECT), Some(Judgement::Skipped(_))));
    }

    #[test]
    fn only_green_before_and_red_after_counts() {
        assert_eq!(before_planting(&Verdict::Green, &DEFECT), None);
        assert!(matches!(before_planting(&Verdict::Red, &DEFECT), Some(Judgement::NotShown(_))));
        assert_eq!(after_planting(&Verdict::Red, &DEFECT), Judgement::Caught);
        for other in [
            Verdict::Green,
            Verdict::NotBuilt,
            Verdict::NoSuchTest,
            Verdict::Several(2),
            Verdict::Died,
            Verdict::OutOfTime,
        ] {
            assert!(matches!(after_planting(&other, &DEFECT), Judgement::NotShown(_)), "{other:?}");
        }
    }
}
