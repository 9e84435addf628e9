//! `GET /api/v1/agent/attachments/raw`: a file, for whoever holds a signed address of it. No key is asked for.
//!
//! The address is looked at when it is used: whether it is ours and unaltered, whether its time is up, whether the file
//! is there and its owner still let in.

use crate::app::App;
use crate::files::{Keep, LIFETIME_SECONDS_MAX};
use crate::problem::Problem;
use crate::query;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use engine::SystemClock;
use model::ports::Clock as _;

pub(crate) async fn handle(State(app): State<App>, uri: Uri, headers: HeaderMap) -> Result<Response, Problem> {
    let [bucket, path, expires, signature] = query::read(&uri, ["bucket", "path", "expires", "signature"])?;
    let (Some(bucket), Some(path), Some(expires), Some(signature)) = (bucket, path, expires, signature) else {
        return Err(not_ours());
    };
    let left = check(&app, &bucket, &path, &expires, &signature)?;
    let (key, row) = app.files.find(&bucket, &path).await?;
    if !app.auth.lets_in(key.owner()) {
        return Err(Problem::not_found());
    }
    app.files.answer(&key, &row, &headers, Keep::Seconds(left)).await
}

/// How many seconds the address is still good for.
fn check(app: &App, bucket: &str, path: &str, expires: &str, signature: &str) -> Result<u64, Problem> {
    let key = app.files.name(bucket, path)?;
    // In one way of writing only: `+5` and `05` are the same number and another address.
    let until = expires.parse::<u64>().ok().filter(|until| until.to_string() == expires).ok_or_else(not_ours)?;
    if !app.files.seal.fits(bucket, &key, until, signature) {
        return Err(not_ours());
    }
    match until.saturating_sub(SystemClock.now() / 1000) {
        0 => {
            let detail = "the time of this address is up: ask for a new one";
            Err(Problem::new(StatusCode::GONE, "url_expired", detail))
        }
        left if left > LIFETIME_SECONDS_MAX => Err(not_ours()),
        left => Ok(left),
    }
}

fn not_ours() -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "url_not_valid", "this address was not given out by the server, or was altered")
}
