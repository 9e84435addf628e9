//! Loads the state of a thread from its log. With a checkpoint at most one run is read; without one the result is the same.

use crate::ports::Ports;
use crate::read_records::for_each_condensed_record;
use model::ports::StoreError;
use model::record::RECORD_FORMAT;
use model::thread::ThreadReplay;
use model::{Seq, ThreadId, UserId};
use std::ops::ControlFlow;

/// A checkpoint of this size is parsed beside the async workers.
const CHECKPOINT_BYTES_HEAVY: usize = 256 * 1024;

pub(crate) struct LoadedThread {
    pub(crate) replay: ThreadReplay,
    /// The size of what was read.
    pub(crate) bytes: usize,
    /// The log has records of a later format: this version must not execute the thread.
    pub(crate) has_newer_format: bool,
}

/// Folds a thread up to `head`.
pub(crate) async fn load_thread(
    ports: &Ports,
    owner: &UserId,
    thread: &ThreadId,
    head: Seq,
) -> Result<LoadedThread, StoreError> {
    if head == Seq::ZERO {
        return Ok(LoadedThread { replay: ThreadReplay::default(), bytes: 0, has_newer_format: false });
    }
    let checkpoint = ports.directory.checkpoint(owner, thread).await?.filter(|checkpoint| checkpoint.seq <= head);
    let body = checkpoint.as_ref().map(|checkpoint| checkpoint.body.as_str());
    let mut bytes = body.map_or(0, str::len);
    let mut replay = if bytes < CHECKPOINT_BYTES_HEAVY {
        ThreadReplay::from_checkpoint(body)
    } else {
        let _permit = heavy_work::acquire_permit(owner).await;
        heavy_work::run_in_place(|| ThreadReplay::from_checkpoint(body))
    };
    let mut has_newer_format = false;
    if replay.thread.seq < head {
        for_each_condensed_record(&*ports.journal, owner, thread, replay.thread.seq, head, |record| {
            bytes += record.size_bytes();
            has_newer_format |= record.format > RECORD_FORMAT;
            replay.push(record);
            ControlFlow::<()>::Continue(())
        })
        .await?;
    }
    Ok(LoadedThread { replay, bytes, has_newer_format })
}
