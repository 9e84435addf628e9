//! A thread's state from its log. With a checkpoint at most one run is read; without, the same comes out, later.

use model::ports::{Inbox, Journal, PageLimit, StoreError};
use model::record::RECORD_FORMAT;
use model::thread::ThreadReplay;
use model::{Seq, ThreadId, UserId};

/// What the log says.
pub(crate) struct ThreadState {
    pub(crate) replay: ThreadReplay,
    /// Records of a later format: this version must not execute the thread.
    pub(crate) has_newer_format: bool,
}

/// Folds a thread up to `head`.
pub(crate) async fn load_thread_state(
    journal: &dyn Journal,
    inbox: &dyn Inbox,
    (owner, thread): (&UserId, &ThreadId),
    head: Seq,
) -> Result<ThreadState, StoreError> {
    if head == Seq::ZERO {
        return Ok(ThreadState { replay: ThreadReplay::default(), has_newer_format: false });
    }
    let checkpoint = inbox.checkpoint(owner, thread).await?.filter(|checkpoint| checkpoint.seq <= head);
    let mut replay = ThreadReplay::from_checkpoint(checkpoint.as_ref().map(|checkpoint| checkpoint.body.as_str()));
    let mut at = replay.thread.seq;
    let mut newer = false;
    while at < head {
        let page = journal.read_page(owner, thread, at, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { break };
        at = last.seq;
        for record in &page.records {
            newer |= record.format > RECORD_FORMAT;
            replay.push(record);
        }
    }
    Ok(ThreadState { replay, has_newer_format: newer })
}
