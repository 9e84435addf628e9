//! The SDK's `process-ui-message-stream`, for versions 6 and 7: what it refuses, and the message that it makes.

use protocol::ui_stream::UiVersion;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The message of a client, chunk by chunk.
#[derive(Clone, Debug)]
pub(super) struct Reducer {
    version: UiVersion,
    pub(super) message: Value,
    open_texts: BTreeMap<String, usize>,
    open_reasoning: BTreeMap<String, usize>,
    inputs: BTreeMap<String, Value>,
    /// Whether the last part is a step that no later chunk has published.
    has_hidden_step: bool,
    /// The calls that `onToolCall` was called with.
    pub(super) tool_calls: Vec<String>,
    pub(super) error: Option<String>,
}

const COMMON_TYPES: [&str; 24] = [
    "start",
    "finish",
    "abort",
    "error",
    "message-metadata",
    "start-step",
    "finish-step",
    "text-start",
    "text-delta",
    "text-end",
    "reasoning-start",
    "reasoning-delta",
    "reasoning-end",
    "tool-input-start",
    "tool-input-delta",
    "tool-input-available",
    "tool-input-error",
    "tool-approval-request",
    "tool-output-available",
    "tool-output-error",
    "tool-output-denied",
    "source-url",
    "source-document",
    "file",
];
const TYPES_OF_SEVEN: [&str; 3] = ["tool-approval-response", "reset-step", "steering-message"];
const FINISH_REASONS: [&str; 6] = ["stop", "length", "content-filter", "tool-calls", "error", "other"];

impl Reducer {
    pub(super) fn new(version: UiVersion) -> Self {
        Self {
            version,
            message: json!({"role": "assistant", "parts": []}),
            open_texts: BTreeMap::new(),
            open_reasoning: BTreeMap::new(),
            inputs: BTreeMap::new(),
            has_hidden_step: false,
            tool_calls: Vec::new(),
            error: None,
        }
    }

    pub(super) fn apply_all(&mut self, chunks: &[Value]) {
        for chunk in chunks {
            self.apply(chunk).unwrap_or_else(|error| panic!("{error}: {chunk}"));
        }
    }

    /// The message as the client's own code sees it.
    pub(super) fn published(&self) -> Value {
        let mut message = self.message.clone();
        if self.has_hidden_step {
            message["parts"].as_array_mut().unwrap().pop();
        }
        message
    }

    pub(super) fn parts(&mut self) -> &mut Vec<Value> {
        self.message["parts"].as_array_mut().unwrap()
    }

    pub(super) fn apply(&mut self, chunk: &Value) -> Result<(), String> {
        check_shape(self.version, chunk)?;
        let kind = chunk["type"].as_str().unwrap();
        let mut writes = true;
        match kind {
            "start" => {
                self.message["id"] = chunk["messageId"].clone();
                self.merge_metadata(chunk);
            }
            "finish" | "message-metadata" => {
                self.merge_metadata(chunk);
                writes = chunk.get("messageMetadata").is_some();
            }
            "abort" => writes = false,
            "error" => {
                self.error = chunk["errorText"].as_str().map(str::to_owned);
                writes = false;
            }
            "start-step" => {
                self.parts().push(json!({"type": "step-start"}));
                self.has_hidden_step = true;
                writes = false;
            }
            "finish-step" => {
                if self.version == UiVersion::Six {
                    self.open_texts.clear();
                    self.open_reasoning.clear();
                }
                writes = false;
            }
            "reset-step" => {
                self.open_texts.clear();
                self.open_reasoning.clear();
                self.inputs.clear();
                let step = self.step_start();
                self.parts().truncate(step);
            }
            _ if kind.starts_with("data-") => writes = self.set_data(chunk),
            _ if kind.starts_with("tool-") => self.apply_tool(kind, chunk)?,
            _ => self.apply_content(kind, chunk)?,
        }
        self.has_hidden_step &= !writes;
        Ok(())
    }

    fn apply_content(&mut self, kind: &str, chunk: &Value) -> Result<(), String> {
        let id = chunk["id"].as_str().unwrap_or_default().to_owned();
        let is_text = kind.starts_with("text-");
        let index = self.parts().len();
        let open = if is_text { &mut self.open_texts } else { &mut self.open_reasoning };
        match kind {
            "text-start" => {
                open.insert(id, index);
                self.parts().push(json!({"type": "text", "text": "", "state": "streaming"}));
            }
            "reasoning-start" => {
                open.insert(id.clone(), index);
                self.parts().push(json!({"type": "reasoning", "id": id, "text": "", "state": "streaming"}));
            }
            "text-delta" | "reasoning-delta" => {
                let index = *open.get(&id).ok_or("no open part")?;
                let part = &mut self.parts()[index];
                let text = format!("{}{}", part["text"].as_str().unwrap(), chunk["delta"].as_str().unwrap());
                part["text"] = text.into();
            }
            "text-end" | "reasoning-end" => {
                let index = open.remove(&id).ok_or("no open part")?;
                let part = &mut self.parts()[index];
                part["state"] = "done".into();
                copy(part, chunk, &["citations", "providerMetadata"]);
            }
            "source-url" | "source-document" | "file" => {
                let mut part = json!({ "type": kind });
                copy(&mut part, chunk, &["sourceId", "url", "mediaType", "title", "filename"]);
                self.parts().push(part);
            }
            "steering-message" => self.parts().push(chunk.clone()),
            _ => return Err("unknown".to_owned()),
        }
        Ok(())
    }

    fn apply_tool(&mut self, kind: &str, chunk: &Value) -> Result<(), String> {
        let call = chunk["toolCallId"].as_str().unwrap_or_default().to_owned();
        match kind {
            "tool-input-start" => {
                self.inputs.insert(call, json!({"text": "", "chunk": chunk}));
                self.set_input(chunk, "input-streaming", is_dynamic(chunk));
            }
            "tool-input-delta" => {
                let input = self.inputs.get_mut(&call).ok_or("no start of the input")?;
                let delta = chunk["inputTextDelta"].as_str().unwrap();
                let text = format!("{}{delta}", input["text"].as_str().unwrap());
                input["text"] = text.as_str().into();
                let mut started = input["chunk"].clone();
                started.as_object_mut().unwrap().remove("providerExecuted");
                if let Ok(value) = serde_json::from_str::<Value>(&text) {
                    started["input"] = value;
                }
                started["rawInput"] = text.into();
                self.set_input(&started, "input-streaming", is_dynamic(&started));
            }
            "tool-input-available" => {
                self.set_input(chunk, "input-available", is_dynamic(chunk));
                if chunk["providerExecuted"] != true {
                    self.tool_calls.push(call);
                }
            }
            "tool-input-error" => {
                let step = self.step_start();
                let known = self.parts()[step..].iter().find(|part| part["toolCallId"] == call.as_str());
                let dynamic = known.map_or_else(|| is_dynamic(chunk), |part| part["type"] == "dynamic-tool");
                let mut failed = chunk.clone();
                if self.version == UiVersion::Six && !dynamic {
                    failed["rawInput"] = failed["input"].take();
                    failed.as_object_mut().unwrap().remove("input");
                }
                self.set_input(&failed, "output-error", dynamic);
            }
            "tool-approval-response" => {
                let id = &chunk["approvalId"];
                let asked = self.parts().iter_mut().find(|part| part["approval"]["id"] == *id);
                let part = asked.ok_or("no such approval")?;
                part["state"] = "approval-responded".into();
                copy(&mut part["approval"], chunk, &["approved", "reason"]);
            }
            _ => {
                let part = self.parts().iter_mut().rev().find(|part| part["toolCallId"] == call.as_str());
                set_output(part.ok_or("no such call")?, kind, chunk);
            }
        }
        Ok(())
    }

    fn set_input(&mut self, chunk: &Value, state: &str, dynamic: bool) {
        let step = self.step_start();
        let same =
            |part: &Value| part["toolCallId"] == chunk["toolCallId"] && (part["type"] == "dynamic-tool") == dynamic;
        let index = self.parts()[step..].iter().position(same).map(|index| index + step);
        let index = index.unwrap_or_else(|| {
            self.parts().push(json!({"toolCallId": chunk["toolCallId"]}));
            self.parts().len() - 1
        });
        let part = &mut self.parts()[index];
        let name = chunk["toolName"].as_str().unwrap();
        if dynamic {
            part["type"] = "dynamic-tool".into();
            part["toolName"] = name.into();
        } else {
            part["type"] = format!("tool-{name}").into();
        }
        part["state"] = state.into();
        replace(part, chunk, &["input", "rawInput", "output", "errorText", "preliminary"]);
        copy(part, chunk, &["title", "toolMetadata", "providerExecuted"]);
        if dynamic && state != "input-streaming" {
            part.as_object_mut().unwrap().remove("rawInput");
        }
    }

    fn step_start(&mut self) -> usize {
        self.parts().iter().rposition(|part| part["type"] == "step-start").map_or(0, |index| index + 1)
    }

    /// Returns whether the message changed.
    fn set_data(&mut self, chunk: &Value) -> bool {
        if chunk["transient"] == true {
            return false;
        }
        let same = |part: &&mut Value| part["type"] == chunk["type"] && part["id"] == chunk["id"];
        match self.parts().iter_mut().find(same).filter(|_| chunk.get("id").is_some()) {
            Some(part) => part["data"] = chunk["data"].clone(),
            None => self.parts().push(chunk.clone()),
        }
        true
    }

    fn merge_metadata(&mut self, chunk: &Value) {
        if let Some(metadata) = chunk.get("messageMetadata") {
            let before = &mut self.message.as_object_mut().unwrap().entry("metadata").or_insert(json!({}));
            merge(before, metadata);
        }
    }
}

fn set_output(part: &mut Value, kind: &str, chunk: &Value) {
    match kind {
        "tool-approval-request" => {
            part["state"] = "approval-requested".into();
            let mut approval = json!({"id": chunk["approvalId"]});
            for (name, member) in [("descriptor", "approvalDescriptor"), ("requestReason", "reason")] {
                if let Some(value) = chunk.get(member) {
                    approval[name] = value.clone();
                }
            }
            part["approval"] = approval;
        }
        "tool-output-denied" => part["state"] = "output-denied".into(),
        _ => {
            let is_error = kind == "tool-output-error";
            part["state"] = if is_error { "output-error" } else { "output-available" }.into();
            replace(part, chunk, &["output", "errorText", "preliminary"]);
            copy(part, chunk, &["providerExecuted"]);
            if !is_error || part["type"] == "dynamic-tool" {
                part.as_object_mut().unwrap().remove("rawInput");
            }
        }
    }
}

fn is_dynamic(chunk: &Value) -> bool {
    chunk["dynamic"] == true
}

/// Takes the members over that the chunk has.
fn copy(part: &mut Value, chunk: &Value, names: &[&str]) {
    for name in names {
        if let Some(value) = chunk.get(name) {
            part[*name] = value.clone();
        }
    }
}

/// Takes the members over, and removes those that the chunk does not have.
fn replace(part: &mut Value, chunk: &Value, names: &[&str]) {
    for name in names {
        part.as_object_mut().unwrap().remove(*name);
    }
    copy(part, chunk, names);
}

fn merge(before: &mut Value, members: &Value) {
    match (before, members) {
        (Value::Object(before), Value::Object(members)) => {
            for (name, value) in members {
                merge(before.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (before, value) => *before = value.clone(),
    }
}

/// The SDK's schema of chunks: an unknown type ends the stream.
fn check_shape(version: UiVersion, chunk: &Value) -> Result<(), String> {
    let kind = chunk["type"].as_str().ok_or("no type")?;
    let is_seven = version == UiVersion::Seven;
    let is_common = COMMON_TYPES.contains(&kind) || kind.starts_with("data-");
    let is_known = is_common || is_seven && TYPES_OF_SEVEN.contains(&kind);
    if !is_known {
        return Err(format!("{kind} is unknown to {version:?}"));
    }
    let texts: &[&str] = match kind {
        "text-start" | "text-end" | "reasoning-start" | "reasoning-end" | "steering-message" => &["id"],
        "text-delta" | "reasoning-delta" => &["id", "delta"],
        "tool-input-start" | "tool-input-available" => &["toolCallId", "toolName"],
        "tool-input-delta" => &["toolCallId", "inputTextDelta"],
        "tool-input-error" => &["toolCallId", "toolName", "errorText"],
        "tool-approval-request" => &["approvalId", "toolCallId"],
        "tool-approval-response" => &["approvalId"],
        "tool-output-available" | "tool-output-denied" => &["toolCallId"],
        "tool-output-error" => &["toolCallId", "errorText"],
        "source-url" => &["sourceId", "url"],
        "source-document" => &["sourceId", "mediaType", "title"],
        "file" => &["url", "mediaType"],
        "error" => &["errorText"],
        "start" => &["messageId"],
        _ => &[],
    };
    if let Some(name) = texts.iter().find(|name| !chunk[**name].is_string()) {
        return Err(format!("{name} is no text"));
    }
    let values: &[&str] = match kind {
        "tool-input-available" | "tool-input-error" => &["input"],
        "tool-output-available" => &["output"],
        "message-metadata" => &["messageMetadata"],
        _ if kind.starts_with("data-") => &["data"],
        _ => &[],
    };
    if let Some(name) = values.iter().find(|name| chunk.get(**name).is_none()) {
        return Err(format!("there is no {name}"));
    }
    match chunk["finishReason"].as_str() {
        Some("interrupted") if is_seven => Ok(()),
        Some(reason) if !FINISH_REASONS.contains(&reason) => Err(format!("{reason} is no reason")),
        _ => check_members(chunk.as_object().unwrap()),
    }
}

fn check_members(chunk: &Map<String, Value>) -> Result<(), String> {
    let flags = ["providerExecuted", "dynamic", "preliminary", "transient", "approved"];
    let texts = ["title", "filename", "reason"];
    let wrong = chunk.iter().find(|(name, value)| {
        flags.contains(&name.as_str()) && !value.is_boolean() || texts.contains(&name.as_str()) && !value.is_string()
    });
    wrong.map_or(Ok(()), |(name, _)| Err(format!("{name} has another type")))
}
