//! Tools that come with the server: `kind = "builtin"`.
//!
//! One file per tool, each with the same two functions: `definition`, all that a config need not say, and `run`.
//! [`definition`] and [`Builtin`] find them by name.

mod get_weather;

use futures_util::stream;
use model::definition::Tool;
use model::ports::{BoxStream, Tools};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};

/// What the tool of this name is; `None` when there is none.
#[must_use]
pub fn definition(name: &str) -> Option<Tool> {
    match name {
        get_weather::NAME => Some(get_weather::definition()),
        _ => None,
    }
}

/// Which tools there are.
#[must_use]
pub fn names() -> &'static [&'static str] {
    &[get_weather::NAME]
}

/// Runs them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtin;

impl Tools for Builtin {
    fn call(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        // A future does nothing until it is polled.
        Box::pin(stream::once(async move { ToolEvent::End(run(&request)) }))
    }
}

fn run(request: &ToolRequest) -> ToolOutput {
    match request.name.as_str() {
        get_weather::NAME => get_weather::run(&request.arguments),
        name => ToolOutput::failed("unknown_tool", format!("there is no builtin tool `{name}`")),
    }
}

/// The model reads what was wrong, and can ask again.
fn invalid_arguments(why: impl std::fmt::Display) -> ToolOutput {
    ToolOutput::failed("invalid_arguments", format!("invalid arguments: {why}"))
}

#[cfg(test)]
mod tests;
