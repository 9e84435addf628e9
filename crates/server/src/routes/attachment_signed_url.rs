//! `GET /api/v1/agent/attachments/signed-url?bucket=&path=`: a URL under which a file can be downloaded for a while.

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use gateway::fork_share::{AttachmentName, is_file_shared};
use schemars::JsonSchema;
use serde::Serialize;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SignedUrl")]
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
    let attachments = &app.gateway.attachments;
    let owner = attachments.parse_key(&bucket, &path)?.owner().clone();
    if owner != caller.user {
        let share = caller.share().ok_or_else(Problem::not_found)?;
        let name = AttachmentName { bucket: &bucket, path: &path };
        if !is_file_shared(&app.gateway, &caller.user, share, &owner, name).await? {
            return Err(Problem::not_found());
        }
    }
    let (key, row) = attachments.find_by_path(&bucket, &path).await?;
    let presigned = attachments.file_store.presigned_url(&key, attachments.settings.signed_url_lifetime).await?;
    let url = presigned.unwrap_or_else(|| attachments.signed_url(&public_base_url(&app, &headers), &key));
    Ok(Json(SignedUrlResponse { bucket, path: row.path, url }))
}

/// The configured origin, else the one of the request, whose `Host` the origin policy has checked.
fn public_base_url(app: &App, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    app.public_url.clone().unwrap_or_else(|| format!("http://{host}"))
}
