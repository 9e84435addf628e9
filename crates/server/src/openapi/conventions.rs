//! Parameters, responses and errors that several routes share.

use super::{Operation, Parameter};
use model::error::ErrorCode;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// The schema of a thread's id or of the name that a client chose for it.
pub(crate) fn thread_name() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$" })
}

pub(crate) fn date() -> Value {
    json!({ "type": "string", "format": "date" })
}

fn page_limit() -> Value {
    json!({ "type": "integer", "minimum": 1, "maximum": 100, "default": 20 })
}

impl Operation<'_> {
    /// `limit` and `before` of a listing.
    pub(crate) fn paged(self) -> Self {
        let before = "Only entries older than the one with this id, the last of the previous page.";
        self.query("limit", "Maximum number of entries.", page_limit()).query(
            "before",
            before,
            json!({ "type": "string" }),
        )
    }

    /// `limit`, `order` and `after` of a listing of OpenAI's API.
    pub(crate) fn openai_paged(self) -> Self {
        self.query("limit", "Maximum number of items.", page_limit())
            .query("order", "By default the newest first.", json!({ "enum": ["asc", "desc"], "default": "desc" }))
            .query("after", "Only items after the one with this id.", json!({ "type": "string" }))
            .errors(&[ErrorCode::InvalidQuery])
    }

    /// A ticket instead of a key, for browsers.
    pub(crate) fn ticket(self) -> Self {
        let text = "Replaces the key where headers cannot be sent. Valid once; see `POST /v1/tickets`.";
        self.query("ticket", text, json!({ "type": "string", "pattern": "^hwt_[0-9a-f]{64}$" }))
    }

    /// The form of blob URLs in the response.
    pub(crate) fn blob_urls(self) -> Self {
        let text = "The form of `/v1/blobs/…` in the response. `signed`: with a signature, so that they need no key for a \
                    while. By default as the server is configured.";
        self.query("blobs", text, json!({ "enum": ["plain", "signed"] })).errors(&[ErrorCode::InvalidQuery])
    }

    /// The format of a native stream.
    pub(crate) fn stream_format(self) -> Self {
        let text = "`run-items`: the items of a run as agent SDKs have them. Not for sub-agents.";
        self.query("format", text, json!({ "enum": ["task", "run-items"], "default": "task" }))
            .errors(&[ErrorCode::Unsupported])
    }

    /// Where a native stream of a task ends.
    pub(crate) fn stream_until(self) -> Self {
        let text = "`pause`: the stream ends after the next `run_paused`. For `run-items` only.";
        self.query("until", text, json!({ "enum": ["pause"] }))
    }

    /// The request is a command to a thread, and may be repeated with the same `Idempotency-Key`.
    pub(crate) fn idempotent(self) -> Self {
        let text =
            "A repeated request with the same key and body has no further effect; with another body it is an error.";
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$" });
        let key = Parameter { location: "header", name: "Idempotency-Key", description: text };
        self.parameter(key, schema).errors(&[
            ErrorCode::InvalidIdempotencyKey,
            ErrorCode::IdempotencyKeyReused,
            ErrorCode::InboxFull,
            ErrorCode::ThreadParked,
        ])
    }

    /// The request brings input, and may start a run with it.
    pub(crate) fn starts_run(self) -> Self {
        self.idempotent().errors(&[
            ErrorCode::RequestTooLarge,
            ErrorCode::ImageTooLarge,
            ErrorCode::NoInput,
            ErrorCode::UnknownAgent,
            ErrorCode::ModelNotAllowed,
            ErrorCode::InstructionsNotAllowed,
            ErrorCode::TooManyRuns,
            ErrorCode::QuotaExceeded,
        ])
    }

    /// A stream that clients resume with a cursor.
    pub(crate) fn resumable_events<T: JsonSchema>(self, description: &str) -> Self {
        let last_id = "Resume after the frame with this `id`. Takes precedence over `after`.";
        let after = json!({ "type": "string", "pattern": "^([0-9a-f]{8}-)?[0-9]+([.][a-z-]+[.][0-9]+)?$" });
        self.header("Last-Event-ID", last_id)
            .query("after", "Resume after this cursor: the `id` of a frame, or a plain `seq`.", after)
            .ticket()
            .events::<T>(description)
            .errors(&[ErrorCode::InvalidCursor, ErrorCode::NotAcceptable])
            .errors(&[ErrorCode::CursorAhead, ErrorCode::CursorForeign])
    }

    /// The response shows the task that the request is about.
    pub(crate) fn accepted_task<T: JsonSchema>(self, description: &str) -> Self {
        self.json::<T>(202, description).response_header(202, "Location")
    }
}
