//! Finds a test in a JavaScript or Python file: by its title in the one, by its function in the other.

use super::rust_tests::Found;

/// `test("title", …)` or `it('title', …)`; `test.skip`, `it.todo` and `{ skip: true }` do not count.
pub(crate) fn find_in_javascript(source: &str, title: &str) -> Found {
    let mut best = Found::Missing;
    for quote in ['"', '\'', '`'] {
        let wanted = format!("{quote}{title}{quote}");
        for (at, _) in source.match_indices(&wanted) {
            let before = source.get(..at).unwrap_or_default();
            let after = source.get(at + wanted.len()..).unwrap_or_default();
            match javascript_call(before, after) {
                Found::Runs => return Found::Runs,
                Found::Ignored => best = Found::Ignored,
                Found::NotATest | Found::Missing if best == Found::Missing => best = Found::NotATest,
                Found::NotATest | Found::Missing => {}
            }
        }
    }
    best
}

fn javascript_call(before: &str, after: &str) -> Found {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let Some(callee) = before.trim_end().strip_suffix('(') else {
        return Found::NotATest;
    };
    let callee = callee.rsplit(|c: char| !(c.is_alphanumeric() || "_.".contains(c))).next().unwrap_or_default();
    if line.trim_start().starts_with("//") || !callee.split('.').any(|part| ["test", "it"].contains(&part)) {
        return Found::NotATest;
    }
    // The options, if any, stand between the title and the function.
    let options = after.split("=>").next().unwrap_or_default();
    let switched_off = |text: &str| ["skip", "todo", "fixme"].iter().any(|word| text.contains(word));
    if switched_off(callee) || switched_off(options) { Found::Ignored } else { Found::Runs }
}

/// `def test_…(`, with no decorator that skips it.
pub(crate) fn find_in_python(source: &str, name: &str) -> Found {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let defines = |line: &str| {
        let line = line.trim_start_matches("async ");
        line.strip_prefix("def ").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with('('))
    };
    let Some(at) = lines.iter().position(|line| defines(line)) else {
        return Found::Missing;
    };
    let decorators = lines.iter().take(at).rev().take_while(|line| line.starts_with('@'));
    let skipped = decorators.into_iter().any(|line| line.contains("skip") || line.contains("xfail"));
    match (name.starts_with("test"), skipped) {
        (false, _) => Found::NotATest,
        (true, true) => Found::Ignored,
        (true, false) => Found::Runs,
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
            assert_eq!(find_in_javascript(source, "it resumes"), Found::Runs, "{source}");
        }
    }

    #[test]
    fn a_skipped_title_is_ignored_and_a_mere_mention_is_not_a_test() {
        assert_eq!(find_in_javascript("test.skip('it resumes', () => {});", "it resumes"), Found::Ignored);
        assert_eq!(find_in_javascript("test('it resumes', { skip: true }, () => {});", "it resumes"), Found::Ignored);
        assert_eq!(find_in_javascript("// test('it resumes', () => {});", "it resumes"), Found::NotATest);
        assert_eq!(find_in_javascript("console.log('it resumes');", "it resumes"), Found::NotATest);
        assert_eq!(find_in_javascript("test('it resumes twice', () => {});", "it resumes"), Found::Missing);
    }

    #[test]
    fn a_python_test_is_a_function_whose_name_says_so() {
        assert_eq!(find_in_python("def test_resume(server):\n    pass\n", "test_resume"), Found::Runs);
        assert_eq!(find_in_python("    async def test_resume():\n", "test_resume"), Found::Runs);
        assert_eq!(find_in_python("@unittest.skip('slow')\ndef test_resume():\n", "test_resume"), Found::Ignored);
        assert_eq!(find_in_python("def resume():\n", "resume"), Found::NotATest);
        assert_eq!(find_in_python("def test_resume_twice():\n", "test_resume"), Found::Missing);
    }
}
