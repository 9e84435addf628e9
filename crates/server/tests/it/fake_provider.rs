//! Fake model providers on loopback: one strict, and many broken ones.
//!
//! `loopback` implements just enough HTTP to send anything, including invalid responses. `dialect` has the events of
//! the three provider protocols. `recording_upstream` keeps what it is asked. `strict_responses` is a Responses service
//! with the checks of the real one.

pub(crate) mod dialect;
pub(crate) mod loopback;
pub(crate) mod recording_upstream;
pub(crate) mod strict_responses;
