//! `GET /` and its assets, embedded in the binary.

use crate::app::App;
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

/// The page shows the output of models and tools, which must not run scripts or fetch from other hosts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page is no part of the API, so the OpenAPI document leaves it out.
pub(crate) fn router() -> Router<App> {
    Router::new()
        .route("/", get(index))
        .route("/app.js", get(app_js))
        .route("/draw.js", get(draw_js))
        .route("/fold.js", get(fold_js))
        .route("/follow.js", get(follow_js))
        .route("/style.css", get(style_css))
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

async fn app_js() -> impl IntoResponse {
    script(include_str!("../../web/app.js"))
}

async fn draw_js() -> impl IntoResponse {
    script(include_str!("../../web/draw.js"))
}

async fn fold_js() -> impl IntoResponse {
    script(include_str!("../../web/fold.js"))
}

async fn follow_js() -> impl IntoResponse {
    script(include_str!("../../web/follow.js"))
}

async fn style_css() -> impl IntoResponse {
    asset("text/css; charset=utf-8", include_str!("../../web/style.css"))
}

fn script(text: &'static str) -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", text)
}

pub(crate) fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}
