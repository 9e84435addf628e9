//! Request and response types of the native routes that are not types of `model`.
//!
//! Input parts have types of their own because a client may not set reference numbers or tags.

use crate::problem::Problem;
use gateway::client_tools::check_client_tools;
use gateway::limits::InputLimits;
use model::content::{ContentPart, FileRef, ImageDetail, ImageUrl};
use model::event::ClientTool;
use model::limits::CostMicros;
use schemars::generate::SchemaGenerator;
use schemars::{JsonSchema, Schema, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;

/// User input: a text or a list of parts.
#[derive(Debug, Default)]
pub(crate) struct TaskInput(Vec<InputPart>);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum InputPart {
    Text { text: String },
    ImageUrl { image_url: InputImage },
    File { file: InputFile },
}

/// A `bucket` and a `path` of an uploaded file, or a `url`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputFile {
    #[serde(default)]
    bucket: Option<String>,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct InputImage {
    /// `https:`, `http:`, `/v1/blobs/…`, or `data:image/…;base64,…`, which is stored as a blob.
    url: String,
    #[serde(default)]
    #[schemars(extend("enum" = ["auto", "low", "high", "original", null]))]
    detail: Option<String>,
}

/// By hand, because the text and the list are alternatives without a tag.
impl JsonSchema for TaskInput {
    fn schema_name() -> Cow<'static, str> {
        "Input".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let parts = generator.subschema_for::<Vec<InputPart>>();
        json_schema!({ "description": "A text or a list of parts.", "anyOf": [{ "type": "string" }, parts] })
    }
}

impl TaskInput {
    /// Validates the parts and converts them.
    pub(crate) fn into_parts(self, limits: &InputLimits) -> Result<Vec<ContentPart>, Problem> {
        let most = limits.parts_max;
        if self.0.len() > most {
            return Err(Problem::invalid_field("input", format!("{} parts; the maximum is {most}", self.0.len())));
        }
        self.0.into_iter().map(InputPart::into_part).collect()
    }
}

impl InputPart {
    fn into_part(self) -> Result<ContentPart, Problem> {
        match self {
            Self::Text { text } => Ok(ContentPart::text(text)),
            Self::ImageUrl { image_url: InputImage { url, detail } } => {
                let wrong = |error: &dyn fmt::Display| Problem::invalid_field("input", error);
                let image_url = ImageUrl::parse(url).map_err(|error| wrong(&error))?;
                let detail =
                    detail.as_deref().map(ImageDetail::parse).transpose().map_err(|error| wrong(&error))?.flatten();
                Ok(ContentPart::ImageUrl { image_url: ImageUrl { detail, ..image_url }, id: None })
            }
            Self::File { file: InputFile { bucket, path, url, name } } => match (&bucket, &path, &url) {
                (Some(_), Some(_), None) | (None, None, Some(_)) => {
                    Ok(ContentPart::File { file: FileRef { bucket, path, url, name, size: None } })
                }
                _ => Err(Problem::invalid_field("input", "a file needs a `bucket` and a `path`, or a `url`")),
            },
        }
    }
}

impl<'de> Deserialize<'de> for TaskInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = TaskInput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<TaskInput, E> {
                // An empty text is no input, not a part with an empty text.
                let part = (!text.is_empty()).then(|| InputPart::Text { text: text.to_owned() });
                Ok(TaskInput(part.into_iter().collect()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TaskInput, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(TaskInput(parts))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

/// A tool that the client runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeclaredClientTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Value,
}

/// Checks that each tool has a unique name and a schema.
pub(crate) fn parse_client_tools(
    declared: Vec<DeclaredClientTool>,
    limits: &InputLimits,
) -> Result<Vec<ClientTool>, Problem> {
    let tool = |DeclaredClientTool { name, description, parameters }| {
        let parameters = if parameters.is_null() { json!({ "type": "object" }) } else { parameters };
        ClientTool { name, description, parameters }
    };
    Ok(check_client_tools(declared.into_iter().map(tool).collect(), limits)?)
}

/// Converts to whole currency units: clients do not see micros.
#[expect(clippy::cast_precision_loss, reason = "exact up to nine thousand million, and what is compared is the amount")]
pub(crate) fn amount_as_f64(amount: CostMicros) -> f64 {
    amount.0 as f64 / 1_000_000.0
}
