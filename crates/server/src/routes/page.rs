//! `GET /`, its assets, and the OpenAPI document, all embedded in the binary.

use axum::http::header;
use axum::response::IntoResponse;

pub(crate) const OPENAPI_JSON: &str = include_str!("../../openapi.json");

/// The page shows the output of models and tools, which must not run scripts or fetch from other hosts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn index() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, include_str!("../../web/index.html"))
}

pub(crate) async fn app_js() -> impl IntoResponse {
    script(include_str!("../../web/app.js"))
}

pub(crate) async fn draw_js() -> impl IntoResponse {
    script(include_str!("../../web/draw.js"))
}

pub(crate) async fn fold_js() -> impl IntoResponse {
    script(include_str!("../../web/fold.js"))
}

pub(crate) async fn follow_js() -> impl IntoResponse {
    script(include_str!("../../web/follow.js"))
}

pub(crate) async fn style_css() -> impl IntoResponse {
    asset("text/css; charset=utf-8", include_str!("../../web/style.css"))
}

pub(crate) async fn openapi_json() -> impl IntoResponse {
    asset("application/json", OPENAPI_JSON)
}

fn script(text: &'static str) -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", text)
}

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], text)
}
