//! A client's settings for the model, common to all providers. Provider-specific options belong to the operator
//! ([`crate::definition::Agent`]) and take precedence.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelSettings {
    /// Appended to the agent's own instructions.
    pub instructions: Option<String>,
    /// Per turn.
    pub max_output_tokens: Option<u64>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    /// Stop sequences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// For the first turn alone: a model that had to call tools in every turn would never answer.
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    /// Reasoning effort, in the providers' common words: `low`, `medium`, `high`.
    pub effort: Option<String>,
    pub format: Option<OutputFormat>,
    /// The provider's processing tier, such as `flex`.
    pub service_tier: Option<String>,
    /// Log probabilities of the answer's tokens.
    pub logprobs: Option<Logprobs>,
}

/// The log probabilities that a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Logprobs {
    /// Whether the answer has them.
    pub include: bool,
    /// The number of alternatives to each token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top: Option<u64>,
}

/// Whether the model calls tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    Auto,
    None,
    /// The model must call a tool.
    Required,
    /// The model must call this tool.
    Tool {
        name: String,
    },
}

/// The format of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputFormat {
    Json,
    Schema { name: String, schema: Value, strict: Option<bool> },
}

impl ModelSettings {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
