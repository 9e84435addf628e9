//! `GET /api/v1/agent/attachments/raw`: a file, for whoever holds a signed address of it. No key is asked for.
//!
//! The address is looked at when it is used: whether it is ours and unaltered, whether its time is up, whether the file
//! is there and its owner still let in.

use crate::app::App;
use crate::attachments::{CachePolicy, SignedUrl};
use crate::problem::Problem;
use crate::query_params;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;

pub(crate) async fn handle(
    State(app): State<App>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [bucket, path, expires, signature] =
        query_params::parse_query(&uri, ["bucket", "path", "expires", "signature"])?;
    let (Some(bucket), Some(path), Some(expires), Some(signature)) = (bucket, path, expires, signature) else {
        return Err(SignedUrl::invalid());
    };
    let address = SignedUrl { bucket, path, expires, signature };
    let left = app.files.verify_signed_url(&address)?;
    let (key, row) = app.files.find_by_path(&address.bucket, &address.path).await?;
    if !app.auth.is_known_user(key.owner()) {
        return Err(Problem::not_found());
    }
    app.files.file_response(&key, &row, (&method, &headers), CachePolicy::MaxAgeSeconds(left)).await
}
