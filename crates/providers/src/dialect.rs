//! The dialects: endpoint, credentials, and dispatch to the crate `upstream`.

use model::history::HistoryEntry;
use model::json::JsonObject;
use model::model_turn::{ModelFailure, ModelRequest};
use serde_json::Value;
use std::sync::Arc;
use upstream::messages::ExactInputs;
use upstream::{Ingest, RequestTarget, chat, messages, responses};
use url::Url;

/// The wire dialect of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamDialect {
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Chat Completions.
    Chat,
}

/// What a service may refuse to accept of its own earlier output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalScope {
    Reasoning,
    /// It looks each item up by its id, or reasoning may be in any of them.
    AllItems,
}

impl UpstreamDialect {
    pub const ALL: [Self; 3] = [Self::Responses, Self::Messages, Self::Chat];

    /// The name in a configuration.
    pub const fn config_name(self) -> &'static str {
        match self {
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
        }
    }

    /// The base URL of the dialect's reference service.
    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::Responses | Self::Chat => "https://api.openai.com/v1",
            Self::Messages => "https://api.anthropic.com",
        }
    }

    /// Whether this is the vendor's own service, which stands outside of the operator's network.
    pub fn is_public_service(self, base: &Url) -> bool {
        Url::parse(self.default_base_url()).is_ok_and(|public| public.origin() == base.origin())
    }

    /// The URL of requests. A base URL without a path may omit `/v1`; for Anthropic it may always be omitted.
    pub(crate) fn endpoint(self, base: &Url) -> Url {
        let base_path = base.path().trim_end_matches('/');
        let path = match self {
            Self::Messages => {
                format!("{}{}", base_path.strip_suffix("/v1").unwrap_or(base_path), messages::ENDPOINT_PATH)
            }
            Self::Responses | Self::Chat => {
                let resource = if self == Self::Chat { "chat/completions" } else { "responses" };
                format!("{}/{resource}", if base_path.is_empty() { "/v1" } else { base_path })
            }
        };
        let mut endpoint = base.clone();
        endpoint.set_path(&path);
        endpoint
    }

    /// Credentials, and options that go into headers.
    pub(crate) fn headers(self, key: Option<&str>, options: &JsonObject) -> Vec<(&'static str, String)> {
        match self {
            Self::Responses | Self::Chat => {
                key.map(|key| ("authorization", format!("Bearer {key}"))).into_iter().collect()
            }
            Self::Messages => {
                let mut headers = messages::request_headers(options);
                headers.extend(key.map(|key| (messages::API_KEY_HEADER, key.to_owned())));
                headers
            }
        }
    }

    pub(crate) fn build_request(self, turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
        match self {
            Self::Responses => responses::build_request(turn, target),
            Self::Messages => messages::build_request(turn, target),
            Self::Chat => chat::build_request(turn, target),
        }
    }

    /// The entries that [`Self::write_request`] has to write because no earlier request of the thread has.
    pub(crate) fn unwritten_entries<'a>(
        self,
        turn: &'a ModelRequest,
        target: &RequestTarget<'_>,
    ) -> &'a [Arc<HistoryEntry>] {
        match self {
            Self::Responses => responses::unwritten_entries(turn, target),
            Self::Messages => turn.history.entries(),
            Self::Chat => chat::unwritten_entries(turn, target),
        }
    }

    /// The text of the request.
    pub(crate) fn write_request(self, turn: &ModelRequest, target: &RequestTarget<'_>) -> Vec<u8> {
        match self {
            Self::Responses => responses::write_request(turn, target),
            Self::Messages => messages::write_request(turn, target),
            Self::Chat => chat::write_request(turn, target),
        }
    }

    /// The same text for a service that does not accept its own earlier output.
    pub(crate) fn write_without_reasoning(self, turn: &ModelRequest, target: &RequestTarget<'_>) -> Vec<u8> {
        let body = self.without_reasoning(self.build_request(turn, target));
        let exact_inputs = match self {
            // They send arguments as texts.
            Self::Responses | Self::Chat => ExactInputs::new(),
            Self::Messages => messages::exact_inputs(&turn.history, target.origin),
        };
        messages::write_body(&body, &exact_inputs)
    }

    pub(crate) fn without_reasoning(self, body: Value) -> Value {
        match self {
            Self::Responses => responses::without_reasoning(body),
            Self::Messages => messages::without_reasoning(body),
            Self::Chat => chat::without_reasoning(body),
        }
    }

    pub(crate) const fn refusal_scope(self) -> RefusalScope {
        match self {
            Self::Responses | Self::Chat => RefusalScope::AllItems,
            Self::Messages => RefusalScope::Reasoning,
        }
    }

    pub(crate) fn new_ingest(self, origin: String, turn: &ModelRequest) -> Box<dyn Ingest> {
        match self {
            Self::Responses => responses::new_ingest(origin, turn),
            Self::Messages => messages::new_ingest(origin, turn),
            Self::Chat => chat::new_ingest(origin, turn),
        }
    }

    pub(crate) fn classify_error(self, status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
        match self {
            Self::Responses => responses::classify_error(status, body, retry_after_ms),
            Self::Messages => messages::classify_error(status, body, retry_after_ms),
            Self::Chat => chat::classify_error(status, body, retry_after_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_endpoint_url_is_built_with_and_without_v1() {
        let cases = [
            (UpstreamDialect::Responses, "https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
            (UpstreamDialect::Responses, "https://api.openai.com/v1/", "https://api.openai.com/v1/responses"),
            (UpstreamDialect::Responses, "https://api.openai.com", "https://api.openai.com/v1/responses"),
            (
                UpstreamDialect::Responses,
                "https://x.example/openai?api-version=1",
                "https://x.example/openai/responses?api-version=1",
            ),
            (UpstreamDialect::Chat, "http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1/chat/completions"),
            (UpstreamDialect::Chat, "http://127.0.0.1:11434", "http://127.0.0.1:11434/v1/chat/completions"),
            (UpstreamDialect::Chat, "https://x.example/api/v1", "https://x.example/api/v1/chat/completions"),
            (UpstreamDialect::Messages, "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
            (UpstreamDialect::Messages, "https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
            (UpstreamDialect::Messages, "https://x.example/anthropic", "https://x.example/anthropic/v1/messages"),
        ];
        for (kind, base, wanted) in cases {
            assert_eq!(kind.endpoint(&Url::parse(base).unwrap()).as_str(), wanted, "{base}");
        }
        for kind in UpstreamDialect::ALL {
            assert!(
                kind.endpoint(&Url::parse(kind.default_base_url()).unwrap()).path().starts_with("/v1/"),
                "{kind:?}"
            );
        }
    }
}
