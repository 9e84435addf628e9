//! `GET /v1/blobs/{hash}`: a file of a thread. Its content never changes, so clients may cache it.

use super::path_param;
use crate::app::App;
use crate::auth::Caller;
use crate::file_response::{CachePolicy, FileRequest, file_response};
use crate::problem::Problem;
use crate::query_params;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use files::FileKey;
use model::blob::is_sha256_hex;

pub(crate) struct BlobPath(String);

impl<S: Send + Sync> FromRequestParts<S> for BlobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let hash = path_param(parts, state, "hash").await?;
        if is_sha256_hex(&hash) { Ok(Self(hash)) } else { Err(Problem::not_found()) }
    }
}

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    BlobPath(hash): BlobPath,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [] = query_params::parse_query(&uri, [])?;
    let row = app.gateway.engine.ports().directory.blob(&caller.user, None, &hash).await?;
    let row = row.ok_or_else(Problem::not_found)?;
    let key = FileKey::parse_stored(&row.path)?;
    let request = FileRequest { method: &method, headers: &headers };
    file_response(&app.gateway.attachments, &key, &row, request, CachePolicy::Immutable(&hash)).await
}
