//! Random logs for the tests of every floor: valid by construction, with every event type, private halves included.
//!
//! [`thread_log`] gives the same log for the same seed, on every machine. Records come in the order in which a run loop
//! would write them: steps and their tools, sub-agents that interleave, approvals, pauses, cancels, crashes, every end.
//! Nothing here looks at [`model::fold`]: a test may hold the one against the other.
//! `run` has the outside world and whose turn it is, `task`, `call` and `files` one task, `item` one item, `plan` and
//! `text` what is said, `request` what a caller brings, `world` what they share. [`laws`] checks any log, generated or not,
//! and [`sums`] is what it counts with.

mod call;
mod input_files;
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

/// How large a log becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// At most so many runs, and at least one.
    pub runs_max: u32,
    /// A task wants at most so many turns.
    pub steps_max: u32,
    /// Sub-agents of sub-agents, so deep; 0 is none at all.
    pub depth_max: u32,
    /// Sub-agents of one run.
    pub children_max: u32,
    /// How many texts in a hundred are too long for a `done` to repeat.
    pub long_text_percent: u32,
    /// A run that has not ended after so many moves is cancelled.
    pub moves_max: u32,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { runs_max: 4, steps_max: 4, depth_max: 3, children_max: 4, long_text_percent: 1, moves_max: 3000 }
    }
}

impl LogOptions {
    /// For tests whose time grows with the square of the log.
    #[must_use]
    pub const fn small() -> Self {
        Self { runs_max: 2, steps_max: 2, depth_max: 2, children_max: 2, long_text_percent: 0, moves_max: 500 }
    }
}

/// Gives one log after the other.
#[derive(Clone, Debug)]
pub struct LogGenerator {
    rng: Rng,
    options: LogOptions,
}

impl LogGenerator {
    /// Begins with a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), options: LogOptions::default() }
    }

    /// The same, with logs of another size.
    #[must_use]
    pub const fn with_options(mut self, options: LogOptions) -> Self {
        self.options = options;
        self
    }

    /// The next thread, and all its records.
    pub fn next_thread_log(&mut self) -> (ThreadId, Vec<Record>) {
        let mut world = LogBuilder::new(Rng::new(self.rng.next_u64()), self.options);
        let mut runs: Vec<TaskId> = Vec::new();
        for _ in 0..world.rng.between(1, self.options.runs_max.max(1)) {
            if !runs.is_empty() {
                write_between_runs(&mut world, &runs);
            }
            let again = world.rng.chance(10);
            let previous = world.rng.pick(&runs).filter(|_| again).cloned();
            run::write_run(&mut world, previous);
            runs.push(world.run.clone());
        }
        (world.thread, world.records)
    }
}

/// What may happen to a thread while nothing runs. Such a record stands behind the run before it and bears its name.
fn write_between_runs(world: &mut LogBuilder, runs: &[TaskId]) {
    world.advance_clock();
    if world.rng.chance(30) {
        world.next_epoch();
    }
    if world.rng.chance(25) {
        let head = u64::try_from(world.records.len()).unwrap_or_default();
        let summary = text::random_text(&mut world.rng, 0, 12);
        let mut details = JsonObject::new();
        if world.rng.chance(50) {
            details.insert("ratio".to_owned(), world.random_fraction().into());
        }
        world.emit(Event::HistoryCompacted(HistoryCompacted { up_to: Seq(head), summary, details }));
    }
    if world.rng.chance(20)
        && let Some(run_id) = world.rng.pick(runs).cloned()
    {
        world.emit(Event::RunHidden(RunHidden { run_id }));
    }
}

/// The log of one thread. The same seed and options give the same bytes.
#[must_use]
pub fn generate_thread_log(seed: u64, options: LogOptions) -> (ThreadId, Vec<Record>) {
    LogGenerator::new(seed).with_options(options).next_thread_log()
}

/// The seeds to try: the one that `SEED` names, or [`DEFAULT_SEEDS`], or with `HEADWATER_TEST_FULL` many more, half of
/// them new ones. A test says in its message which one failed.
pub fn test_seeds() -> impl Iterator<Item = u64> {
    let given = env_var("SEED").and_then(|seed| seed.parse::<u64>().ok());
    let full = env_var("HEADWATER_TEST_FULL").is_some();
    let count = |of: u64| if given.is_some() { 0 } else { of };
    let fixed = DEFAULT_SEEDS.end.saturating_mul(if full { 4 } else { 1 });
    let fresh = RandomState::new();
    let new = (0..count(if full { fixed } else { 0 })).map(move |n| fresh.hash_one(n));
    given.into_iter().chain(0..count(fixed)).chain(new)
}

#[expect(clippy::disallowed_methods, reason = "how hard tests try, which is not a setting of the server")]
fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
