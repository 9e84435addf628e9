//! Deletes threads and files that nobody has used for as long as the operator said.
//!
//! Threads are deleted one after the other, on the way of a request that deletes one, and only if the store still finds them
//! idle. What a sweep does not get done is done by the next one, also after a restart.
//!
//! Age is not taken from the clock alone, because a clock that was set forward by a year would delete everything. The store
//! keeps the time up to which age has been counted. A difference of up to a day is believed. A longer one (the server was
//! stopped for long, or its clock was changed) is believed one day at a time, for every hour that the server has run: there
//! is time to read the warning. The first sweep ever counts from the newest activity in the store.

use crate::context::Gateway;
use crate::rejection::Rejection;
use crate::run_to_completion::run_to_completion;
use model::id::UNLISTED_THREAD_PREFIX;
use model::ports::StoreError;
use model::seq::Millis;
use model::{ThreadId, UserId};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Threads or files that are looked up at a time.
const PAGE_SIZE: usize = 100;

/// From the config's `[retention]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// How long a thread is kept after its last run has ended.
    pub thread_days: Option<u32>,
    /// How long a file is kept that no thread has used.
    pub unused_file_days: Option<u32>,
}

/// What one sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SweepCounts {
    threads: u64,
    files: u64,
}

/// Sweeps now and every hour. Never returns.
pub async fn run_retention(gateway: Gateway, policy: RetentionPolicy) {
    if policy == RetentionPolicy::default() {
        return delete_unlisted_threads_hourly(&gateway).await;
    }
    let mut uptime = Duration::ZERO;
    loop {
        match sweep(&gateway, policy, uptime).await {
            Ok(SweepCounts { threads, files }) => tracing::info!(threads, files, "retention has deleted what is old"),
            Err(error) => tracing::warn!(reason = error.detail, "retention was interrupted; the next sweep continues"),
        }
        tokio::time::sleep(HOUR).await;
        uptime += HOUR;
    }
}

/// Threads that no listing shows have served their purpose after a day, whatever the operator keeps.
async fn delete_unlisted_threads_hourly(gateway: &Gateway) {
    loop {
        let since = gateway.attachments.clock.now().saturating_sub(DAY_MS);
        if let Err(error) = delete_idle_threads(gateway, since, Some(ThreadId::from(UNLISTED_THREAD_PREFIX))).await {
            tracing::warn!(reason = error.detail, "unlisted threads were not deleted; the next sweep continues");
        }
        tokio::time::sleep(HOUR).await;
    }
}

async fn sweep(gateway: &Gateway, policy: RetentionPolicy, uptime: Duration) -> Result<SweepCounts, Rejection> {
    let directory = &gateway.attachments.directory;
    let now = gateway.attachments.clock.now();
    let counted = match directory.retention_time().await? {
        Some(at) => at,
        None => directory.newest_activity().await?.unwrap_or(now),
    };
    let time = next_retention_time(counted, now, uptime);
    if time < now {
        let days_behind = (now - time) / DAY_MS;
        tracing::warn!(
            days_behind,
            "retention: the clock is far ahead of the last sweep; age is counted a day per hour"
        );
    }
    // The time is nobody's; every user but the viewer of a share may write.
    directory.writer(&UserId::from("retention"))?.set_retention_time(time).await?;
    let mut counts = SweepCounts::default();
    let unlisted = Some(ThreadId::from(UNLISTED_THREAD_PREFIX));
    counts.threads = delete_idle_threads(gateway, days_before(time, 1), unlisted).await?;
    if let Some(days) = policy.thread_days {
        counts.threads += delete_idle_threads(gateway, days_before(time, days), None).await?;
    }
    if let Some(days) = policy.unused_file_days {
        counts.files = release_unused_files(gateway, days_before(time, days)).await?;
    }
    if counts != SweepCounts::default() {
        gateway.attachments.delete_released_soon().await;
    }
    metrics::counter!("headwater_retention_threads_total").increment(counts.threads);
    metrics::counter!("headwater_retention_files_total").increment(counts.files);
    Ok(counts)
}

/// Up to when age is counted. The first sweep of a process believes no long difference, so that a server that is restarted
/// again and again does not count faster.
const fn next_retention_time(counted: Millis, now: Millis, uptime: Duration) -> Millis {
    let a_day_later = counted.saturating_add(DAY_MS);
    if now <= a_day_later {
        now
    } else if uptime.is_zero() {
        counted
    } else {
        a_day_later
    }
}

fn days_before(time: Millis, days: u32) -> Millis {
    time.saturating_sub(u64::from(days).saturating_mul(DAY_MS))
}

/// Deletes idle threads whose ids sort after `after`.
async fn delete_idle_threads(gateway: &Gateway, since: Millis, mut after: Option<ThreadId>) -> Result<u64, Rejection> {
    let mut deleted = 0;
    loop {
        let idle = gateway.attachments.directory.idle_threads(since, after.as_ref(), PAGE_SIZE).await?;
        let Some((_, last)) = idle.last().cloned() else { return Ok(deleted) };
        for (owner, thread) in idle {
            let gateway = gateway.clone();
            let delete = async move {
                let is_deleted = gateway.engine.delete_idle_thread(&owner, &thread, since).await?;
                if is_deleted {
                    gateway.shares.forget_thread(&thread);
                }
                Ok::<bool, StoreError>(is_deleted)
            };
            deleted += u64::from(run_to_completion(delete).await?);
        }
        after = Some(last);
    }
}

async fn release_unused_files(gateway: &Gateway, since: Millis) -> Result<u64, Rejection> {
    let directory = &gateway.attachments.directory;
    let (mut released, mut after) = (0, None);
    loop {
        let unused = directory.unused_files(since, after.as_ref(), PAGE_SIZE).await?;
        let Some(last) = unused.last().cloned() else { return Ok(released) };
        for (owner, path) in unused {
            released += u64::from(directory.writer(&owner)?.release_unused_file(&owner, &path, since).await?);
        }
        after = Some(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = 20_000 * DAY_MS;
    const HOURLY: Duration = HOUR;

    #[test]
    fn a_jump_of_the_clock_is_believed_a_day_per_hour() {
        // Sweeps of a server that runs, that was restarted, and that stood still overnight.
        for later in [0, 3_600_000, 20 * 3_600_000, DAY_MS] {
            assert_eq!(next_retention_time(NOW, NOW + later, HOURLY), NOW + later);
            assert_eq!(next_retention_time(NOW, NOW + later, Duration::ZERO), NOW + later);
        }
        // A year, at a start: nothing is older than it was, however often the server is restarted.
        let wrong = NOW + 365 * DAY_MS;
        assert_eq!(next_retention_time(NOW, wrong, Duration::ZERO), NOW);
        // It runs on: a day per sweep, until it has caught up.
        let mut time = NOW;
        for sweeps in 1..=365 {
            time = next_retention_time(time, wrong, HOURLY);
            assert_eq!(time, NOW + sweeps * DAY_MS);
        }
        assert_eq!(next_retention_time(time, wrong + 5, HOURLY), wrong + 5);
        // The clock was set right again: nothing that is deleted now is younger than its time.
        assert_eq!(next_retention_time(wrong, NOW, Duration::ZERO), NOW);
    }
}
