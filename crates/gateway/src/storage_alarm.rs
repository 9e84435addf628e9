//! What clients learn while the disk is full.
//!
//! Runs that have started go on and wait with their records, so the frames of a stream have nothing to say: transports
//! say it beside the frames, and a request that only waits for the end of a run is answered.

use crate::context::Gateway;
use crate::poll_if_woken::PollIfWoken;
use crate::rejection::Rejection;
use model::TaskId;
use model::error::ErrorCode;
use model::ports::{BoxFuture, StorageSpace};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A disk that has room again before this time interrupts nobody.
const ALARM_GRACE: Duration = Duration::from_secs(5);
/// For clients of every protocol; a WebSocket takes it in a ping, which holds 125 bytes.
const FULL: &str = "storage full: nothing new is recorded until the disk has room; runs wait and go on then";
const AVAILABLE: &str = "storage has room again: runs go on";

/// The state of the store as one client knows it.
pub struct StorageAlarm {
    known: StorageSpace,
    changed: PollIfWoken<BoxFuture<'static, ()>>,
}

impl StorageAlarm {
    /// For a client that has not been told anything.
    pub fn new(gateway: &Gateway) -> Self {
        let known = StorageSpace::default();
        Self { known, changed: PollIfWoken::new(gateway.engine.ports().journal.space_changed(known)) }
    }

    /// Waits until there is something to say, and returns it. Cancel safe.
    pub async fn next_notice(&mut self, gateway: &Gateway) -> &'static str {
        poll_fn(|cx| self.poll_notice(gateway, cx)).await
    }

    /// As [`Self::next_notice`].
    pub fn poll_notice(&mut self, gateway: &Gateway, cx: &mut Context<'_>) -> Poll<&'static str> {
        loop {
            ready!(Pin::new(&mut self.changed).poll(cx));
            let journal = &gateway.engine.ports().journal;
            let before = std::mem::replace(&mut self.known, journal.space());
            self.changed = PollIfWoken::new(journal.space_changed(self.known));
            match self.known {
                // It changed twice: nothing to say.
                known if known == before => {}
                StorageSpace::Full => return Poll::Ready(FULL),
                StorageSpace::Available => return Poll::Ready(AVAILABLE),
            }
        }
    }

    /// What a heartbeat says: nothing, or that the disk is still full.
    pub fn heartbeat(&self) -> Option<&'static str> {
        (self.known == StorageSpace::Full).then_some(FULL)
    }
}

/// Fails for a request that waits for a run when the disk has been full for a while.
pub(crate) async fn reject_when_full(gateway: &Gateway, run: &TaskId) -> Rejection {
    let journal = &gateway.engine.ports().journal;
    loop {
        journal.space_changed(StorageSpace::Available).await;
        if tokio::time::timeout(ALARM_GRACE, journal.space_changed(StorageSpace::Full)).await.is_err() {
            let detail = format!(
                "the server's disk is full: the run {run} waits and goes on when there is room; ask for it later \
                 (GET /v1/tasks/{run}) and do not send the request again"
            );
            return Rejection::new(ErrorCode::StorageUnavailable, detail).with_extension("task_id", run.as_str());
        }
    }
}

impl Gateway {
    /// Why the server does not accept work although it runs.
    pub fn check_storage(&self) -> Result<(), Rejection> {
        let ports = self.engine.ports();
        let detail = match (ports.journal.space(), ports.cluster.is_shared()) {
            (StorageSpace::Available, _) if ports.cluster.holds_leases() => return Ok(()),
            (StorageSpace::Available, _) => {
                "the database has not answered or not accepted a change for a while: what runs here may be taken over by other \
                 nodes; see the log"
            }
            (StorageSpace::Full, true) => {
                "the disk of the database is full: new data is refused, reads and deletions work; delete threads, or enlarge it"
            }
            (StorageSpace::Full, false) => {
                "the disk of the data folder is full: new data is refused, reads and deletions work; delete threads or other \
                 files on this disk, or enlarge it"
            }
        };
        Err(Rejection::new(ErrorCode::StorageUnavailable, detail))
    }
}
