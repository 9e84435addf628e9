//! The response object: its id, its start, and its end.

use super::super::wire::{IncompleteDetails, ResponseError, ResponseObject, metadata_texts, text_format};
use crate::run_end::{RunEnd, RunFailureKind};
use model::json::{ExactObject, JsonObject};
use model::usage::Usage;
use model::{Millis, TaskId};
use serde_json::Value;

/// The id of a run's `segment`-th response.
pub(super) fn response_id(run: &TaskId, segment: u32) -> String {
    match segment {
        0 | 1 => format!("resp_{}", run.run_suffix()),
        _ => format!("resp_{}_{segment}", run.run_suffix()),
    }
}

/// The run and the segment of a response id.
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

/// The members that are known when a response starts.
#[derive(Debug)]
pub(crate) struct ResponseHead<'a> {
    pub(crate) id: String,
    pub(crate) created_at: Millis,
    /// Unless the request names a model.
    pub(crate) model: &'a str,
    /// Unless the request has metadata.
    pub(crate) metadata: &'a ExactObject,
    /// The fields of the request that a response repeats.
    pub(crate) request_echo: &'a Value,
    /// The response that this one continues.
    pub(crate) previous_id: Option<String>,
}

pub(super) fn initial_object(head: ResponseHead<'_>) -> ResponseObject {
    let ResponseHead { id, created_at, model, metadata, request_echo, previous_id } = head;
    let mut object = ResponseObject {
        id,
        created_at: unix_seconds(created_at),
        model: model.into(),
        metadata: Value::Object(metadata_texts(metadata)),
        ..ResponseObject::initial()
    };
    for (name, value) in request_echo.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        if let Some(member) = object.echoed_member(name) {
            *member = response_value(name, value);
        }
    }
    if let Some(previous_id) = previous_id {
        object.previous_response_id = previous_id.into();
    }
    object
}

/// The status of a response before its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingStatus {
    Queued,
    InProgress,
    Cancelled,
    /// Without output: nothing was to be generated.
    Completed,
}

/// The object of a response that has not started.
pub(super) fn pending_object(head: ResponseHead<'_>, status: PendingStatus) -> ResponseObject {
    let created_at = head.created_at;
    let mut object = initial_object(head);
    match status {
        PendingStatus::Queued => object.status = "queued",
        PendingStatus::InProgress => {}
        PendingStatus::Completed => {
            apply_end(&mut object, &RunEnd::Completed, created_at);
            object.usage = Some(Usage::default().into());
        }
        PendingStatus::Cancelled => apply_end(&mut object, &RunEnd::cancelled(), 0),
    }
    object
}

/// Records how a response ended.
pub(super) fn apply_end(object: &mut ResponseObject, end: &RunEnd, at: Millis) {
    let names = end.names();
    object.status = names.responses_status;
    object.incomplete_details = names.responses_reason.map(|reason| IncompleteDetails { reason });
    match end {
        RunEnd::Completed | RunEnd::Refused | RunEnd::ToolCalls => object.completed_at = Some(unix_seconds(at)),
        RunEnd::Failed(failure) if failure.kind != RunFailureKind::Cancelled => {
            let code = failure.kind.names().responses_code;
            object.error = Some(ResponseError { code, message: failure.message.clone() });
        }
        RunEnd::Limit | RunEnd::ContentFilter | RunEnd::Failed(_) => {}
    }
}

/// A request may write a value in a shorter form than a response does.
fn response_value(name: &str, value: &Value) -> Value {
    let mut value = value.clone();
    match (name, &mut value) {
        ("conversation", Value::String(id)) => JsonObject::from_iter([("id".to_owned(), id.as_str().into())]).into(),
        // Clients of this protocol expect texts; the native one allows any JSON.
        ("metadata", Value::Object(metadata)) => {
            for value in metadata.values_mut().filter(|value| !value.is_string()) {
                *value = value.to_string().into();
            }
            value
        }
        ("text", Value::Object(text)) => text_format(std::mem::take(text)),
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

const fn unix_seconds(at: Millis) -> u64 {
    at / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
    fn request_fields_are_echoed_in_the_response() {
        let echo = json!({
            "conversation": "conv_1", "text": {"verbosity": "low"}, "temperature": 0.5, "instructions": null,
            "tools": [{"type": "function", "name": "pick"}, {"type": "web_search"}], "input": "not shown", "status": "?",
        });
        let metadata = ExactObject::from([("n".to_owned(), json!({"a": 1}).into())]);
        let at = 1_710_000_000_999;
        let object = serde_json::to_value(initial_object(ResponseHead {
            id: "resp_R".to_owned(),
            created_at: at,
            model: "demo",
            metadata: &metadata,
            request_echo: &echo,
            previous_id: None,
        }));
        let object = object.unwrap();
        assert_eq!(object["conversation"], json!({"id": "conv_1"}));
        assert_eq!(object["text"], json!({"verbosity": "low", "format": {"type": "text"}}));
        assert_eq!(object["tools"][0]["strict"], Value::Null);
        assert!(object["tools"][0].as_object().unwrap().contains_key("parameters"));
        assert_eq!(object["tools"][1], json!({"type": "web_search"}));
        assert_eq!((&object["temperature"], &object["created_at"]), (&json!(0.5), &json!(1_710_000_000)));
        assert_eq!((&object["status"], &object["model"]), (&json!("in_progress"), &json!("demo")));
        assert_eq!(object["metadata"], json!({"n": "{\"a\":1}"}));
        assert!(!object.as_object().unwrap().contains_key("input"));
    }
}
