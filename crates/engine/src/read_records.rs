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

/// Reads the records of a thread after a position until `visit` breaks or the log ends. For what needs every single record;
/// for a state, [`for_each_condensed_record`] is faster.
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
        if let ControlFlow::Break(value) = visit_page(owner, &page.records, &mut visit).await {
            return Ok(Some(value));
        }
    }
}

/// Like [`for_each_record`] for what needs a state and no frames: some of the records stand for several deltas. None of them
/// reaches beyond `until`.
pub async fn for_each_condensed_record<B>(
    journal: &dyn Journal,
    owner: &UserId,
    thread: &ThreadId,
    mut after: Seq,
    until: Seq,
    mut visit: impl FnMut(&Record) -> ControlFlow<B>,
) -> Result<Option<B>, StoreError> {
    while after < until {
        let page = journal.read_condensed_page(owner, thread, after, until, PageLimit::WIDE).await?;
        let Some(last) = page.records.last() else { return Ok(None) };
        after = last.seq;
        if let ControlFlow::Break(value) = visit_page(owner, &page.records, &mut visit).await {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

async fn visit_page<B>(
    owner: &UserId,
    records: &[Record],
    visit: &mut impl FnMut(&Record) -> ControlFlow<B>,
) -> ControlFlow<B> {
    if records.len() < HEAVY_PAGE_RECORDS && page_bytes(records) < HEAVY_PAGE_BYTES {
        return records.iter().try_for_each(visit);
    }
    let _permit = heavy_work::acquire_permit(owner).await;
    heavy_work::run_in_place(|| records.iter().try_for_each(visit))
}

/// The seq of a thread's last record.
pub async fn log_head(journal: &dyn Journal, owner: &UserId, thread: &ThreadId) -> Result<Seq, StoreError> {
    Ok(journal.read_page(owner, thread, Seq(u64::MAX), PageLimit::ONE).await?.head)
}
