//! When the next commit may begin.
//!
//! Each commit costs a sync of the disk and wake-ups of many tasks, however little it holds. A server with little to do
//! commits at once; one whose commits follow each other without a pause spaces them, and each holds more; one whose commits
//! are large spaces them further. So the groups grow with the load, and nobody has to choose between latency and throughput.

use std::time::{Duration, Instant};

/// Number of commits in a row that do not wait: the commands, events and first deltas of a few clients who just came.
const BURST_COMMITS: u32 = 8;

/// Number of tasks in a commit for each of which the next commit is another `spacing` later…
const TASKS_PER_SPACING: usize = 16;
/// …up to this multiple of it.
const SPACING_FACTOR_MAX: usize = 3;

/// Allows one commit per `spacing` in the long run, fewer when they are large, and [`BURST_COMMITS`] more at once after a
/// pause.
pub(crate) struct CommitPacer {
    spacing: Duration,
    /// When a commit would be due if all that were done had been as far apart as their size demands.
    due: Option<Instant>,
}

impl CommitPacer {
    pub(crate) const fn new(spacing: Duration) -> Self {
        Self { spacing, due: None }
    }

    /// How long the next commit has to wait.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let ahead = self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        ahead.saturating_sub(self.spacing.saturating_mul(BURST_COMMITS))
    }

    pub(crate) fn on_commit(&mut self, now: Instant, tasks: usize) {
        let due = self.due.map_or(now, |due| due.max(now));
        let factor = (1 + tasks / TASKS_PER_SPACING).min(SPACING_FACTOR_MAX);
        self.due = due.checked_add(self.spacing.saturating_mul(u32::try_from(factor).unwrap_or(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPACING: Duration = Duration::from_millis(2);

    #[test]
    fn a_few_commits_do_not_wait_and_many_are_spaced() {
        let mut now = Instant::now();
        let mut pacer = CommitPacer::new(SPACING);
        let mut delays = Vec::new();
        for _ in 0..BURST_COMMITS + 4 {
            let delay = pacer.delay(now);
            now += delay;
            pacer.on_commit(now, 1);
            delays.push(delay);
        }
        let burst = usize::try_from(BURST_COMMITS).unwrap();
        assert_eq!(delays[..burst], vec![Duration::ZERO; burst]);
        assert_eq!(delays[burst + 1..], [SPACING; 3]);
        // Slower commits earn the burst back.
        now += SPACING * BURST_COMMITS;
        assert_eq!(pacer.delay(now), Duration::ZERO);
        for _ in 0..100 {
            now += SPACING;
            assert_eq!(pacer.delay(now), Duration::ZERO);
            pacer.on_commit(now, 1);
        }
    }

    #[test]
    fn large_commits_are_further_apart() {
        for (tasks, factor) in [(1, 1), (15, 1), (16, 2), (31, 2), (32, 3), (1_000, 3)] {
            let mut now = Instant::now();
            let mut pacer = CommitPacer::new(SPACING);
            let mut last = Duration::ZERO;
            for _ in 0..BURST_COMMITS + 4 {
                last = pacer.delay(now);
                now += last;
                pacer.on_commit(now, tasks);
            }
            assert_eq!(last, SPACING * factor, "{tasks} tasks");
        }
    }

    #[test]
    fn without_spacing_nothing_waits() {
        let now = Instant::now();
        let mut pacer = CommitPacer::new(Duration::ZERO);
        for _ in 0..100 {
            pacer.on_commit(now, 100);
            assert_eq!(pacer.delay(now), Duration::ZERO);
        }
    }
}
