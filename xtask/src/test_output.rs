//! Parses the output of test runs.
//!
//! Four kinds of lines count: libtest's `test result: …`, the closing `N passed, M failed` of a script, `UNSTABLE <test>: …`
//! of a script that ran a test again, and `SKIPPED <test>: <why>`, which a test writes to stderr when the machine lacks what it
//! needs (root, a browser). The last two are repeated at the end of the run.

use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TestCounts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    /// The `SKIPPED` lines.
    pub(crate) skipped: Vec<String>,
    /// Tests that failed, and passed when they were run again.
    pub(crate) unstable: Vec<String>,
}

impl TestCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.skipped.extend(other.skipped.iter().cloned());
        self.unstable.extend(other.unstable.iter().cloned());
    }
}

pub(crate) fn parse_test_output(output: &str) -> TestCounts {
    let mut tally = TestCounts::default();
    for line in output.lines().map(str::trim) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            // "ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …"
            let count = |what: &str| counts.split([';', '.']).find_map(|part| parse_count(part, what)).unwrap_or(0);
            tally.passed += count("passed");
            tally.failed += count("failed");
            tally.ignored += count("ignored");
        } else if let Some((passed, failed)) = parse_script_counts(line) {
            tally.passed += passed;
            tally.failed += failed;
        } else if line.starts_with("SKIPPED ") {
            tally.skipped.push(line.to_owned());
        } else if let Some((test, _)) = line.strip_prefix("UNSTABLE ").and_then(|line| line.split_once(':')) {
            tally.unstable.push(test.to_owned());
        }
    }
    tally
}

/// The number of test binaries that started, and of those that reported a result.
pub(crate) fn count_test_binaries(output: &str) -> (usize, usize) {
    let begun = output.lines().filter(|line| line.starts_with("running ") && line.contains(" test")).count();
    let ended = output.lines().filter(|line| line.starts_with("test result: ")).count();
    (begun, ended)
}

/// The names, without their modules, of the tests that passed.
pub(crate) fn passed_test_names(output: &str) -> BTreeSet<&str> {
    let passed = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
    let paths = passed.map(|path| path.trim_end_matches(" - should panic"));
    paths.map(|path| path.rsplit("::").next().unwrap_or(path)).collect()
}

/// The paths of the tests that failed.
pub(crate) fn failed_test_paths(output: &str) -> BTreeSet<&str> {
    let failed = output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
    failed.map(|path| path.trim_end_matches(" - should panic")).collect()
}

/// The names of the tests that skipped themselves.
pub(crate) fn skipped_test_names(output: &str) -> BTreeSet<&str> {
    output.lines().filter_map(|line| line.strip_prefix("SKIPPED ")?.split_once(':')).map(|(name, _)| name).collect()
}

fn parse_count(part: &str, what: &str) -> Option<usize> {
    part.trim().strip_suffix(what)?.trim().parse().ok()
}

fn parse_script_counts(line: &str) -> Option<(usize, usize)> {
    let (passed, rest) = line.split_once(", ")?;
    Some((parse_count(passed, "passed")?, parse_count(rest.split(',').next()?, "failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test fold::tests::law_1_fold ... ok
test ids::refused - should panic ... ok
test slow ... ignored
SKIPPED power_cut: needs root

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

running 1 test
test broken ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 1.20s
7 passed, 1 failed
";

    #[test]
    fn results_of_all_binaries_and_scripts_add_up() {
        let skipped = vec!["SKIPPED power_cut: needs root".to_owned()];
        assert_eq!(
            parse_test_output(OUTPUT),
            TestCounts { passed: 9, failed: 2, ignored: 1, skipped, ..TestCounts::default() }
        );
        assert_eq!(count_test_binaries(OUTPUT), (2, 2));
    }

    #[test]
    fn names_are_those_of_passed_tests_without_modules() {
        assert_eq!(passed_test_names(OUTPUT), BTreeSet::from(["law_1_fold", "refused"]));
        assert_eq!(skipped_test_names(OUTPUT), BTreeSet::from(["power_cut"]));
        assert_eq!(failed_test_paths(OUTPUT), BTreeSet::from(["broken"]));
    }

    #[test]
    fn ordinary_prose_is_not_counted() {
        assert_eq!(parse_test_output("the run passed, nothing failed\n3 passed tests\n"), TestCounts::default());
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = parse_test_output(OUTPUT);
        sum.add(&parse_test_output("UNSTABLE e2e/page.test.mjs: it passed the second time\n1 passed, 0 failed"));
        assert_eq!((sum.passed, sum.failed, sum.skipped.len()), (10, 2, 1));
        assert_eq!(sum.unstable, ["e2e/page.test.mjs"]);
    }
}
