//! The headers of a request for an event stream: where it resumes, and whether the client accepts one.

use crate::problem::Problem;
use axum::http::{HeaderMap, header};
use model::cursor::{Cursor, CursorError};
use model::error::ErrorCode;

const LAST_EVENT_ID: &str = "last-event-id";
const EVENT_STREAM: &str = "text/event-stream";

/// The cursor that a client resumes from; `None` is the beginning. The header takes precedence: a browser that reconnects
/// sends it along with the URL that it started with.
pub(crate) fn parse_request_cursor(headers: &HeaderMap, after: Option<&str>) -> Result<Option<Cursor>, Problem> {
    let mut ids = headers.get_all(LAST_EVENT_ID).iter();
    let text = match (ids.next(), ids.next()) {
        (None, _) => after,
        (Some(id), None) => match id.to_str() {
            // Browsers send an empty header before the first event with an id.
            Ok("") => None,
            Ok(id) => Some(id),
            Err(_) => return Err(CursorError::Malformed("?".to_owned()).into()),
        },
        (Some(_), Some(_)) => return Err(CursorError::Malformed("two at once".to_owned()).into()),
    };
    Ok(text.map(str::parse).transpose()?)
}

/// Rejects a client that cannot read the stream.
pub(crate) fn check_accepts_sse(headers: &HeaderMap) -> Result<(), Problem> {
    if !headers.contains_key(header::ACCEPT)
        || accepted_types(headers).any(|media_type| matches!(&*media_type, EVENT_STREAM | "text/*" | "*/*" | ""))
    {
        return Ok(());
    }
    let detail = "this is an event stream: accept text/event-stream";
    Err(Problem::new(ErrorCode::NotAcceptable, detail))
}

/// Whether a client names the type of event streams explicitly. `*/*` does not count, because every client sends it.
pub(crate) fn prefers_event_stream(headers: &HeaderMap) -> bool {
    accepted_types(headers).any(|media_type| media_type == EVENT_STREAM)
}

/// The media types of `Accept`, in lower case, without those of quality 0.
fn accepted_types(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let texts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).filter_map(|range| {
        let mut params = range.split(';').map(str::trim);
        let media_type = params.next().unwrap_or_default().to_ascii_lowercase();
        let is_rejected = params.any(|param| matches!(param, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        (!is_rejected).then_some(media_type)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_clients_that_name_the_type_prefer_a_stream() {
        let prefers = |accept: &str| {
            let value = HeaderValue::from_str(accept).unwrap();
            prefers_event_stream(&HeaderMap::from_iter([(header::ACCEPT, value)]))
        };
        for yes in ["text/event-stream", "Text/Event-Stream;q=0.5", "application/json, text/event-stream"] {
            assert!(prefers(yes), "{yes}");
        }
        for no in ["", "*/*", "application/json", "text/*", "text/event-stream;q=0", "text/event-stream; q=0.00"] {
            assert!(!prefers(no), "{no}");
        }
        assert!(!prefers_event_stream(&HeaderMap::new()));
    }
}
