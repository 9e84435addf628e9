//! Tools that come with the server: `kind = "builtin"`.
//!
//! One file per tool, each with the same two functions: `definition`, all that a config need not say, and `run`.
//! [`definition`] and `call` find them by name.

mod calculator;
mod clock;
mod delay;
mod execute_trade;
mod get_weather;
mod slow;

use futures_util::stream;
use model::content::ContentPart;
use model::definition::Tool;
use model::error::ErrorCode;
use model::json::JsonObject;
use model::ports::{BoxStream, Clock};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// What the tool of this name is; `None` when there is none.
#[must_use]
pub fn builtin_definition(name: &str) -> Option<Tool> {
    match name {
        calculator::NAME => Some(calculator::definition()),
        clock::NAME => Some(clock::definition()),
        execute_trade::NAME => Some(execute_trade::definition()),
        get_weather::NAME => Some(get_weather::definition()),
        slow::NAME => Some(slow::definition()),
        _ => delay::definition(name),
    }
}

/// Which tools there are.
#[must_use]
pub const fn builtin_names() -> &'static [&'static str] {
    &[
        calculator::NAME,
        clock::NAME,
        execute_trade::NAME,
        get_weather::NAME,
        slow::NAME,
        delay::TOOL_A,
        delay::TOOL_B,
        delay::TOOL_C,
    ]
}

/// Runs one. Nothing happens before the stream is polled.
pub(crate) fn call_builtin(request: ToolRequest, clock: Arc<dyn Clock>) -> BoxStream<'static, ToolEvent> {
    if request.name == slow::NAME {
        return slow::run(request.arguments);
    }
    Box::pin(stream::once(async move { ToolEvent::End(run_builtin(&request, clock.as_ref()).await) }))
}

async fn run_builtin(request: &ToolRequest, clock: &dyn Clock) -> ToolOutput {
    let arguments = request.arguments.as_str();
    match request.name.as_str() {
        calculator::NAME => calculator::run(arguments),
        clock::NAME => clock::run(arguments, clock.now()),
        execute_trade::NAME => execute_trade::run(arguments),
        get_weather::NAME => get_weather::run(arguments),
        name => match delay::run(name, arguments).await {
            Some(output) => output,
            None => ToolOutput::failed(ErrorCode::UnknownTool, format!("there is no builtin tool `{name}`")),
        },
    }
}

/// Reads arguments by their names alone: serde would also take a list in the order of the fields.
fn parse_arguments<T: DeserializeOwned>(arguments: &str) -> Result<T, serde_json::Error> {
    let object: JsonObject = serde_json::from_str(arguments)?;
    serde_json::from_value(Value::Object(object))
}

/// A result that is words alone.
fn text_output(text: impl Into<String>) -> ToolOutput {
    ToolOutput { message_content: vec![ContentPart::text(text)], ..ToolOutput::default() }
}

/// The model reads what was wrong, and can ask again.
fn invalid_arguments_output(why: impl std::fmt::Display) -> ToolOutput {
    crate::byte_source::failed_output(crate::arguments::invalid_arguments(why))
}
