//! Calls of tools that the service runs itself, and what those have that the service wants others to run or to approve.

use crate::generated_image::is_image_url;
use crate::json;
use model::json::JsonObject;
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent};
use serde_json::{Value, json};

/// Item type on the wire, tool name in the log.
const HOSTED_TYPES: [(&str, &str); 11] = [
    ("web_search_call", "web_search"),
    ("file_search_call", "file_search"),
    ("code_interpreter_call", "code_interpreter"),
    ("image_generation_call", "image_generation"),
    ("mcp_call", "mcp"),
    ("mcp_list_tools", "mcp_list_tools"),
    ("tool_search_call", "tool_search"),
    ("tool_search_output", "tool_search_output"),
    ("local_shell_call", "local_shell"),
    ("shell_call", "shell"),
    ("apply_patch_call", "apply_patch"),
];

/// Calls that wait for an output which this client never sends: they are shown, but not sent back.
const NOT_RESENDABLE_TYPES: [&str; 3] = ["local_shell_call", "shell_call", "apply_patch_call"];

/// Fields that every item has, or that are shown otherwise.
const HIDDEN_FIELDS: [&str; 6] = ["type", "id", "call_id", "status", "created_by", "result"];

/// An action has to fit a record together with the record's other fields.
const ACTION_BYTES_MAX: usize = RECORD_BYTES_MAX / 2;
const COMPLETED_STATE: &str = "completed";
const FAILED_STATE: &str = "failed";
const TERMINAL_STATES: [&str; 3] = [COMPLETED_STATE, FAILED_STATE, "incomplete"];
/// Input that is being written is emitted again when it has grown by this much, or by a quarter.
const GROWTH_BYTES_MIN: usize = 64;

/// The static name of an item type, if it is one of a hosted call.
pub(super) fn hosted_item_type(wire: &str) -> Option<&'static str> {
    HOSTED_TYPES.iter().find(|(known, _)| *known == wire).map(|(known, _)| *known)
}

pub(super) fn hosted_tool_name(kind: &'static str) -> &'static str {
    HOSTED_TYPES.iter().find(|(known, _)| *known == kind).map_or(kind, |(_, name)| name)
}

/// Whether the service accepts a call back. It waits for the output of a search that it asked others to make.
pub(super) fn is_resendable(kind: &str, item: &Value) -> bool {
    !NOT_RESENDABLE_TYPES.contains(&kind) && json::str_field(item, "execution") != Some("client")
}

/// Parses an event name such as `web_search_call.searching` into the item type and the state.
pub(super) fn parse_progress_event(event: &str) -> Option<(&'static str, &str)> {
    let (wire, state) = event.split_once('.')?;
    let is_plain = !state.is_empty() && state.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    hosted_item_type(wire).filter(|_| is_plain).map(|kind| (kind, state))
}

/// The input of a hosted tool, streamed while the model writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostedInput {
    Code,
    Arguments,
    Diff,
    Command,
}

impl HostedInput {
    pub(super) const fn item_type(self) -> &'static str {
        match self {
            Self::Code => "code_interpreter_call",
            Self::Arguments => "mcp_call",
            Self::Diff => "apply_patch_call",
            Self::Command => "shell_call",
        }
    }

    pub(super) const fn field_name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Arguments => "arguments",
            Self::Diff => "diff",
            Self::Command => "command",
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct HostedCallState {
    state: String,
    action: Option<Value>,
    input: String,
    emitted_bytes: usize,
}

impl HostedCallState {
    /// Sets the action that the start of the item has shown.
    pub(super) fn set_announced_action(&mut self, action: Option<&Value>) {
        self.action = action.cloned();
    }

    /// Takes the state from the item if it has one; else the last event's state stays.
    pub(super) fn update_from_item(&mut self, slot: u32, item: &Value, out: &mut Vec<ModelEvent>) {
        let state = json::str_field(item, "status").map(str::to_owned);
        let state = state.or_else(|| Some(self.state.clone()).filter(|state| !state.is_empty()));
        self.update_state(slot, state.as_deref().unwrap_or("in_progress"), hosted_action(item), out);
    }

    /// Takes the outcome from the finished item. One without a status has completed, unless it has an error or an event
    /// said otherwise.
    pub(super) fn finish_from_item(&mut self, slot: u32, item: &Value, out: &mut Vec<ModelEvent>) {
        let has_error = json::non_null_field(item, "error").is_some();
        let told = Some(self.state.as_str()).filter(|state| TERMINAL_STATES.contains(state));
        let implied = if has_error { FAILED_STATE } else { told.unwrap_or(COMPLETED_STATE) };
        let state = json::str_field(item, "status").unwrap_or(implied).to_owned();
        self.update_state(slot, &state, hosted_action(item), out);
    }

    /// The response is complete, and the item had no end of its own.
    pub(super) fn finish_implicitly(&mut self, slot: u32, out: &mut Vec<ModelEvent>) {
        if !TERMINAL_STATES.contains(&self.state.as_str()) {
            self.update_state(slot, COMPLETED_STATE, None, out);
        }
    }

    pub(super) fn update_state(&mut self, slot: u32, state: &str, action: Option<Value>, out: &mut Vec<ModelEvent>) {
        let action = action.filter(|action| self.action.as_ref() != Some(action));
        if self.state == state && action.is_none() {
            return;
        }
        state.clone_into(&mut self.state);
        if action.is_some() {
            self.action.clone_from(&action);
        }
        out.push(ModelEvent::Delta(ModelDelta::Hosted { slot, state: self.state.clone(), action }));
    }

    /// Each emission repeats the complete input, so not every delta causes one.
    pub(super) fn push_input(&mut self, slot: u32, input: HostedInput, text: &str, out: &mut Vec<ModelEvent>) {
        self.input.push_str(text);
        if self.input.len() >= self.emitted_bytes + GROWTH_BYTES_MIN.max(self.emitted_bytes / 4) {
            self.emit_input(slot, input, out);
        }
    }

    /// Ends the input. A shell call has several, one command after the other.
    pub(super) fn finish_input(
        &mut self,
        slot: u32,
        input: HostedInput,
        text: Option<String>,
        out: &mut Vec<ModelEvent>,
    ) {
        if let Some(text) = text {
            self.input = text;
        }
        self.emit_input(slot, input, out);
        if input == HostedInput::Command {
            self.input.clear();
            self.emitted_bytes = 0;
        }
    }

    fn emit_input(&mut self, slot: u32, input: HostedInput, out: &mut Vec<ModelEvent>) {
        if self.input.len() > ACTION_BYTES_MAX {
            return;
        }
        self.emitted_bytes = self.input.len();
        let state = if self.state.is_empty() { "in_progress".to_owned() } else { self.state.clone() };
        // What the announcement said stays beside the input.
        let mut action = match (&self.action, input) {
            (Some(Value::Object(action)), HostedInput::Code | HostedInput::Arguments) => action.clone(),
            _ => JsonObject::new(),
        };
        action.insert(input.field_name().to_owned(), self.input.as_str().into());
        self.update_state(slot, &state, Some(action.into()), out);
    }
}

/// What a hosted call does: the fields of the item that are not shown otherwise. The longest are omitted if a record cannot
/// hold them all.
pub(super) fn hosted_action(item: &Value) -> Option<Value> {
    let fields = item.as_object()?.iter();
    let mut fields: Vec<(&String, &Value, usize)> = fields
        .filter(|(name, value)| !HIDDEN_FIELDS.contains(&name.as_str()) && !is_empty_value(value))
        .map(|(name, value)| (name, value, serde_json::to_string(value).map_or(0, |text| text.len())))
        .collect();
    fields.sort_by_key(|(_, _, size)| *size);
    let mut bytes_left = ACTION_BYTES_MAX;
    let mut action = JsonObject::new();
    for (name, value, size) in fields {
        let Some(left) = bytes_left.checked_sub(size) else { break };
        bytes_left = left;
        action.insert(name.clone(), value.clone());
    }
    match (action.len(), action.remove("action").or_else(|| action.remove("operation"))) {
        (0, _) => None,
        (1, Some(only)) => Some(only),
        (_, Some(one)) => {
            let name = if item.get("action").is_some() { "action" } else { "operation" };
            action.insert(name.to_owned(), one);
            Some(Value::Object(action))
        }
        (_, None) => Some(Value::Object(action)),
    }
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

pub(super) fn image_urls(item: &Value) -> Vec<String> {
    let result = json::str_field(item, "result").filter(|result| !result.is_empty());
    let result = result.map(|result| match is_image_url(result) {
        true => result.to_owned(),
        false => image_data_url(result, json::str_field(item, "output_format")),
    });
    let outputs =
        json::array_field(item, "outputs").iter().filter(|output| json::str_field(output, "type") == Some("image"));
    let outputs = outputs.filter_map(|output| json::str_field(output, "url")).map(str::to_owned);
    result.into_iter().chain(outputs).collect()
}

pub(super) fn image_data_url(base64: &str, format: Option<&str>) -> String {
    let is_plain = |format: &&str| !format.is_empty() && format.bytes().all(|byte| byte.is_ascii_alphanumeric());
    format!("data:image/{};base64,{base64}", format.filter(is_plain).unwrap_or("png"))
}

/// The arguments of a computer call in the shape that came: one `action`, or a list of `actions`.
pub(super) fn computer_arguments(item: &Value) -> String {
    let checks = json::array_field(item, "pending_safety_checks");
    let many = json::array_field(item, "actions");
    match json::non_null_field(item, "action").filter(|_| many.is_empty()) {
        Some(action) => json!({ "action": action, "pending_safety_checks": checks }),
        None => json!({ "actions": many, "pending_safety_checks": checks }),
    }
    .to_string()
}

/// The actions of a computer call, whichever shape it has.
pub(super) fn computer_actions(call: &Value) -> &[Value] {
    let one = json::non_null_field(call, "action").map(std::slice::from_ref).unwrap_or_default();
    let many = json::array_field(call, "actions");
    if many.is_empty() { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_computer_call_keeps_its_shape() {
        let one = json!({"action": {"type": "wait"}, "pending_safety_checks": [{"id": "sc"}]});
        assert_eq!(computer_arguments(&one), r#"{"action":{"type":"wait"},"pending_safety_checks":[{"id":"sc"}]}"#);
        let list = json!({"action": null, "actions": [{"type": "wait"}]});
        assert_eq!(computer_arguments(&list), r#"{"actions":[{"type":"wait"}],"pending_safety_checks":[]}"#);
        assert_eq!(computer_actions(&one), computer_actions(&list));
        assert_eq!(computer_arguments(&json!({})), r#"{"actions":[],"pending_safety_checks":[]}"#);
    }

    #[test]
    fn an_action_has_the_fields_that_are_not_shown_elsewhere() {
        let search = json!({"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "x"}});
        assert_eq!(hosted_action(&search), Some(json!({"query": "x"})));
        let drawn = json!({"type": "image_generation_call", "id": "ig", "result": "AAAA", "status": "completed"});
        assert_eq!(hosted_action(&drawn), None);
        let code = json!({"id": "ci", "code": "1+1", "outputs": [], "container_id": "c", "status": "completed"});
        assert_eq!(hosted_action(&code), Some(json!({"code": "1+1", "container_id": "c"})));
        let shell = json!({"action": {"commands": ["ls"]}, "environment": {"type": "local"}});
        assert_eq!(hosted_action(&shell), Some(shell));
        let long = json!({"queries": ["x"], "results": ["y".repeat(ACTION_BYTES_MAX)]});
        assert_eq!(hosted_action(&long), Some(json!({"queries": ["x"]})));
    }

    #[test]
    fn an_image_is_a_url_or_base64() {
        let urls = |result: &str| image_urls(&json!({"type": "image_generation_call", "result": result}));
        for url in ["https://files.example/x.png", "http://files.example/x.png", "data:image/webp;base64,AAAA"] {
            assert_eq!(urls(url), [url]);
        }
        assert_eq!(urls("AAAA"), ["data:image/png;base64,AAAA"]);
        assert_eq!(urls(""), Vec::<String>::new());
    }

    #[test]
    fn an_item_without_a_status_ends_as_its_events_and_its_error_say() {
        let state_at_end = |told: Option<&str>, item: Value| {
            let (mut hosted, mut out) = (HostedCallState::default(), Vec::new());
            told.into_iter().for_each(|state| hosted.update_state(0, state, None, &mut out));
            hosted.finish_from_item(0, &item, &mut out);
            hosted.state
        };
        for (told, item, state) in [
            (None, json!({}), "completed"),
            (Some("in_progress"), json!({}), "completed"),
            (Some("searching"), json!({"error": null}), "completed"),
            (Some("failed"), json!({}), "failed"),
            (Some("in_progress"), json!({"error": "no page"}), "failed"),
            (Some("completed"), json!({"status": "failed"}), "failed"),
        ] {
            assert_eq!(state_at_end(told, item.clone()), state, "{told:?} {item}");
        }
    }

    #[test]
    fn streamed_code_is_shown_at_intervals_and_at_the_end() {
        let (mut hosted, mut out) = (HostedCallState::default(), Vec::new());
        for _ in 0..10_000 {
            hosted.push_input(0, HostedInput::Code, "x = 1\n", &mut out);
        }
        assert!(out.len() < 64, "{}", out.len());
        hosted.finish_input(0, HostedInput::Code, Some("x = 2".to_owned()), &mut out);
        let last =
            ModelDelta::Hosted { slot: 0, state: "in_progress".to_owned(), action: Some(json!({"code": "x = 2"})) };
        assert_eq!(out.last(), Some(&ModelEvent::Delta(last)));
    }
}
