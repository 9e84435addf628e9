//! Builtin tools that exist for the demo and for tests. They have no effect outside.
//!
//! Configurations name them as they name any builtin (`kind = "builtin"`).

mod delay;
mod execute_trade;
mod get_weather;
mod slow;

use futures_util::stream;
use model::definition::Tool;
use model::error::ErrorCode;
use model::ports::BoxStream;
use model::tool::{ToolEvent, ToolOutput};

pub(crate) const NAMES: [&str; 6] =
    [execute_trade::NAME, get_weather::NAME, slow::NAME, delay::TOOL_A, delay::TOOL_B, delay::TOOL_C];

pub(crate) fn demo_definition(name: &str) -> Option<Tool> {
    match name {
        execute_trade::NAME => Some(execute_trade::definition()),
        get_weather::NAME => Some(get_weather::definition()),
        slow::NAME => Some(slow::definition()),
        _ => delay::definition(name),
    }
}

/// Nothing happens before the stream is polled.
pub(crate) fn call_demo_tool(name: String, arguments: String) -> BoxStream<'static, ToolEvent> {
    if name == slow::NAME {
        return slow::run(arguments);
    }
    Box::pin(stream::once(async move { ToolEvent::End(run_demo_tool(&name, &arguments).await) }))
}

async fn run_demo_tool(name: &str, arguments: &str) -> ToolOutput {
    match name {
        execute_trade::NAME => execute_trade::run(arguments),
        get_weather::NAME => get_weather::run(arguments),
        _ => match delay::run(name, arguments).await {
            Some(output) => output,
            None => ToolOutput::failed(ErrorCode::UnknownTool, format!("no builtin tool is named `{name}`")),
        },
    }
}
