//! The implementations of [`model::ports::ToolRunner`] and [`model::ports::HookRunner`].
//!
//! - [`Toolbox`] dispatches a call to the executor of its tool; the engine gets it as a trait object.
//! - [`builtin`] holds the tools that need nothing but their name in the configuration; `demo` holds those that exist for
//!   the demo and for tests.
//! - `http` sends a request, `command` runs a program. Both are a `byte_source`; `output_parser` splits its bytes into
//!   events and a result, `output` reads the result, and `secrets` resolves what the configuration only names.
//! - `hook` calls the input hooks, over the same two transports.
//! - `duplex_process` is a program that stays, and `endpoint` a URL that is asked many times: MCP servers.
//! - `process` runs a program and ends it; `process_mark` ends those whose server died.
//! - `context` is what all of them need of the server; `shortage` says when a start is tried again.
//!
//! Invariant: polling its stream starts a tool and dropping the stream stops it. A tool knows nothing of references,
//! records or runs; the run loop numbers its output.
//! Invariant: every read is bounded, and no error contains the value of a secret.

mod arguments;
pub mod builtin;
mod byte_source;
mod command;
mod context;
mod demo;
mod duplex_process;
mod endpoint;
mod hook;
mod http;
mod new_builtin;
mod output;
mod output_parser;
mod pieces;
mod process;
mod process_mark;
mod question_line;
mod secrets;
mod shortage;
mod toolbox;
mod truncate;
mod url_template;

pub use duplex_process::{DuplexProcess, ProcessInput};
pub use endpoint::{EndpointMethod, EndpointRequest, EndpointResponse, HttpEndpoint};
pub use process_mark::{ProcessMark, ProgramOwner};
pub use secrets::EnvLookup;
pub use toolbox::{Toolbox, ToolboxError};
