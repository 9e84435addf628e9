//! What a run can have done: the implementations of [`model::ports::Tools`].
//!
//! - [`builtin`] are tools that come with the server and need no more than their name in the config.
//!
//! Invariant: a tool is started by polling its stream and stopped by dropping it. It answers in its own words and knows
//! nothing of references, records or runs; numbering what it gave is the run loop's business.

pub mod builtin;

pub use builtin::Builtin;
