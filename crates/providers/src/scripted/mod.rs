//! A provider that plays a scenario file. `docs/scenarios.md` is the format.
//!
//! ```text
//!   file ──read──▶ Scenarios          once, at start: everything that can be refused is refused here
//!   request ──cast──▶ turn, values    which scenario of the model, which turn, what its placeholders stand for
//!   turn ──play──▶ ModelEvents        lazily, one per poll, each at its time
//! ```
//!
//! Invariant: the same request gives the same events (`{clock_us}` alone tells the time). Nothing is kept between
//! turns: which turn is played is read from the request's history, so a retry or a recovery plays the same one again.

mod error;
mod limits;
mod parse;
mod player;
mod scenario;
mod select;
mod template;
mod toml_fields;

pub use error::{ScenarioError, ScenarioFault, ScenarioPosition};
pub use limits::*;
pub use scenario::Scenarios;

use crate::failed_turn::failed_turn;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use std::fmt;
use std::sync::Arc;

/// Tells the microseconds since 1970, for `{clock_us}`.
pub type ClockUs = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Plays scenarios. What the second half of `provider/model` means, the file decides.
#[derive(Clone)]
pub struct ScriptedProvider {
    scenarios: Arc<Scenarios>,
    clock: ClockUs,
}

impl ScriptedProvider {
    /// Plays these.
    #[must_use]
    pub fn new(scenarios: Scenarios, clock: ClockUs) -> Self {
        Self { scenarios: Arc::new(scenarios), clock }
    }
}

impl ModelClient for ScriptedProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        match select::select_turn(&self.scenarios, &request) {
            Ok(cast) => Box::pin(player::ScriptedStream::new(cast, Arc::clone(&self.clock))),
            Err(error) => failed_turn(error.code(), error.to_string()),
        }
    }
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("scenarios", &self.scenarios).finish_non_exhaustive()
    }
}
