//! Executes one thread, over as many terms as it takes.

use crate::session::{NewThread, TermEnd, ThreadSession};
use crate::shared::{StopMode, ThreadContext};
use model::ports::StoreError;
use std::future::poll_fn;
use std::time::Duration;

/// The first and the longest wait after a term that the store refused.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Minimum delay before the next claim of a thread that another node holds, whatever that node's clock says.
const HELD_RETRY_MS_MIN: u64 = 500;

pub(crate) enum ActorEnd {
    /// Nothing is left to do, or the thread must not be executed.
    Idle,
    /// The process stops.
    Halted,
}

/// Runs terms until one ends without having to be repeated.
pub(crate) async fn run_actor(context: &ThreadContext, mut new_thread: Option<NewThread>) -> ActorEnd {
    let mut backoff = BACKOFF_MIN;
    loop {
        if new_thread.is_none() {
            context.wakeup.take_notified();
        }
        match run_term(context, new_thread.take()).await {
            TermEnd::Idle | TermEnd::Parked => return ActorEnd::Idle,
            TermEnd::HeldElsewhere { until } => {
                // The holder executes the thread. If it stops, its lease expires: claim the thread again then.
                let soonest = context.shared.ports.clock.now().saturating_add(HELD_RETRY_MS_MIN);
                context.shared.wake_schedule.schedule(&context.owner, &context.thread, until.max(soonest));
                return ActorEnd::Idle;
            }
            TermEnd::Halted => return ActorEnd::Halted,
            TermEnd::Retry(reason) => {
                // Whatever was in flight, the log tells what became of it: fold it again and go on from there.
                tracing::warn!(thread = %context.thread, reason, "the thread is folded again");
                metrics::counter!("headwater_terms_lost_total").increment(1);
                tokio::select! {
                    () = tokio::time::sleep(backoff) => {}
                    () = poll_fn(|cx| context.wakeup.poll_notified(cx)) => {}
                }
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// One term: claim, fold, execute.
async fn run_term(context: &ThreadContext, new_thread: Option<NewThread>) -> TermEnd {
    if context.shared.stop_mode() == StopMode::Halted {
        return TermEnd::Halted;
    }
    match ThreadSession::open(context, new_thread).await {
        Ok(Ok(mut session)) => session.run().await,
        Ok(Err(end)) => end,
        Err(StoreError::ThreadNotFound) => TermEnd::Idle,
        Err(error @ StoreError::Corrupt { .. }) => {
            tracing::error!(thread = %context.thread, %error, "the thread is parked");
            TermEnd::Parked
        }
        Err(error) => TermEnd::Retry(error.to_string()),
    }
}
