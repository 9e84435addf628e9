//! What a client may rely on in the stream of a response. [`Client`] follows one frame by frame and fails at the first
//! invalid one.

use serde_json::Value;
use std::collections::BTreeSet;

/// Every key of a response's object.
const KEYS: &str = "background completed_at conversation created_at error frequency_penalty id incomplete_details \
    instructions max_output_tokens max_tool_calls metadata model object output parallel_tool_calls presence_penalty \
    previous_response_id prompt_cache_key reasoning safety_identifier service_tier status store temperature text \
    tool_choice tools top_logprobs top_p truncation usage user";

/// An event's name and its data.
pub(crate) type Frame = (String, Value);

type Verdict = Result<(), String>;

/// Follows a whole stream. `dropped` are the repeated items, which are not in the final output.
pub(crate) fn check(frames: &[Frame], dropped: &BTreeSet<String>) -> Verdict {
    let mut client = Client { dropped: dropped.clone(), ..Client::default() };
    for (event, data) in frames {
        client.take(event, data).map_err(|why| format!("{why}\nin {event} {data}"))?;
    }
    if client.over { Ok(()) } else { Err("no terminal frame".to_owned()) }
}

/// A client that accumulates a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    pub(crate) items: Vec<Item>,
    dropped: BTreeSet<String>,
    id: String,
    frames: u64,
    over: bool,
}

/// An item accumulated from its frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct Item {
    pub(crate) id: String,
    kind: String,
    call_id: Value,
    /// Texts, refusals and summaries in order.
    pub(crate) parts: Vec<Part>,
    pub(crate) arguments: String,
    arguments_done: bool,
    states: Vec<String>,
    done: Option<Value>,
}

/// A part of an item.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    kind: String,
    pub(crate) text: String,
    annotations: Vec<Value>,
    text_done: bool,
    done: bool,
}

fn ensure(holds: bool, why: &str) -> Verdict {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

impl Client {
    pub(crate) fn take(&mut self, event: &str, data: &Value) -> Verdict {
        ensure(data["type"] == event, "the event is not the data's type")?;
        ensure(data["sequence_number"] == self.frames, "sequence numbers do not go up by one")?;
        ensure(data.get("error").is_none(), "a top-level error ends the stream for some clients")?;
        ensure(!self.over, "a frame after the terminal one")?;
        let begins = ["response.created", "response.in_progress"];
        let at = usize::try_from(self.frames).unwrap();
        self.frames += 1;
        if let Some(expected) = begins.get(at) {
            ensure(event == *expected, "a response begins with created and in_progress")?;
            return self.begins(&data["response"]);
        }
        let name = event.strip_prefix("response.").ok_or("not a frame of a response")?;
        match name {
            "completed" | "incomplete" | "failed" => self.ends(name, &data["response"]),
            "output_item.added" => self.added(data),
            "output_item.done" => self.done(data),
            _ => self.inside(name, data),
        }
    }

    /// Processes a frame of an item, whatever its sequence number.
    pub(crate) fn take_unnumbered(&mut self, event: &str, data: &Value) -> Verdict {
        self.frames = data["sequence_number"].as_u64().unwrap_or_default();
        self.take(event, data)
    }

    fn begins(&mut self, object: &Value) -> Verdict {
        self.whole(object)?;
        ensure(object["status"] == "in_progress", "a response begins in progress")?;
        ensure(object["usage"].is_null() && object["completed_at"].is_null(), "known before its end")?;
        ensure(object["output"] == Value::Array(Vec::new()), "output before the first item")
    }

    fn whole(&mut self, object: &Value) -> Verdict {
        for key in KEYS.split_ascii_whitespace() {
            ensure(object.get(key).is_some(), &format!("the object lacks {key}"))?;
        }
        ensure(object["created_at"].is_u64(), "created_at is no integer")?;
        if self.id.is_empty() {
            self.id = text(object, "id").to_owned();
        }
        ensure(object["id"] == self.id.as_str() && self.id.starts_with("resp_"), "the response's id changed")
    }

    fn ends(&mut self, name: &str, object: &Value) -> Verdict {
        self.whole(object)?;
        let status = text(object, "status");
        let fits = match name {
            "completed" => status == "completed" && object["completed_at"].is_u64(),
            "failed" => status == "failed" && object["error"]["code"].is_string(),
            _ => matches!(status, "incomplete" | "cancelled") && object["incomplete_details"]["reason"].is_string(),
        };
        ensure(fits, "the object does not say how it ended")?;
        ensure(object["usage"]["output_tokens_details"]["reasoning_tokens"].is_u64(), "no usage")?;
        let mut done = Vec::new();
        for item in &self.items {
            let whole = item.done.as_ref().ok_or_else(|| format!("{} was never done", item.id))?;
            if !self.dropped.contains(&item.id) {
                done.push(whole.clone());
            }
        }
        ensure(object["output"] == Value::Array(done), "the output is not the items that were done")?;
        self.over = true;
        Ok(())
    }

    fn added(&mut self, data: &Value) -> Verdict {
        let item = &data["item"];
        ensure(data["output_index"] == self.items.len(), "output_index is not the next one")?;
        let id = text(item, "id");
        ensure(!id.is_empty() && self.items.iter().all(|known| known.id != id), "an id twice")?;
        let empty = |key: &str| item.get(key).is_none_or(|value| value.as_array().is_some_and(Vec::is_empty));
        ensure(empty("content") && empty("summary"), "an item that is not empty at first")?;
        ensure(text(item, "type") != "message" || item["content"].is_array(), "a message without content")?;
        let call_id = item["call_id"].clone();
        self.items.push(Item { id: id.to_owned(), kind: text(item, "type").to_owned(), call_id, ..Item::default() });
        Ok(())
    }

    fn done(&mut self, data: &Value) -> Verdict {
        let item = &data["item"];
        let index = data["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let known = index.and_then(|index| self.items.get_mut(index)).ok_or("done before it was added")?;
        ensure(known.done.is_none(), "done twice")?;
        let same = item["id"] == known.id.as_str() && item["type"] == known.kind.as_str();
        ensure(same && item["call_id"] == known.call_id, "the item's identity changed")?;
        ensure(known.parts.iter().all(|part| part.done), "done with a part that is open")?;
        let status = item.get("status").map_or("completed", |status| status.as_str().unwrap_or_default());
        ensure(matches!(status, "completed" | "incomplete" | "failed"), "done, but it does not say how")?;
        let shown = match known.kind.as_str() {
            "message" => item["content"].as_array(),
            "reasoning" => item["summary"].as_array(),
            _ => None,
        };
        if let Some(shown) = shown {
            let agrees = |(part, shown): (&Part, &Value)| part.agrees(shown);
            let all = shown.len() == known.parts.len() && known.parts.iter().zip(shown).all(agrees);
            ensure(all, "the parts are not those that were shown")?;
        }
        if matches!(known.kind.as_str(), "mcp_call" | "function_call") {
            ensure(item["arguments"] == known.arguments.as_str(), "the arguments are not those that were shown")?;
            ensure(known.arguments_done || status == "incomplete", "arguments that never ended")?;
        }
        let ended = known.states.iter().any(|state| state == status);
        let silent = matches!(known.kind.as_str(), "message" | "reasoning" | "function_call" | "mcp_approval_request")
            || known.kind.starts_with("tool_search_");
        ensure(ended || silent || status != "completed" || known.kind == "computer_call", "it ended in silence")?;
        known.done = Some(item.clone());
        Ok(())
    }

    fn inside(&mut self, name: &str, data: &Value) -> Verdict {
        let index = data["output_index"].as_u64().and_then(|index| usize::try_from(index).ok());
        let item = index.and_then(|index| self.items.get_mut(index)).ok_or("a frame of an item that is not there")?;
        ensure(data["item_id"] == item.id.as_str(), "item_id is not that of the item")?;
        ensure(item.done.is_none(), "a frame of an item that is done")?;
        match name {
            "content_part.added" | "reasoning_summary_part.added" => item.part_added(data),
            "content_part.done" | "reasoning_summary_part.done" => item.part_done(data),
            "output_text.delta" => item.words("output_text", data),
            "refusal.delta" => item.words("refusal", data),
            "reasoning_summary_text.delta" => item.words("summary_text", data),
            "output_text.done" | "reasoning_summary_text.done" => item.words_done(data, "text"),
            "refusal.done" => item.words_done(data, "refusal"),
            "output_text.annotation.added" => item.cited(data),
            "function_call_arguments.delta" | "mcp_call_arguments.delta" => item.argued(name, data),
            "function_call_arguments.done" | "mcp_call_arguments.done" => item.argued_all(name, data),
            "image_generation_call.partial_image" => {
                ensure(item.kind == "image_generation_call", "a picture of another item")?;
                ensure(!text(data, "partial_image_b64").starts_with("data:"), "a picture is base64")
            }
            _ => item.moved(name),
        }
    }
}

impl Item {
    /// The part that a frame belongs to.
    fn part(&mut self, data: &Value) -> Result<&mut Part, String> {
        let key = if self.kind == "reasoning" { "summary_index" } else { "content_index" };
        let index = data[key].as_u64().and_then(|index| usize::try_from(index).ok()).ok_or("no index of the part")?;
        self.parts.get_mut(index).filter(|part| !part.done).ok_or_else(|| "no such part is open".to_owned())
    }

    fn part_added(&mut self, data: &Value) -> Verdict {
        let key = if self.kind == "reasoning" { "summary_index" } else { "content_index" };
        ensure(data[key] == self.parts.len(), "parts are not counted from 0")?;
        ensure(self.parts.iter().all(|part| part.done), "a part while another is open")?;
        let part = Part { kind: text(&data["part"], "type").to_owned(), ..Part::default() };
        ensure(part.agrees(&data["part"]), "a part that is not empty at first")?;
        self.parts.push(part);
        Ok(())
    }

    fn part_done(&mut self, data: &Value) -> Verdict {
        let part = self.part(data)?;
        ensure(part.text_done, "a part is done before its text")?;
        ensure(part.agrees(&data["part"]), "the part is not what was shown")?;
        part.done = true;
        Ok(())
    }

    fn words(&mut self, kind: &str, data: &Value) -> Verdict {
        let part = self.part(data)?;
        ensure(part.kind == kind && !part.text_done, "words of another part")?;
        ensure(kind != "output_text" || data["logprobs"].is_array(), "no logprobs")?;
        part.text.push_str(data["delta"].as_str().ok_or("no delta")?);
        Ok(())
    }

    fn words_done(&mut self, data: &Value, key: &str) -> Verdict {
        let part = self.part(data)?;
        ensure(!part.text_done && data[key] == part.text.as_str(), "the text is not what its deltas were")?;
        part.text_done = true;
        Ok(())
    }

    fn cited(&mut self, data: &Value) -> Verdict {
        let part = self.part(data)?;
        ensure(data["annotation_index"] == part.annotations.len(), "annotations are not counted from 0")?;
        part.annotations.push(data["annotation"].clone());
        Ok(())
    }

    fn argued(&mut self, name: &str, data: &Value) -> Verdict {
        ensure(name.starts_with(&self.kind) && !self.arguments_done, "arguments of another item, or after their end")?;
        self.arguments.push_str(data["delta"].as_str().ok_or("no delta")?);
        Ok(())
    }

    fn argued_all(&mut self, name: &str, data: &Value) -> Verdict {
        ensure(name.starts_with(&self.kind) && !self.arguments_done, "arguments of another item, or twice")?;
        ensure(data["arguments"] == self.arguments.as_str(), "the arguments are not what their deltas were")?;
        self.arguments_done = true;
        Ok(())
    }

    /// A hosted tool reports its state.
    fn moved(&mut self, name: &str) -> Verdict {
        let (kind, state) = name.split_once('.').ok_or("an event that nobody knows")?;
        if kind == "code_interpreter_call_code" {
            return ensure(self.kind == "code_interpreter_call", "code of another item");
        }
        ensure(kind == self.kind, "the state of another item")?;
        ensure(self.states.iter().all(|said| said != state), "a state twice")?;
        let ended = self.states.iter().any(|said| said == "completed" || said == "failed");
        ensure(!ended, "a state after the end")?;
        self.states.push(state.to_owned());
        Ok(())
    }
}

impl Part {
    fn agrees(&self, shown: &Value) -> bool {
        let key = if self.kind == "refusal" { "refusal" } else { "text" };
        let cites = self.kind != "output_text" || shown["annotations"] == Value::Array(self.annotations.clone());
        shown["type"] == self.kind.as_str() && shown[key] == self.text.as_str() && cites
    }
}
