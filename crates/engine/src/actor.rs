//! Executes one thread, over as many terms as it takes.

use crate::session::{ClaimedThread, TermEnd, ThreadSession};
use crate::shared::{StopMode, ThreadContext};
use futures_util::FutureExt as _;
use model::Millis;
use model::ports::{ClusterSignal, StorageSpace, StoreError, ThreadTag};
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The first and the longest wait after a term that the store refused.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// The delay before the next claim of a thread that another node holds while its inbox has a row.
const HELD_RETRY_MS: u64 = 500;

/// Terms that panicked in a row before they logged anything. After these the run fails.
const PANICS_MAX: u32 = 3;

pub(crate) enum ActorEnd {
    /// Nothing is left to do, or the thread must not be executed.
    Idle,
    /// The process stops.
    Halted,
}

/// Runs terms until one ends without having to be repeated.
pub(crate) async fn run_actor(context: &ThreadContext, mut claimed: Option<ClaimedThread>) -> ActorEnd {
    let mut backoff = BACKOFF_MIN;
    let (mut gives_up, mut panics, mut has_run) = (context.gives_up, 0, false);
    loop {
        if !wait_for_space(context).await {
            return ActorEnd::Halted;
        }
        if claimed.is_none() {
            context.wakeup.take_notified();
        }
        // A panic ends the term, and with it everything that the term held; the log is what it was.
        let term = AssertUnwindSafe(run_term(context, claimed.take(), gives_up)).catch_unwind().await;
        let end = term.unwrap_or(TermEnd::Panicked);
        gives_up = false;
        match end {
            TermEnd::Idle | TermEnd::Parked => {
                context.mark_progress();
                return ActorEnd::Idle;
            }
            TermEnd::HeldElsewhere { until } => {
                context.mark_progress();
                retry_held_thread(context, until).await;
                return ActorEnd::Idle;
            }
            TermEnd::Deleted => {
                context.mark_progress();
                // Another node has deleted it while it ran here. A thread that never ran may still be created.
                if has_run {
                    context.shared.hub.close(&context.thread);
                    context.shared.run_waiters.wake_thread(&context.thread);
                }
                return ActorEnd::Idle;
            }
            TermEnd::Halted => return ActorEnd::Halted,
            TermEnd::Panicked => {
                metrics::counter!("headwater_actor_panics_total").increment(1);
                panics = if context.has_progressed.swap(false, Ordering::Relaxed) { 1 } else { panics + 1 };
                gives_up = panics == PANICS_MAX;
                if panics > PANICS_MAX {
                    tracing::error!(thread = %context.thread, "the thread is parked: it panics each time");
                    return ActorEnd::Idle;
                }
                tracing::error!(thread = %context.thread, "a panic: the thread is folded again");
            }
            TermEnd::Retry(reason) => {
                // Whatever was in flight, the log tells what became of it: fold it again and go on from there.
                tracing::warn!(thread = %context.thread, reason, "the thread is folded again");
            }
        }
        has_run = true;
        metrics::counter!("headwater_terms_lost_total").increment(1);
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = poll_fn(|cx| context.wakeup.poll_notified(cx)) => {}
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// The holder executes the thread and handles what waits in its inbox. If it stops, its lease expires. It may also have ended
/// its work just now, without having seen the newest row: as long as a row waits, the thread is claimed again soon.
async fn retry_held_thread(context: &ThreadContext, until: Millis) {
    let ports = &context.shared.ports;
    let waits =
        ports.directory.inbox_page(&context.owner, &context.thread, 0, 1).await.is_ok_and(|rows| !rows.is_empty());
    if waits {
        ports.cluster.ring(ClusterSignal::Inbox(ThreadTag::new(&context.thread)));
    }
    let soonest = ports.clock.now().saturating_add(HELD_RETRY_MS);
    match (waits, ports.cluster.is_shared()) {
        (true, _) => context.shared.wake_schedule.schedule(&context.owner, &context.thread, soonest),
        // Orphaned threads are looked for all the time: see `cluster`.
        (false, true) => {}
        (false, false) => {
            context.shared.wake_schedule.schedule(&context.owner, &context.thread, until.max(soonest));
        }
    }
}

/// A term whose records nobody can store would only cost model calls. Returns false when the process stops first.
async fn wait_for_space(context: &ThreadContext) -> bool {
    let journal = &context.shared.ports.journal;
    let mut is_notified = false;
    while journal.space() == StorageSpace::Full {
        if context.shared.stop_mode() != StopMode::Running {
            return false;
        }
        tokio::select! {
            () = journal.space_changed(StorageSpace::Full) => {}
            () = poll_fn(|cx| context.wakeup.poll_notified(cx)) => is_notified = true,
        }
    }
    if is_notified {
        // The term has to see it, too.
        context.wakeup.notify();
    }
    true
}

/// One term: claim, fold, execute.
async fn run_term(context: &ThreadContext, claimed: Option<ClaimedThread>, gives_up: bool) -> TermEnd {
    if context.shared.stop_mode() == StopMode::Halted {
        return TermEnd::Halted;
    }
    match ThreadSession::open(context, claimed, gives_up).await {
        Ok(Ok(mut session)) => {
            let end = session.run().await;
            if matches!(end, TermEnd::Idle) {
                session.keep_idle_thread();
                // Any node may go on with it.
                context.shared.ports.journal.release(&context.thread, session.lease);
            }
            end
        }
        Ok(Err(end)) => end,
        Err(StoreError::ThreadNotFound) => TermEnd::Deleted,
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::error!(thread = %context.thread, %error, "the thread is parked");
            TermEnd::Parked
        }
        Err(error) => TermEnd::Retry(error.to_string()),
    }
}
