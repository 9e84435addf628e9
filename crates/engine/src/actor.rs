//! One thread's executor, over as many terms as it takes.

use crate::session::{TermEnd, ThreadSession};
use crate::shared::{Shared, StopMode};
use futures_util::task::AtomicWaker;
use model::ports::{InboxRow, Lease};
use model::{ThreadId, UserId};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

/// How long an actor waits before it tries a store that refused again, at first and at most.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Minimum delay before the next claim of a thread that another node holds, whatever that node's clock says.
const HELD_RETRY_MS_MIN: u64 = 500;

/// "Look around": into the inbox, at whether the process stops. A level, so that no wake-up is lost and none piles up.
#[derive(Default)]
pub(crate) struct Wakeup {
    notified: AtomicBool,
    waker: AtomicWaker,
}

impl Wakeup {
    pub(crate) fn notify(&self) {
        self.notified.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Takes it back; was it raised?
    pub(crate) fn take_notified(&self) -> bool {
        self.notified.swap(false, Ordering::SeqCst)
    }

    /// Wakes the actor without anything to look for: it will see by itself.
    pub(crate) fn wake_only(&self) {
        self.waker.wake();
    }

    /// Whom to wake.
    pub(crate) fn register_waker(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    pub(crate) fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.register_waker(cx);
        if self.take_notified() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What the maker of a thread knows about it: everything.
pub(crate) struct NewThread {
    /// Its first term.
    pub(crate) lease: Lease,
    /// All that its inbox had then. Whatever came later raises the poke.
    pub(crate) first_row: InboxRow,
}

pub(crate) struct ThreadActor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: UserId,
    pub(crate) thread: ThreadId,
    pub(crate) wakeup: Arc<Wakeup>,
}

impl ThreadActor {
    pub(crate) async fn run(self, mut birth: Option<NewThread>) {
        let mut backoff = BACKOFF_MIN;
        loop {
            if birth.is_none() {
                self.wakeup.take_notified();
            }
            match self.run_term(birth.take()).await {
                TermEnd::Idle | TermEnd::Parked => {
                    backoff = BACKOFF_MIN;
                    if self.shared.retire(&self.thread, &self.wakeup) {
                        return;
                    }
                }
                TermEnd::HeldElsewhere { until } => {
                    // The holder executes the thread. Should it stop, its lease expires: claim again then.
                    backoff = BACKOFF_MIN;
                    let soonest = self.shared.ports.clock.now().saturating_add(HELD_RETRY_MS_MIN);
                    self.shared.wake_schedule.schedule(&self.owner, &self.thread, until.max(soonest));
                    if self.shared.retire(&self.thread, &self.wakeup) {
                        return;
                    }
                }
                TermEnd::Halted => {
                    self.wakeup.take_notified();
                    self.shared.retire(&self.thread, &self.wakeup);
                    return;
                }
                TermEnd::Retry(why) => {
                    // Whatever was in flight, the log says what became of it: fold it anew and go on from there.
                    tracing::warn!(thread = %self.thread, why, "the thread is folded anew");
                    metrics::counter!("headwater_terms_lost_total").increment(1);
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        () = poll_fn(|cx| self.wakeup.poll_notified(cx)) => {}
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// One term: claim, fold, execute.
    async fn run_term(&self, birth: Option<NewThread>) -> TermEnd {
        if self.shared.stop_mode() == StopMode::Halted {
            return TermEnd::Halted;
        }
        match ThreadSession::open(self, birth).await {
            Ok(Ok(mut session)) => session.run().await,
            Ok(Err(end)) => end,
            Err(model::ports::StoreError::ThreadNotFound) => TermEnd::Idle,
            Err(error @ model::ports::StoreError::Corrupt { .. }) => {
                tracing::error!(thread = %self.thread, %error, "the thread is parked");
                TermEnd::Parked
            }
            Err(error) => TermEnd::Retry(error.to_string()),
        }
    }
}
