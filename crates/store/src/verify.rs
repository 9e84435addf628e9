//! Read-only integrity checks, for `headwater verify`.
//!
//! Every thread is checked: sequence numbers without a gap, checksums, epochs that never decrease, records that the fold
//! accepts, and table rows that agree with the log (law 9: a run has ended exactly when its root's one terminal event is
//! its last record).
//!
//! - `thread_audit`, `blob_urls`, `row_checks`: what is checked, wherever it is stored.
//! - `data_folder`, `attachments`, `condensed`: how a data folder is read. `crate::postgres` reads a database.

mod attachments;
mod blob_urls;
mod condensed;
mod data_folder;
mod row_checks;
mod thread_audit;

pub use attachments::{StoredFiles, list_stored_files};
pub(crate) use data_folder::check_structure;
pub use data_folder::verify_data_folder;
pub(crate) use row_checks::{FileRowProblem, StoredApproval};
pub(crate) use thread_audit::{StoredRun, ThreadAudit};

use std::fmt;

/// Maximum number of problems in a report.
const PROBLEMS_MAX: usize = 1_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    pub threads: u64,
    pub runs: u64,
    pub records: u64,
    /// One line per problem.
    pub problems: Vec<String>,
}

impl VerifyReport {
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Adds a problem, unless the report is full.
    pub fn add_problem(&mut self, problem: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem.into().replace('\n', " "));
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} threads, {} runs, {} records", self.threads, self.runs, self.records)?;
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        match self.problems.len() {
            0 => write!(f, "no damage found"),
            PROBLEMS_MAX.. => write!(f, "more than {PROBLEMS_MAX} problems"),
            some => write!(f, "{some} problems"),
        }
    }
}
