//! `POST /api/chat/{thread}/stop`: cancels the active run of a chat. `stop()` of the SDK only leaves.

use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::routes::ThreadNamePath;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use gateway::task_commands::cancel_active_run;
use gateway::ui_streams::find_ui_chat;
use model::error::ErrorCode;
use model::event::CancelMode;
use model::json::JsonObject;
use schemars::JsonSchema;
use serde::Serialize;

/// Whether anything was stopped.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StoppedChat {
    stopped: bool,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(chat): ThreadNamePath,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<StoppedChat>, Problem> {
    let json = JsonBody::read_optional(&headers, body, &app.limits, &caller.user).await?;
    let _members: JsonObject = json.into_object()?;
    let thread = find_ui_chat(&app.gateway, &caller.user, &chat).await?;
    match cancel_active_run(&app.gateway, &caller.user, thread, CancelMode::Immediate, None).await {
        Ok(_) => Ok(Json(StoppedChat { stopped: true })),
        Err(rejection) if rejection.code == ErrorCode::AlreadyEnded => Ok(Json(StoppedChat { stopped: false })),
        Err(rejection) => Err(rejection.into()),
    }
}
