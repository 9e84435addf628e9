//! Who is asking.
//!
//! Mode `none`: everybody is the user `local`, and the server listens on this machine only. Mode `keys`: a request
//! carries `Authorization: Bearer hw_…`, or `x-api-key: hw_…`, which is the same in other words. In both, whoever sends a
//! share's token (`hws_…`) in that place is its viewer. Tokens in a URL are refused like any unknown parameter, because
//! URLs end up in logs; a browser's `EventSource` or `WebSocket`, which cannot send headers, has a ticket there
//! (`?ticket=hwt_…`), which is taken out of the URL before anybody else sees it.

use crate::api_keys::ApiKeys;
use crate::app::App;
use crate::problem::Problem;
use crate::viewer_routes::check_viewer_route;
use axum::extract::{FromRequestParts, MatchedPath, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use gateway::shares::{SHARE_TOKEN_PREFIX, Share, ShareViewer};
use model::UserId;
use model::error::ErrorCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the stream of a share's viewer checks that the share is open.
const SHARE_RECHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The user when nobody has to say who they are.
const LOCAL_USER: &str = "local";
/// Where clients of Anthropic's protocol send their key.
const API_KEY_HEADER: &str = "x-api-key";
/// Longer is no key of ours.
const TOKEN_BYTES_MAX: usize = 128;
/// How a ticket stands in a URL. Written in any other way it is none.
const TICKET_PARAM: &str = "ticket=";
/// Where tickets are taken: what a browser follows without headers.
const TICKET_ROUTES: [&str; 4] =
    ["/v1/tasks/{task}/events", "/v1/threads/{thread}/events", "/api/v1/agent/runs/{thread}/events", "/ws"];
/// … and this one, where it streams.
const RESPONSE_ROUTE: &str = "/v1/responses/{response}";

/// How requests are told apart.
#[derive(Clone, Debug)]
pub(crate) enum Authenticator {
    /// Not at all.
    Disabled,
    /// By key.
    Keys(Arc<ApiKeys>),
}

impl Authenticator {
    /// Is this still a user? For what was given to somebody who need not say any more who they are.
    pub(crate) fn is_known_user(&self, user: &UserId) -> bool {
        match self {
            Self::Disabled => user.as_str() == LOCAL_USER,
            Self::Keys(keys) => keys.has_key_of(user),
        }
    }
}

/// Who is asking, and what lets them.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: UserId,
    pub(crate) credential: Credential,
}

/// What lets somebody in. Held by open streams, which end when it no longer does.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    Local,
    Key(Arc<ApiKeys>, Arc<str>),
    Share(Arc<Share>),
}

impl Caller {
    /// What they are a viewer of.
    pub(crate) const fn share(&self) -> Option<&Arc<Share>> {
        match &self.credential {
            Credential::Share(share) => Some(share),
            Credential::Local | Credential::Key(..) => None,
        }
    }

    /// How often a stream has to look whether it may go on, where its heartbeat is not often enough.
    pub(crate) fn recheck_interval(&self) -> Option<Duration> {
        self.share().map(|_| SHARE_RECHECK_INTERVAL)
    }

    /// May a stream go on? Cheap: for every piece of it.
    pub(crate) fn is_still_allowed(&self) -> bool {
        self.share().is_none_or(|share| share.is_open())
    }
}

impl Credential {
    /// Does it still?
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Local => true,
            Self::Key(keys, id) => keys.is_active(id),
            Self::Share(share) => share.is_open(),
        }
    }
}

/// Who sends this request, by what it carries in a header.
fn caller_from_token(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let token = request_token(headers).filter(|token| token.len() <= TOKEN_BYTES_MAX);
    if let Some(token) = token.filter(|token| token.starts_with(SHARE_TOKEN_PREFIX)) {
        let ShareViewer { user, share } = app.gateway.shares.find_by_token(token)?;
        return Some(Caller { user, credential: Credential::Share(share) });
    }
    match &app.auth {
        Authenticator::Disabled => Some(Caller { user: UserId::from(LOCAL_USER), credential: Credential::Local }),
        Authenticator::Keys(keys) => {
            let (user, id) = keys.find(token?)?;
            Some(Caller { user, credential: Credential::Key(Arc::clone(keys), id) })
        }
    }
}

/// Who sends this request, by the ticket in its URL, which is gone from there when this returns. One ticket is taken, by
/// itself, and where headers cannot be sent.
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
    let is_followed = *request.method() == Method::GET && is_stream;
    *request.uri_mut() = uri;
    let bare =
        !request.headers().contains_key(header::AUTHORIZATION) && !request.headers().contains_key(API_KEY_HEADER);
    if is_followed && bare { app.tickets.redeem(&ticket, Instant::now()) } else { None }
}

/// Is it a stream that is asked for, and nothing else beside? Who says `stream` twice may mean anything.
fn asks_for_stream(uri: &Uri) -> bool {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|pairs| pairs.0).unwrap_or_default();
    let mut said = pairs.iter().filter(|(name, _)| name == "stream").map(|(_, value)| value.as_str());
    (said.next(), said.next()) == (Some("true"), None)
}

fn has_ticket(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(TICKET_PARAM)))
}

fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn matched_route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default()
}

/// The one key that a request carries. Two are none: nobody could say which counts.
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

/// Lets a request through that says who it is from.
pub(crate) async fn require_caller(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let had_ticket = has_ticket(request.uri());
    let caller = match had_ticket {
        true => caller_from_ticket(&app, &mut request),
        false => caller_from_token(&app, request.headers()),
    };
    let Some(caller) = caller else {
        // The same for no key, a malformed one and a revoked one.
        let detail = match had_ticket {
            true => {
                "this ticket was used, is over, or opens nothing here: POST /v1/tickets gives a new one for a stream"
            }
            false => "this needs a key: send Authorization: Bearer hw_…",
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

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Missing only where a route was mounted outside `require`.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}
