//! The messages of a thread, as snapshots and inputs list them.

use super::{AgUiContent, AgUiFileName, AgUiPart, AgUiSource, to_raw_json};
use model::content::ContentPart;
use model::event::InputMessage;
use model::item::Role;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use serde_with::skip_serializing_none;

/// A message. Each role has some of the members.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgUiMessage {
    pub id: String,
    pub role: &'static str,
    pub content: Option<AgUiMessageContent>,
    pub name: Option<String>,
    pub tool_calls: Option<Vec<AgUiToolCall>>,
    pub tool_call_id: Option<String>,
    pub activity_type: Option<String>,
    pub subagent_run_id: Option<String>,
    pub metadata: Option<Box<RawValue>>,
}

#[derive(Clone, Debug)]
pub enum AgUiMessageContent {
    Text(String),
    Parts(Box<RawValue>),
    /// The content of an activity.
    Object(Value),
}

impl Serialize for AgUiMessageContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Parts(parts) => parts.serialize(serializer),
            Self::Object(object) => object.serialize(serializer),
        }
    }
}

impl From<&AgUiContent<'_>> for AgUiMessageContent {
    fn from(content: &AgUiContent<'_>) -> Self {
        match content {
            AgUiContent::Text(text) => Self::Text(text.clone()),
            AgUiContent::Parts(parts) => Self::Parts(to_raw_json(parts)),
            AgUiContent::Object(object) => Self::Object(object.clone().into_owned()),
        }
    }
}

#[skip_serializing_none]
#[derive(Clone, Debug, Serialize)]
pub struct AgUiToolCall {
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub call_type: &'static str,
    pub function: AgUiFunction,
    pub metadata: Option<Box<RawValue>>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AgUiFunction {
    pub name: String,
    pub arguments: String,
}

impl AgUiMessage {
    /// A message of a run's input, under the id that its client gave it.
    pub(crate) fn from_input(message: &InputMessage, client_id: Option<&str>) -> Self {
        let (role, content) = match message.role {
            Role::User => ("user", user_content(&message.content)),
            Role::Assistant => ("assistant", AgUiMessageContent::Text(input_text(&message.content))),
            Role::System => ("system", AgUiMessageContent::Text(input_text(&message.content))),
        };
        let id = client_id.unwrap_or(message.id.as_str()).to_owned();
        Self { id, role, content: Some(content), ..Self::default() }
    }
}

fn user_content(parts: &[ContentPart]) -> AgUiMessageContent {
    if parts.iter().all(|part| matches!(part, ContentPart::Text { .. })) {
        return AgUiMessageContent::Text(input_text(parts));
    }
    let parts: Vec<AgUiPart<'_>> = parts.iter().filter_map(input_part).collect();
    AgUiMessageContent::Parts(to_raw_json(&parts))
}

/// `None` for a file that only this server can find.
fn input_part(part: &ContentPart) -> Option<AgUiPart<'_>> {
    match part {
        ContentPart::Text { text, .. } => Some(AgUiPart::Text { text }),
        ContentPart::ImageUrl { image_url, .. } => {
            Some(AgUiPart::Image { source: AgUiSource::from_url(&image_url.url) })
        }
        ContentPart::File { file } => {
            let metadata = file.display_name().map(|filename| AgUiFileName { filename });
            match file.url.as_deref() {
                Some(url) => Some(AgUiPart::Document { source: AgUiSource::from_url(url), metadata }),
                None => file.display_name().map(|text| AgUiPart::Text { text }),
            }
        }
    }
}

/// A message as text: its parts are lines.
pub(crate) fn input_text(parts: &[ContentPart]) -> String {
    let lines = parts.iter().filter_map(|part| match part {
        ContentPart::Text { text, .. } => Some(text.clone()),
        ContentPart::ImageUrl { image_url, .. } => Some(image_url.placeholder()),
        ContentPart::File { file } => file.display_name().or(file.url.as_deref()).map(|name| format!("[file {name}]")),
    });
    lines.collect::<Vec<_>>().join("\n")
}
