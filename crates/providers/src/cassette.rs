//! Exchanges with services, kept in files and played again.
//!
//! A cassette is one turn as a service answered it, a file of JSON lines: first what was asked, then each event with its
//! moment, last how it ended. It holds no headers, and secrets were taken out of everything in it before it was written.
//! What is kept are the service's own events, not what we made of them: playing one goes through the same reading as the
//! service did, so a cassette outlives a better reading.
//!
//! - `record` writes one as the turn goes on; a folder that cannot be written costs a warning, never a turn.
//! - `play` finds the cassette that answers a turn: the last words of the user and the number of the step.

mod player;
mod writer;

pub use player::{CassetteError, CassetteProvider, PlaybackSpeed};
pub(crate) use writer::CassetteWriter;

use model::error::ErrorInfo;
use model::model_turn::ModelRequest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How the name of a cassette ends.
pub(crate) const CASSETTE_SUFFIX: &str = ".cassette.jsonl";
const CASSETTE_FORMAT: u32 = 1;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum CassetteLine {
    /// What was asked: the first line.
    Asked(Box<RecordedRequest>),
    /// An event of the answer.
    Event(RecordedEvent),
    /// It ended by itself, as far as its service said so. The last line, where there is one.
    End {
        /// When, from the question on.
        at_ms: u64,
    },
    /// It failed.
    Failed {
        /// When, from the question on.
        at_ms: u64,
        /// How.
        error: ErrorInfo,
        /// How long the service asked us to wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    /// The format of the file.
    cassette: u32,
    /// What the service speaks.
    kind: String,
    /// `provider/model`.
    model: String,
    /// Where its items are from.
    origin: String,
    /// The user's last words.
    said: String,
    /// The number of the step.
    step: u32,
    /// The request's body.
    request: Value,
}

impl RecordedRequest {
    /// In the format of today. Neither the words nor the body have secrets any more.
    pub(crate) fn new(kind: &str, turn: &ModelRequest, origin: String, said: String, request: Value) -> Self {
        let (kind, model) = (kind.to_owned(), turn.model.clone());
        Self { cassette: CASSETTE_FORMAT, kind, model, origin, said, step: turn.step, request }
    }
}

/// An event, when it came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RecordedEvent {
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    data: String,
}

/// The user's last words in a turn's history. What carries tags was put there by somebody else.
pub(crate) fn last_user_text(history: &[model::history::HistoryEntry]) -> String {
    use model::content::ContentPart;
    use model::history::HistoryEntry;
    let last = history.iter().rev().find_map(|entry| match entry {
        HistoryEntry::User { content } => Some(content),
        _ => None,
    });
    let words = last.into_iter().flatten().filter_map(|part| match part {
        ContentPart::Text { text, tags, .. } if tags.is_empty() => Some(text.as_str()),
        ContentPart::Text { .. } | ContentPart::ImageUrl { .. } | ContentPart::File { .. } => None,
    });
    words.collect::<Vec<_>>().join("\n")
}
