//! Who is asking.
//!
//! Mode `none`: everybody is the user `local`, and the server listens on this machine only. Mode `keys`: a request
//! carries `Authorization: Bearer hw_…`, or `x-api-key: hw_…`, which is the same in other words. Tokens in a URL are
//! refused like any unknown parameter, because URLs end up in logs; a browser's `EventSource`, which cannot send headers,
//! needs `fetch` instead.

use crate::app::App;
use crate::keys::Keys;
use crate::problem::Problem;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::UserId;
use std::sync::Arc;

/// The user when nobody has to say who they are.
const LOCAL: &str = "local";
/// Where clients of Anthropic's protocol send their key.
const API_KEY: &str = "x-api-key";
/// Longer is no key of ours.
const TOKEN_BYTES_MAX: usize = 128;

/// How requests are told apart.
#[derive(Clone, Debug)]
pub(crate) enum Auth {
    /// Not at all.
    Open,
    /// By key.
    Keys(Arc<Keys>),
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
}

impl Pass {
    /// Does it still?
    pub(crate) fn is_good(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Key(keys, id) => keys.is_live(id),
        }
    }
}

impl Auth {
    fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        match self {
            Self::Open => Some(Caller { user: UserId::from(LOCAL), pass: Pass::Open }),
            Self::Keys(keys) => {
                let token = token(headers).filter(|token| token.len() <= TOKEN_BYTES_MAX)?;
                let (user, id) = keys.find(token)?;
                Some(Caller { user, pass: Pass::Key(Arc::clone(keys), id) })
            }
        }
    }
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
    match app.auth.caller(request.headers()) {
        Some(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => {
            // The same for no key, a malformed one and a revoked one.
            let detail = "this needs a key: send Authorization: Bearer hw_…";
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
            problem.header(header::WWW_AUTHENTICATE, "Bearer").into_response()
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Missing only where a route was mounted outside `require`.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}
