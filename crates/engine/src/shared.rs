//! What all actors of a process share.

use crate::bursts::BurstPermits;
use crate::hub::Hub;
use crate::idle_threads::IdleThreads;
use crate::ports::Ports;
use crate::recovery_tracker::RecoveryTracker;
use crate::run_waiters::RunWaiters;
use crate::wake_schedule::WakeSchedule;
use crate::wakeup::Wakeup;
use model::ports::{Cluster, ClusterSignal, ThreadTag};
use model::{ThreadId, UserId};
use schema::SchemaCache;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use tokio::sync::Notify;

/// How far the process is with stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopMode {
    Running,
    /// No run starts; those that run may end.
    Draining,
    /// Everything stops where it is. The log tells how far that was.
    Halted,
}

pub(crate) struct Shared {
    pub(crate) ports: Ports,
    pub(crate) hub: Arc<Hub>,
    pub(crate) run_waiters: Arc<RunWaiters>,
    pub(crate) wake_schedule: WakeSchedule,
    pub(crate) recovery: RecoveryTracker,
    pub(crate) idle_threads: IdleThreads,
    pub(crate) burst_permits: BurstPermits,
    /// Another node has changed access keys or shares.
    pub(crate) credentials_changed: Notify,
    /// The schemas of the tools of all runs.
    pub(crate) schemas: SchemaCache,
    /// Looked up once: it counts every delta.
    pub(crate) records_total: metrics::Counter,
    stop: AtomicU8,
}

impl Shared {
    pub(crate) fn new(ports: Ports) -> Self {
        let stop = AtomicU8::new(StopMode::Running as u8);
        Self {
            ports,
            hub: Arc::default(),
            run_waiters: Arc::default(),
            wake_schedule: WakeSchedule::default(),
            recovery: RecoveryTracker::default(),
            idle_threads: IdleThreads::default(),
            burst_permits: BurstPermits::default(),
            credentials_changed: Notify::new(),
            schemas: SchemaCache::default(),
            records_total: metrics::counter!("headwater_records_total"),
            stop,
        }
    }

    pub(crate) fn stop_mode(&self) -> StopMode {
        match self.stop.load(Ordering::SeqCst) {
            0 => StopMode::Running,
            1 => StopMode::Draining,
            _ => StopMode::Halted,
        }
    }

    /// Raises the stop mode. It never goes back.
    pub(crate) fn raise_stop_mode(&self, mode: StopMode) {
        self.stop.fetch_max(mode as u8, Ordering::SeqCst);
    }
}

/// One thread of one owner, and what its actor works with.
pub(crate) struct ThreadContext {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: UserId,
    pub(crate) thread: ThreadId,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) publisher: Arc<ThreadPublisher>,
    /// Earlier processes crashed while they resumed the thread: its run fails.
    pub(crate) gives_up: bool,
    /// Something was logged since this was last looked at.
    pub(crate) has_progressed: AtomicBool,
}

/// Whom to tell of new records of a thread. The store holds it while it appends; it must not hold the store.
pub(crate) struct ThreadPublisher {
    pub(crate) thread: ThreadId,
    pub(crate) hub: Arc<Hub>,
    pub(crate) run_waiters: Arc<RunWaiters>,
    pub(crate) wakeup: Arc<Wakeup>,
    pub(crate) cluster: Arc<dyn Cluster>,
    tag: ThreadTag,
}

impl ThreadPublisher {
    /// Tells the other nodes of new records.
    pub(crate) fn ring(&self) {
        self.cluster.ring(ClusterSignal::Records(self.tag));
    }
}

impl ThreadContext {
    pub(crate) fn new(
        shared: Arc<Shared>,
        owner: UserId,
        thread: ThreadId,
        wakeup: Arc<Wakeup>,
        gives_up: bool,
    ) -> Self {
        let publisher = Arc::new(ThreadPublisher {
            thread: thread.clone(),
            hub: Arc::clone(&shared.hub),
            run_waiters: Arc::clone(&shared.run_waiters),
            wakeup: Arc::clone(&wakeup),
            cluster: Arc::clone(&shared.ports.cluster),
            tag: ThreadTag::new(&thread),
        });
        Self { shared, owner, thread, wakeup, publisher, gives_up, has_progressed: AtomicBool::new(false) }
    }

    /// Something was logged, or there is nothing to do.
    pub(crate) fn mark_progress(&self) {
        self.has_progressed.store(true, Ordering::Relaxed);
        self.shared.recovery.mark_progress(&self.thread);
    }
}
