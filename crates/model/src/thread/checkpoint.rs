//! A thread as its checkpoint stores it: a body that the end of every run replaces, and one row per run, which is written
//! once. So the end of a run costs the same in a thread of ten turns and of ten thousand.

use super::{PastRun, ThreadFold, ThreadReplay};
use crate::record::RECORD_FORMAT_MAX;
use serde::{Deserialize, Serialize};

/// The body of a checkpoint.
#[derive(Serialize)]
struct BodyToWrite<'a> {
    /// The number of runs in rows. A checkpoint that lacks one of them is not used.
    run_count: usize,
    thread: &'a ThreadFold,
}

#[derive(Deserialize)]
struct StoredBody {
    run_count: usize,
    thread: ThreadFold,
}

impl ThreadFold {
    /// The body of its checkpoint.
    pub fn checkpoint_body(&self) -> serde_json::Result<String> {
        serde_json::to_string(&BodyToWrite { run_count: self.runs.len(), thread: self })
    }
}

impl PastRun {
    /// Its row in a checkpoint.
    pub fn checkpoint_row(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }
}

impl ThreadReplay {
    /// Starts from a checkpoint, whose rows are the runs, oldest first. It is only a cache: one that is unreadable, lacks a
    /// run or is of a later version is ignored, and the records are replayed from the first.
    pub fn from_checkpoint<'a>(body: &str, rows: impl IntoIterator<Item = &'a str>) -> Self {
        let found = parse_body(body, rows).or_else(|| {
            // Older versions stored all runs in the body. They get their rows with the next checkpoint.
            Some((serde_json::from_str::<ThreadFold>(body).ok()?, 0))
        });
        let (thread, stored_runs) = found.filter(|(thread, _)| thread.format <= RECORD_FORMAT_MAX).unwrap_or_default();
        Self { thread, run: None, stored_runs }
    }
}

fn parse_body<'a>(body: &str, rows: impl IntoIterator<Item = &'a str>) -> Option<(ThreadFold, usize)> {
    let StoredBody { run_count, mut thread } = serde_json::from_str(body).ok()?;
    thread.runs.clear();
    for row in rows.into_iter().take(run_count) {
        thread.push_run(serde_json::from_str(row).ok()?);
    }
    (thread.runs.len() == run_count).then_some((thread, run_count))
}
