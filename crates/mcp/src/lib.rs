//! A client of MCP servers, which offer tools: programs, spoken to over their stdin and stdout, and URLs.
//!
//! - [`McpTools`] is the implementation of the ports: it runs calls of MCP tools itself and gives all others to the toolbox,
//!   and it completes the definitions of a run (`catalog`).
//! - `servers` is the pool of connections: who shares one, when it is started again, when it is closed.
//! - `start` starts a program and shakes hands in either generation of the protocol; `connection` is the result.
//! - `stdio_transport` carries messages, and lets through what is bounded and awaited: `line_buffer` cuts lines,
//!   `message_rate` counts, `message` sorts, `link` is what the transport and the calls share.
//! - `http_transport` does the same over HTTP: `http_client` is one exchange, `http_session` the headers and the statuses,
//!   `http_body` bounds what is read, `http_listener` hears of changed tools. `token_source` and `run_credentials` have what
//!   proves who asks; `param_headers` are headers that repeat parts of a request.
//! - `tool_list` reads what a server says about its tools; `call` is one call; `content` reads its result; `targets` are the
//!   tools that read resources and get prompts.
//!
//! Invariant: types of `rmcp` are in no public signature. The library has the types of the protocol, its handshakes and the
//! matching of responses; everything that a hostile server could use to exhaust this process is kept below it.
//! Invariant: a server never decides whether it is called, and what it says about its tools decides nothing but what the
//! model reads.

mod authorization_question;
mod authorize_tool;
mod call;
mod catalog;
mod client_config;
mod connection;
mod content;
mod elicitation;
mod http_body;
mod http_client;
mod http_listener;
mod http_session;
mod http_transport;
mod limits;
mod line_buffer;
mod link;
mod message;
mod message_rate;
mod oauth;
mod param_headers;
mod run_credentials;
mod runner;
mod servers;
mod start;
mod stdio_transport;
mod targets;
mod token_source;
mod tool_list;

pub use authorization_question::authorize_path;
pub use catalog::ToolDescription;
pub use limits::McpLimits;
pub use oauth::{
    AnswerSource, AuthorizationAnswer, AuthorizationError, AuthorizationParts, AuthorizationStart, ClientAddresses,
    FinishedAuthorization, McpAuthorizations, SealingKey, SecretLookup,
};
pub use runner::McpTools;
pub use token_source::{BearerToken, TokenRefusal, TokenSource, TokenUser};
