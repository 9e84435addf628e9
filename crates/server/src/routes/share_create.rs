//! `POST /v1/threads/{id}/shares`: shows a thread to whoever has the token, as it goes on or as it is now.

use super::{ThreadPath, run_to_completion};
use crate::app::App;
use crate::auth::Caller;
use crate::json_body::JsonBody;
use crate::problem::Problem;
use crate::{native_api, query_params, shares, stream_start};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use model::error::ErrorCode;
use serde::Deserialize;
use serde_json::json;

/// A link that nobody remembers should not be open for ever.
const LIFETIME_SECONDS_DEFAULT: u64 = 7 * 24 * 60 * 60;
const LIFETIME_SECONDS_MAX: u64 = 366 * 24 * 60 * 60;
/// So many shares a thread may have had.
const SHARES_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    mode: ShareMode,
    #[serde(default)]
    expires_in_seconds: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShareMode {
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
    let request: Request = JsonBody::read(&headers, body, &app.limits).await?.into_object()?;
    let seconds = request.expires_in_seconds.unwrap_or(LIFETIME_SECONDS_DEFAULT);
    if !(1..=LIFETIME_SECONDS_MAX).contains(&seconds) {
        let detail = format!("must be a number from 1 to {LIFETIME_SECONDS_MAX}");
        return Err(Problem::invalid_field("expires_in_seconds", detail));
    }
    let head = stream_start::log_head(&app, &caller.user, &thread).await?;
    let until = match request.mode {
        ShareMode::Live => None,
        ShareMode::Frozen => Some(head),
    };
    let directory = &app.engine.ports().directory;
    if directory.shares(&caller.user, &thread).await?.len() >= SHARES_MAX {
        let detail = format!("the thread has {SHARES_MAX} shares, which is the maximum");
        return Err(Problem::new(ErrorCode::TooManyShares, detail));
    }
    let now = app.engine.ports().clock.now();
    let (row, token) = shares::new_share((caller.user, thread), until, (now, now.saturating_add(seconds * 1_000)))?;
    let mut answer = native_api::share_json(&row);
    // What is in the store is in the table, too, also when the caller has gone. First in the table: whoever takes it back
    // as soon as it is in the store finds it there. Nobody has its token yet.
    run_to_completion(async move {
        let writer = app.engine.ports().directory.writer(&row.owner)?;
        app.shares.insert(row.clone());
        let created = writer.create_share(row.clone()).await;
        if created.is_err() {
            app.shares.revoke(&row.id);
        }
        created
    })
    .await?;
    if let Some(fields) = answer.as_object_mut() {
        fields.insert("token".to_owned(), json!(token));
    }
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], axum::Json(answer)).into_response())
}
