//! Finds the caller of a request by its token or its ticket.

use crate::app::App;
use crate::auth::{self, Authenticator, Caller, Credential};
use crate::problem::Problem;
use crate::query_params;
use crate::viewer_routes::check_viewer_route;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::attachments::{SignedBlobUrl, SignedUrl};
use gateway::shares::{SHARE_TOKEN_PREFIX, ShareViewer};
use model::UserId;
use model::blob::BLOB_URL_PREFIX;
use model::error::ErrorCode;
use std::sync::Arc;
use std::time::Instant;

/// The header of Anthropic's clients.
const API_KEY_HEADER: &str = "x-api-key";
/// All our tokens are shorter.
const TOKEN_BYTES_MAX: usize = 128;
/// Other spellings, such as percent-encoded ones, are not recognized.
const TICKET_PARAM: &str = "ticket=";
/// Routes that accept tickets: the streams that browsers open without headers.
const TICKET_ROUTES: [&str; 4] =
    ["/v1/tasks/{task}/events", "/v1/threads/{thread}/events", "/api/v1/agent/runs/{thread}/events", "/ws"];
/// Accepts tickets if the request asks for a stream.
const RESPONSE_ROUTE: &str = "/v1/responses/{response}";

/// Accepts signed URLs.
const BLOB_ROUTE: &str = "/v1/blobs/{hash}";
const SIGNATURE_PARAM: &str = "signature=";

/// Rejects requests without a valid credential.
pub(crate) async fn require_caller(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if is_signed_blob_request(&request) {
        return match caller_from_signed_blob(&app, &mut request) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(problem) => problem.into_response(),
        };
    }
    let had_ticket = has_ticket(request.uri());
    let caller = match had_ticket {
        true => caller_from_ticket(&app, &mut request),
        false => caller_from_token(&app, request.headers()),
    };
    let Some(caller) = caller else {
        // The same for a missing, a malformed and a revoked key.
        let detail = match had_ticket {
            true => "the ticket is used, expired, or not valid for this route: get a new one with POST /v1/tickets",
            false => "a key is required: send Authorization: Bearer hw_…",
        };
        let problem = Problem::new(ErrorCode::Unauthorized, detail);
        return problem.with_header(header::WWW_AUTHENTICATE, "Bearer").into_response();
    };
    if caller.share().is_some()
        && let Err(problem) = check_viewer_route(request.method(), &matched_route(&request))
    {
        return problem.into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

fn caller_from_token(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let token = request_token(headers).filter(|token| token.len() <= TOKEN_BYTES_MAX);
    if let Some(token) = token.filter(|token| token.starts_with(SHARE_TOKEN_PREFIX)) {
        let ShareViewer { user, share } = app.gateway.shares.find_by_token(token)?;
        return Some(Caller { user, credential: Credential::Share(share) });
    }
    match &app.auth {
        Authenticator::Disabled => Some(Caller { user: UserId::from(auth::LOCAL_USER), credential: Credential::Local }),
        Authenticator::Keys(keys) => {
            let (user, id) = keys.find(token?)?;
            Some(Caller { user, credential: Credential::Key(Arc::clone(keys), id) })
        }
    }
}

fn is_signed_blob_request(request: &Request) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && matched_route(request) == BLOB_ROUTE
        && request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(SIGNATURE_PARAM)))
}

/// The user for whom a blob URL was signed, and who still has access. Removes the signature from the URL.
fn caller_from_signed_blob(app: &App, request: &mut Request) -> Result<Caller, Problem> {
    let [user, expires, signature] = query_params::parse_query(request.uri(), ["user", "expires", "signature"])?;
    let (Some(user), Some(expires), Some(signature)) = (user, expires, signature) else {
        return Err(SignedUrl::invalid().into());
    };
    let user = UserId::from(user);
    let hash = request.uri().path().strip_prefix(BLOB_URL_PREFIX).unwrap_or_default();
    let url = SignedBlobUrl { hash, user: &user, expires: &expires, signature: &signature };
    app.gateway.attachments.verify_signed_blob(&url)?;
    let credential = match app.gateway.shares.find_by_viewer(&user) {
        Some(share) => Credential::Share(share),
        None if app.auth.is_known_user(&user) => Credential::SignedUrl,
        None => return Err(Problem::not_found()),
    };
    *request.uri_mut() = with_query(request.uri(), "").ok_or_else(Problem::internal)?;
    Ok(Caller { user, credential })
}

/// Removes the ticket from the URL. Accepts exactly one ticket, without another credential, on [`TICKET_ROUTES`].
fn caller_from_ticket(app: &App, request: &mut Request) -> Option<Caller> {
    let query = request.uri().query().unwrap_or_default();
    let (tickets, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with(TICKET_PARAM));
    let ticket = match tickets.as_slice() {
        [ticket] => ticket.strip_prefix(TICKET_PARAM).unwrap_or_default().to_owned(),
        _ => return None,
    };
    let uri = with_query(request.uri(), &rest.join("&"))?;
    let route = matched_route(request);
    let is_stream = TICKET_ROUTES.contains(&route.as_str()) || route == RESPONSE_ROUTE && asks_for_stream(&uri);
    let accepts_ticket = *request.method() == Method::GET && is_stream;
    *request.uri_mut() = uri;
    let has_no_token =
        !request.headers().contains_key(header::AUTHORIZATION) && !request.headers().contains_key(API_KEY_HEADER);
    if accepts_ticket && has_no_token { app.tickets.redeem(&ticket, Instant::now()) } else { None }
}

/// Whether the request asks for a stream and for nothing else; with two values of `stream` that is not clear.
fn asks_for_stream(uri: &Uri) -> bool {
    let pairs = query_params::parse_pairs(uri).unwrap_or_default();
    let mut values = pairs.iter().filter(|(name, _)| name == "stream").map(|(_, value)| value.as_str());
    (values.next(), values.next()) == (Some("true"), None)
}

fn has_ticket(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(TICKET_PARAM)))
}

pub(super) fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

pub(super) fn matched_route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default()
}

/// Two tokens count as none, because it is not clear which one applies.
fn request_token(headers: &HeaderMap) -> Option<&str> {
    let mut bearers = headers.get_all(header::AUTHORIZATION).iter();
    let mut plain = headers.get_all(API_KEY_HEADER).iter();
    match (bearers.next(), bearers.next(), plain.next(), plain.next()) {
        (Some(bearer), None, None, None) => {
            let (scheme, token) = bearer.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        }
        (None, None, Some(key), None) => key.to_str().ok().map(str::trim),
        _ => None,
    }
}
