//! `GET /api/v1/agent/attachments/signed-url?bucket=&path=`: an address under which a file can be shown for a while.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query, shares};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct Answer {
    bucket: String,
    path: String,
    url: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<Answer>, Problem> {
    let [bucket, path] = query::read(&uri, ["bucket", "path"])?;
    let (Some(bucket), Some(path)) = (bucket, path) else {
        return Err(Problem::invalid_query("`bucket` and `path` must both be there"));
    };
    // Whole parts are compared: `u1` is not the beginning of `u10`.
    let owner = app.files.name(&bucket, &path)?.owner().clone();
    if owner != caller.user && !shares::shows_file(&app, &caller, &owner, (&bucket, &path)).await? {
        return Err(Problem::not_found());
    }
    let (key, row) = app.files.find(&bucket, &path).await?;
    let presigned = app.files.depot.presigned_url(&key, app.files.config.signed_url).await?;
    let url = presigned.unwrap_or_else(|| app.files.sign(&base(&app, &headers), &key));
    Ok(Json(Answer { bucket, path: row.path, url }))
}

/// Where whoever asked has reached us: its own name for us, which the guard has looked at.
fn base(app: &App, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    app.files.config.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}
