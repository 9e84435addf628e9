//! A client of this protocol like its SDKs: accumulates a message from the frames, and fails when they are out of
//! order.

use serde_json::Value;

/// An event's name and its data.
type Frame = (String, Value);

/// The outcome of a stream.
#[derive(Debug, PartialEq)]
pub(crate) enum Collected {
    Nothing,
    /// The stream has not ended.
    Open(Value),
    Message(Value),
    Error(Value),
}

#[derive(Default)]
struct Client {
    message: Option<Value>,
    open: Option<usize>,
    input: String,
    over: bool,
}

pub(crate) fn collect(frames: &[Frame]) -> Result<Collected, String> {
    let mut client = Client::default();
    for (event, data) in frames {
        if client.over {
            return Err(format!("{event} after the end"));
        }
        if data["type"] != *event {
            return Err(format!("{event} says that it is {}", data["type"]));
        }
        if event == "error" {
            client.over = true;
            client.message = Some(data["error"].clone());
            continue;
        }
        client.take(event, data).map_err(|why| format!("{why}: {data}"))?;
    }
    let failed = frames.last().is_some_and(|(event, _)| event == "error");
    Ok(match client.message {
        None => Collected::Nothing,
        Some(error) if failed => Collected::Error(error),
        Some(message) if client.over => Collected::Message(message),
        Some(message) => Collected::Open(message),
    })
}

impl Client {
    fn take(&mut self, event: &str, data: &Value) -> Result<(), String> {
        if event == "message_start" {
            return match self.message.replace(data["message"].clone()) {
                None => Ok(()),
                Some(_) => Err("two beginnings".to_owned()),
            };
        }
        let Some(message) = &mut self.message else { return Err("before the beginning".to_owned()) };
        let content = message["content"].as_array_mut().unwrap();
        let index = data["index"].as_u64().map(|index| usize::try_from(index).unwrap());
        match event {
            "content_block_start" => {
                if self.open.is_some() || index != Some(content.len()) {
                    return Err("not its turn".to_owned());
                }
                self.open = index;
                self.input.clear();
                content.push(data["content_block"].clone());
                return Ok(());
            }
            "content_block_delta" | "content_block_stop" if index.is_none() || index != self.open => {
                return Err("not open".to_owned());
            }
            "content_block_delta" => return grow(content.last_mut().unwrap(), &mut self.input, &data["delta"]),
            "content_block_stop" => self.open = None,
            "message_delta" => {
                for key in ["stop_reason", "stop_sequence"] {
                    message[key] = data["delta"][key].clone();
                }
                for (key, count) in data["usage"].as_object().unwrap() {
                    message["usage"][key] = count.clone();
                }
            }
            "message_stop" if self.open.is_some() || message["stop_reason"].is_null() => {
                return Err("too early".to_owned());
            }
            "message_stop" => self.over = true,
            _ => return Err("unknown".to_owned()),
        }
        Ok(())
    }
}

fn grow(block: &mut Value, input: &mut String, delta: &Value) -> Result<(), String> {
    let kind = block["type"].as_str().unwrap().to_owned();
    let add = |value: &mut Value, more: &Value| {
        let whole = format!("{}{}", value.as_str().unwrap(), more.as_str().unwrap());
        *value = whole.into();
    };
    match (kind.as_str(), delta["type"].as_str().unwrap()) {
        ("text", "text_delta") => add(&mut block["text"], &delta["text"]),
        ("thinking", "thinking_delta") => add(&mut block["thinking"], &delta["thinking"]),
        ("thinking", "signature_delta") => block["signature"] = delta["signature"].clone(),
        ("text", "citations_delta") => {
            if block["citations"].is_null() {
                block["citations"] = Value::Array(Vec::new());
            }
            block["citations"].as_array_mut().unwrap().push(delta["citation"].clone());
        }
        ("tool_use", "input_json_delta") => {
            input.push_str(delta["partial_json"].as_str().unwrap());
            block["input"] = serde_json::from_str(input).map_err(|error| format!("{error}: {input}"))?;
        }
        (kind, delta) => return Err(format!("{delta} in a block of {kind}")),
    }
    Ok(())
}
