//! `GET /v1/usage?day=YYYY-MM-DD`: a user's usage on a day (UTC), today by default.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use gateway::dates;
use gateway::native_json::sorted_usage;
use model::limits::CostMicros;
use model::ports::{Day, Spend};
use model::usage::Usage;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

#[derive(Serialize, JsonSchema)]
pub(crate) struct DayUsage {
    /// In the currency of the configured prices; 0 without prices.
    cost: f64,
    day: String,
    #[schemars(with = "Usage")]
    usage: Value,
}

pub(crate) async fn handle(State(app): State<App>, caller: Caller, uri: Uri) -> Result<Json<DayUsage>, Problem> {
    let [day] = query_params::parse_query(&uri, ["day"])?;
    let ports = app.gateway.engine.ports();
    let day = match day {
        None => Day::from_millis(ports.clock.now()),
        Some(text) => dates::parse_day(&text)
            .ok_or_else(|| Problem::invalid_param("day", "must be a date since 1970, such as 2025-01-31"))?,
    };
    let Spend { usage, cost } = ports.directory.daily_spend(&caller.user, day).await?;
    Ok(Json(DayUsage { cost: amount_as_f64(cost), day: dates::format_day(day), usage: sorted_usage(usage) }))
}

/// Converts to whole currency units: clients do not see micros.
#[expect(clippy::cast_precision_loss, reason = "exact up to nine thousand million, and what is compared is the amount")]
fn amount_as_f64(amount: CostMicros) -> f64 {
    amount.0 as f64 / 1_000_000.0
}
