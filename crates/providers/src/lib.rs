//! The implementations of [`model::ports::ModelClient`].
//!
//! - [`ProviderRouter`] dispatches a turn by the first half of `provider/model`.
//! - [`http`] calls a service over HTTP, in one of three dialects (`dialect`).
//! - [`scripted`] plays a scenario file: the demo, tests and load, without an API key and without a network.
//! - [`cassette`] records the responses of services and replays them.
//!
//! Invariant: a provider turns a response into [`model::model_turn::ModelEvent`]s and does nothing else. Between turns it
//! keeps no state but a cache of what a service refused; it spawns no tasks, and knows neither the log nor the tools.

pub mod cassette;
mod dialect;
mod failed_turn;
pub mod http;
mod router;
pub mod scripted;
mod user_text;

pub use router::ProviderRouter;
