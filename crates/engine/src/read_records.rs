//! Reads logs page by page.

use model::ports::{Journal, PageLimit, StoreError};
use model::{Record, Seq, ThreadId, UserId};
use std::ops::ControlFlow;

/// A page of this many records or bytes is decoded and visited beside the async workers.
const HEAVY_PAGE_RECORDS: usize = 512;
const HEAVY_PAGE_BYTES: usize = 128 * 1024;

fn page_bytes(records: &[Record]) -> usize {
    records.iter().map(Record::size_bytes).sum()
}

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
        let visited = if page.records.len() < HEAVY_PAGE_RECORDS && page_bytes(&page.records) < HEAVY_PAGE_BYTES {
            page.records.iter().try_for_each(&mut visit)
        } else {
            let _permit = heavy_work::acquire_permit(owner).await;
            heavy_work::run_in_place(|| page.records.iter().try_for_each(&mut visit))
        };
        if let ControlFlow::Break(value) = visited {
            return Ok(Some(value));
        }
    }
}

/// The seq of a thread's last record.
pub async fn log_head(journal: &dyn Journal, owner: &UserId, thread: &ThreadId) -> Result<Seq, StoreError> {
    Ok(journal.read_page(owner, thread, Seq(u64::MAX), PageLimit::ONE).await?.head)
}
