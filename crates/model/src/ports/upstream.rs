//! Models, tools and the clock: what the run loop reaches for.

use super::BoxStream;
use crate::delta::{ModelEvent, ModelRequest};
use crate::seq::Millis;
use crate::tool::{ToolEvent, ToolRequest};

/// Asks models.
///
/// 1. The stream's last event is `End` or `Failed`; one that just ends counts as failed.
/// 2. Dropping the stream stops the turn: no more is read, nothing is left behind.
/// 3. Nothing is read ahead of the consumer beyond a bounded buffer.
pub trait Models: Send + Sync {
    /// Begins a turn.
    fn turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
}

/// Runs tools.
///
/// 1. The stream's last event is `End`; one that just ends counts as failed.
/// 2. Dropping the stream stops the tool.
/// 3. Nothing happens before the stream is polled: the engine makes the start durable first (law 10).
pub trait Tools: Send + Sync {
    /// Runs a tool once.
    fn call(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent>;
}

/// Tells the time. Only expiry depends on it, never order.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970.
    fn now(&self) -> Millis;
}
