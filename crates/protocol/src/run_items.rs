//! A run as an agent loop reports it: the model's raw responses turn by turn, each item when it is complete, and the agent
//! that is active.
//!
//! A raw response ends before any tool runs, so every call in it is a function call and it has no results. The event of an
//! item is sent with the item, not at the end of the turn. The stream stays open at a pause. Runs are started through the
//! native protocol, so there is no `request`.

mod project;
mod wire;

pub use project::{RUN_ITEMS_PROJECTION, RunItemsProjection};
