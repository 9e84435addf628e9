//! A response as one JSON object. Clients check its shape in every lifecycle event, so that all keys are always there.

use crate::responses::request::ECHOED_FIELDS;
use model::error::{ErrorCode, ErrorInfo};
use model::event::LimitReason;
use model::json::JsonObject;
use model::usage::Usage;
use model::{Millis, TaskId};
use serde_json::{Value, json};

/// The name of a run's `segment`-th response.
pub(super) fn response_id(run: &TaskId, segment: u32) -> String {
    match segment {
        0 | 1 => format!("resp_{}", run.run_suffix()),
        _ => format!("resp_{}_{segment}", run.run_suffix()),
    }
}

/// Reads such a name.
pub(super) fn parse_response_id(text: &str) -> Option<(TaskId, u32)> {
    let name = text.strip_prefix("resp_")?;
    let (suffix, segment) = match name.split_once('_') {
        None => (name, 1),
        Some((suffix, number)) => (suffix, number.parse().ok().filter(|segment| *segment > 1)?),
    };
    let run = TaskId::parse(&format!("task_{suffix}")).ok().filter(|_| !suffix.is_empty())?;
    // A number has one form: `+2` and `02` name nothing.
    (response_id(&run, segment) == text).then_some((run, segment))
}

/// What a response is from its beginning on.
#[derive(Debug)]
pub(crate) struct ResponseHead<'a> {
    /// Its name.
    pub(crate) id: String,
    /// When it began.
    pub(crate) created_at: Millis,
    /// The model, where the request does not say it.
    pub(crate) model: &'a str,
    /// The caller's own notes, where the request does not say them.
    pub(crate) metadata: &'a JsonObject,
    /// What the caller's request said.
    pub(crate) request_echo: &'a Value,
    /// The response before it, where it goes on from one.
    pub(crate) previous_id: Option<String>,
}

/// The object of a response that begins, without its output.
pub(super) fn initial_object(head: ResponseHead<'_>) -> JsonObject {
    let ResponseHead { id, created_at: at, model, metadata, request_echo: echo, previous_id: previous } = head;
    let mut object = default_object();
    let said = ECHOED_FIELDS.iter().filter_map(|key| Some((*key, echo.get(key).filter(|value| !value.is_null())?)));
    object.insert("model".to_owned(), model.into());
    object.insert("metadata".to_owned(), echoed_value("metadata", &Value::Object(metadata.clone())));
    for (key, value) in said {
        object.insert(key.to_owned(), echoed_value(key, value));
    }
    if let Some(previous) = previous {
        object.insert("previous_response_id".to_owned(), previous.into());
    }
    object.insert("id".to_owned(), id.into());
    object.insert("created_at".to_owned(), unix_seconds(at));
    object
}

/// The object of a response that has not begun.
pub(super) fn pending_object(about: ResponseHead<'_>, given_up: bool) -> Value {
    let mut object = initial_object(about);
    object.insert("output".to_owned(), json!([]));
    object.insert("status".to_owned(), if given_up { "cancelled" } else { "queued" }.into());
    if given_up {
        object.insert("incomplete_details".to_owned(), json!({ "reason": "cancelled" }));
    }
    Value::Object(object)
}

/// Every key, with what it is when nothing else is said.
fn default_object() -> JsonObject {
    let shape = json!({
        "background": false, "completed_at": null, "conversation": null, "error": null, "frequency_penalty": 0.0,
        "incomplete_details": null, "instructions": null, "max_output_tokens": null, "max_tool_calls": null,
        "object": "response", "parallel_tool_calls": true, "presence_penalty": 0.0, "previous_response_id": null,
        "prompt_cache_key": null, "reasoning": null, "safety_identifier": null, "service_tier": "default",
        "status": "in_progress", "store": true, "temperature": 1.0, "text": {"format": {"type": "text"}},
        "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "usage": null,
        "user": null,
    });
    match shape {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

/// A request may say a thing in a shorter form than a response does.
fn echoed_value(key: &str, value: &Value) -> Value {
    let mut value = value.clone();
    match (key, &mut value) {
        ("conversation", Value::String(id)) => json!({ "id": id }),
        // Clients read texts here; our own callers may note anything.
        ("metadata", Value::Object(notes)) => {
            for note in notes.values_mut().filter(|note| !note.is_string()) {
                *note = note.to_string().into();
            }
            value
        }
        ("text", Value::Object(text)) => {
            text.entry("format").or_insert_with(|| json!({"type": "text"}));
            value
        }
        ("tools", Value::Array(tools)) => {
            for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
                if tool.get("type").and_then(Value::as_str) == Some("function") {
                    for field in ["description", "parameters", "strict"] {
                        tool.entry(field).or_insert(Value::Null);
                    }
                }
            }
            value
        }
        _ => value,
    }
}

/// How a response ends.
#[derive(Clone, Debug)]
pub(crate) enum ResponseEnd {
    /// All was said, or people are asked.
    Completed(Millis),
    /// A limit.
    Incomplete(LimitReason),
    /// It went wrong.
    Failed(ErrorInfo),
    /// Somebody stopped it. There is no event of that name, so that it counts as incomplete.
    Cancelled,
}

impl ResponseEnd {
    /// The last event's type.
    pub(super) const fn event_type(&self) -> &'static str {
        match self {
            Self::Completed(_) => "response.completed",
            Self::Incomplete(_) | Self::Cancelled => "response.incomplete",
            Self::Failed(_) => "response.failed",
        }
    }

    /// Says so in the object.
    pub(super) fn apply_to(&self, object: &mut JsonObject) {
        let (status, key, value) = match self {
            Self::Completed(at) => ("completed", "completed_at", unix_seconds(*at)),
            Self::Incomplete(LimitReason::ContentFilter) => {
                ("incomplete", "incomplete_details", json!({"reason": "content_filter"}))
            }
            // The others have no word of their own there.
            Self::Incomplete(_) => ("incomplete", "incomplete_details", json!({"reason": "max_output_tokens"})),
            Self::Cancelled => ("cancelled", "incomplete_details", json!({"reason": "cancelled"})),
            Self::Failed(error) => {
                let code = if error.has_code(ErrorCode::RateLimited) { "rate_limit_exceeded" } else { "server_error" };
                ("failed", "error", json!({"code": code, "message": error.message}))
            }
        };
        object.insert("status".to_owned(), status.into());
        object.insert(key.to_owned(), value);
    }
}

/// Tokens as a response says them.
pub(super) fn usage_object(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

fn unix_seconds(at: Millis) -> Value {
    (at / 1000).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_names_its_run_and_its_segment() {
        let run = TaskId::from("task_0123456789abcdef0123456789abcdef");
        for segment in [1, 2, 10] {
            assert_eq!(parse_response_id(&response_id(&run, segment)), Some((run.clone(), segment)));
        }
        assert_eq!(response_id(&run, 1), "resp_0123456789abcdef0123456789abcdef");
        for bad in ["", "resp_", "resp_R_1", "resp_R_0", "resp_R_02", "resp_R_+2", "resp_R_s1", "resp_R_2_3", "msg_R"] {
            assert_eq!(parse_response_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_the_request_says_is_shown_back_in_the_forms_of_a_response() {
        let echo = json!({
            "conversation": "conv_1", "text": {"verbosity": "low"}, "temperature": 0.5, "instructions": null,
            "tools": [{"type": "function", "name": "pick"}, {"type": "web_search"}], "input": "not shown", "status": "?",
        });
        let metadata = JsonObject::from_iter([("n".to_owned(), json!({"a": 1}))]);
        let at = 1_710_000_000_999;
        let object = initial_object(ResponseHead {
            id: "resp_R".to_owned(),
            created_at: at,
            model: "demo",
            metadata: &metadata,
            request_echo: &echo,
            previous_id: None,
        });
        assert_eq!(object["conversation"], json!({"id": "conv_1"}));
        assert_eq!(object["text"], json!({"verbosity": "low", "format": {"type": "text"}}));
        assert_eq!(object["tools"][0]["strict"], Value::Null);
        assert!(object["tools"][0].as_object().unwrap().contains_key("parameters"));
        assert_eq!(object["tools"][1], json!({"type": "web_search"}));
        assert_eq!((&object["temperature"], &object["created_at"]), (&json!(0.5), &json!(1_710_000_000)));
        assert_eq!((&object["status"], &object["model"]), (&json!("in_progress"), &json!("demo")));
        assert_eq!(object["metadata"], json!({"n": "{\"a\":1}"}));
        assert!(!object.contains_key("input"));
    }
}
