//! When the next commit may begin.
//!
//! Each commit costs a sync of the disk and wake-ups of many tasks, however little it holds. A server with little to do
//! commits at once; one whose commits follow each other without a pause spaces them, and each holds more; one whose commits
//! hold the events of several runs spaces them further, unless they are many: they share the fixed cost. After a commit with
//! many records the next one does not wait: the fixed cost is small compared to that of the records. So the groups grow with
//! the load, and nobody has to choose between latency and throughput. What a caller waits for (a command, the start or the end
//! of a run) is committed sooner than deltas.

use std::time::{Duration, Instant};

/// Number of commits in a row that do not wait: the commands, events and first deltas of a few clients who just came.
const BURST_COMMITS: u32 = 8;

/// From this number of tasks in a commit on, the next one is twice `spacing` later…
const TASKS_FOR_DOUBLE_SPACING: usize = 2;
/// …and from this one on it is not.
const TASKS_FOR_SIMPLE_SPACING: usize = 32;
/// No spacing after a commit with this many bytes of records: writing them takes several times as long as the sync.
const RECORD_BYTES_FOR_NO_SPACING: u64 = 64 * 1024;

/// Allows one commit per `spacing` in the long run, fewer when they hold several tasks, and [`BURST_COMMITS`] more at once
/// after a pause.
pub(crate) struct CommitPacer {
    spacing: Duration,
    /// When a commit would be due if all that were done had been as far apart as their size demands.
    due: Option<Instant>,
    /// The same without regard to their size.
    urgent_due: Option<Instant>,
}

impl CommitPacer {
    pub(crate) const fn new(spacing: Duration) -> Self {
        Self { spacing, due: None, urgent_due: None }
    }

    /// How long the next commit has to wait.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        self.delay_until(self.due, now)
    }

    /// How long it has to wait if somebody waits for it.
    pub(crate) fn urgent_delay(&self, now: Instant) -> Duration {
        self.delay_until(self.urgent_due, now)
    }

    fn delay_until(&self, due: Option<Instant>, now: Instant) -> Duration {
        let ahead = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        ahead.saturating_sub(self.spacing.saturating_mul(BURST_COMMITS))
    }

    pub(crate) fn on_commit(&mut self, now: Instant, tasks: usize, record_bytes: u64) {
        let factor = match tasks {
            _ if record_bytes >= RECORD_BYTES_FOR_NO_SPACING => 0,
            TASKS_FOR_DOUBLE_SPACING..TASKS_FOR_SIMPLE_SPACING => 2,
            _ => 1,
        };
        self.due = self.next_due(self.due, now, factor);
        self.urgent_due = self.next_due(self.urgent_due, now, factor.min(1));
    }

    /// Urgent commits are early. They do not make the next one wait longer than any other.
    fn next_due(&self, due: Option<Instant>, now: Instant, factor: u32) -> Option<Instant> {
        let latest = now.checked_add(self.spacing.saturating_mul(BURST_COMMITS))?;
        due.map_or(now, |due| due.clamp(now, latest)).checked_add(self.spacing.saturating_mul(factor))
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
            pacer.on_commit(now, 1, 0);
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
            pacer.on_commit(now, 1, 0);
        }
    }

    #[test]
    fn commits_of_a_few_runs_are_further_apart() {
        for (tasks, factor) in [(1, 1), (2, 2), (31, 2), (32, 1), (1_000, 1)] {
            let mut now = Instant::now();
            let mut pacer = CommitPacer::new(SPACING);
            let mut last = Duration::ZERO;
            for _ in 0..BURST_COMMITS + 4 {
                last = pacer.delay(now);
                now += last;
                pacer.on_commit(now, tasks, 0);
            }
            assert_eq!(last, SPACING * factor, "{tasks} tasks");
        }
    }

    #[test]
    fn nothing_waits_for_company_when_there_is_much() {
        let now = Instant::now();
        let mut pacer = CommitPacer::new(SPACING);
        for _ in 0..100 {
            pacer.on_commit(now, 100, RECORD_BYTES_FOR_NO_SPACING);
            assert_eq!((pacer.delay(now), pacer.urgent_delay(now)), (Duration::ZERO, Duration::ZERO));
        }
    }

    #[test]
    fn what_a_caller_waits_for_is_committed_sooner() {
        let mut now = Instant::now();
        let mut pacer = CommitPacer::new(SPACING);
        for _ in 0..100 {
            now += pacer.delay(now);
            pacer.on_commit(now, 10, 0);
        }
        assert_eq!(pacer.delay(now), SPACING * 2);
        assert_eq!(pacer.urgent_delay(now), Duration::ZERO, "slower commits have earned a burst");
        let mut delays = Vec::new();
        for _ in 0..BURST_COMMITS + 4 {
            let delay = pacer.urgent_delay(now);
            now += delay;
            pacer.on_commit(now, 10, 0);
            delays.push(delay);
        }
        assert_eq!(delays.last(), Some(&SPACING), "one commit per spacing in the long run");
        assert_eq!(pacer.delay(now), SPACING * 2, "early commits are no debt");
    }

    #[test]
    fn without_spacing_nothing_waits() {
        let now = Instant::now();
        let mut pacer = CommitPacer::new(Duration::ZERO);
        for _ in 0..100 {
            pacer.on_commit(now, 100, 0);
            assert_eq!(pacer.delay(now), Duration::ZERO);
        }
    }
}
