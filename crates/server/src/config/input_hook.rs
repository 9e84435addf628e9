//! `input_hook` of an agent.

use super::limits::DURATION_MS_MAX;
use super::table::ConfigValue;
use super::{tools, urls};
use model::definition::InputHook;

const TIMEOUT_MS_DEFAULT: u64 = 10_000;

pub(super) fn read_hook(item: &ConfigValue<'_>) -> Option<InputHook> {
    let table = item.table(&["url", "command", "timeout_ms"])?;
    let url = table.get("url");
    let command = table.get("command");
    if url.is_some() == command.is_some() {
        table.report_error("a hook needs either a `url` or a `command`");
    }
    Some(InputHook {
        url: url.and_then(|url| urls::check_http_url(&url, url.text()?)),
        command: command.and_then(|command| tools::read_command(&command)).unwrap_or_default(),
        timeout_ms: table.number("timeout_ms", 1..=DURATION_MS_MAX).unwrap_or(TIMEOUT_MS_DEFAULT),
    })
}
