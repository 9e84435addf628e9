//! The traits between the crates. Each trait documents its law; every implementation runs the law's test suite.
//!
//! The traits live here rather than next to their implementations so that sibling crates never depend on each other:
//! `engine` knows a [`Journal`], not a database.

mod accounts;
mod aliases;
mod archive;
mod attachments;
mod cluster;
mod definitions;
mod directory;
mod executors;
mod inbox;
mod journal;
mod mcp_pins;
mod projection;
mod questions;
mod recovery;
mod retention;
mod shares;
mod space;
mod threads;
mod user_secrets;
pub mod validation;

pub use accounts::*;
pub use aliases::*;
pub use archive::*;
pub use attachments::*;
pub use cluster::*;
pub use definitions::*;
pub use directory::*;
pub use executors::*;
pub use inbox::*;
pub use journal::*;
pub use mcp_pins::*;
pub use projection::*;
pub use questions::*;
pub use recovery::*;
pub use retention::*;
pub use shares::*;
pub use space::*;
pub use threads::*;
pub use user_secrets::*;

use std::future::Future;
use std::pin::Pin;

/// A boxed future, for methods of trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of a store operation.
pub type StoreResult<T> = Result<T, StoreError>;

/// A boxed stream.
pub type BoxStream<'a, T> = Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;
