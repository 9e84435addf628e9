//! The outermost layer: checks `Host` and `Origin`, answers preflights, formats errors and adds the headers of every
//! response. A panic of the request is caught here.
//!
//! CORS is not `tower_http::cors`: it answers every `OPTIONS` request (also one that is no preflight) with 200 instead of
//! 204, refuses no origin, and exposes headers to requests without one. Wrapping it would be longer than this.

use crate::app::App;
use crate::error_format::ErrorFormat;
use crate::problem::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use model::error::ErrorCode;
use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

const ALLOWED_METHODS: &str = "GET, HEAD, POST, DELETE";
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id";
const EXPOSED_HEADERS: &str = "location, x-request-id, retry-after, www-authenticate, accept-ranges, \
     content-disposition, content-range, etag, x-vercel-ai-ui-message-stream";
const PREFLIGHT_MAX_AGE_SECONDS: &str = "600";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub(crate) async fn enforce_origin_policy(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let error_format = ErrorFormat::for_path(request.uri().path());
    let checked =
        app.origin_policy.check_host(&request).and_then(|()| app.origin_policy.check_origin(request.headers()));
    let (mut response, origin) = match checked {
        Err(problem) => (problem.into_response(), None),
        Ok(origin) => (route_request(&app, request, next, origin.as_ref()).await, origin),
    };
    let id = next_request_id();
    response = error_format.format_error(response, &id);
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    }
    count_request(route.as_ref(), &method, response.status());
    response
}

async fn route_request(app: &App, request: Request, next: Next, origin: Option<&HeaderValue>) -> Response {
    if request.method() == Method::CONNECT || request.method() == Method::TRACE {
        return method_not_allowed().with_header(header::ALLOW, ALLOWED_METHODS).closing_connection().into_response();
    }
    let is_preflight = request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    if request.method() == Method::OPTIONS && origin.is_some() && is_preflight {
        return preflight_response(request.headers());
    }
    if app.is_shutting_down() && request.method() == Method::POST {
        return Problem::shutting_down().closing_connection().into_response();
    }
    catch_panic(next.run(request)).await
}

/// A bug costs one response, not the process.
async fn catch_panic(handling: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|cause| panic_response(&*cause))
}

fn panic_response(cause: &(dyn Any + Send)) -> Response {
    let text = cause.downcast_ref::<&str>().copied();
    let text = text.or_else(|| cause.downcast_ref::<String>().map(String::as_str)).unwrap_or_default();
    tracing::error!(cause = text, "a request panicked");
    metrics::counter!("headwater_panics_total").increment(1);
    Problem::internal().into_response()
}

/// Allows all headers that the page requests, because every SDK has headers of its own.
fn preflight_response(request: &HeaderMap) -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_SECONDS),
    ];
    let mut response = (StatusCode::NO_CONTENT, headers).into_response();
    let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS).and_then(|names| names.to_str().ok());
    let allowed = requested.map_or(ALLOWED_HEADERS.to_owned(), |names| format!("{ALLOWED_HEADERS}, {names}"));
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed);
    }
    response
}

/// Axum adds the `Allow` header.
pub(crate) fn method_not_allowed() -> Problem {
    Problem::new(ErrorCode::MethodNotAllowed, "the route does not support this method")
}

fn next_request_id() -> HeaderValue {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static BOOT: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    let boot = BOOT.get_or_init(|| getrandom::u32().unwrap_or_default());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::try_from(format!("req_{boot:08x}{number:08x}")).unwrap_or_else(|_| HeaderValue::from_static("req_"))
}

fn count_request(route: Option<&MatchedPath>, method: &Method, status: StatusCode) {
    let route = route.map_or_else(|| "other".to_owned(), |route| route.as_str().to_owned());
    // Clients can send any method, and labels must be bounded.
    let known = [Method::GET, Method::HEAD, Method::POST, Method::DELETE, Method::OPTIONS];
    let method = known.iter().find(|known| *known == method).map_or("other", Method::as_str).to_owned();
    let status = status.as_str().to_owned();
    metrics::counter!("headwater_http_requests_total", "route" => route, "method" => method, "status" => status)
        .increment(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let broken = catch_panic(async { panic!("a bug") }).await;
        assert_eq!(broken.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(catch_panic(async { Response::default() }).await.status(), StatusCode::OK);
    }
}
