//! Chats of the AI SDK: `useChat` with its default transport.

pub(crate) mod create;
pub(crate) mod messages;
pub(crate) mod stop;
pub(crate) mod stream;

use crate::problem::Problem;
use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use protocol::ui_stream::UiVersion;

/// Tells proxies and tools of the SDK's vendor what the stream is.
const STREAM_HEADER: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-vercel-ai-ui-message-stream"), HeaderValue::from_static("v1"));

/// Parses the parameter `ui`: nothing else in a request says which version of the SDK sent it.
fn parse_version(ui: Option<&str>) -> Result<UiVersion, Problem> {
    let version = ui.map_or(Some(UiVersion::default()), UiVersion::parse);
    version.ok_or_else(|| Problem::invalid_param("ui", "must be `6` or `7`"))
}

fn with_stream_header(mut response: Response) -> Response {
    let (name, value) = STREAM_HEADER;
    response.headers_mut().insert(name, value);
    response
}
