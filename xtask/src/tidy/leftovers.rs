//! What should not stay in a file: paths of somebody's machine, and marks that say "not finished".

use crate::finding::TidyFinding;
use crate::workspace::SourceFile;

/// Folders of one machine. Spelled in halves, because this file is checked as well.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Unfinished work belongs in the issue tracker.
const UNFINISHED_MARKS: &[&str] =
    &[concat!("to", "do!"), concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Generated or copied texts.
const EXCLUDED_FILES: &[&str] = &["Cargo.lock", "package-lock.json", "LICENSE"];

/// Reports machine paths and unfinished marks.
pub(crate) fn check_leftovers(files: &[SourceFile]) -> Vec<TidyFinding> {
    files.iter().filter(|file| is_checked_file(&file.path)).flat_map(check_marks).collect()
}

fn is_checked_file(path: &str) -> bool {
    // Fuzz inputs are arbitrary bytes.
    !path.starts_with("fuzz/corpus/") && !EXCLUDED_FILES.contains(&path.rsplit('/').next().unwrap_or_default())
}

fn check_marks(file: &SourceFile) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            let what =
                format!("`{path}` is a path of one machine: use one that every clone has, or a temporary folder");
            findings.push(TidyFinding::error(&file.path, index + 1, what));
        }
        if let Some(word) = UNFINISHED_MARKS.iter().find(|word| has_word(line, word)) {
            let what = format!("`{word}`: finish it, or open an issue and take the mark out");
            findings.push(TidyFinding::error(&file.path, index + 1, what));
        }
    }
    findings
}

/// Whether `path` begins a path here, rather than being the middle of a longer one (`api/home/` is nobody's folder).
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let goes_on = before.ends_with(|c: char| c.is_alphanumeric() || "_-.~*$})]/".contains(c));
        !goes_on || before.ends_with("file://")
    })
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + word.len()..).unwrap_or_default();
        !before.ends_with(part_of_word) && (word.ends_with('!') || !after.starts_with(part_of_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source_file;

    fn finding_lines(text: &str) -> Vec<usize> {
        check_leftovers(&[source_file("docs/page.md", text)]).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_path_of_one_machine_is_found_wherever_it_begins() {
        let [one, two, three] = MACHINE_PATHS else { panic!("three machine paths") };
        assert_eq!(finding_lines(&format!("fine\nsee {one}a\n`{two}b`\n\"file://{three}c\"\n")), [2, 3, 4]);
        assert_eq!(finding_lines(&format!("GET https://example.org{three}\napi{one}x\n$DIR{two}y\n")), [0; 0]);
    }

    #[test]
    fn marks_of_unfinished_work_are_found_as_whole_words() {
        let [call, word, fix, x] = UNFINISHED_MARKS else { panic!("four marks") };
        assert_eq!(finding_lines(&format!("{call}()\n// {word}: later\n({fix})\n{x}\n")), [1, 2, 3, 4]);
        assert_eq!(finding_lines(&format!("{x}L\nMAS{word}S\n_{fix}\n")), [0; 0]);
    }

    #[test]
    fn lock_files_fuzz_inputs_and_the_licence_are_not_read() {
        let text = format!("{}a\n", MACHINE_PATHS[0]);
        assert_eq!(check_leftovers(&[source_file("fuzz/corpus/sse/path", &text)]), []);
        assert_eq!(
            check_leftovers(&[
                source_file("Cargo.lock", &text),
                source_file("e2e/package-lock.json", &text),
                source_file("LICENSE", &text)
            ]),
            []
        );
    }
}
