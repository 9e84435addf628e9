//! Random logs for tests: valid by construction, with every event type and with private halves.
//!
//! [`generate_thread_log`] returns the same log for the same seed, on every machine. Records come in the order in which
//! a run loop would write them: steps and their tools, interleaved sub-agents, approvals, pauses, cancellations,
//! crashes, every outcome. Nothing here uses `model::fold`, so that tests can compare the two. `run` schedules tasks
//! and external events, `task` generates one task, `item_writer` one item, `turn_plan` and `text` their content,
//! `request` what a client sends; `log_builder` holds the log. [`invariants`] checks any log, generated or not, with
//! the help of [`json_fold`].

pub mod invariants;
mod item_writer;
pub mod json_fold;
mod log_builder;
mod request;
mod rng;
mod run;
mod task;
mod text;
mod turn_plan;

pub use rng::Rng;

use log_builder::LogBuilder;
use model::event::{Event, HistoryCompacted, RunHidden};
use model::id::{TaskId, ThreadId};
use model::json::JsonObject;
use model::record::Record;
use model::seq::Seq;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// The seeds that every test run tries. Between them, with default options, every event type occurs.
pub const DEFAULT_SEEDS: Range<u64> = 0..48;

/// The size of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    pub runs_max: u32,
    /// Turns per task.
    pub steps_max: u32,
    /// Nesting of sub-agents; 0 is none.
    pub depth_max: u32,
    /// Sub-agents per run.
    pub children_max: u32,
    /// Percentage of texts that are too long to be repeated in a `done` event.
    pub long_text_percent: u32,
    /// A run that has not ended after this many moves is cancelled.
    pub moves_max: u32,
    /// Whether providers ask for approval of their own tools. Logs of earlier versions have none of that.
    pub hosted_approvals: bool,
    /// Whether models search their tools. The same holds.
    pub tool_searches: bool,
    /// Whether tools show pieces of their results while they run. The same holds.
    pub streamed_results: bool,
    /// Whether tools ask people. The same holds.
    pub questions: bool,
    /// Whether requests carry ids of messages, context, and new ids when they resume a run. The same holds.
    pub client_requests: bool,
    /// Whether files and images may be blobs. A store wants to have those that a log names.
    pub blobs: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            runs_max: 4,
            steps_max: 4,
            depth_max: 3,
            children_max: 4,
            long_text_percent: 1,
            moves_max: 3000,
            hosted_approvals: true,
            tool_searches: true,
            streamed_results: true,
            questions: true,
            client_requests: true,
            blobs: true,
        }
    }
}

impl LogOptions {
    /// For tests whose time is quadratic in the length of the log.
    #[must_use]
    pub const fn small() -> Self {
        Self {
            runs_max: 2,
            steps_max: 2,
            depth_max: 2,
            children_max: 2,
            long_text_percent: 0,
            moves_max: 500,
            hosted_approvals: true,
            tool_searches: true,
            streamed_results: true,
            questions: true,
            client_requests: true,
            blobs: true,
        }
    }

    /// Logs that earlier versions could have written.
    #[must_use]
    pub const fn without_hosted_approvals(self) -> Self {
        Self {
            hosted_approvals: false,
            tool_searches: false,
            streamed_results: false,
            questions: false,
            client_requests: false,
            ..self
        }
    }
}

#[derive(Clone, Debug)]
pub struct LogGenerator {
    rng: Rng,
    options: LogOptions,
}

impl LogGenerator {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), options: LogOptions::default() }
    }

    #[must_use]
    pub const fn with_options(mut self, options: LogOptions) -> Self {
        self.options = options;
        self
    }

    pub fn next_thread_log(&mut self) -> (ThreadId, Vec<Record>) {
        let mut log = LogBuilder::new(Rng::new(self.rng.next_u64()), self.options);
        let mut runs: Vec<TaskId> = Vec::new();
        for _ in 0..log.rng.between(1, self.options.runs_max.max(1)) {
            if !runs.is_empty() {
                write_between_runs(&mut log, &runs);
            }
            let again = log.rng.chance(10);
            let previous = log.rng.pick(&runs).filter(|_| again).cloned();
            let previous = request::predecessor(&log, previous);
            run::write_run(&mut log, previous);
            runs.push(log.run.clone());
        }
        (log.thread, log.records)
    }
}

/// Events between runs. They carry the id of the run before them.
fn write_between_runs(log: &mut LogBuilder, runs: &[TaskId]) {
    log.advance_clock();
    if log.rng.chance(30) {
        log.next_epoch();
    }
    if log.rng.chance(25) {
        let head = u64::try_from(log.records.len()).unwrap_or_default();
        let summary = text::random_text(&mut log.rng, 0, 12);
        let mut details = JsonObject::new();
        if log.rng.chance(50) {
            details.insert("ratio".to_owned(), log.random_fraction().into());
        }
        log.emit(Event::HistoryCompacted(HistoryCompacted { up_to: Seq(head), summary, details }));
    }
    if log.rng.chance(20)
        && let Some(run_id) = log.rng.pick(runs).cloned()
    {
        log.emit(Event::RunHidden(RunHidden { run_id }));
    }
}

/// The log of one thread. The same seed and options give the same bytes.
#[must_use]
pub fn generate_thread_log(seed: u64, options: LogOptions) -> (ThreadId, Vec<Record>) {
    LogGenerator::new(seed).with_options(options).next_thread_log()
}

/// The seed in `SEED`, or [`DEFAULT_SEEDS`], or with `HEADWATER_TEST_FULL` many more, half of them fresh. Tests print
/// the seed that failed.
pub fn test_seeds() -> impl Iterator<Item = u64> {
    let chosen = env_var("SEED").and_then(|seed| seed.parse::<u64>().ok());
    let full = env_var("HEADWATER_TEST_FULL").is_some();
    let count = |of: u64| if chosen.is_some() { 0 } else { of };
    let fixed = DEFAULT_SEEDS.end.saturating_mul(if full { 4 } else { 1 });
    let fresh = RandomState::new();
    let new = (0..count(if full { fixed } else { 0 })).map(move |n| fresh.hash_one(n));
    chosen.into_iter().chain(0..count(fixed)).chain(new)
}

#[expect(clippy::disallowed_methods, reason = "how hard tests try, which is not a setting of the server")]
fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
