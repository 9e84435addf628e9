//! What a run can have done: the implementations of [`model::ports::Tools`] and [`model::ports::Hooks`].
//!
//! - [`Toolbox`] finds out who does it, and is what the engine is given.
//! - [`builtin`] are tools that come with the server and need no more than their name in the config.
//! - `http` asks somebody behind an address, `command` runs a program. Both are a `source` of bytes;
//!   `lines` finds events in these, `output` reads the result, and `secret` puts in what the config only names.
//! - `hook` asks those who may rewrite what is said.
//!
//! Invariant: a tool is started by polling its stream and stopped by dropping it. It answers in its own words and knows
//! nothing of references, records or runs; numbering what it gave is the run loop's business.
//! Invariant: nothing is read without a bound, and no secret's value is in an error.

mod arguments;
pub mod builtin;
mod byte_source;
mod command;
mod hook;
mod http;
mod output;
mod output_parser;
mod process;
mod secrets;
mod toolbox;
mod truncate;
mod url_template;

pub use secrets::EnvLookup;
pub use toolbox::{Toolbox, ToolboxError};
