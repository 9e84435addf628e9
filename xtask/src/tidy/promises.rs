//! Does every promise of `docs/promises.md` have a test that exists and is not ignored?
//!
//! A promise is a row of a table headed `| promise | test |`. Its test cell holds one or more references in backticks,
//! each `path/from/the/root.rs::name_of_the_test`, which is found by reading the sources. In a `.mjs` file the name is
//! the test's title, in a `.py` file its function. `cargo xtask test` also checks, with [`rust_test_references`], that
//! the test ran and passed.

use super::rust_tests::{self, TestStatus};
use super::{file_text, script_tests};
use crate::finding::TidyFinding;
use crate::workspace::SourceFile;

pub(crate) const PROMISES_FILE: &str = "docs/promises.md";

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TestReference {
    pub(crate) line: usize,
    pub(crate) path: String,
    pub(crate) name: String,
}

/// Reports promises without a test, and references to tests that are missing, ignored, or not tests.
pub(crate) fn check_promises(files: &[SourceFile]) -> Vec<TidyFinding> {
    let Some(page) = file_text(files, PROMISES_FILE) else {
        return vec![TidyFinding::error(
            PROMISES_FILE,
            1,
            "there is no page of promises: write one (CONTRIBUTING.md says how)",
        )];
    };
    let (references, mut findings) = parse_references(page);
    if references.is_empty() && findings.is_empty() {
        findings.push(TidyFinding::error(
            PROMISES_FILE,
            1,
            "no promises: the page needs a table headed `| promise | test |`",
        ));
    }
    for reference in &references {
        if let Some(what) = reference_problem(files, reference) {
            findings.push(TidyFinding::error(PROMISES_FILE, reference.line, what));
        }
    }
    findings
}

/// The Rust tests that promises refer to, which a run of all tests must show as passed.
pub(crate) fn rust_test_references(page: &str) -> Vec<TestReference> {
    parse_references(page).0.into_iter().filter(|reference| reference.path.ends_with(".rs")).collect()
}

/// Every reference of the page, and a finding for each row that has none.
fn parse_references(page: &str) -> (Vec<TestReference>, Vec<TidyFinding>) {
    let mut references = Vec::new();
    let mut findings = Vec::new();
    let mut inside = false;
    for (index, line) in page.lines().enumerate() {
        let Some(cells) = table_cells(line) else {
            inside = false;
            continue;
        };
        let is_header = cells.iter().map(|cell| cell.to_lowercase()).eq(["promise", "test"]);
        let is_rule = cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c)));
        if is_header || is_rule || !inside {
            inside |= is_header;
            continue;
        }
        let found = cells.last().map(|cell| references_in_cell(index + 1, cell)).unwrap_or_default();
        if found.is_empty() {
            let what = "a promise without a test: name one as `path/to/file.rs::test_name`, or take the promise out";
            findings.push(TidyFinding::error(PROMISES_FILE, index + 1, what));
        }
        references.extend(found);
    }
    (references, findings)
}

fn references_in_cell(line: usize, cell: &str) -> Vec<TestReference> {
    // Every second piece between backticks is code.
    let spans = cell.split('`').skip(1).step_by(2);
    let pairs = spans.filter_map(|span| span.split_once("::"));
    pairs.map(|(path, name)| TestReference { line, path: path.to_owned(), name: name.to_owned() }).collect()
}

/// The cells of a table row; a `\|` belongs to its cell.
fn table_cells(line: &str) -> Option<Vec<String>> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?.replace("\\|", "\u{0}");
    Some(row.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect())
}

fn reference_problem(files: &[SourceFile], reference: &TestReference) -> Option<String> {
    let TestReference { path, name, .. } = reference;
    let Some(text) = file_text(files, path) else {
        return Some(format!("there is no {path}: name the file that holds the test"));
    };
    let found = match path.rsplit('.').next() {
        Some("rs") => rust_tests::find_rust_test(text, name),
        Some("mjs" | "js" | "ts") => script_tests::find_javascript_test(text, name),
        Some("py") => script_tests::find_python_test(text, name),
        _ => return Some(format!("{path} is of a kind that cannot be checked: use a .rs, .mjs or .py file")),
    };
    match found {
        TestStatus::Runs => None,
        TestStatus::Missing => {
            Some(format!("{path} has no test `{name}`: write it, or name the one that proves the promise"))
        }
        TestStatus::NotATest => Some(format!("`{name}` in {path} is not marked as a test: nobody runs it")),
        TestStatus::Ignored => {
            Some(format!("`{name}` in {path} is ignored or skipped: a promise needs a test that runs"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source_file;

    const HEAD: &str = "# Promises\n\n| promise | test |\n|---|---|\n";

    fn findings(rows: &str) -> Vec<String> {
        let sources = [
            source_file(PROMISES_FILE, &format!("{HEAD}{rows}")),
            source_file("a.rs", "#[test]\nfn holds() {}\n#[test]\n#[ignore]\nfn later() {}\nfn helper() {}\n"),
            source_file("e2e/page.mjs", "test('a | b survives', async () => {});\n"),
        ];
        check_promises(&sources).into_iter().map(|finding| format!("{}: {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn a_promise_with_a_running_test_passes() {
        assert_eq!(findings("| It holds. | `a.rs::holds` |\n"), [""; 0]);
        assert_eq!(findings("| Both. | `a.rs::holds`, `e2e/page.mjs::a \\| b survives` |\n"), [""; 0]);
    }

    #[test]
    fn missing_ignored_and_unmarked_tests_are_distinguished() {
        let rows = "| 1 | `a.rs::gone` |\n| 2 | `a.rs::later` |\n| 3 | `a.rs::helper` |\n| 4 | `b.rs::holds` |\n| 5 | soon |\n";
        let findings = findings(rows);
        let expected = [
            "9: a promise without",
            "5: a.rs has no test",
            "6: `later` in a.rs is ignored",
            "7: `helper`",
            "8: there is no b.rs",
        ];
        assert_eq!(findings.len(), expected.len(), "{findings:?}");
        for (finding, expected) in findings.iter().zip(expected) {
            assert!(finding.starts_with(expected), "{finding}");
        }
    }

    #[test]
    fn other_tables_on_the_page_are_not_promises() {
        assert_eq!(
            findings("| It holds. | `a.rs::holds` |\n\n| word | meaning |\n|---|---|\n| seq | a number |\n"),
            [""; 0]
        );
    }

    #[test]
    fn an_empty_page_and_a_missing_page_are_findings() {
        assert_eq!(findings("").len(), 1);
        assert_eq!(check_promises(&[]).len(), 1);
    }

    #[test]
    fn only_rust_tests_are_looked_for_in_the_output_of_cargo() {
        let page = format!("{HEAD}| It holds. | `a.rs::holds` `e2e/page.mjs::title` |\n");
        let names: Vec<_> = rust_test_references(&page).into_iter().map(|reference| reference.name).collect();
        assert_eq!(names, ["holds"]);
    }
}
