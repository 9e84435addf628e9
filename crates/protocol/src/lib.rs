//! The protocols that clients speak: how records become frames, and what a client's request asks for.
//!
//! One module per dialect ([`task`] is the native one). Below them what every projection of runs stands on: [`reading`]
//! expands short events, [`burst`] numbers the frames of a record, and [`said`] is a client's input in one form for all
//! dialects. Everything here is pure: no tokio, no sockets, no clock. How event streams are encoded is the crate `sse`; how
//! we talk to models is the crate `upstream`.

pub mod agent_runs;
pub mod blocks;
pub mod chat;
pub mod client_input;
pub mod messages;
pub mod record_frames;
pub mod responses;
pub mod run_items;
pub mod run_reader;
pub mod stateless;
pub mod task;
