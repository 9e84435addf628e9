//! What the upper floors offer each other. Each trait carries its law; the implementations carry the trait's suite.
//!
//! They live here, and not with their implementations, so that siblings never see each other: `engine` knows a
//! [`Journal`], not a database.

#![warn(missing_docs)]

mod attachments;
mod directory;
mod executors;
mod journal;
mod projection;
mod share;

pub use attachments::*;
pub use directory::*;
pub use executors::*;
pub use journal::*;
pub use projection::*;
pub use share::*;

use std::future::Future;
use std::pin::Pin;

/// A future on the heap: what a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A stream on the heap.
pub type BoxStream<'a, T> = Pin<Box<dyn futures_core::Stream<Item = T> + Send + 'a>>;
