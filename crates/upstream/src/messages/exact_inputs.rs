//! The inputs of calls whose numbers do not fit the 64 bits of a `Value`. The body of a request is built as a `Value`, and
//! gets them when it is written.

use super::wire::is_tool_use;
use crate::history::{PromptItem, normalize_history};
use crate::json::str_field;
use model::history::{HistoryEntry, SharedHistory};
use model::json::ExactValue;
use serde_json::Value;
use std::collections::BTreeMap;

/// Inputs by the id of their call.
pub type ExactInputs = BTreeMap<String, ExactValue>;

pub fn exact_inputs(history: &SharedHistory, origin: &str) -> ExactInputs {
    let is_changed = |entry: &HistoryEntry| match entry {
        HistoryEntry::Call { arguments, .. } => changed_arguments(arguments).is_some(),
        _ => false,
    };
    if !history.iter().any(is_changed) {
        return ExactInputs::new();
    }
    let calls = normalize_history(history, origin).into_iter().filter_map(|item| match item {
        PromptItem::Call(call) => Some((call.id.to_owned(), changed_arguments(call.arguments)?)),
        _ => None,
    });
    calls.collect()
}

/// The arguments, if they are an object with a number that a `Value` changes.
fn changed_arguments(arguments: &str) -> Option<ExactValue> {
    let exact = ExactValue::parse(arguments).ok().filter(ExactValue::is_object)?;
    (ExactValue::from(exact.to_value()) != exact).then_some(exact)
}

/// The text of a body.
pub fn write_body(body: &Value, inputs: &ExactInputs) -> Vec<u8> {
    if inputs.is_empty() {
        return serde_json::to_vec(body).unwrap_or_default();
    }
    let mut exact = ExactValue::from(body.clone());
    let messages = body.get("messages").and_then(Value::as_array).into_iter().flatten();
    let exact_messages = member_list(&mut exact, "messages");
    for (message, exact_message) in messages.zip(exact_messages) {
        let blocks = message.get("content").and_then(Value::as_array).into_iter().flatten();
        for (block, exact_block) in blocks.zip(member_list(exact_message, "content")) {
            let input = str_field(block, "id").filter(|_| is_tool_use(block)).and_then(|id| inputs.get(id));
            if let (Some(input), ExactValue::Object(members)) = (input, exact_block) {
                members.insert("input".to_owned(), input.clone());
            }
        }
    }
    exact.to_string().into()
}

fn member_list<'a>(value: &'a mut ExactValue, name: &str) -> &'a mut [ExactValue] {
    let ExactValue::Object(members) = value else { return &mut [] };
    match members.get_mut(name) {
        Some(ExactValue::Array(list)) => list,
        _ => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::CallId;
    use serde_json::json;

    #[test]
    fn a_body_has_the_numbers_of_its_calls_as_they_were_written() {
        let call = |id: &str, arguments: &str| HistoryEntry::Call {
            call_id: CallId::from(id),
            name: "pay".to_owned(),
            arguments: arguments.to_owned(),
            provider_call_id: None,
            raw: None,
        };
        let exact = r#"{"a":[1e2,-0],"n":18446744073709551617}"#;
        let history = vec![call("call_1", exact), call("call_2", r#"{"n":1}"#), call("call_3", "[1e2]")].into();
        let inputs = exact_inputs(&history, "o");
        let [(id, input)] = inputs.iter().collect::<Vec<_>>()[..] else { panic!("{inputs:?}") };
        assert_eq!(input.to_string(), exact);
        let block = |kind: &str, id: &str| json!({"type": kind, "id": id, "input": {"n": 1}});
        let content = [block("text", id), block("tool_use", "other"), block("tool_use", id)];
        let body = json!({"max_tokens": 8, "messages": [{"content": "x"}, {"content": content}]});
        let expected = body.to_string();
        let last = expected.rfind(r#"{"n":1}"#).unwrap();
        let expected = format!("{}{exact}{}", &expected[..last], &expected[last + r#"{"n":1}"#.len()..]);
        assert_eq!(write_body(&body, &inputs), expected.as_bytes());
        assert_eq!(write_body(&body, &ExactInputs::new()), body.to_string().as_bytes());
    }
}
