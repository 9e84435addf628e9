//! `GET /` and its assets, embedded in the binary.

use crate::app::App;
use crate::problem::Problem;
use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Scripts and style sheets, served under `/page/`.
const ASSETS: [(&str, &str); 16] = [
    ("api.js", include_str!("../../web/api.js")),
    ("app.js", include_str!("../../web/app.js")),
    ("approval.js", include_str!("../../web/approval.js")),
    ("chat.css", include_str!("../../web/chat.css")),
    ("composer.js", include_str!("../../web/composer.js")),
    ("conversation.js", include_str!("../../web/conversation.js")),
    ("draw.js", include_str!("../../web/draw.js")),
    ("elements.js", include_str!("../../web/elements.js")),
    ("fold.js", include_str!("../../web/fold.js")),
    ("follow.js", include_str!("../../web/follow.js")),
    ("log.js", include_str!("../../web/log.js")),
    ("question.js", include_str!("../../web/question.js")),
    ("recent.js", include_str!("../../web/recent.js")),
    ("share.js", include_str!("../../web/share.js")),
    ("storage.js", include_str!("../../web/storage.js")),
    ("style.css", include_str!("../../web/style.css")),
];

/// The page shows the output of models and tools, which must not run scripts or fetch from other hosts. With a key it fetches
/// images itself and shows them as `blob:`.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page is no part of the API, so the OpenAPI document leaves it out.
pub(crate) fn router() -> Router<App> {
    Router::new().route("/", get(index)).route("/page/{asset}", get(asset))
}

async fn index() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, include_str!("../../web/index.html"))
}

async fn asset(Path(name): Path<String>) -> Result<Response, Problem> {
    let (_, text) = ASSETS.iter().find(|(asset, _)| *asset == name).ok_or_else(Problem::not_found)?;
    let kind = if name.ends_with(".css") { "text/css; charset=utf-8" } else { "text/javascript; charset=utf-8" };
    Ok(embedded(kind, text).into_response())
}

pub(crate) fn embedded(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}
