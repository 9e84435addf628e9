//! Model providers of our own making, on the loopback: one that is strict, and many that are broken.
//!
//! `loopback` speaks just enough HTTP to say anything at all, also what no decent server would. `dialect` has the words
//! of the three protocols that providers speak. `strict` is a Responses service that enforces what the real one does.

pub(crate) mod dialect;
pub(crate) mod loopback;
pub(crate) mod strict_responses;
