//! A client of this protocol like its SDKs: accumulates a completion from the chunks, and fails when they are out of
//! order.

use serde_json::{Map, Value, json};
use sse::{DecodeLimits, Decoder};

/// The outcome of a stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Collected {
    Nothing,
    /// The stream has not ended.
    Open(Value),
    Completion(Value),
    Error(Value),
}

/// The chunks of a stream, which have no event names.
pub(crate) fn read(mut bytes: &[u8]) -> Vec<Value> {
    let mut decoder = Decoder::new(DecodeLimits { line_bytes_max: 1 << 24, event_bytes_max: 1 << 24 });
    let mut chunks = Vec::new();
    while let Some(event) = decoder.decode(&mut bytes).unwrap() {
        assert_eq!(event.event, None);
        chunks.push(serde_json::from_str(&event.data).unwrap());
    }
    chunks
}

pub(crate) fn collect(chunks: &[Value]) -> Result<Collected, String> {
    let Some(first) = chunks.first() else { return Ok(Collected::Nothing) };
    let mut message = Map::new();
    let mut finish = Value::Null;
    let mut usage = None;
    for chunk in chunks {
        if let Some(error) = chunk.get("error") {
            return if finish.is_null() {
                Ok(Collected::Error(error.clone()))
            } else {
                Err("an error behind the end".into())
            };
        }
        for key in ["id", "created", "model", "object"] {
            if chunk[key] != first[key] || chunk[key].is_null() {
                return Err(format!("another {key}: {chunk}"));
            }
        }
        let Some(choice) = chunk["choices"].as_array().unwrap().first() else {
            if finish.is_null() || usage.replace(chunk["usage"].clone()).is_some() {
                return Err(format!("usage at the wrong place: {chunk}"));
            }
            continue;
        };
        if !finish.is_null() {
            return Err(format!("something behind the end: {chunk}"));
        }
        grow(&mut message, choice["delta"].as_object().unwrap())?;
        finish = choice["finish_reason"].clone();
    }
    if message.get("role") != Some(&json!("assistant")) {
        return Err("nobody speaks".to_owned());
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        call.as_object_mut().unwrap().remove("index");
    }
    message.entry("refusal").or_insert(Value::Null);
    let is_over = !finish.is_null();
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
    let mut whole = json!({"id": first["id"], "object": "chat.completion", "created": first["created"], "model": first["model"],
        "choices": [choice]});
    if let Some(usage) = usage {
        whole["usage"] = usage;
    }
    Ok(if is_over { Collected::Completion(whole) } else { Collected::Open(whole) })
}

/// Strings are concatenated, lists are merged by index, and everything else comes once.
fn grow(whole: &mut Map<String, Value>, delta: &Map<String, Value>) -> Result<(), String> {
    for (key, more) in delta {
        match (whole.get_mut(key), more) {
            (None | Some(Value::Null), Value::Array(list)) if key == "tool_calls" => {
                let element = list.first().filter(|element| element["index"] == 0).ok_or("calls begin with 0")?;
                whole.insert(key.clone(), json!([element]));
            }
            (None | Some(Value::Null), more) => {
                whole.insert(key.clone(), more.clone());
            }
            (Some(_), _) if key == "index" || key == "type" => {}
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            (Some(Value::Array(list)), Value::Array(more)) if key == "tool_calls" => {
                for element in more {
                    let index = element["index"].as_u64().ok_or("an element without an index")?;
                    let index = usize::try_from(index).unwrap();
                    let next = list.len();
                    match list.get_mut(index) {
                        Some(known) => grow(known.as_object_mut().unwrap(), element.as_object().unwrap())?,
                        None if index == next => list.push(element.clone()),
                        None => return Err(format!("call {index} is not the next")),
                    }
                }
            }
            (Some(Value::Object(known)), Value::Object(more)) => grow(known, more)?,
            (Some(known), more) => return Err(format!("{key} was {known} and cannot grow by {more}")),
        }
    }
    Ok(())
}
