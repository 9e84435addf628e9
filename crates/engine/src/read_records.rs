//! Reads logs page by page.

use futures_util::FutureExt as _;
use futures_util::future::maybe_done;
use model::ports::{Journal, PageLimit, RecordPage, StoreError};
use model::{Record, Seq, ThreadId, UserId};
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::Poll;

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
    after: Seq,
    until: Seq,
    mut visit: impl FnMut(&Record) -> ControlFlow<B>,
) -> Result<Option<B>, StoreError> {
    let read_after = |after| journal.read_condensed_page(owner, thread, after, until, PageLimit::WIDE);
    if after >= until {
        return Ok(None);
    }
    let mut page = read_after(after).await?;
    loop {
        let Some(last) = page.records.last() else { return Ok(None) };
        let mut following = (last.seq < until).then(|| maybe_done(read_after(last.seq)));
        // A run that fills a page is probably longer: the store reads on while this page is visited.
        if let Some(following) = following.as_mut().filter(|_| is_one_run(&page.records)) {
            poll_fn(|cx| {
                let _is_ready = following.poll_unpin(cx);
                Poll::Ready(())
            })
            .await;
        }
        if let ControlFlow::Break(value) = visit_page(owner, &page.records, &mut visit).await {
            return Ok(Some(value));
        }
        let Some(mut following) = following else { return Ok(None) };
        (&mut following).await;
        page = Pin::new(&mut following).take_output().unwrap_or_else(|| Ok(RecordPage::default()))?;
    }
}

fn is_one_run(records: &[Record]) -> bool {
    records.first().zip(records.last()).is_some_and(|(first, last)| first.run == last.run)
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
