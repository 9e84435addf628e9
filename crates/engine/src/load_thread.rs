//! Loads the state of a thread from its log. With a checkpoint at most one run is read; without one the result is the same.

use crate::ports::Ports;
use crate::read_records::for_each_record;
use model::ports::StoreError;
use model::record::RECORD_FORMAT;
use model::thread::ThreadReplay;
use model::{Seq, ThreadId, UserId};
use std::ops::ControlFlow;

pub(crate) struct LoadedThread {
    pub(crate) replay: ThreadReplay,
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
        return Ok(LoadedThread { replay: ThreadReplay::default(), has_newer_format: false });
    }
    let checkpoint = ports.directory.checkpoint(owner, thread).await?.filter(|checkpoint| checkpoint.seq <= head);
    let mut replay = ThreadReplay::from_checkpoint(checkpoint.as_ref().map(|checkpoint| checkpoint.body.as_str()));
    let mut has_newer_format = false;
    if replay.thread.seq < head {
        for_each_record(&*ports.journal, owner, thread, replay.thread.seq, |record| {
            has_newer_format |= record.format > RECORD_FORMAT;
            replay.push(record);
            if record.seq < head { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .await?;
    }
    Ok(LoadedThread { replay, has_newer_format })
}
