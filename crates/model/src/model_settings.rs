//! What a caller asks of the model for one run, in words that every provider has. What only one provider understands is
//! an operator's to say ([`crate::definition::Agent`]'s options), and comes last.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a caller asks of the model for one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSettings {
    /// Said after the agent's own instructions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// A turn ends after so many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// How freely the model chooses its words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of what is likely it chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Words at which it stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Whether it may, must or must not call a tool. For the first turn alone: one that had to call for ever would never
    /// answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// May it call several tools at once?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// How hard it thinks, in the word that providers share: `low`, `medium`, `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// What its answer has to look like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<OutputFormat>,
}

/// Whether a model calls a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It must not.
    None,
    /// It must call one.
    Required,
    /// It must call this one.
    Tool {
        /// The tool.
        name: String,
    },
}

/// What an answer has to look like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    /// Any JSON.
    Json,
    /// JSON of this shape.
    Schema {
        /// The shape's name.
        name: String,
        /// The JSON Schema.
        schema: Value,
        /// Must it be kept to the letter?
        strict: Option<bool>,
    },
}

impl ModelSettings {
    /// Is nothing asked for?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
