//! What clients say, and what they are told when that is not right.

use crate::body::Json;
use crate::problem::{Problem, Refusal};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use model::block::JsonObject;
use model::event::{ApprovalDecision, ApprovalDecisionKind, DisplayMode};
use serde::Deserialize;
use serde_json::Value;

/// What a client says.
#[derive(Debug)]
pub(crate) enum Said {
    /// Something to the agent.
    Chat(Chat),
    /// Go on where I was.
    Resume(Resume),
    /// Stop what runs or waits.
    Stop,
    /// An answer to a question.
    Decide(Answer),
    /// Are you there?
    Ping,
}

/// What every message has. The rest is read when it is known whose it is, so that a refusal can name its field.
#[derive(Debug, Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: KindName,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindName {
    Chat,
    Resume,
    Stop,
    ApprovalResponse,
    Ping,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chat {
    #[serde(rename = "type")]
    _kind: KindName,
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    pub(crate) content: String,
    /// Files to read first: where they are.
    #[serde(default)]
    pub(crate) content_urls: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) display_mode: DisplayMode,
    #[serde(default)]
    pub(crate) agent: Option<String>,
    /// Begins a session of one's own that goes on from what a share shows.
    #[serde(default)]
    pub(crate) share: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    #[serde(rename = "type")]
    _kind: KindName,
    pub(crate) session_id: String,
    #[serde(default)]
    pub(crate) after: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    #[serde(rename = "type")]
    _kind: KindName,
    pub(crate) approval_key: String,
    /// Maps, because serde would take a list for a struct: what is no decision must not count as a yes.
    decisions: Vec<JsonObject>,
}

/// A message that says nothing beside what it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bare {
    #[serde(rename = "type")]
    _kind: KindName,
}

/// A decision as a client writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    #[serde(rename = "type")]
    kind: ApprovalDecisionKind,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    args: Option<JsonObject>,
}

impl Said {
    /// Reads a message, as strictly as a request's body.
    pub(crate) fn read(json: Json) -> Result<Self, Problem> {
        let Kind { kind } = json.field("type")?;
        Ok(match kind {
            KindName::Chat => Self::Chat(json.object()?),
            KindName::Resume => Self::Resume(json.object()?),
            KindName::ApprovalResponse => Self::Decide(json.object()?),
            KindName::Stop => json.object().map(|_: Bare| Self::Stop)?,
            KindName::Ping => json.object().map(|_: Bare| Self::Ping)?,
        })
    }

    /// Does it change nothing? Then somebody may say it who was only let in to look.
    pub(crate) const fn only_reads(&self) -> bool {
        matches!(self, Self::Resume(_) | Self::Ping)
    }
}

impl Answer {
    /// The one decision of an answer: a question is about one call.
    pub(crate) fn decision(self) -> Result<ApprovalDecision, Problem> {
        let Ok([decision]) = <[JsonObject; 1]>::try_from(self.decisions) else {
            return Err(Problem::invalid_body("`decisions`: one for each action request, and a question has one"));
        };
        let decided = serde_json::from_value(Value::Object(decision));
        let Decided { kind, message, args } =
            decided.map_err(|error| Problem::invalid_body(format!("`decisions`: {error}")))?;
        if (kind == ApprovalDecisionKind::Edit) != args.is_some() {
            return Err(Problem::invalid_body("`decisions`: `args` belong to the decision `edit`, and to no other"));
        }
        Ok(ApprovalDecision { kind, always: false, message, args: args.map(Value::Object) })
    }
}

/// What a refusal has beside what it tells, under the names that HTTP's clients know it by.
const OF_HTTP: [&str; 5] = ["type", "title", "status", "code", "detail"];

/// The event that says what was not right, with whatever more there is to say: where the log ends, how it was decided.
pub(crate) async fn error(problem: Problem, session: Option<&str>) -> String {
    let mut response = problem.into_response();
    let refusal = response.extensions_mut().remove::<Refusal>();
    let (code, message) = refusal.map(|refusal| (refusal.code, refusal.detail)).unwrap_or_default();
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut event: JsonObject = serde_json::from_slice(&body).unwrap_or_default();
    event.retain(|name, _| !OF_HTTP.contains(&name.as_str()));
    let own = [("type", "error"), ("code", code), ("message", &message)];
    event.extend(
        own.into_iter()
            .chain(session.map(|session| ("session_id", session)))
            .map(|(name, value)| (name.to_owned(), value.into())),
    );
    Value::Object(event).to_string()
}
