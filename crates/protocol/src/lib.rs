//! The wire, seen from both ends: how records become what a client reads, and how what a provider sends is read.
//!
//! One room per dialect ([`task`] is the native one), and below them the one codec of event streams, [`sse`].
//! Everything here is pure: bytes and values go in, bytes and values come out. No tokio, no sockets, no clocks.

pub mod chat;
pub mod messages;
pub mod responses;
pub mod sse;
pub mod task;
pub mod upstream;
