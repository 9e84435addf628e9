//! `GET /v1/responses/{id}`: a response as it is, or as it goes on.

use super::{ResponsePath, find, place, query};
use crate::app::App;
use crate::auth::Caller;
use crate::files::inline;
use crate::problem::Problem;
use crate::sse::{self, Manners};
use axum::extract::State;
use axum::http::{Method, Uri};
use axum::response::Response;

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ResponsePath(id): ResponsePath,
    method: Method,
    uri: Uri,
) -> Result<Response, Problem> {
    let [stream, after] = query(&uri, ["stream", "starting_after"])?;
    let stream = match stream.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(Problem::invalid_query("`stream` must be true or false")),
    };
    let after = after.map(|text| number(&text)).transpose()?;
    let (found, read) = find(&app, &caller.user, &id).await?;
    if !stream {
        return Ok(inline::body(&app, &caller.user, &found.run.thread, &read.object));
    }
    let skip = after.map_or(0, |after| after.saturating_add(1));
    if skip > read.frames {
        let head = read.frames.saturating_sub(1);
        let detail = format!("`starting_after` is ahead of the response, whose last event has the number {head}");
        return Err(Problem::invalid_query(detail));
    }
    if method == Method::HEAD {
        return Ok(sse::head());
    }
    let place = place(&app, &caller.user, (&found.run.id, &found.run.thread, found.segment), skip).await?;
    sse::response_with(&app, &caller, place, Manners::OPENAI)
}

fn number(text: &str) -> Result<u64, Problem> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if plain { text.parse().ok() } else { None };
    number.ok_or_else(|| Problem::invalid_query("`starting_after` must be the number of an event"))
}
