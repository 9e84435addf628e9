//! Finds a test in a JavaScript or Python file: by its title in the one, by its function in the other.

use super::rust_tests::TestStatus;

/// `test("title", …)` or `it('title', …)`; `test.skip`, `it.todo` and `{ skip: true }` do not count.
pub(crate) fn find_javascript_test(source: &str, title: &str) -> TestStatus {
    let mut best = TestStatus::Missing;
    for quote in ['"', '\'', '`'] {
        let wanted = format!("{quote}{title}{quote}");
        for (at, _) in source.match_indices(&wanted) {
            let before = source.get(..at).unwrap_or_default();
            let after = source.get(at + wanted.len()..).unwrap_or_default();
            match javascript_call_status(before, after) {
                TestStatus::Runs => return TestStatus::Runs,
                TestStatus::Ignored => best = TestStatus::Ignored,
                TestStatus::NotATest | TestStatus::Missing if best == TestStatus::Missing => {
                    best = TestStatus::NotATest;
                }
                TestStatus::NotATest | TestStatus::Missing => {}
            }
        }
    }
    best
}

fn javascript_call_status(before: &str, after: &str) -> TestStatus {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let Some(callee) = before.trim_end().strip_suffix('(') else {
        return TestStatus::NotATest;
    };
    let callee = callee.rsplit(|c: char| !(c.is_alphanumeric() || "_.".contains(c))).next().unwrap_or_default();
    if line.trim_start().starts_with("//") || !callee.split('.').any(|part| ["test", "it"].contains(&part)) {
        return TestStatus::NotATest;
    }
    // The options, if any, are between the title and the function.
    let options = after.split("=>").next().unwrap_or_default();
    let switched_off = |text: &str| ["skip", "todo", "fixme"].iter().any(|word| text.contains(word));
    if switched_off(callee) || switched_off(options) { TestStatus::Ignored } else { TestStatus::Runs }
}

/// `def test_…(`, with no decorator that skips it.
pub(crate) fn find_python_test(source: &str, name: &str) -> TestStatus {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let defines = |line: &str| {
        let line = line.trim_start_matches("async ");
        line.strip_prefix("def ").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(|line| defines(line)) else {
        return TestStatus::Missing;
    };
    let decorators = lines.iter().take(at).rev().take_while(|line| line.starts_with('@'));
    let skipped = decorators.into_iter().any(|line| line.contains("skip") || line.contains("xfail"));
    match (name.starts_with("test"), skipped) {
        (false, _) => TestStatus::NotATest,
        (true, true) => TestStatus::Ignored,
        (true, false) => TestStatus::Runs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_found_in_any_quotes() {
        for source in [
            "test('it resumes', async () => {});",
            "  it(\"it resumes\", { timeout: 5000 }, async () => {});",
            "await t.test(\n  `it resumes`,\n  () => {});",
        ] {
            assert_eq!(find_javascript_test(source, "it resumes"), TestStatus::Runs, "{source}");
        }
    }

    #[test]
    fn a_skipped_title_is_ignored_and_a_mere_mention_is_not_a_test() {
        assert_eq!(find_javascript_test("test.skip('it resumes', () => {});", "it resumes"), TestStatus::Ignored);
        assert_eq!(
            find_javascript_test("test('it resumes', { skip: true }, () => {});", "it resumes"),
            TestStatus::Ignored
        );
        assert_eq!(find_javascript_test("// test('it resumes', () => {});", "it resumes"), TestStatus::NotATest);
        assert_eq!(find_javascript_test("console.log('it resumes');", "it resumes"), TestStatus::NotATest);
        assert_eq!(find_javascript_test("test('it resumes twice', () => {});", "it resumes"), TestStatus::Missing);
    }

    #[test]
    fn a_python_test_is_a_function_named_test() {
        assert_eq!(find_python_test("def test_resume(server):\n    pass\n", "test_resume"), TestStatus::Runs);
        assert_eq!(find_python_test("    async def test_resume():\n", "test_resume"), TestStatus::Runs);
        assert_eq!(
            find_python_test("@unittest.skip('slow')\ndef test_resume():\n", "test_resume"),
            TestStatus::Ignored
        );
        assert_eq!(find_python_test("def resume():\n", "resume"), TestStatus::NotATest);
        assert_eq!(find_python_test("def test_resume_twice():\n", "test_resume"), TestStatus::Missing);
    }
}
