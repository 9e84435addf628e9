//! `GET /api/v1/agent/attachments/raw`: a file, for whoever holds a signed address of it. No key is asked for.
//!
//! The address is looked at when it is used: whether it is ours and unaltered, whether its time is up, whether the file
//! is there and its owner still let in.

use crate::app::App;
use crate::files::{Keep, Signed};
use crate::problem::Problem;
use crate::query;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;

pub(crate) async fn handle(
    State(app): State<App>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [bucket, path, expires, signature] = query::read(&uri, ["bucket", "path", "expires", "signature"])?;
    let (Some(bucket), Some(path), Some(expires), Some(signature)) = (bucket, path, expires, signature) else {
        return Err(Signed::not_ours());
    };
    let address = Signed { bucket, path, expires, signature };
    let left = app.files.good_for(&address)?;
    let (key, row) = app.files.find(&address.bucket, &address.path).await?;
    if !app.auth.lets_in(key.owner()) {
        return Err(Problem::not_found());
    }
    app.files.answer(&key, &row, (&method, &headers), Keep::Seconds(left)).await
}
