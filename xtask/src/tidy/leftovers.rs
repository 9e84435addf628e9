//! Files that outgrew their room, and what should not have stayed in them: paths of somebody's machine, and marks
//! that say "not finished".

use crate::finding::TidyFinding;
use crate::workspace::SourceFile;

/// Past this, look for the seam.
const LINES_WARN: usize = 500;
/// Past this, it is no longer a room.
const LINES_MAX: usize = 700;

/// Where somebody's own files lie. Spelled in halves, since this file is checked as well.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// An open end belongs in the tracker, where somebody sees it.
const UNFINISHED_MARKS: &[&str] =
    &[concat!("to", "do!"), concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Texts that nobody here wrote.
const EXCLUDED_FILES: &[&str] = &["Cargo.lock", "package-lock.json", "LICENSE"];

/// Complains about long Rust files, machine paths and unfinished spots.
pub(crate) fn check_leftovers(files: &[SourceFile]) -> Vec<TidyFinding> {
    files
        .iter()
        .filter(|file| is_checked_file(&file.path))
        .flat_map(|file| check_file_size(file).into_iter().chain(check_marks(file)))
        .collect()
}

fn is_checked_file(path: &str) -> bool {
    // A fuzz input says what it says.
    !path.starts_with("fuzz/corpus/") && !EXCLUDED_FILES.contains(&path.rsplit('/').next().unwrap_or_default())
}

fn check_file_size(file: &SourceFile) -> Option<TidyFinding> {
    if !file.path.ends_with(".rs") {
        return None;
    }
    let lines = file.text.lines().count();
    if lines > LINES_MAX {
        let what = format!("{lines} lines, and {LINES_MAX} is the most: split it where the subject changes");
        return Some(TidyFinding::error(&file.path, LINES_MAX + 1, what));
    }
    (lines > LINES_WARN).then(|| {
        let what = format!("{lines} lines: past {LINES_WARN}, look for the seam");
        TidyFinding::warning(&file.path, LINES_WARN + 1, what)
    })
}

fn check_marks(file: &SourceFile) -> Vec<TidyFinding> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        if let Some(path) = MACHINE_PATHS.iter().find(|path| has_path(line, path)) {
            let what =
                format!("`{path}` is a path of one machine: use one that every clone has, or a temporary folder");
            complaints.push(TidyFinding::error(&file.path, index + 1, what));
        }
        if let Some(word) = UNFINISHED_MARKS.iter().find(|word| has_word(line, word)) {
            let what = format!("`{word}`: finish it, or open an issue and take the mark out");
            complaints.push(TidyFinding::error(&file.path, index + 1, what));
        }
    }
    complaints
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
    use crate::finding::FindingLevel;
    use crate::tidy::source_file;

    fn finding_lines(text: &str) -> Vec<usize> {
        check_leftovers(&[source_file("docs/page.md", text)]).iter().map(|complaint| complaint.line).collect()
    }

    #[test]
    fn a_long_file_is_a_warning_and_a_very_long_one_an_error() {
        let rust = |lines: usize| source_file("crates/model/src/event.rs", &"//\n".repeat(lines));
        assert_eq!(check_leftovers(&[rust(500)]), []);
        assert_eq!(check_leftovers(&[rust(501)])[0].level, FindingLevel::Warning);
        assert_eq!(check_leftovers(&[rust(700)])[0].level, FindingLevel::Warning);
        assert_eq!(check_leftovers(&[rust(701)])[0].level, FindingLevel::Error);
        assert_eq!(check_leftovers(&[source_file("docs/long.md", &"x\n".repeat(900))]), []);
    }

    #[test]
    fn a_path_of_one_machine_is_found_wherever_it_begins() {
        let [one, two, three] = MACHINE_PATHS else { panic!("three machine paths") };
        assert_eq!(finding_lines(&format!("fine\nsee {one}a\n`{two}b`\n\"file://{three}c\"\n")), [2, 3, 4]);
        assert_eq!(finding_lines(&format!("GET https://example.org{three}\napi{one}x\n$DIR{two}y\n")), [0; 0]);
    }

    #[test]
    fn unfinished_words_are_found_as_words() {
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
