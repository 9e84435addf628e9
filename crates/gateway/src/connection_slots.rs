//! Places for connections. When all are taken, the connection that has been idle for longest makes room for a new one.
//!
//! A connection without a request costs its owner nothing, so anybody can hold thousands of them. It is idle from its
//! start to its first request and between two requests; a request whose head has not arrived completely does not count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub struct ConnectionSlots {
    places: Arc<Semaphore>,
    idle: Mutex<IdleConnections>,
}

/// Idle connections, the longest idle first. Each has a new number whenever it becomes idle.
#[derive(Default)]
struct IdleConnections {
    last_number: u64,
    by_number: BTreeMap<u64, Arc<Notify>>,
}

impl IdleConnections {
    fn insert(&mut self, close: &Arc<Notify>) -> u64 {
        self.last_number += 1;
        self.by_number.insert(self.last_number, Arc::clone(close));
        self.last_number
    }
}

/// The place of one connection, until it is dropped.
pub struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    close: Arc<Notify>,
    /// Its number among the idle ones. Requests of a connection do not overlap.
    idle_number: AtomicU64,
    _place: OwnedSemaphorePermit,
}

/// A request in flight. The connection is idle again when it is dropped.
pub struct RequestInFlight {
    slot: Arc<ConnectionSlot>,
    upgraded: bool,
}

impl ConnectionSlots {
    pub fn new(connections_max: usize) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { places, idle: Mutex::default() })
    }

    /// A place, if one is free.
    pub fn try_open(self: &Arc<Self>) -> Option<Arc<ConnectionSlot>> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        Some(self.occupy(place))
    }

    /// Waits for a place.
    pub async fn open(self: &Arc<Self>) -> Option<Arc<ConnectionSlot>> {
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(self.occupy(place))
    }

    /// A place that an idle connection gives up. `None` if every connection has a request.
    pub async fn take_over(self: &Arc<Self>, wait_max: Duration) -> Option<Arc<ConnectionSlot>> {
        if !self.close_longest_idle() {
            return None;
        }
        timeout(wait_max, self.open()).await.ok()?
    }

    /// Asks the connection that has been idle for longest to close. False if none is idle.
    pub fn close_longest_idle(&self) -> bool {
        let oldest = self.lock().by_number.pop_first();
        oldest.is_some_and(|(_, close)| {
            close.notify_one();
            true
        })
    }

    fn occupy(self: &Arc<Self>, place: OwnedSemaphorePermit) -> Arc<ConnectionSlot> {
        let close = Arc::new(Notify::new());
        let idle_number = AtomicU64::new(self.lock().insert(&close));
        Arc::new(ConnectionSlot { slots: Arc::clone(self), close, idle_number, _place: place })
    }

    fn lock(&self) -> MutexGuard<'_, IdleConnections> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Marks the connection as busy. `None` if it was asked to close before the request had arrived.
    pub fn begin_request(self: &Arc<Self>) -> Option<RequestInFlight> {
        let number = self.idle_number.load(Ordering::SeqCst);
        self.slots.lock().by_number.remove(&number)?;
        Some(RequestInFlight { slot: Arc::clone(self), upgraded: false })
    }

    /// Returns when the connection has to close.
    pub async fn asked_to_close(&self) {
        self.close.notified().await;
    }
}

impl RequestInFlight {
    /// The connection is something else from now on, and busy until it is dropped.
    pub fn mark_upgraded(&mut self) {
        self.upgraded = true;
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        if !self.upgraded {
            let number = self.slot.slots.lock().insert(&self.slot.close);
            self.slot.idle_number.store(number, Ordering::SeqCst);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let number = self.idle_number.load(Ordering::SeqCst);
        self.slots.lock().by_number.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn the_connection_that_is_idle_for_longest_makes_room() {
        let slots = ConnectionSlots::new(3);
        let connections: Vec<_> = (0..3).map(|_| slots.try_open().unwrap()).collect();
        assert!(slots.try_open().is_none());
        // The first has a request, the second had one.
        let request = connections[0].begin_request().unwrap();
        drop(connections[1].begin_request().unwrap());
        let closing = |at: usize| connections[at].asked_to_close().now_or_never().is_some();
        assert!(slots.close_longest_idle());
        assert_eq!([closing(0), closing(1), closing(2)], [false, false, true]);
        assert!(connections[2].begin_request().is_none(), "what arrives too late is not begun");
        assert!(slots.close_longest_idle());
        assert_eq!([closing(0), closing(1), closing(2)], [false, true, false]);
        assert!(!slots.close_longest_idle(), "a request is never cut");
        assert!(slots.take_over(Duration::ZERO).await.is_none());
        drop(request);
        assert!(slots.close_longest_idle(), "the request has ended");
        drop(connections);
        assert!(slots.lock().by_number.is_empty());
        assert!(slots.try_open().is_some(), "the places are free again");
    }

    #[tokio::test]
    async fn an_upgraded_connection_is_not_idle() {
        let slots = ConnectionSlots::new(1);
        let connection = slots.try_open().unwrap();
        let mut request = connection.begin_request().unwrap();
        request.mark_upgraded();
        drop(request);
        assert!(!slots.close_longest_idle());
    }
}
