//! What a check reports: where, what, and what to do about it.

use std::fmt;

/// Printed as `file:line: error: what, and what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    pub(crate) file: String,
    /// Counted from 1. Line 1 when the finding is about the file as a whole.
    pub(crate) line: usize,
    pub(crate) message: String,
}

impl TidyFinding {
    pub(crate) fn error(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: what.into() }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: error: {}", self.file, self.line, self.message)
    }
}

/// The number of the first line of `text` that `wanted` accepts, or 1, so that every finding has a line to open.
pub(crate) fn find_line(text: &str, wanted: impl Fn(&str) -> bool) -> usize {
    text.lines().position(wanted).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_like_a_compiler_message() {
        let finding = TidyFinding::error("crates/model/Cargo.toml", 7, "`tokio` does I/O: remove it");
        assert_eq!(finding.to_string(), "crates/model/Cargo.toml:7: error: `tokio` does I/O: remove it");
    }

    #[test]
    fn lines_count_from_one_and_a_miss_is_the_first_line() {
        assert_eq!(find_line("a\nb\nc", |line| line == "b"), 2);
        assert_eq!(find_line("a\nb\nc", |line| line == "z"), 1);
    }
}
