//! `GET /v1/models`: lists the agents that the caller may call, in the format of OpenAI's model list.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use model::error::{ErrorCode, truncate_text};
use serde_json::{Value, json};

pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Response {
    let definitions = app.gateway.engine.ports().definitions.get();
    let data: Vec<Value> = definitions.callable_agents(&caller.user).map(model_json).collect();
    axum::Json(json!({ "object": "list", "data": data })).into_response()
}

pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(name): Path<String>) -> Result<Response, Problem> {
    let definitions = app.gateway.engine.ports().definitions.get();
    let short = truncate_text(&name, 80);
    if definitions.resolve_agent(&name).is_some() {
        return match definitions.may_call(&caller.user, &name) {
            true => Ok(axum::Json(model_json(&name)).into_response()),
            false => Err(Problem::new(ErrorCode::ModelNotAllowed, format!("you may not call '{short}'"))),
        };
    }
    let detail = format!("The model '{short}' does not exist.");
    Err(Problem::new(ErrorCode::ModelNotFound, detail))
}

/// `created` is a constant, because agents come from the config and have no creation time.
fn model_json(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "headwater" })
}
