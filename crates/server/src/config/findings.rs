//! Everything that was found in a file. Reading goes on after a mistake, so that an operator sees all of them at once.

use super::ConfigError;
use super::source::Source;
use std::cell::RefCell;

/// Something that was found.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Does the server start all the same?
    pub(crate) weight: Weight,
    /// What it is.
    pub(crate) error: ConfigError,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The server does not start.
    Error,
    /// It starts, and somebody may be sorry.
    Warning,
}

/// Collects what is found in one file.
pub(super) struct Findings<'a> {
    pub(super) source: &'a Source,
    list: RefCell<Vec<Finding>>,
}

impl<'a> Findings<'a> {
    pub(super) fn new(source: &'a Source) -> Self {
        Self { source, list: RefCell::default() }
    }

    /// Something that is wrong beside the file.
    pub(super) fn push(&self, error: ConfigError) {
        self.list.borrow_mut().push(Finding { weight: Weight::Error, error });
    }

    /// Something at a byte of the file.
    pub(super) fn at(&self, weight: Weight, at: usize, key: String, what: &str) {
        // One line, whatever the file has in its texts.
        let what = what.split(char::is_control).collect::<Vec<_>>().join(" ");
        let what = match weight {
            Weight::Error => what,
            Weight::Warning => format!("warning: {what}"),
        };
        let error = ConfigError::At { origin: self.source.origin.clone(), line: self.source.line(at), key, what };
        self.list.borrow_mut().push(Finding { weight, error });
    }

    /// All of them, in the order of the file; what is beside the file comes last.
    pub(super) fn sorted(self) -> Vec<Finding> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|finding| finding.error.line().unwrap_or(usize::MAX));
        list
    }
}
