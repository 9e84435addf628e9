//! Checks of `Host` and `Origin`, CORS, and the headers of every response.
//!
//! A page of another site can make a browser send requests to the server, and with DNS rebinding even read the
//! responses. So `Host` must be one of the server's names, and `Origin` must be allowed. `X-Forwarded-*` is ignored,
//! because anybody can send it.
//!
//! CORS is implemented here and not with `tower_http::cors`, which answers every `OPTIONS` request, also one that is no
//! preflight, and cannot allow both the listed and the requested headers.

use crate::app::App;
use crate::error_format::ErrorFormat;
use crate::problem::Problem;
use axum::extract::{MatchedPath, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::error::ErrorCode;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

const ALLOWED_METHODS: &str = "GET, HEAD, POST, DELETE";
const ALLOWED_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id";
const EXPOSED_HEADERS: &str =
    "location, x-request-id, retry-after, accept-ranges, content-disposition, content-range, etag";
const PREFLIGHT_MAX_AGE_SECONDS: &str = "600";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

#[derive(Clone, Debug)]
pub(crate) struct OriginPolicy {
    is_loopback: bool,
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl OriginPolicy {
    pub(crate) fn new(listen: SocketAddr, hosts: Vec<String>, origins: Vec<String>) -> Self {
        Self { is_loopback: listen.ip().is_loopback(), hosts, origins }
    }

    fn is_own_host(&self, authority: &str) -> bool {
        let Ok(parsed) = authority.parse::<Authority>() else { return false };
        if authority.contains('@') {
            return false;
        }
        let host = parsed.host().to_ascii_lowercase();
        let with_port = authority.to_ascii_lowercase();
        let is_listed = self.hosts.iter().any(|own| *own == host || *own == with_port);
        // A name can be made to resolve to any address; addresses and `localhost` cannot.
        let is_local = match parse_ip_host(&host) {
            Some(address) => !self.is_loopback || address.is_loopback(),
            None => host == "localhost",
        };
        is_listed || is_local
    }

    fn check_host(&self, request: &Request) -> Result<(), Problem> {
        let mut hosts = request.headers().get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        // The request line may have a host, too, which then takes precedence.
        let request_target = request.uri().authority().map(Authority::as_str);
        let is_own = |authority: Option<&str>| authority.is_some_and(|authority| self.is_own_host(authority));
        if is_own(host) && hosts.next().is_none() && request_target.is_none_or(|authority| self.is_own_host(authority))
        {
            return Ok(());
        }
        let detail = "the server does not answer for this host; add it to [server] hosts";
        Err(Problem::new(ErrorCode::HostNotAllowed, detail).closing_connection())
    }

    /// Returns the origin of a request from a web page.
    fn check_origin(&self, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(None) };
        let text = origin.to_str().unwrap_or_default();
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if origins.next().is_none() && self.is_allowed_origin(text, host) {
            return Ok(Some(origin.clone()));
        }
        let detail = "pages of this origin may not use the server; add it to [server] origins";
        Err(Problem::new(ErrorCode::OriginNotAllowed, detail).closing_connection())
    }

    fn is_allowed_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let Some(authority) = rest else { return false };
        if authority == host.to_ascii_lowercase() || self.origins.contains(&origin) {
            return true;
        }
        let Ok(parsed) = authority.parse::<Authority>() else { return false };
        let is_local =
            parsed.host() == "localhost" || parse_ip_host(parsed.host()).is_some_and(|address| address.is_loopback());
        self.is_loopback && is_local && !authority.contains('@')
    }
}

fn parse_ip_host(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).parse().ok()
}

/// The outermost layer.
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
    next.run(request).await
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

    fn enforce_origin_policy(listen: &str) -> OriginPolicy {
        OriginPolicy::new(
            listen.parse().unwrap(),
            vec!["hw.example".to_owned()],
            vec!["https://app.example".to_owned()],
        )
    }

    #[test]
    fn on_loopback_only_this_machines_names_are_its_own() {
        let guard = enforce_origin_policy("127.0.0.1:0");
        for own in
            ["localhost", "LOCALHOST:8787", "127.0.0.1:1", "127.9.9.9", "[::1]:8787", "hw.example", "hw.example:443"]
        {
            assert!(guard.is_own_host(own), "{own}");
        }
        for foreign in
            ["", "evil.example", "10.0.0.1", "localhost.evil.example", "user@localhost", "[::2]", "127.0.0.1.nip.io"]
        {
            assert!(!guard.is_own_host(foreign), "{foreign}");
        }
    }

    #[test]
    fn elsewhere_addresses_and_named_hosts_are_its_own() {
        let guard = enforce_origin_policy("0.0.0.0:8787");
        assert!(
            guard.is_own_host("10.0.0.1:8787") && guard.is_own_host("hw.example") && guard.is_own_host("[fe80::1]")
        );
        assert!(!guard.is_own_host("evil.example"));
    }

    #[test]
    fn pages_of_this_machine_may_ask_on_loopback_only() {
        let here = enforce_origin_policy("127.0.0.1:8787");
        for may in ["http://localhost:3000", "http://127.0.0.1:5173", "https://app.example", "http://[::1]:1"] {
            assert!(here.is_allowed_origin(may, "127.0.0.1:8787"), "{may}");
        }
        for may_not in
            ["null", "https://evil.example", "http://localhost.evil.example", "file://", "", "http://a@localhost"]
        {
            assert!(!here.is_allowed_origin(may_not, "127.0.0.1:8787"), "{may_not}");
        }
        let out = enforce_origin_policy("0.0.0.0:8787");
        assert!(!out.is_allowed_origin("http://localhost:3000", "hw.example"));
        assert!(out.is_allowed_origin("https://hw.example", "hw.example"), "same origin");
    }
}
