//! The `responses` protocol, as clients see it.

mod client_expectations;
mod edges;
pub(crate) mod log;
mod objects;
pub(crate) mod order;
mod order_violations;
pub(crate) mod scenario_frames;
pub(crate) mod scenario_logs;
