//! Resumes what an earlier process left, without being stopped by a thread that nobody can resume.
//!
//! Before threads are resumed, their names are saved ([`RecoveryAttempts`](model::ports::RecoveryAttempts)); a thread that
//! has logged a record, or has nothing to do, is taken off the list. If the process crashes, the next one finds the threads
//! that did not get that far. One of them may be the reason, so it resumes these one after the other, and counts each
//! attempt before it begins. A run that was tried three times fails; its thread goes on. If the process crashes even then,
//! the thread is parked: commands and timers no longer wake it, a command gets an error, and the thread can still be read
//! and deleted. On a full disk no thread is resumed and no attempt is counted until there is room.

use crate::actor_registry::{ActorRegistry, WakeReason};
use crate::shared::{Shared, StopMode};
use model::ports::{RESUMES_MAX, StorageSpace, StoreResult};
use model::{ThreadId, UserId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The list is saved at most this often while threads progress.
const SAVE_INTERVAL: Duration = Duration::from_millis(200);
/// How often recovery that waits for room looks whether the process stops.
const STOP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Resumes threads: those that no process failed to resume at once, the others one after the other in the background.
pub(crate) async fn recover_threads(registry: &Arc<ActorRegistry>, threads: Vec<(UserId, ThreadId)>) {
    if threads.is_empty() {
        return;
    }
    let journal = &registry.shared.ports.journal;
    if journal.space() == StorageSpace::Available {
        return resume_threads(registry, threads).await;
    }
    let (mut has_room, registry) = (journal.space_changed(StorageSpace::Full), Arc::clone(registry));
    tokio::spawn(async move {
        while tokio::time::timeout(STOP_CHECK_INTERVAL, &mut has_room).await.is_err() {
            if registry.shared.stop_mode() != StopMode::Running {
                return;
            }
        }
        resume_threads(&registry, threads).await;
    });
}

async fn resume_threads(registry: &Arc<ActorRegistry>, threads: Vec<(UserId, ThreadId)>) {
    let tracker = &registry.shared.recovery;
    let failed = match registry.shared.ports.recovery_attempts.load().await {
        Ok(failed) => failed,
        Err(error) => {
            tracing::warn!(%error, "it is not known which threads crashed a process when it resumed them");
            BTreeMap::new()
        }
    };
    for (_, thread) in &threads {
        tracker.add(thread, failed.get(thread).copied().unwrap_or_default());
    }
    save_list(&registry.shared).await;
    let (mut suspects, others): (Vec<_>, Vec<_>) =
        threads.into_iter().partition(|(_, thread)| failed.contains_key(thread));
    suspects.retain(|(_, thread)| {
        let is_parked = failed.get(thread).is_some_and(|resumes| *resumes >= RESUMES_MAX);
        if is_parked {
            tracker.park(thread);
            report_parked(thread);
        }
        !is_parked
    });
    for (owner, thread) in &others {
        registry.spawn_or_wake(owner, thread, WakeReason::Command);
    }
    tokio::spawn(resume_suspects(Arc::clone(registry), suspects, failed));
}

async fn resume_suspects(
    registry: Arc<ActorRegistry>,
    suspects: Vec<(UserId, ThreadId)>,
    failed: BTreeMap<ThreadId, u32>,
) {
    let tracker = &registry.shared.recovery;
    for (owner, thread) in &suspects {
        // Those before counted as well: the first time it was resumed together with others.
        let resumes = failed.get(thread).copied().unwrap_or_default() + 1;
        tracker.add(thread, resumes);
        save_list(&registry.shared).await;
        let gives_up = resumes == RESUMES_MAX;
        registry.spawn_or_wake(owner, thread, if gives_up { WakeReason::GivingUp } else { WakeReason::Command });
        tracker.wait_for_progress(thread).await;
    }
    save_progress(&registry.shared).await;
}

/// Learns which threads other nodes have parked.
pub(crate) async fn learn_parked(shared: &Shared) -> StoreResult<()> {
    let attempts = shared.ports.recovery_attempts.load().await?;
    let parked = attempts.into_iter().filter(|(_, resumes)| *resumes >= RESUMES_MAX);
    let new = shared.recovery.replace_parked(parked.map(|(thread, _)| thread).collect());
    new.iter().for_each(report_parked);
    Ok(())
}

fn report_parked(thread: &ThreadId) {
    tracing::error!(%thread, "the thread is parked: the server crashes whenever it resumes it");
    metrics::counter!("headwater_threads_parked_total").increment(1);
}

/// Saves the list while threads leave it. Parked threads stay on it.
async fn save_progress(shared: &Arc<Shared>) {
    let mut saved = usize::MAX;
    while shared.stop_mode() == StopMode::Running {
        let waiting = shared.recovery.snapshot();
        if waiting.len() != saved {
            saved = waiting.len();
            save_list(shared).await;
        }
        if waiting.values().filter(|resumes| **resumes < RESUMES_MAX).count() == 0 {
            return;
        }
        tokio::time::sleep(SAVE_INTERVAL).await;
    }
}

/// Called when the process stops in order.
pub(crate) async fn clear_suspicion(shared: &Arc<Shared>) {
    shared.recovery.clear_suspicion();
    save_list(shared).await;
}

pub(crate) async fn save_list(shared: &Arc<Shared>) {
    let list = shared.recovery.snapshot();
    if let Err(error) = shared.ports.recovery_attempts.save(&list).await {
        tracing::warn!(%error, "the list of threads that are being resumed was not saved");
    }
}
