//! The checks of rows besides those of threads and runs, wherever they are stored.

use super::VerifyReport;
use model::ThreadId;
use model::blob::is_sha256_hex;
use model::command::Command;
use model::event::ActionRequest;
use model::ports::ApprovalAnswer;

/// The row of an approval.
#[derive(Debug)]
pub(crate) struct StoredApproval<'a> {
    pub(crate) key: &'a str,
    pub(crate) action: &'a str,
    pub(crate) answer: Option<&'a str>,
    /// Whether it belongs to a run of its thread and owner.
    pub(crate) has_run: bool,
}

/// A row of a file or of a link to one that contradicts other rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRowProblem {
    /// The subject is the owner.
    WrongSum,
    /// The subject is the path, here and in what follows.
    DuplicateBlob,
    /// The row has traits of a file that exists, and of one that does not.
    HalfReleased,
    UnlinkedBlob,
    /// The subject is the thread.
    LinkWithoutFile,
}

impl VerifyReport {
    pub(crate) fn check_orphaned_rows(&mut self, table: &str, count: u64) {
        if count > 0 {
            self.add_problem(format!("{count} rows of {table} belong to no thread"));
        }
    }

    pub(crate) fn check_inbox_command(&mut self, id: i64, command: &str) {
        if serde_json::from_str::<Command>(command).is_err() {
            self.add_problem(format!("inbox row {id} is not a command"));
        }
    }

    /// Reports an approval that cannot be decoded or that belongs to no run of its thread and owner.
    pub(crate) fn check_approval(&mut self, approval: &StoredApproval<'_>) {
        let StoredApproval { key, action, answer, has_run } = approval;
        if serde_json::from_str::<ActionRequest>(action).is_err() {
            self.add_problem(format!("question {key} does not say what would be done"));
        }
        if answer.is_some_and(|answer| serde_json::from_str::<ApprovalAnswer>(answer).is_err()) {
            self.add_problem(format!("question {key} has an answer that is none"));
        }
        if !has_run {
            self.add_problem(format!("question {key} is asked by no run of its thread"));
        }
    }

    /// Reports an alias with an invalid thread id. A missing thread is no problem: an alias may exist before its thread.
    pub(crate) fn check_alias(&mut self, kind: &str, name: &str, thread: &str) {
        if ThreadId::parse(thread).is_err() {
            self.add_problem(format!("the name {name} of {kind} stands for no thread that there can be"));
        }
    }

    pub(crate) fn check_blob_hash(&mut self, path: &str, hash: &str) {
        if !is_sha256_hex(hash) {
            self.add_problem(format!("the blob {path} has no hash that there can be"));
        }
    }

    pub(crate) fn add_file_row_problem(&mut self, problem: FileRowProblem, subject: &str) {
        self.add_problem(match problem {
            FileRowProblem::WrongSum => format!("the files of {subject} are summed up wrongly"),
            FileRowProblem::DuplicateBlob => format!("the owner of the blob {subject} has it twice"),
            FileRowProblem::HalfReleased => format!("the file {subject} is there, and is not"),
            FileRowProblem::UnlinkedBlob => format!("no thread uses the blob {subject}"),
            FileRowProblem::LinkWithoutFile => format!("{subject} uses a file that is not there"),
        });
    }
}
