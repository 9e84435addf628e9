//! `POST /agui/{agent}/stop/{thread}`: cancels the active run of a thread, or the one that the body names.

use super::stop_run;
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::routes::ThreadNamePath;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use model::json::ExactObject;
use serde_json::{Value, json};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(name): ThreadNamePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let members: ExactObject = json.into_object()?;
    let stopped = stop_run(&app, &caller, &name, &members).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(json!({ "stopped": stopped })))
}
