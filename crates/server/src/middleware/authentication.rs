//! Finds the caller of a request by its token or its ticket.

use crate::api_keys::KeyLookup;
use crate::app::App;
use crate::auth::{self, Authenticator, Caller, Credential};
use crate::listen::PeerAddr;
use crate::problem::Problem;
use crate::query_params;
use crate::viewer_routes::check_viewer_route;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::attachments::{SignedBlobUrl, SignedUrl};
use gateway::dates::format_timestamp;
use gateway::shares::SHARE_TOKEN_PREFIX;
use model::blob::BLOB_URL_PREFIX;
use model::error::ErrorCode;
use model::{Millis, UserId};
use std::net::IpAddr;
use std::sync::Arc;

/// The header of Anthropic's clients.
const API_KEY_HEADER: &str = "x-api-key";
/// Other spellings, such as percent-encoded ones, are not recognized.
const TICKET_PARAM: &str = "ticket=";
/// Routes that accept tickets: what browsers open without headers.
const TICKET_ROUTES: [&str; 7] = [
    "/v1/tasks/{task}/events",
    "/v1/threads/{thread}/events",
    "/api/v1/agent/runs/{thread}/events",
    "/agui/{agent}/threads/{thread}/events",
    "/v1/mcp/{server}/authorize",
    "/ws",
    "/v1/responses",
];
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
        true => caller_from_ticket(&app, &mut request).await.ok_or_else(invalid_ticket),
        false => caller_from_token_of_any_node(&app, request.headers()).await,
    };
    let caller = match caller {
        Ok(caller) => caller,
        Err(problem) => {
            let guesser = guesser_of(&request, &problem);
            return refuse_caller(&app, guesser, problem).await.into_response();
        }
    };
    if caller.share().is_some()
        && let Err(problem) = check_viewer_route(request.method(), &matched_route(&request))
    {
        return problem.into_response();
    }
    let _in_flight = match app.request_limits.admit(&caller.user).await {
        Ok(permit) => permit,
        Err(rejection) => return Problem::from(rejection).into_response(),
    };
    let user = caller.user.clone();
    request.extensions_mut().insert(caller);
    app.request_limits.handle_in_turn(&user, next.run(request)).await
}

/// The address of a request with an invalid key. A request without one is not an attempt, and nobody guesses a revoked one.
fn guesser_of(request: &Request, problem: &Problem) -> Option<IpAddr> {
    let is_attempt = matches!(RequestToken::from_headers(request.headers()), RequestToken::One(_))
        && problem.code() != ErrorCode::RevokedApiKey;
    request.extensions().get::<PeerAddr>().filter(|_| is_attempt).map(|PeerAddr(peer)| peer.ip())
}

async fn refuse_caller(app: &App, guesser: Option<IpAddr>, problem: Problem) -> Problem {
    let Some(address) = guesser else { return problem };
    app.request_limits.count_invalid_key(address).await.map_or_else(Problem::from, |()| problem)
}

/// A key or a share may have been created on another node a moment ago.
async fn caller_from_token_of_any_node(app: &App, headers: &HeaderMap) -> Result<Caller, Problem> {
    let caller = caller_from_token(app, headers);
    match &app.credential_sync {
        Some(sync) if caller.is_err() && matches!(RequestToken::from_headers(headers), RequestToken::One(_)) => {
            sync.look_again().await;
            caller_from_token(app, headers)
        }
        _ => caller,
    }
}

fn caller_from_token(app: &App, headers: &HeaderMap) -> Result<Caller, Problem> {
    let token = RequestToken::from_headers(headers);
    if let RequestToken::One(token) = token
        && token.starts_with(SHARE_TOKEN_PREFIX)
    {
        let viewer = app.gateway.shares.find_by_token(token).ok_or_else(invalid_share)?;
        return Ok(Caller { user: viewer.user, credential: Credential::Share(viewer.share) });
    }
    let Authenticator::Keys(keys) = &app.auth else {
        return Ok(Caller { user: UserId::from(auth::LOCAL_USER), credential: Credential::Local });
    };
    match token {
        RequestToken::One(token) => match keys.find(token) {
            KeyLookup::Active { user, id } => Ok(Caller { user, credential: Credential::Key(Arc::clone(keys), id) }),
            KeyLookup::Revoked { at } => Err(revoked_key(at)),
            KeyLookup::Unknown => Err(unknown_key()),
        },
        RequestToken::Missing => Err(missing_key()),
        RequestToken::Malformed => Err(malformed_key()),
    }
}

/// RFC 6750, section 3: a request without a credential gets a challenge without an error.
fn missing_key() -> Problem {
    let detail = "a key is required: send it as `Authorization: Bearer hw_…` or `x-api-key: hw_…`";
    Problem::new(ErrorCode::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

fn malformed_key() -> Problem {
    let detail = "the key cannot be read: send one header, `Authorization: Bearer hw_…` or `x-api-key: hw_…`";
    Problem::new(ErrorCode::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

fn unknown_key() -> Problem {
    let detail = "there is no such key: check that it was copied whole, or ask the operator for one";
    invalid_token(ErrorCode::InvalidApiKey, detail, "there is no such key")
}

/// Only who has the key learns that it was valid once.
fn revoked_key(at: Millis) -> Problem {
    let at = format_timestamp(at);
    let detail = format!("the key was revoked at {at}: ask the operator for another one");
    invalid_token(ErrorCode::RevokedApiKey, detail, "the key was revoked").with_extension("revoked_at", at)
}

fn invalid_share() -> Problem {
    let detail = "the share's token is unknown, expired or revoked: ask for another one";
    invalid_token(ErrorCode::Unauthorized, detail, "the share is not open")
}

fn invalid_ticket() -> Problem {
    let detail = "the ticket is used, expired, or not valid for this route: get a new one with POST /v1/tickets";
    Problem::new(ErrorCode::Unauthorized, detail).with_header(header::WWW_AUTHENTICATE, "Bearer")
}

fn invalid_token(code: ErrorCode, detail: impl Into<String>, description: &str) -> Problem {
    let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{description}\"");
    Problem::new(code, detail).with_header(header::WWW_AUTHENTICATE, challenge)
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
async fn caller_from_ticket(app: &App, request: &mut Request) -> Option<Caller> {
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
    if !accepts_ticket || !has_no_token {
        return None;
    }
    let mut caller = app.tickets.redeem(&ticket, &app.auth, &app.gateway.shares).await;
    caller.take_if(|caller| !caller.credential.is_valid());
    caller
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

/// The token in the headers of a request.
#[derive(Clone, Copy)]
enum RequestToken<'a> {
    Missing,
    /// Not of the form `Bearer TOKEN`, or two tokens, of which it is not clear which one applies.
    Malformed,
    One(&'a str),
}

impl<'a> RequestToken<'a> {
    fn from_headers(headers: &'a HeaderMap) -> Self {
        let mut bearers = headers.get_all(header::AUTHORIZATION).iter();
        let mut plain = headers.get_all(API_KEY_HEADER).iter();
        let token = match (bearers.next(), bearers.next(), plain.next(), plain.next()) {
            (None, None, None, None) => return Self::Missing,
            (Some(bearer), None, None, None) => bearer_token(bearer),
            (None, None, Some(key), None) => key.to_str().ok().map(str::trim),
            _ => None,
        };
        token.filter(|token| !token.is_empty()).map_or(Self::Malformed, Self::One)
    }
}

/// The token of an `Authorization: Bearer …` header.
pub(crate) fn bearer_token(header: &HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
