//! The client of the subcommands that talk to a running server: `headwater tail` and `headwater chat`.
//!
//! - `api_client` sends requests, `backoff` waits for a server that is away.
//! - `follower` reads the events of one task over as many connections as necessary.
//! - `render` formats events for a terminal.
//!
//! Invariant: it knows the server from outside, by its routes and frames. It reads no terminal and no configuration.

mod api_client;
mod backoff;
mod follower;
mod render;

pub use api_client::{ApiClient, ApiClientError};
pub use backoff::Backoff;
pub use follower::{TailEvent, TaskFollower};
pub use render::{Palette, Renderer, ResultText, escape_control, last_message_text, raw_line};
