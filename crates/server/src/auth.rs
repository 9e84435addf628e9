//! Authentication.
//!
//! Mode `none`: every caller is the user `local`, and the server listens on the loopback interface only. Mode `keys`: a
//! request has `Authorization: Bearer hw_…` or `x-api-key: hw_…`. In both modes a share's token (`hws_…`) in their place
//! makes the caller its viewer. Tokens in a URL are rejected like any unknown parameter, because URLs end up in logs. A
//! browser's `EventSource` or `WebSocket`, which cannot send headers, has a ticket there (`?ticket=hwt_…`), which is
//! removed from the URL before anything else sees it. A signed URL of a blob needs no other credential.

use crate::api_keys::ApiKeys;
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use gateway::shares::Share;
use model::UserId;
use std::sync::Arc;
use std::time::Duration;

/// How often the stream of a viewer checks that its share is open.
const SHARE_RECHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The user of mode `none`.
pub(crate) const LOCAL_USER: &str = "local";

#[derive(Clone, Debug)]
pub(crate) enum Authenticator {
    /// Every caller is the user `local`.
    Disabled,
    Keys(Arc<ApiKeys>),
}

impl Authenticator {
    /// Whether the user still has access. For shares and signed URLs, which outlive the request of their owner.
    pub(crate) fn is_known_user(&self, user: &UserId) -> bool {
        match self {
            Self::Disabled => user.as_str() == LOCAL_USER,
            Self::Keys(keys) => keys.has_key_of(user),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) user: UserId,
    pub(crate) credential: Credential,
}

/// Open streams hold it and end when it becomes invalid.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    Local,
    Key(Arc<ApiKeys>, Arc<str>),
    Share(Arc<Share>),
    /// A signed URL of a blob: for that one request.
    SignedUrl,
}

impl Caller {
    /// The share, if the caller is its viewer.
    pub(crate) const fn share(&self) -> Option<&Arc<Share>> {
        match &self.credential {
            Credential::Share(share) => Some(share),
            Credential::Local | Credential::Key(..) | Credential::SignedUrl => None,
        }
    }

    /// How often a stream checks the credential, if each heartbeat is not often enough.
    pub(crate) fn recheck_interval(&self) -> Option<Duration> {
        self.share().map(|_| SHARE_RECHECK_INTERVAL)
    }

    /// Cheap enough for every chunk of a stream.
    pub(crate) fn is_still_allowed(&self) -> bool {
        self.share().is_none_or(|share| share.is_open())
    }
}

impl Credential {
    pub(crate) fn is_valid(&self) -> bool {
        match self {
            Self::Local | Self::SignedUrl => true,
            Self::Key(keys, id) => keys.is_active(id),
            Self::Share(share) => share.is_open(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Missing only if a route was mounted outside `require_caller`.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}
