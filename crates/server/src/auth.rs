//! Who is asking.
//!
//! Mode `none`: everybody is the user `local`, and the server listens on this machine only. Mode `keys`: a request
//! carries `Authorization: Bearer hw_…`, or `x-api-key: hw_…`, which is the same in other words. In both, whoever sends a
//! share's token (`hws_…`) in that place is its viewer. Tokens in a URL are refused like any unknown parameter, because
//! URLs end up in logs; a browser's `EventSource` or `WebSocket`, which cannot send headers, has a ticket there
//! (`?ticket=hwt_…`), which is taken out of the URL before anybody else sees it.

use crate::app::App;
use crate::keys::Keys;
use crate::problem::Problem;
use crate::shares::{self, LOOK_EVERY, Share};
use axum::extract::{FromRequestParts, MatchedPath, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::UserId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The user when nobody has to say who they are.
const LOCAL: &str = "local";
/// Where clients of Anthropic's protocol send their key.
const API_KEY: &str = "x-api-key";
/// Longer is no key of ours.
const TOKEN_BYTES_MAX: usize = 128;
/// How a ticket stands in a URL. Written in any other way it is none.
const TICKET: &str = "ticket=";
/// Where tickets are taken: what a browser follows without headers.
const FOLLOWED: [&str; 4] =
    ["/v1/tasks/{task}/events", "/v1/threads/{thread}/events", "/api/v1/agent/runs/{thread}/events", "/ws"];
/// … and this one, where it streams.
const RESPONSE: &str = "/v1/responses/{response}";

/// How requests are told apart.
#[derive(Clone, Debug)]
pub(crate) enum Auth {
    /// Not at all.
    Open,
    /// By key.
    Keys(Arc<Keys>),
}

impl Auth {
    /// Is this still a user? For what was given to somebody who need not say any more who they are.
    pub(crate) fn lets_in(&self, user: &UserId) -> bool {
        match self {
            Self::Open => user.as_str() == LOCAL,
            Self::Keys(keys) => keys.lets_in(user),
        }
    }
}

/// Who is asking, and what lets them.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: UserId,
    pub(crate) pass: Pass,
}

/// What lets somebody in. Held by open streams, which end when it no longer does.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    Open,
    Key(Arc<Keys>, Arc<str>),
    Share(Arc<Share>),
}

impl Caller {
    /// What they are a viewer of.
    pub(crate) const fn share(&self) -> Option<&Arc<Share>> {
        match &self.pass {
            Pass::Share(share) => Some(share),
            Pass::Open | Pass::Key(..) => None,
        }
    }

    /// How often a stream has to look whether it may go on, where its heartbeat is not often enough.
    pub(crate) fn looks_every(&self) -> Option<Duration> {
        self.share().map(|_| LOOK_EVERY)
    }

    /// May a stream go on? Cheap: for every piece of it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.share().is_none_or(|share| share.is_open())
    }
}

impl Pass {
    /// Does it still?
    pub(crate) fn is_good(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Key(keys, id) => keys.is_live(id),
            Self::Share(share) => share.is_open(),
        }
    }
}

/// Who sends this request, by what it carries in a header.
fn by_token(app: &App, headers: &HeaderMap) -> Option<Caller> {
    let token = token(headers).filter(|token| token.len() <= TOKEN_BYTES_MAX);
    if let Some(token) = token.filter(|token| token.starts_with(shares::PREFIX)) {
        return app.shares.find(token);
    }
    match &app.auth {
        Auth::Open => Some(Caller { user: UserId::from(LOCAL), pass: Pass::Open }),
        Auth::Keys(keys) => {
            let (user, id) = keys.find(token?)?;
            Some(Caller { user, pass: Pass::Key(Arc::clone(keys), id) })
        }
    }
}

/// Who sends this request, by the ticket in its URL, which is gone from there when this returns. One ticket is taken, by
/// itself, and where headers cannot be sent.
fn by_ticket(app: &App, request: &mut Request) -> Option<Caller> {
    let query = request.uri().query().unwrap_or_default();
    let (tickets, rest): (Vec<&str>, Vec<&str>) = query.split('&').partition(|pair| pair.starts_with(TICKET));
    let ticket = match tickets.as_slice() {
        [ticket] => ticket.strip_prefix(TICKET).unwrap_or_default().to_owned(),
        _ => return None,
    };
    let uri = with_query(request.uri(), &rest.join("&"))?;
    let route = route(request);
    let is_stream = FOLLOWED.contains(&route.as_str()) || route == RESPONSE && streams(&uri);
    let is_followed = *request.method() == Method::GET && is_stream;
    *request.uri_mut() = uri;
    let bare = !request.headers().contains_key(header::AUTHORIZATION) && !request.headers().contains_key(API_KEY);
    if is_followed && bare { app.tickets.take(&ticket, Instant::now()) } else { None }
}

/// Is it a stream that is asked for, and nothing else beside? Who says `stream` twice may mean anything.
fn streams(uri: &Uri) -> bool {
    let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|pairs| pairs.0).unwrap_or_default();
    let mut said = pairs.iter().filter(|(name, _)| name == "stream").map(|(_, value)| value.as_str());
    (said.next(), said.next()) == (Some("true"), None)
}

fn has_ticket(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with(TICKET)))
}

fn with_query(uri: &Uri, query: &str) -> Option<Uri> {
    let mut parts = uri.clone().into_parts();
    let text = if query.is_empty() { uri.path().to_owned() } else { format!("{}?{query}", uri.path()) };
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned()).unwrap_or_default()
}

/// The one key that a request carries. Two are none: nobody could say which counts.
fn token(headers: &HeaderMap) -> Option<&str> {
    let mut bearers = headers.get_all(header::AUTHORIZATION).iter();
    let mut plain = headers.get_all(API_KEY).iter();
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
pub(crate) async fn require(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let had_ticket = has_ticket(request.uri());
    let caller = match had_ticket {
        true => by_ticket(&app, &mut request),
        false => by_token(&app, request.headers()),
    };
    let Some(caller) = caller else {
        // The same for no key, a malformed one and a revoked one.
        let detail = match had_ticket {
            true => {
                "this ticket was used, is over, or opens nothing here: POST /v1/tickets gives a new one for a stream"
            }
            false => "this needs a key: send Authorization: Bearer hw_…",
        };
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        return problem.header(header::WWW_AUTHENTICATE, "Bearer").into_response();
    };
    if caller.share().is_some()
        && let Err(problem) = shares::admit(request.method(), &route(&request))
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
