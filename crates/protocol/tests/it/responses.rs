//! The `responses` dialect, as our clients see it.

mod complaints;
mod edges;
pub(crate) mod log;
pub(crate) mod order;
mod planted;
pub(crate) mod scenes;
pub(crate) mod shown;
