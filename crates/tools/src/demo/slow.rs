//! `slow`: takes a given number of seconds and reports progress.

use crate::arguments::parse_arguments;
use crate::new_builtin::new_builtin;
use crate::output::{invalid_arguments_output, text_output};
use futures_util::{StreamExt, stream};
use model::definition::Tool;
use model::ports::BoxStream;
use model::tool::{ProgressUpdate, ToolEvent, ToolOutput};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;

pub(super) const NAME: &str = "slow";

const SECONDS_MAX: u32 = 600;
const STEPS_PER_SECOND: u32 = 5;
const STEP: Duration = Duration::from_millis(200);
/// The longest call, with some slack.
const TIMEOUT_MS: u64 = (SECONDS_MAX as u64 + 30) * 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    seconds: u32,
}

pub(super) fn definition() -> Tool {
    let parameters = json!({
        "type": "object",
        "properties": {
            "seconds": { "type": "integer", "minimum": 0, "maximum": SECONDS_MAX, "description": "How many." }
        },
        "required": ["seconds"],
        "additionalProperties": false
    });
    Tool { timeout_ms: Some(TIMEOUT_MS), ..new_builtin(NAME, "Slow", "Takes a given number of seconds.", parameters) }
}

pub(super) fn run(arguments: String) -> BoxStream<'static, ToolEvent> {
    Box::pin(stream::once(async move { start_steps(&arguments) }).flatten())
}

fn start_steps(arguments: &str) -> BoxStream<'static, ToolEvent> {
    let end_with = |output: ToolOutput| stream::iter([ToolEvent::End(output)]);
    match parse_arguments(arguments) {
        Ok(Arguments { seconds }) if seconds > SECONDS_MAX => {
            Box::pin(end_with(invalid_arguments_output(format!("`seconds` is more than {SECONDS_MAX}"))))
        }
        Ok(Arguments { seconds }) => {
            Box::pin(progress_steps(seconds).chain(end_with(text_output(format!("done after {seconds} s")))))
        }
        Err(error) => Box::pin(end_with(invalid_arguments_output(error))),
    }
}

fn progress_steps(seconds: u32) -> impl futures_util::Stream<Item = ToolEvent> + Send {
    let total = seconds.saturating_mul(STEPS_PER_SECOND);
    stream::iter(1..=total).then(move |step| async move {
        tokio::time::sleep(STEP).await;
        ToolEvent::Progress(ProgressUpdate {
            message: Some(format!("step {step} of {total}")),
            progress: Some(f64::from(step)),
            total: Some(f64::from(total)),
        })
    })
}
