//! Everything that was found in a file. Reading goes on after a mistake, so that an operator sees all of them at once.

use super::ConfigError;
use super::source::ConfigSource;
use std::cell::RefCell;

/// Something that was found.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    /// Does the server start all the same?
    pub(crate) severity: Severity,
    /// What it is.
    pub(crate) error: ConfigError,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The server does not start.
    Error,
    /// It starts, and somebody may be sorry.
    Warning,
}

/// Collects what is found in one file.
pub(super) struct Diagnostics<'a> {
    pub(super) source: &'a ConfigSource,
    entries: RefCell<Vec<Diagnostic>>,
}

impl<'a> Diagnostics<'a> {
    pub(super) fn new(source: &'a ConfigSource) -> Self {
        Self { source, entries: RefCell::default() }
    }

    /// Something that is wrong beside the file.
    pub(super) fn push(&self, error: ConfigError) {
        self.entries.borrow_mut().push(Diagnostic { severity: Severity::Error, error });
    }

    /// Something at a byte of the file.
    pub(super) fn push_at(&self, weight: Severity, at: usize, key: String, what: &str) {
        // One line, whatever the file has in its texts.
        let what = what.split(char::is_control).collect::<Vec<_>>().join(" ");
        let what = match weight {
            Severity::Error => what,
            Severity::Warning => format!("warning: {what}"),
        };
        let error = ConfigError::Invalid {
            origin: self.source.origin.clone(),
            line: self.source.line_at(at),
            key,
            message: what,
        };
        self.entries.borrow_mut().push(Diagnostic { severity: weight, error });
    }

    /// All of them, in the order of the file; what is beside the file comes last.
    pub(super) fn into_sorted(self) -> Vec<Diagnostic> {
        let mut list = self.entries.into_inner();
        list.sort_by_key(|finding| finding.error.line().unwrap_or(usize::MAX));
        list
    }
}
