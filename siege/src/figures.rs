//! The figures of one attack, and how they compare with the bounds.

use crate::bounds::{BoundVerdict, Bounds, FIRST_TOKEN_MAX, READY_MAX, compare_memory, compare_time, median_of};
use crate::probe::ProbeFigures;
use crate::server_process::ServerUsage;
use std::time::Duration;

/// Problems that are printed of one attack.
const PROBLEMS_SHOWN_MAX: usize = 6;

/// What was measured under an attack.
#[derive(Debug)]
pub(crate) struct AttackFigures {
    pub(crate) probe: ProbeFigures,
    /// The median of the first tokens right before the attack.
    pub(crate) idle_median: Duration,
    pub(crate) usage: ServerUsage,
    /// The slowest start.
    pub(crate) ready: Duration,
    /// The slowest end after SIGTERM.
    pub(crate) stop: Duration,
    pub(crate) problems: Vec<String>,
    /// What the attacker was answered.
    pub(crate) answers: String,
    pub(crate) has_median_bound: bool,
}

impl AttackFigures {
    pub(crate) fn median(&self) -> Option<Duration> {
        median_of(&self.probe.first_tokens)
    }

    pub(crate) fn worst(&self) -> Option<Duration> {
        self.probe.first_tokens.iter().max().copied()
    }

    /// Whether nothing was lost or refused, and memory kept its bound.
    fn is_whole(&self) -> bool {
        self.probe.failures == 0
            && self.problems.is_empty()
            && compare_memory(self.usage.memory_peak_mib) == BoundVerdict::Kept
    }

    fn is_far_beyond(&self, bounds: &Bounds) -> bool {
        self.missed(bounds).1 == BoundVerdict::Broken
    }

    /// The values that missed their bounds, and whether one of them is broken.
    fn missed(&self, bounds: &Bounds) -> (Vec<&'static str>, BoundVerdict) {
        let time =
            |value: Option<Duration>, bound| value.map_or(BoundVerdict::Broken, |value| compare_time(value, bound));
        let median_max = bounds.median_max_after(self.idle_median);
        let verdicts = [
            ("median", if self.has_median_bound { time(self.median(), median_max) } else { BoundVerdict::Kept }),
            ("worst", time(self.worst(), FIRST_TOKEN_MAX)),
            ("memory", compare_memory(self.usage.memory_peak_mib)),
            ("ready", compare_time(self.ready, READY_MAX)),
            ("SIGTERM", compare_time(self.stop, bounds.stop_max)),
        ];
        let missed = verdicts.iter().filter(|(_, verdict)| *verdict != BoundVerdict::Kept).map(|(name, _)| *name);
        let worst = verdicts.iter().map(|(_, verdict)| *verdict).max();
        (missed.collect(), worst.unwrap_or(BoundVerdict::Kept))
    }
}

/// How an attack went.
#[derive(Debug)]
pub(crate) enum AttackResult {
    Ran(Box<AttackFigures>),
    /// It could not be carried through.
    Failed(String),
    /// The machine lacks something.
    NotRun(String),
}

#[derive(Debug)]
pub(crate) struct AttackRow {
    pub(crate) name: &'static str,
    pub(crate) description: String,
    pub(crate) result: AttackResult,
}

impl AttackRow {
    /// Whether a time alone is far beyond its bound: nothing failed, and the machine may have been busy.
    pub(crate) fn is_only_slow(&self, bounds: &Bounds) -> bool {
        matches!(&self.result, AttackResult::Ran(figures) if figures.is_whole() && figures.is_far_beyond(bounds))
    }

    /// Whether the siege fails: something was lost or refused, or a value is far beyond its bound.
    pub(crate) fn is_broken(&self, bounds: &Bounds) -> bool {
        match &self.result {
            AttackResult::NotRun(_) => false,
            AttackResult::Failed(_) => true,
            AttackResult::Ran(figures) => !figures.is_whole() || figures.is_far_beyond(bounds),
        }
    }

    /// `kept`, or what was not.
    pub(crate) fn verdict(&self, bounds: &Bounds) -> String {
        let figures = match &self.result {
            AttackResult::NotRun(why) => return format!("not run: {why}"),
            AttackResult::Failed(why) => return format!("**broken**: {}", why.lines().next().unwrap_or_default()),
            AttackResult::Ran(figures) => figures,
        };
        let (missed, _) = figures.missed(bounds);
        match (self.is_broken(bounds), missed.is_empty()) {
            (false, true) => "kept".to_owned(),
            (false, false) => format!("**missed**: {}", missed.join(", ")),
            (true, _) => {
                let failures = (figures.probe.failures > 0).then(|| format!("{} failures", figures.probe.failures));
                let problems = (!figures.problems.is_empty()).then(|| format!("{} problems", figures.problems.len()));
                let all = failures.into_iter().chain(problems).chain(missed.iter().map(|name| (*name).to_owned()));
                format!("**broken**: {}", all.collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// A few lines for the terminal.
    pub(crate) fn describe(&self, bounds: &Bounds) -> String {
        if let AttackResult::NotRun(why) = &self.result {
            return format!("SKIPPED siege {}: {why}", self.name);
        }
        let mut text = format!("{:<26}{}", self.name, self.verdict(bounds).replace("**", ""));
        match &self.result {
            AttackResult::NotRun(_) => {}
            AttackResult::Failed(why) => text.push_str(&format!("\n    {}", why.replace('\n', "\n    "))),
            AttackResult::Ran(figures) => {
                text.push_str(&format!("\n    {}", describe_figures(figures)));
                let problems = figures.probe.messages.iter().chain(&figures.problems).take(PROBLEMS_SHOWN_MAX);
                problems.for_each(|problem| text.push_str(&format!("\n    {}", problem.replace('\n', "\n    "))));
            }
        }
        text
    }
}

fn describe_figures(figures: &AttackFigures) -> String {
    let answers = if figures.answers.is_empty() { String::new() } else { format!("; attacker: {}", figures.answers) };
    format!(
        "first token {} of {} (worst {}), {} rounds, slowest step {}, {} MiB, CPU {}, ready {}, SIGTERM {}{answers}",
        format_time(figures.median()),
        figures.probe.first_tokens.len(),
        format_time(figures.worst()),
        figures.probe.rounds,
        format_time(Some(figures.probe.slowest_step)),
        figures.usage.memory_peak_mib,
        format_time(Some(figures.usage.cpu)),
        format_time(Some(figures.ready)),
        format_time(Some(figures.stop)),
    )
}

/// Milliseconds, or seconds from ten on.
pub(crate) fn format_time(time: Option<Duration>) -> String {
    match time {
        None => "–".to_owned(),
        Some(time) if time >= Duration::from_secs(10) => format!("{:.1} s", time.as_secs_f64()),
        Some(time) if time >= Duration::from_millis(10) => format!("{:.0} ms", time.as_secs_f64() * 1000.0),
        Some(time) => format!("{:.1} ms", time.as_secs_f64() * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(worst_ms: u64, failures: usize) -> AttackRow {
        let first_tokens = vec![Duration::from_millis(5), Duration::from_millis(6), Duration::from_millis(worst_ms)];
        let probe = ProbeFigures { first_tokens, failures, ..ProbeFigures::default() };
        let figures = AttackFigures {
            probe,
            idle_median: Duration::from_millis(5),
            usage: ServerUsage::default(),
            ready: Duration::from_millis(100),
            stop: Duration::from_millis(100),
            problems: Vec::new(),
            answers: String::new(),
            has_median_bound: true,
        };
        AttackRow { name: "x", description: String::new(), result: AttackResult::Ran(Box::new(figures)) }
    }

    #[test]
    fn a_failure_breaks_and_a_slow_token_alone_is_only_missed() {
        let bounds = Bounds::new(Duration::from_millis(5), Duration::from_secs(1));
        let verdicts = [row(900, 0), row(1_100, 0), row(900, 1), row(5_100, 0)].map(|row| row.verdict(&bounds));
        assert_eq!(verdicts, ["kept", "**missed**: worst", "**broken**: 1 failures", "**broken**: worst"]);
        assert!(!row(1_100, 0).is_broken(&bounds) && row(5_100, 0).is_broken(&bounds));
        let is_slow = [row(1_100, 0), row(5_100, 0), row(5_100, 1)].map(|row| row.is_only_slow(&bounds));
        assert_eq!(is_slow, [false, true, false]);
    }
}
