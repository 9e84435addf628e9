//! The native dialect: `task.*` events over an event stream, as requirement 000 has them.
//!
//! Each record is one frame. Its data is the stored event, byte for byte, with `seq` and `at` added; its `id` is the
//! record's cursor.

mod project;
mod wire;

pub use project::{Scope, Task};
pub use wire::{Wire, parse};
