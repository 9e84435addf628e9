//! `GET /api/chat/{thread}/stream`: the message that is being written, from its start or from a cursor.

use super::{parse_version, with_stream_header};
use crate::app::App;
use crate::auth::Caller;
use crate::problem::Problem;
use crate::query_params;
use crate::routes::ThreadNamePath;
use crate::sse::{self, SseStyle};
use crate::stream_request::parse_request_cursor;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use gateway::ui_streams::{UiResume, resume_ui_stream, resume_ui_stream_after};

pub(crate) async fn handle(
    State(app): State<App>,
    caller: Caller,
    ThreadNamePath(chat): ThreadNamePath,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let [ui, after] = query_params::parse_known_query(&uri, ["ui", "after"])?;
    let version = parse_version(ui.as_deref())?;
    if let Some(cursor) = parse_request_cursor(&headers, after.as_deref())? {
        let stream = resume_ui_stream_after(&app.gateway, &caller.user, &chat, version, cursor).await?;
        let Some(stream) = stream else { return Ok(StatusCode::NO_CONTENT.into_response()) };
        return Ok(with_stream_header(sse::sse_response_with_style(&app, &caller, stream, SseStyle::OPENAI)?));
    }
    // Before the replay is built: it takes memory until the client has read it.
    let permit = sse::acquire_stream_permit(&app, &caller)?;
    match Box::pin(resume_ui_stream(&app.gateway, &caller.user, &chat, version)).await? {
        UiResume::Nothing => Ok(StatusCode::NO_CONTENT.into_response()),
        UiResume::Ended(frames) => {
            Ok(with_stream_header(sse::sse_response_with_frames(frames, SseStyle::OPENAI, permit)))
        }
        UiResume::Live(stream) => {
            let response = sse::sse_response_with_prelude(&app, &caller, stream, SseStyle::OPENAI, permit);
            Ok(with_stream_header(response))
        }
    }
}
