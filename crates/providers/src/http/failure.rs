//! What went wrong between us and a service, in words that say where, and whether trying again may help.
//!
//! What a service itself says when it refuses is read by its dialect; that, too, passes through [`Place::tell`].

use super::HttpProviderInner;
use super::secrets::TurnSecrets;
use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::ModelFailure;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// Who failed, for all that is said of it.
pub(super) struct FailureSource<'a> {
    /// The provider's name here.
    pub(super) name: &'a str,
    /// Its host, with a port that is not the usual one.
    pub(super) host: String,
}

impl<'a> FailureSource<'a> {
    pub(super) fn from_inner(shared: &'a HttpProviderInner) -> Self {
        let host = shared.endpoint.host_str().unwrap_or_default();
        let host = shared.endpoint.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Self { name: &shared.settings.name, host }
    }

    /// The request came to nothing.
    pub(super) fn request_failed(&self, error: &reqwest::Error) -> ModelFailure {
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => new_failure(
                ErrorCode::UpstreamTimeout,
                format!("{} did not accept a connection in time.", self.host),
                true,
            ),
            (true, false) => self.unreachable(error),
            (false, _) => self.connection_lost(error),
        }
    }

    /// Nobody is there, or nobody who can be trusted.
    fn unreachable(&self, error: &reqwest::Error) -> ModelFailure {
        let why = root_cause(error);
        // A bad certificate is as bad in a second.
        let retryable = !why.contains("certificate");
        new_failure(ErrorCode::UpstreamUnreachable, format!("Cannot reach {}: {why}.", self.host), retryable)
    }

    /// It took too long.
    pub(super) fn timed_out(&self, wait: TimeoutKind, limit: Duration) -> ModelFailure {
        let (host, ms) = (&self.host, limit.as_millis());
        let message = match wait {
            TimeoutKind::FirstByte => format!("{host} did not begin to answer within {ms} ms."),
            TimeoutKind::Idle => format!("{host} stopped in the middle of its answer: nothing came for {ms} ms."),
            TimeoutKind::Total => format!("{host} was not done after {ms} ms."),
        };
        new_failure(ErrorCode::UpstreamTimeout, message, true)
    }

    /// The connection ended before the answer did.
    pub(super) fn connection_lost(&self, error: &reqwest::Error) -> ModelFailure {
        let message = format!("The connection to {} broke: {}.", self.host, root_cause(error));
        new_failure(ErrorCode::UpstreamIncomplete, message, true)
    }

    /// What came is not what was asked for.
    pub(super) fn protocol_error(&self, what: &str) -> ModelFailure {
        new_failure(ErrorCode::ProviderProtocolError, format!("{} {what}.", self.host), true)
    }

    /// The key or a header cannot be had. Trying again finds the same.
    pub(super) fn missing_credentials(&self, why: &str) -> ModelFailure {
        new_failure(ErrorCode::ProviderAuth, format!("Cannot ask {}: {why}.", self.host), false)
    }

    /// The failure as others may read it: without secrets, and with the place.
    pub(super) fn redact_and_annotate(&self, mut failure: ModelFailure, secrets: &TurnSecrets) -> ModelFailure {
        let error = &mut failure.error;
        error.message = secrets.redact(&error.message);
        let mut details = match error.details.take() {
            Some(Value::Object(details)) => Value::Object(details),
            Some(other) => json!({ "details": other }),
            None => json!({}),
        };
        secrets.redact_json(&mut details);
        if let Some(details) = details.as_object_mut() {
            details.insert("provider".to_owned(), self.name.into());
            details.insert("host".to_owned(), self.host.as_str().into());
        }
        error.details = Some(details);
        failure
    }
}

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeoutKind {
    FirstByte,
    Idle,
    Total,
}

fn new_failure(code: ErrorCode, message: String, retryable: bool) -> ModelFailure {
    let error = ErrorInfo { retryable: Some(retryable), ..ErrorInfo::new(code, message) };
    ModelFailure { error, retry_after_ms: None }
}

/// The innermost reason. The outer ones repeat the address, and what is in it is nobody's business.
fn root_cause(error: &reqwest::Error) -> String {
    let mut reason: &dyn Error = error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string().trim_end_matches('.').to_owned()
}
