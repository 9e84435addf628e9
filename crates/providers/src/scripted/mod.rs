//! A provider that plays a scenario file. `docs/scenarios.md` documents the format.
//!
//! ```text
//!   file ──parse──▶ Scenarios            once, at start: every mistake is refused here
//!   request ──select──▶ turn, values     the scenario, its turn, and the values of its placeholders
//!   turn ──player──▶ ModelEvents         lazily, one per poll, each at its time
//! ```
//!
//! Invariant: the same request gives the same events (only `{clock_us}` depends on the time). There is no state between
//! turns: the request's history determines the turn, so a retry or a recovery plays the same one again.

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
pub use template::ClockUs;

use crate::failed_turn::failed_turn;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, ModelClient};
use std::fmt;
use std::sync::Arc;

/// Plays scenarios. The file decides what the second half of `provider/model` means.
#[derive(Clone)]
pub struct ScriptedProvider {
    scenarios: Arc<Scenarios>,
    clock: ClockUs,
}

impl ScriptedProvider {
    /// `clock` gives the value of `{clock_us}`.
    pub fn new(scenarios: Scenarios, clock: ClockUs) -> Self {
        Self { scenarios: Arc::new(scenarios), clock }
    }
}

impl ModelClient for ScriptedProvider {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        match select::select_turn(&self.scenarios, &request) {
            Ok(selected) => Box::pin(player::ScriptedStream::new(selected, Arc::clone(&self.clock))),
            Err(error) => failed_turn(error.code(), error.to_string()),
        }
    }
}

impl fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedProvider").field("scenarios", &self.scenarios).finish_non_exhaustive()
    }
}
