//! What clients say, and what they are told when that is not right.

use crate::body::Json;
use crate::config::HttpLimits;
use crate::problem::{Problem, Refusal};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use model::block::Object;
use model::event::{Decision, DecisionKind, DisplayMode};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a client says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Said {
    /// Something to the agent.
    Chat(Chat),
    /// Go on where I was.
    Resume {
        session_id: String,
        #[serde(default)]
        after: Option<String>,
    },
    /// Stop what runs or waits.
    Stop {},
    /// An answer to a question.
    ApprovalResponse { approval_key: String, decisions: Vec<Decided> },
    /// Are you there?
    Ping {},
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Chat {
    #[serde(default)]
    pub(crate) session_id: Option<String>,
    pub(crate) content: String,
    #[serde(default)]
    content_urls: Vec<String>,
    #[serde(default)]
    pub(crate) display_mode: DisplayMode,
    #[serde(default)]
    pub(crate) agent: Option<String>,
}

/// A decision as a client writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Decided {
    #[serde(rename = "type")]
    kind: DecisionKind,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    args: Option<Object>,
}

impl Said {
    /// Reads a message, as strictly as a request's body.
    pub(crate) async fn read(text: String, limits: &HttpLimits) -> Result<Self, Problem> {
        let kind = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
        let said: Self = Json::read(&headers, Body::from(text), limits).await?.object()?;
        match &said {
            Self::Chat(chat) if !chat.content_urls.is_empty() => {
                let detail = "`content_urls`: files cannot be read yet";
                Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unsupported", detail))
            }
            _ => Ok(said),
        }
    }
}

impl Decided {
    /// The one decision of an answer: a question is about one call.
    pub(crate) fn one(decisions: Vec<Self>) -> Result<Decision, Problem> {
        let Ok([Self { kind, message, args }]) = <[Self; 1]>::try_from(decisions) else {
            return Err(Problem::invalid_body("`decisions`: one for each action request, and a question has one"));
        };
        if (kind == DecisionKind::Edit) != args.is_some() {
            return Err(Problem::invalid_body("`decisions`: `args` belong to the decision `edit`, and to no other"));
        }
        Ok(Decision { kind, always: false, message, args: args.map(Value::Object) })
    }
}

/// The event that says what was not right.
pub(crate) fn error(problem: Problem, session: Option<&str>) -> String {
    let mut response = problem.into_response();
    let refusal = response.extensions_mut().remove::<Refusal>();
    let (code, message) = refusal.map(|refusal| (refusal.code, refusal.detail)).unwrap_or_default();
    let mut event = json!({ "type": "error", "code": code, "message": message });
    if let (Some(session), Some(fields)) = (session, event.as_object_mut()) {
        fields.insert("session_id".to_owned(), session.into());
    }
    event.to_string()
}
