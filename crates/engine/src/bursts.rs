//! Bursts: more deltas at once than a model writes one by one.
//!
//! A provider that sends without a pause fills every buffer between it and its clients. If each of 500 threads read up to its
//! own bound, 32,000 records would be in the store's queue, and every step of a new run would wait behind them. A semaphore
//! limits how many threads read a burst at a time, first come, first served. The others leave their data in the socket:
//! back-pressure reaches the provider. A thread gives its permit back after its next commit, or when its stream is drained.

use model::ports::BoxFuture;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of threads that read a burst at the same time. With fewer, the store idles between commits.
const READERS_MAX: usize = 32;
/// Maximum number of inputs that a thread reads at once without a permit.
const INPUTS_WITHOUT_PERMIT: usize = 4;

/// The permits of all threads.
pub(crate) struct BurstPermits(Arc<Semaphore>);

impl Default for BurstPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READERS_MAX)))
    }
}

/// Whether a thread reads a burst.
#[derive(Default)]
pub(crate) enum BurstReader {
    /// Its inputs come one by one.
    #[default]
    Trickle,
    /// `None` when there are no permits any more.
    Waiting(BoxFuture<'static, Option<OwnedSemaphorePermit>>),
    Reading(#[expect(dead_code, reason = "dropping it lets the next thread read")] Option<OwnedSemaphorePermit>),
}

impl BurstReader {
    /// The number of inputs to read now, at most `room`.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>, room: usize) -> Poll<usize> {
        match self {
            Self::Trickle => Poll::Ready(room.min(INPUTS_WITHOUT_PERMIT)),
            Self::Waiting(permit) => {
                *self = Self::Reading(ready!(permit.as_mut().poll(cx)));
                Poll::Ready(room)
            }
            Self::Reading(_) => Poll::Ready(room),
        }
    }

    /// Takes a permit if one is free and the thread has none.
    pub(crate) fn try_begin(&mut self, permits: &BurstPermits) -> bool {
        let Self::Trickle = self else { return false };
        let Ok(permit) = Arc::clone(&permits.0).try_acquire_owned() else { return false };
        *self = Self::Reading(Some(permit));
        true
    }

    /// Called after each read. `has_more`: the read ended at its limit, not because the streams were drained.
    pub(crate) fn on_read(&mut self, has_more: bool, permits: &BurstPermits) {
        match self {
            Self::Trickle if has_more => self.request_permit(permits),
            Self::Trickle | Self::Waiting(_) => {}
            Self::Reading(_) if has_more => {}
            Self::Reading(_) => *self = Self::Trickle,
        }
    }

    /// Called after each commit of the thread: requests a new permit, behind the threads that wait already.
    pub(crate) fn on_durable(&mut self, permits: &BurstPermits) {
        if let Self::Reading(_) = self {
            // Gives the permit back before it asks for another one.
            *self = Self::Trickle;
            self.request_permit(permits);
        }
    }

    fn request_permit(&mut self, permits: &BurstPermits) {
        if !self.try_begin(permits) {
            let permit = Arc::clone(&permits.0).acquire_owned();
            *self = Self::Waiting(Box::pin(async { permit.await.ok() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    const ROOM: usize = 64;

    fn room_of(reader: &mut BurstReader) -> Option<usize> {
        match reader.poll_room(&mut Context::from_waker(Waker::noop()), ROOM) {
            Poll::Ready(room) => Some(room),
            Poll::Pending => None,
        }
    }

    fn readers(count: usize) -> Vec<BurstReader> {
        std::iter::repeat_with(BurstReader::default).take(count).collect()
    }

    #[test]
    fn deltas_one_by_one_need_no_permit() {
        let permits = BurstPermits::default();
        for mut reader in readers(READERS_MAX * 2) {
            assert_eq!(room_of(&mut reader), Some(INPUTS_WITHOUT_PERMIT));
            reader.on_read(false, &permits);
            assert_eq!(room_of(&mut reader), Some(INPUTS_WITHOUT_PERMIT));
        }
        assert_eq!(permits.0.available_permits(), READERS_MAX);
    }

    #[test]
    fn a_burst_goes_on_at_once_while_a_permit_is_free() {
        let permits = BurstPermits::default();
        let mut all = readers(READERS_MAX);
        for reader in &mut all {
            assert!(reader.try_begin(&permits));
            assert_eq!(room_of(reader), Some(ROOM));
            assert!(!reader.try_begin(&permits), "one permit is enough");
        }
        let mut next = BurstReader::default();
        assert!(!next.try_begin(&permits));
        assert_eq!(room_of(&mut next), Some(INPUTS_WITHOUT_PERMIT), "it has not asked to wait");
        drop(all.pop());
        assert!(next.try_begin(&permits));
    }

    #[test]
    fn bursts_are_read_in_the_order_in_which_they_came() {
        let permits = BurstPermits::default();
        let mut all = readers(READERS_MAX + 2);
        for reader in &mut all {
            assert_eq!(room_of(reader), Some(INPUTS_WITHOUT_PERMIT), "the first deltas do not wait");
            reader.on_read(true, &permits);
        }
        let [first, others @ .., next, last] = &mut all[..] else { unreachable!() };
        assert_eq!((room_of(first), room_of(next), room_of(last)), (Some(ROOM), None, None));
        assert!(others.iter_mut().all(|other| room_of(other) == Some(ROOM)));
        // It has more to read, but others have waited.
        first.on_read(true, &permits);
        first.on_durable(&permits);
        assert_eq!((room_of(first), room_of(next), room_of(last)), (None, Some(ROOM), None));
        // This one has read everything.
        next.on_read(false, &permits);
        assert_eq!((room_of(next), room_of(last)), (Some(INPUTS_WITHOUT_PERMIT), Some(ROOM)));
        // A run that ends lets the next one read.
        *last = BurstReader::default();
        assert_eq!(room_of(first), Some(ROOM));
    }
}
