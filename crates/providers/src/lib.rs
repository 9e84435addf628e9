//! Whom a run can ask: the implementations of [`model::ports::Models`].
//!
//! - [`Router`] reads the first half of `provider/model` and hands the turn to the provider of that name.
//! - [`scripted`] plays a scenario file: the demo, tests and load, without a key and without a network.
//!
//! Invariant: a provider turns what it hears into [`model::delta::ModelEvent`]s and does nothing else. It keeps no
//! state between turns, starts no task of its own, and knows neither the log nor the tools.

mod failure;
mod router;
pub mod scripted;

pub use router::Router;
