//! `POST /v1/threads/{id}/shares`: creates a token that gives read access to a thread, live or frozen as it is now.

use super::ThreadPath;
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::query_params;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use gateway::native_json::share_json;
use gateway::share_commands::{CreatedShare, ShareMode, create_share};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    mode: ShareModeParam,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShareModeParam {
    Live,
    Frozen,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let Request { mode, expires_in_seconds } = JsonBody::read(&headers, body, &app.limits).await?.into_object()?;
    let mode = match mode {
        ShareModeParam::Live => ShareMode::Live,
        ShareModeParam::Frozen => ShareMode::Frozen,
    };
    let created = create_share(&app.gateway, &caller.user, thread, mode, expires_in_seconds).await?;
    let CreatedShare { row, token } = created;
    let mut object = share_json(&row);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("token".to_owned(), json!(token));
    }
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(object)).into_response())
}
