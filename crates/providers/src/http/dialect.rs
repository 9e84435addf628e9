//! The dialects: where each is asked, and how it is told who asks.

use super::refused_history::RefusalScope;
use ::upstream::{Ingest, RequestTarget};
use ::upstream::{chat, messages, responses};
use model::json::JsonObject;
use model::model_turn::{ModelFailure, ModelRequest};
use reqwest::Url;
use serde_json::Value;

/// What a service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamDialect {
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Chat Completions.
    Chat,
}

impl UpstreamDialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Responses, Self::Messages, Self::Chat];

    /// Its name in a config file.
    #[must_use]
    pub const fn config_name(self) -> &'static str {
        match self {
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic",
            Self::Chat => "openai-chat",
        }
    }

    /// Where the dialect's first speaker is.
    #[must_use]
    pub const fn default_base_url(self) -> &'static str {
        match self {
            Self::Responses | Self::Chat => "https://api.openai.com/v1",
            Self::Messages => "https://api.anthropic.com",
        }
    }

    /// The address that is asked. Services have `/v1` in it; a base address may leave that out where it has no path of
    /// its own, and for Anthropic always.
    pub(super) fn endpoint(self, base: &Url) -> Url {
        let before = base.path().trim_end_matches('/');
        let path = match self {
            Self::Messages => format!("{}{}", before.strip_suffix("/v1").unwrap_or(before), messages::ENDPOINT_PATH),
            Self::Responses | Self::Chat => {
                let own = if self == Self::Chat { "chat/completions" } else { "responses" };
                format!("{}/{own}", if before.is_empty() { "/v1" } else { before })
            }
        };
        let mut endpoint = base.clone();
        endpoint.set_path(&path);
        endpoint
    }

    /// The headers that say who asks, and what beside the body is asked for.
    pub(super) fn headers(self, key: Option<&str>, options: &JsonObject) -> Vec<(&'static str, String)> {
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

    /// The body that asks for a turn.
    pub(super) fn build_request(self, turn: &ModelRequest, target: &RequestTarget<'_>) -> Value {
        match self {
            Self::Responses => responses::build_request(turn, target),
            Self::Messages => messages::build_request(turn, target),
            Self::Chat => chat::build_request(turn, target),
        }
    }

    /// The same body for a service that does not take back what it said before.
    pub(super) fn without_reasoning(self, body: Value) -> Value {
        match self {
            Self::Responses => responses::without_reasoning(body),
            Self::Messages => messages::without_reasoning(body),
            Self::Chat => chat::without_reasoning(body),
        }
    }

    /// What the service may not take back of what it said before.
    pub(super) const fn refusal_scope(self) -> RefusalScope {
        match self {
            Self::Responses | Self::Chat => RefusalScope::AllItems,
            Self::Messages => RefusalScope::Reasoning,
        }
    }

    /// Reads a stream.
    pub(crate) fn new_ingest(self, origin: String, turn: &ModelRequest) -> Box<dyn Ingest> {
        match self {
            Self::Responses => responses::new_ingest(origin, turn),
            Self::Messages => messages::new_ingest(origin, turn),
            Self::Chat => chat::new_ingest(origin, turn),
        }
    }

    /// Reads an error answer.
    pub(super) fn classify_error(self, status: u16, body: &[u8], retry_after_ms: Option<u64>) -> ModelFailure {
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
    fn the_address_is_found_with_and_without_v1() {
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
