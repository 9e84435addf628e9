//! Reads logs page by page.

use model::ports::{Journal, PageLimit, StoreError};
use model::{Record, Seq, ThreadId, UserId};
use std::ops::ControlFlow;

/// Reads the records of a thread after a position until `visit` breaks or the log ends.
pub async fn for_each_record<B>(
    journal: &dyn Journal,
    owner: &UserId,
    thread: &ThreadId,
    mut after: Seq,
    mut visit: impl FnMut(&Record) -> ControlFlow<B>,
) -> Result<Option<B>, StoreError> {
    loop {
        let page = journal.read_page(owner, thread, after, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(None) };
        after = last.seq;
        if let ControlFlow::Break(value) = page.records.iter().try_for_each(&mut visit) {
            return Ok(Some(value));
        }
    }
}

/// The seq of a thread's last record.
pub async fn log_head(journal: &dyn Journal, owner: &UserId, thread: &ThreadId) -> Result<Seq, StoreError> {
    Ok(journal.read_page(owner, thread, Seq(u64::MAX), PageLimit::ONE).await?.head)
}
