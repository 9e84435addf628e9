//! The wire, seen from both ends: how records become what a client reads, and how what a provider sends is read.
//!
//! One room per dialect ([`task`] is the native one). Below them the one codec of event streams, [`sse`], and what every
//! projection of runs stands on: [`reading`] writes short events out in full, [`burst`] gives each frame its place, and
//! [`said`] is what a client says, whichever words it uses.
//! Everything here is pure: bytes and values go in, bytes and values come out. No tokio, no sockets, no clocks.

pub mod agent_runs;
pub mod blocks;
pub mod burst;
pub mod chat;
pub mod messages;
pub mod reading;
pub mod responses;
pub mod run_items;
pub mod said;
pub mod sse;
pub mod stateless;
pub mod task;
pub mod upstream;
