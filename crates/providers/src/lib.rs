//! Whom a run can ask: the implementations of [`model::ports::Models`].
//!
//! - [`Router`] reads the first half of `provider/model` and hands the turn to the provider of that name.
//! - [`scripted`] plays a scenario file: the demo, tests and load, without a key and without a network.
//! - [`upstream`] asks a service behind an address, in one of three dialects.
//! - [`cassette`] keeps what services answered, and plays it again.
//!
//! Invariant: a provider turns what it hears into [`model::delta::ModelEvent`]s and does nothing else. It keeps no
//! state between turns but for what a service refused to take back, which it can forget; it starts no task of its own,
//! and knows neither the log nor the tools.

pub mod cassette;
mod failed_turn;
pub mod http;
mod router;
pub mod scripted;

pub use router::ProviderRouter;
