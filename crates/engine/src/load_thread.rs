//! Loads the state of a thread from its log. With a checkpoint at most one run is read; without one the result is the same.

use crate::ports::Ports;
use crate::read_records::for_each_condensed_record;
use model::fold::RunFold;
use model::ports::{Checkpoint, StoreError};
use model::record::RECORD_FORMAT_MAX;
use model::thread::{PastRun, ThreadFold, ThreadReplay};
use model::{Seq, ThreadId, UserId};
use std::ops::ControlFlow;
use std::sync::Arc;

/// A checkpoint of this size is parsed beside the async workers.
const CHECKPOINT_BYTES_HEAVY: usize = 256 * 1024;

pub(crate) struct LoadedThread {
    pub(crate) thread: Arc<ThreadFold>,
    /// The run in progress.
    pub(crate) run: Option<RunFold>,
    pub(crate) checkpointed: CheckpointedRuns,
    /// The size of the records after the checkpoint.
    pub(crate) run_bytes: usize,
    /// The log has records of a later format: this version must not execute the thread.
    pub(crate) has_newer_format: bool,
}

/// The past runs of a thread that its checkpoint has rows for: the first ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckpointedRuns {
    pub(crate) count: usize,
    /// The size of their rows.
    pub(crate) bytes: usize,
    entries: usize,
}

impl CheckpointedRuns {
    /// Adds the next run.
    pub(crate) fn push(&mut self, row: &str, run: &PastRun) {
        self.count += 1;
        self.bytes += row.len();
        self.entries += run.entries.len();
    }

    /// About how much memory the runs take.
    pub(crate) const fn memory_bytes(&self) -> usize {
        const ENTRY_BYTES: usize = 512;
        self.bytes + self.entries * ENTRY_BYTES
    }
}

/// Folds a thread up to `head`.
pub(crate) async fn load_thread(
    ports: &Ports,
    owner: &UserId,
    thread: &ThreadId,
    head: Seq,
) -> Result<LoadedThread, StoreError> {
    let mut replay = ThreadReplay::default();
    let mut checkpointed = CheckpointedRuns::default();
    let (mut run_bytes, mut has_newer_format) = (0, false);
    if head > Seq::ZERO {
        let checkpoint = ports.directory.checkpoint(owner, thread).await?;
        if let Some(checkpoint) = checkpoint.filter(|checkpoint| checkpoint.seq <= head) {
            (replay, checkpointed) = parse_checkpoint(owner, &checkpoint).await;
        }
    }
    if replay.thread.seq < head {
        for_each_condensed_record(&*ports.journal, owner, thread, replay.thread.seq, head, |record| {
            run_bytes += record.size_bytes();
            has_newer_format |= record.format > RECORD_FORMAT_MAX;
            replay.push(record);
            ControlFlow::<()>::Continue(())
        })
        .await?;
    }
    let ThreadReplay { thread, run, .. } = replay;
    Ok(LoadedThread { thread: Arc::new(thread), run, checkpointed, run_bytes, has_newer_format })
}

async fn parse_checkpoint(owner: &UserId, checkpoint: &Checkpoint) -> (ThreadReplay, CheckpointedRuns) {
    let rows = || checkpoint.runs.iter().map(|run| run.body.as_str());
    let parse = || ThreadReplay::from_checkpoint(&checkpoint.body, rows());
    let bytes = checkpoint.body.len() + rows().map(str::len).sum::<usize>();
    let replay = if bytes < CHECKPOINT_BYTES_HEAVY {
        parse()
    } else {
        let _permit = heavy_work::acquire_permit(owner).await;
        heavy_work::run_in_place(parse)
    };
    let mut checkpointed = CheckpointedRuns::default();
    rows().zip(&replay.thread.runs).take(replay.stored_runs).for_each(|(row, run)| checkpointed.push(row, run));
    (replay, checkpointed)
}
