//! Loads the state of a thread from its log. With a checkpoint at most one run is read; without one the result is the same.

use crate::ports::Ports;
use model::ports::{PageLimit, StoreError};
use model::record::RECORD_FORMAT;
use model::thread::ThreadReplay;
use model::{Seq, ThreadId, UserId};

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
    let mut at = replay.thread.seq;
    let mut has_newer_format = false;
    while at < head {
        let page = ports.journal.read_page(owner, thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { break };
        at = last.seq;
        for record in &page.records {
            has_newer_format |= record.format > RECORD_FORMAT;
            replay.push(record);
        }
    }
    Ok(LoadedThread { replay, has_newer_format })
}
