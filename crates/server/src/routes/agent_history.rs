//! `GET /api/v1/agent/history?threadId=&before=&tz=`: the messages of a thread, a day at a time, the newest day
//! first.

use crate::app::App;
use crate::auth::Caller;
use crate::json_response::LongJson;
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::Uri;
use gateway::agent_history::{HistoryDay, HistoryDays, find_latest_thread, read_history_day};
use gateway::dates;
use gateway::thread_names::find_thread_of_any_protocol;
use model::ports::{AliasKind, Day};
use protocol::agent_runs::HistoryMessage;
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AgentHistory")]
pub(crate) struct HistoryResponse {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread_id: Option<String>,
    snapshot: HistorySnapshot,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HistorySnapshot {
    scope: &'static str,
    thread_id: Option<String>,
    day: Option<String>,
    has_more: bool,
    messages: Vec<TimedMessage>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "AgentMessage")]
pub(crate) struct TimedMessage {
    #[serde(flatten)]
    message: HistoryMessage,
    timestamp: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
) -> Result<LongJson<HistoryResponse>, Problem> {
    let [name, before, zone] = query_params::parse_query(&uri, ["threadId", "before", "tz"])?;
    let invalid = || Problem::invalid_param("before", "must be a date, such as 2025-01-31");
    let before = before.map(|text| dates::parse_day(&text).ok_or_else(invalid)).transpose()?;
    let unknown = || Problem::invalid_param("tz", "must be the IANA name of a time zone, such as Europe/Paris");
    let zone = zone.map(|name| dates::parse_time_zone(&name).ok_or_else(unknown)).transpose()?;
    let thread = match name {
        Some(name) => {
            let thread = find_thread_of_any_protocol(&app.gateway, &caller.user, AliasKind::AgentRun, &name).await?;
            Some((name, thread))
        }
        None => find_latest_thread(&app.gateway, &caller.user).await?,
    };
    let Some((name, thread)) = thread else { return Ok(LongJson(history_response(None, HistoryDay::default()))) };
    let day_of = |at| zone.as_ref().map_or_else(|| Day::from_millis(at), |zone| dates::local_day(at, zone));
    let days = HistoryDays { before, day_of: &day_of };
    let history = read_history_day(&app.gateway, &caller.user, &thread, days).await?;
    Ok(LongJson(history_response(Some(name), history)))
}

fn history_response(name: Option<String>, history: HistoryDay) -> HistoryResponse {
    let HistoryDay { day, has_more, messages } = history;
    let messages =
        messages.into_iter().map(|message| TimedMessage { timestamp: dates::format_timestamp(message.at), message });
    let snapshot = HistorySnapshot {
        scope: "history_day",
        thread_id: name.clone(),
        day: day.map(dates::format_day),
        has_more,
        messages: messages.collect(),
    };
    HistoryResponse { kind: "STATE_SNAPSHOT", thread_id: name, snapshot }
}
