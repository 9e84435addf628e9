//! The errors and warnings of a file. Reading continues after an error, so that an operator sees all of them at once.

use super::ConfigError;
use super::source::ConfigSource;
use std::cell::RefCell;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Diagnostic {
    pub(crate) severity: Severity,
    pub(crate) error: ConfigError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// The server does not start.
    Error,
    /// The server starts.
    Warning,
}

pub(super) struct Diagnostics<'a> {
    pub(super) source: &'a ConfigSource,
    entries: RefCell<Vec<Diagnostic>>,
    /// Causes that have been reported and may show in several places.
    causes: RefCell<BTreeSet<String>>,
}

impl<'a> Diagnostics<'a> {
    pub(super) fn new(source: &'a ConfigSource) -> Self {
        Self { source, entries: RefCell::default(), causes: RefCell::default() }
    }

    /// Adds an error that has no line in the file.
    pub(super) fn push(&self, error: ConfigError) {
        self.entries.borrow_mut().push(Diagnostic { severity: Severity::Error, error });
    }

    /// Whether the cause has not been reported before.
    pub(super) fn is_new_cause(&self, cause: &str) -> bool {
        self.causes.borrow_mut().insert(cause.to_owned())
    }

    /// `at` is a byte offset in the file.
    pub(super) fn push_at(&self, severity: Severity, at: usize, key: String, message: &str) {
        // One line, even if it quotes strings of the file.
        let message = message.split(char::is_control).collect::<Vec<_>>().join(" ");
        let message = match severity {
            Severity::Error => message,
            Severity::Warning => format!("warning: {message}"),
        };
        let error =
            ConfigError::Invalid { origin: self.source.origin.clone(), line: self.source.line_at(at), key, message };
        self.entries.borrow_mut().push(Diagnostic { severity, error });
    }

    /// In the order of the file; errors without a line come last.
    pub(super) fn into_sorted(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.entries.into_inner();
        diagnostics.sort_by_key(|diagnostic| diagnostic.error.line().unwrap_or(usize::MAX));
        diagnostics
    }
}
