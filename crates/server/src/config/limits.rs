//! `[limits]` of runs and requests, and `[prices]` of models.

use super::names::{DefinedNames, check_model_exists};
use super::suggest;
use super::table::ConfigTable;
use super::{AuthMode, BODY_MEMORY_MIN, ConnectionSettings, HttpLimits};
use gateway::body_budget::{BodyBudget, BodyLimits, USER_SHARE};
use gateway::limits::InputLimits;
use model::definition::{Agent, Price};
use model::fold::TASK_FILES_MAX;
use model::limits::{CostMicros, RunLimits};
use std::collections::BTreeMap;
use std::time::Duration;

/// Limits of runs.
const RUN_KEYS: [&str; 14] = [
    "steps_max",
    "depth_max",
    "descendants_max",
    "invalid_calls_max",
    "run_tokens_max",
    "run_cost_max",
    "user_day_tokens_max",
    "user_day_cost_max",
    "parallel_tools_max",
    "tool_timeout_ms",
    "tool_output_bytes_max",
    "run_deadline_ms",
    "model_retries_max",
    "retry_after_max_ms",
];
/// Limits of connections and requests.
pub(super) const HTTP_KEYS: [&str; 18] = [
    "body_bytes_max",
    "large_bodies_max",
    "large_bodies_per_user_max",
    "body_memory_max",
    "body_memory_per_user_max",
    "body_read_ms",
    "header_read_ms",
    "write_stall_ms",
    "heartbeat_ms",
    "socket_lifetime_ms",
    "streams_per_user_max",
    "connections_max",
    "runs_per_user_max",
    "requests_per_user_minute_max",
    "log_bytes_per_user_max",
    "input_parts_max",
    "input_files_max",
    "tools_max",
];

pub(super) fn limit_keys() -> Vec<&'static str> {
    [RUN_KEYS.as_slice(), HTTP_KEYS.as_slice()].concat()
}

/// The longest duration that can be set: a year.
pub(super) const DURATION_SECONDS_MAX: u64 = 365 * 24 * 60 * 60;
pub(super) const DURATION_MS_MAX: u64 = DURATION_SECONDS_MAX * 1000;
/// Live runs, and requests per minute, of users who are told apart.
const RUNS_PER_USER_MAX: u32 = 1_000;
const REQUESTS_PER_USER_MINUTE_MAX: u32 = 6_000;
/// Records of all conversations of a user who is told apart: four gibibytes, the text of some ten thousand long ones.
const LOG_BYTES_PER_USER_MAX: u64 = 4 << 30;
const PRICE_KEYS: [&str; 4] = ["input", "cached", "cache_write", "output"];
const MICROS_PER_UNIT: u32 = 1_000_000;
const ANY: std::ops::RangeInclusive<u64> = 0..=u64::MAX;

pub(super) fn read_run_limits(table: &ConfigTable<'_>) -> RunLimits {
    let base = RunLimits::default();
    let count = |key| table.number(key, 0..=u64::from(u32::MAX)).and_then(|number| u32::try_from(number).ok());
    let cost = |key| table.get(key).and_then(|item| item.scaled(MICROS_PER_UNIT, ANY)).map(CostMicros);
    RunLimits {
        steps_max: count("steps_max").unwrap_or(base.steps_max),
        depth_max: count("depth_max").unwrap_or(base.depth_max),
        descendants_max: table.size("descendants_max").unwrap_or(base.descendants_max),
        invalid_calls_max: count("invalid_calls_max").unwrap_or(base.invalid_calls_max),
        run_tokens_max: table.number("run_tokens_max", ANY),
        run_cost_max: cost("run_cost_max"),
        user_day_tokens_max: table.number("user_day_tokens_max", ANY),
        user_day_cost_max: cost("user_day_cost_max"),
        parallel_tools_max: table.size("parallel_tools_max").unwrap_or(base.parallel_tools_max),
        tool_timeout_ms: table.number("tool_timeout_ms", ANY).unwrap_or(base.tool_timeout_ms),
        tool_output_bytes_max: table.size("tool_output_bytes_max").unwrap_or(base.tool_output_bytes_max),
        run_deadline_ms: table.number("run_deadline_ms", ANY).unwrap_or(base.run_deadline_ms),
        model_retries_max: count("model_retries_max").unwrap_or(base.model_retries_max),
        retry_after_max_ms: table.number("retry_after_max_ms", ANY).unwrap_or(base.retry_after_max_ms),
    }
}

pub(super) fn read_http_limits(table: &ConfigTable<'_>, auth: AuthMode) -> HttpLimits {
    let base = HttpLimits::default();
    // A time-out of 0 would reject every request.
    let ms = |key, base| table.number(key, 1..=u64::MAX).map_or(base, Duration::from_millis);
    let size = |key, base| table.size(key).unwrap_or(base);
    let most = |number: Option<u64>, base| number.and_then(|number| usize::try_from(number).ok()).unwrap_or(base);
    // Limits of a user protect the others, of whom mode `none` has none.
    let per_user = |key, default| {
        let default = if auth == AuthMode::Keys { default } else { 0 };
        let max = table.number(key, 0..=u64::from(u32::MAX)).and_then(|max| u32::try_from(max).ok());
        Some(max.unwrap_or(default)).filter(|max| *max > 0)
    };
    let body_bytes_max = size("body_bytes_max", base.body_bytes_max);
    HttpLimits {
        body_bytes_max,
        body_read_timeout: ms("body_read_ms", base.body_read_timeout),
        header_read_timeout: ms("header_read_ms", base.header_read_timeout),
        write_timeout: ms("write_stall_ms", base.write_timeout),
        heartbeat_interval: ms("heartbeat_ms", base.heartbeat_interval),
        socket_lifetime: table
            .number("socket_lifetime_ms", 1..=DURATION_MS_MAX)
            .map_or(base.socket_lifetime, Duration::from_millis),
        input: InputLimits {
            parts_max: size("input_parts_max", base.input.parts_max),
            web_files_max: most(table.number("input_files_max", 0..=TASK_FILES_MAX as u64), base.input.web_files_max),
            tools_max: size("tools_max", base.input.tools_max),
            runs_per_user_max: per_user("runs_per_user_max", RUNS_PER_USER_MAX).map_or(usize::MAX, |max| max as usize),
        },
        bodies: BodyBudget::new(read_body_limits(table, auth, body_bytes_max)),
        requests_per_user_minute_max: per_user("requests_per_user_minute_max", REQUESTS_PER_USER_MINUTE_MAX)
            .unwrap_or_default(),
        log_bytes_per_user_max: table
            .number("log_bytes_per_user_max", 0..=u64::MAX >> 1)
            .or_else(|| (auth == AuthMode::Keys).then_some(LOG_BYTES_PER_USER_MAX))
            .filter(|max| *max > 0),
        settings: ConnectionSettings {
            connections_max: table.size("connections_max"),
            streams_per_user_max: table.size("streams_per_user_max"),
            has_users: auth == AuthMode::Keys,
        },
        ..base
    }
}

/// Users who are told apart have a share each; the one user of mode `none` has everything.
fn read_body_limits(table: &ConfigTable<'_>, auth: AuthMode, body_bytes_max: usize) -> BodyLimits {
    let share = |all: usize| if auth == AuthMode::Keys { all / USER_SHARE } else { all };
    let memory = |key, least: usize, default: usize| {
        let bytes = table.size(key)?;
        if bytes < least {
            let value = table.get(key)?;
            value.report_error(format!("one body may have `body_bytes_max`: write at least {least}"));
            return Some(default);
        }
        Some(bytes)
    };
    let twice = body_bytes_max.saturating_mul(2);
    let default = BODY_MEMORY_MIN.max(twice);
    let bytes_max = memory("body_memory_max", twice, default).unwrap_or(default);
    let user_default = share(bytes_max).max(body_bytes_max);
    let user_bytes_max = memory("body_memory_per_user_max", body_bytes_max, user_default).unwrap_or(user_default);
    let large_max = table.size("large_bodies_max").unwrap_or(16);
    let user_large_max = table.size("large_bodies_per_user_max").unwrap_or_else(|| share(large_max)).max(1);
    BodyLimits { bytes_max, user_bytes_max, large_max, user_large_max }
}

pub(super) fn read_prices(
    tables: &ConfigTable<'_>,
    names: &DefinedNames<'_>,
    agents: &BTreeMap<String, Agent>,
) -> BTreeMap<String, Price> {
    let in_use: Vec<&str> = agents.values().flat_map(models_of_agent).collect();
    let mut prices = BTreeMap::new();
    for (model, item) in tables.items() {
        check_model_exists(&item, model, names);
        let provider = model.split_once('/').map(|(provider, _)| provider);
        if provider.is_some_and(|provider| names.providers.contains(&provider))
            && !in_use.is_empty()
            && !in_use.contains(&model)
        {
            let nearest = suggest::nearest_name(model, &in_use).map(|name| format!("; did you mean `{name}`?"));
            item.report_warning(format!(
                "no agent uses this model; the price is for requests that name it{}",
                nearest.unwrap_or_default()
            ));
        }
        let Some(table) = item.table(&PRICE_KEYS) else { continue };
        let price = |key| table.get(key).and_then(|item| item.decimal());
        for key in ["input", "output"].into_iter().filter(|key| table.get(key).is_none()) {
            table.report_error(format!("`{key}` is missing; write the price of a million tokens"));
        }
        let price = Price {
            input: price("input").unwrap_or_default(),
            cached: price("cached"),
            cache_write: price("cache_write"),
            output: price("output").unwrap_or_default(),
        };
        prices.insert(model.to_owned(), price);
    }
    prices
}

fn models_of_agent(agent: &Agent) -> impl Iterator<Item = &str> {
    let summarizer = agent.compaction.iter().filter_map(|policy| policy.model.as_deref());
    agent.models.iter().map(String::as_str).chain(summarizer)
}
