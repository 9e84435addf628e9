//! `GET /api/v1/agent/attachments/signed-url?bucket=&path=`: an address under which a file can be shown for a while.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::{query_params, shares};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct SignedUrlResponse {
    bucket: String,
    path: String,
    url: String,
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Json<SignedUrlResponse>, Problem> {
    let [bucket, path] = query_params::parse_query(&uri, ["bucket", "path"])?;
    let (Some(bucket), Some(path)) = (bucket, path) else {
        return Err(Problem::invalid_query("`bucket` and `path` are both required"));
    };
    // Whole parts are compared: `u1` is not the beginning of `u10`.
    let owner = app.files.parse_key(&bucket, &path)?.owner().clone();
    if owner != caller.user && !shares::is_file_shared(&app, &caller, &owner, (&bucket, &path)).await? {
        return Err(Problem::not_found());
    }
    let (key, row) = app.files.find_by_path(&bucket, &path).await?;
    let presigned = app.files.file_store.presigned_url(&key, app.files.settings.signed_url_lifetime).await?;
    let url = presigned.unwrap_or_else(|| app.files.signed_url(&public_base_url(&app, &headers), &key));
    Ok(Json(SignedUrlResponse { bucket, path: row.path, url }))
}

/// Where whoever asked has reached us: its own name for us, which the guard has looked at.
fn public_base_url(app: &App, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    app.files.settings.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}
