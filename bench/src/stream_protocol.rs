//! The protocols in which a stream is requested and read.
//!
//! The mock answers in each of them, so it is the upstream of Headwater and of the proxies, the baseline of viewers, and
//! what the checker is tested with.

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StreamProtocol {
    /// `POST /v1/tasks`, Headwater's own.
    Tasks,
    /// `POST /v1/responses`, OpenAI's Responses.
    Responses,
    /// `POST /v1/chat/completions`, OpenAI's Chat Completions.
    Chat,
    /// `POST /v1/messages`, Anthropic's Messages.
    Messages,
    /// Content blocks over the WebSocket `/ws`.
    Blocks,
}

impl StreamProtocol {
    pub(crate) const ALL: [Self; 5] = [Self::Tasks, Self::Responses, Self::Chat, Self::Messages, Self::Blocks];

    /// Where a run is started.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Tasks => "/v1/tasks",
            Self::Responses => "/v1/responses",
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Blocks => "/ws",
        }
    }

    pub(crate) fn from_path(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.path() == path)
    }

    /// The number of the first event, in protocols that number their events.
    pub(crate) fn first_sequence_number(self) -> Option<u64> {
        match self {
            Self::Tasks => Some(1),
            Self::Responses => Some(0),
            Self::Chat | Self::Messages | Self::Blocks => None,
        }
    }

    /// The body of a request whose response is the whole stream; of a WebSocket, the message.
    pub(crate) fn stream_body(self, model: &str, input: &str) -> Value {
        match self {
            Self::Tasks | Self::Responses => json!({"model": model, "input": input, "stream": true}),
            Self::Chat => {
                json!({"model": model, "messages": [{"role": "user", "content": input}], "stream": true})
            }
            Self::Messages => {
                let messages = [json!({"role": "user", "content": input})];
                json!({"model": model, "max_tokens": 100_000, "messages": messages, "stream": true})
            }
            Self::Blocks => json!({"type": "chat", "agent": model, "content": input}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_its_protocol() {
        for protocol in StreamProtocol::ALL {
            assert_eq!(StreamProtocol::from_path(protocol.path()), Some(protocol));
        }
        assert_eq!(StreamProtocol::from_path("/v1/models"), None);
    }
}
