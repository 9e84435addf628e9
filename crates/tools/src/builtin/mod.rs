//! Tools that come with the server: `kind = "builtin"`.
//!
//! One file per tool, each with the same two functions: `definition`, which is everything that a configuration need not
//! say, and `run`. The demo's tools are in `demo`.

mod ask_user;
mod calculator;
mod clock;

use crate::demo;
use futures_util::stream;
use model::definition::Tool;
use model::ports::{BoxStream, Clock};
use model::tool::{ToolEvent, ToolRequest};
use std::sync::Arc;

/// `None` when no builtin tool has this name.
pub fn builtin_definition(name: &str) -> Option<Tool> {
    match name {
        ask_user::NAME => Some(ask_user::definition()),
        calculator::NAME => Some(calculator::definition()),
        clock::NAME => Some(clock::definition()),
        _ => demo::demo_definition(name),
    }
}

/// The demo's tools come last.
pub fn builtin_names() -> Vec<&'static str> {
    [ask_user::NAME, calculator::NAME, clock::NAME].into_iter().chain(demo::NAMES).collect()
}

/// Nothing happens before the stream is polled.
pub(crate) fn call_builtin(request: ToolRequest, clock: Arc<dyn Clock>) -> BoxStream<'static, ToolEvent> {
    let ToolRequest { name, arguments, answers, .. } = request;
    match name.as_str() {
        ask_user::NAME => Box::pin(stream::once(async move { ask_user::run(&arguments, answers) })),
        calculator::NAME => Box::pin(stream::once(async move { ToolEvent::End(calculator::run(&arguments)) })),
        clock::NAME => Box::pin(stream::once(async move { ToolEvent::End(clock::run(&arguments, clock.now())) })),
        _ => demo::call_demo_tool(name, arguments),
    }
}
