//! `GET /api/v1/agent/attachments/raw`: a file under a signed URL, without a key.
//!
//! The URL is verified when it is used: its signature, its expiry, and that the file exists and its owner still has access.

use crate::app::App;
use crate::file_response::{CachePolicy, FileRequest, file_response};
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use gateway::attachments::SignedUrl;

pub(crate) async fn handle(
    State(app): State<App>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [bucket, path, expires, signature] =
        query_params::parse_query(&uri, ["bucket", "path", "expires", "signature"])?;
    let (Some(bucket), Some(path), Some(expires), Some(signature)) = (bucket, path, expires, signature) else {
        return Err(SignedUrl::invalid().into());
    };
    let attachments = &app.gateway.attachments;
    let url = SignedUrl { bucket, path, expires, signature };
    let seconds_left = attachments.verify_signed_url(&url)?;
    let (key, row) = attachments.find_by_path(&url.bucket, &url.path).await?;
    if !app.auth.is_known_user(key.owner()) {
        return Err(Problem::not_found());
    }
    let request = FileRequest { method: &method, headers: &headers };
    file_response(attachments, &key, &row, request, CachePolicy::MaxAgeSeconds(seconds_left)).await
}
