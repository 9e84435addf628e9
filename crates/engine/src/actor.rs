//! One thread's executor, over as many terms as it takes.

use crate::session::{Ended, Session};
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

/// "Look around": into the inbox, at whether the process stops. A level, so that no wake-up is lost and none piles up.
#[derive(Default)]
pub(crate) struct Poke {
    raised: AtomicBool,
    waker: AtomicWaker,
}

impl Poke {
    pub(crate) fn set(&self) {
        self.raised.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    /// Takes it back; was it raised?
    pub(crate) fn clear(&self) -> bool {
        self.raised.swap(false, Ordering::SeqCst)
    }

    /// Wakes the actor without anything to look for: it will see by itself.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Whom to wake.
    pub(crate) fn listen(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    pub(crate) fn poll_raised(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.listen(cx);
        if self.clear() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// What the maker of a thread knows about it: everything.
pub(crate) struct Birth {
    /// Its first term.
    pub(crate) lease: Lease,
    /// All that its inbox had then. Whatever came later raises the poke.
    pub(crate) row: InboxRow,
}

pub(crate) struct Actor {
    pub(crate) shared: Arc<Shared>,
    pub(crate) owner: UserId,
    pub(crate) thread: ThreadId,
    pub(crate) poke: Arc<Poke>,
}

impl Actor {
    pub(crate) async fn live(self, mut birth: Option<Birth>) {
        let mut backoff = BACKOFF_MIN;
        loop {
            if birth.is_none() {
                self.poke.clear();
            }
            match self.term(birth.take()).await {
                Ended::Idle | Ended::Parked => {
                    backoff = BACKOFF_MIN;
                    if self.shared.retire(&self.thread, &self.poke) {
                        return;
                    }
                }
                Ended::Halted => {
                    self.poke.clear();
                    self.shared.retire(&self.thread, &self.poke);
                    return;
                }
                Ended::Again(why) => {
                    // Whatever was in flight, the log says what became of it: fold it anew and go on from there.
                    tracing::warn!(thread = %self.thread, why, "the thread is folded anew");
                    metrics::counter!("headwater_terms_lost_total").increment(1);
                    tokio::select! {
                        () = tokio::time::sleep(backoff) => {}
                        () = poll_fn(|cx| self.poke.poll_raised(cx)) => {}
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// One term: claim, fold, execute.
    async fn term(&self, birth: Option<Birth>) -> Ended {
        if self.shared.stop_mode() == StopMode::Halted {
            return Ended::Halted;
        }
        match Session::open(self, birth).await {
            Ok(Some(mut session)) => session.run().await,
            Ok(None) => Ended::Parked,
            Err(model::ports::StoreError::ThreadNotFound) => Ended::Idle,
            Err(error @ model::ports::StoreError::Corrupt { .. }) => {
                tracing::error!(thread = %self.thread, %error, "the thread is parked");
                Ended::Parked
            }
            Err(error) => Ended::Again(error.to_string()),
        }
    }
}
