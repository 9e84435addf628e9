//! Recorded exchanges with services, and their replay.
//!
//! A cassette is one turn, as a file of JSON lines: first the request, then each event with its time, last the end. It has
//! no headers, and secrets are redacted before anything is written. It has the service's own events, and replaying them
//! goes through the same ingest as the service's stream, so a cassette stays useful when the ingest improves.
//!
//! - `writer` records a turn while it runs; a folder that cannot be written causes a warning, never a failure.
//! - `player` selects the cassette for a turn by the user's last message and the number of the step.

mod player;
mod writer;

pub use player::{CassetteError, CassetteProvider, PlaybackSpeed};
pub(crate) use writer::CassetteWriter;

use model::error::ErrorInfo;
use model::model_turn::ModelRequest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) const CASSETTE_SUFFIX: &str = ".cassette.jsonl";
const CASSETTE_FORMAT: u32 = 1;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum CassetteLine {
    /// The request: the first line.
    Asked(Box<RecordedRequest>),
    Event(RecordedEvent),
    /// The turn ended; the last line. Times count from the request.
    End {
        at_ms: u64,
    },
    Failed {
        at_ms: u64,
        error: ErrorInfo,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedRequest {
    cassette: u32,
    kind: String,
    /// `provider/model`.
    model: String,
    /// The origin of its raw items.
    origin: String,
    /// The user's last message.
    said: String,
    step: u32,
    request: Value,
}

impl RecordedRequest {
    /// `said` and `request` have to be redacted already.
    pub(crate) fn new(kind: &str, turn: &ModelRequest, origin: String, said: String, request: Value) -> Self {
        let (kind, model) = (kind.to_owned(), turn.model.clone());
        Self { cassette: CASSETTE_FORMAT, kind, model, origin, said, step: turn.step, request }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct RecordedEvent {
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    data: String,
}
