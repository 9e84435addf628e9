//! Failures of the transport: where they happened, and whether a retry may help.
//!
//! The dialects classify the errors of a service; those, too, pass through [`FailureSource::redact_and_annotate`].

use super::client::HttpProviderInner;
use super::secrets::TurnSecrets;
use super::transport::TransportError;
use model::error::{ErrorCode, ErrorInfo};
use model::model_turn::ModelFailure;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// The service in error messages.
pub(super) struct FailureSource<'a> {
    pub(super) name: &'a str,
    /// With the port, unless it is the default.
    pub(super) host: &'a str,
}

impl<'a> FailureSource<'a> {
    pub(super) fn from_inner(shared: &'a HttpProviderInner) -> Self {
        Self { name: &shared.settings.name, host: &shared.host }
    }

    pub(super) fn request_failed(&self, error: &TransportError) -> ModelFailure {
        match error {
            TransportError::ConnectTimeout => new_failure(
                ErrorCode::UpstreamTimeout,
                format!("{} did not accept the connection in time.", self.host),
                true,
            ),
            TransportError::Connect(why) => self.unreachable(why),
            TransportError::Lost(_) | TransportError::InvalidRequest(_) => self.connection_lost(error),
        }
    }

    fn unreachable(&self, error: &(dyn Error + 'static)) -> ModelFailure {
        let why = root_cause(error);
        // An invalid certificate does not become valid by retrying.
        let retryable = !why.contains("certificate");
        new_failure(ErrorCode::UpstreamUnreachable, format!("Cannot reach {}: {why}.", self.host), retryable)
    }

    pub(super) fn timed_out(&self, kind: TimeoutKind, limit: Duration) -> ModelFailure {
        let (host, ms) = (self.host, limit.as_millis());
        let message = match kind {
            TimeoutKind::FirstByte => format!("{host} did not begin its response within {ms} ms."),
            TimeoutKind::Idle => format!("{host} stalled in the middle of its response: no data for {ms} ms."),
            TimeoutKind::Total => format!("{host} did not complete its response within {ms} ms."),
        };
        new_failure(ErrorCode::UpstreamTimeout, message, true)
    }

    pub(super) fn connection_lost(&self, error: &(dyn Error + 'static)) -> ModelFailure {
        let message = format!("The connection to {} was lost: {}.", self.host, root_cause(error));
        new_failure(ErrorCode::UpstreamIncomplete, message, true)
    }

    /// `what` completes the sentence that begins with the host.
    pub(super) fn protocol_error(&self, what: &str) -> ModelFailure {
        new_failure(ErrorCode::ProviderProtocolError, format!("{} {what}.", self.host), true)
    }

    pub(super) fn missing_credentials(&self, why: &str) -> ModelFailure {
        new_failure(ErrorCode::ProviderAuth, format!("Cannot call {}: {why}.", self.host), false)
    }

    /// Removes secrets from the failure and adds the provider and the host.
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
            details.insert("host".to_owned(), self.host.into());
        }
        error.details = Some(details);
        failure
    }
}

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

/// The outer errors repeat the URL, which may contain secrets.
fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().trim_end_matches('.').to_owned()
}
