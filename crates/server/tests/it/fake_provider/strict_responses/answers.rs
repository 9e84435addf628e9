//! The answers of the service, as events in the format of the real one.

use super::{EncryptedReasoning, SentItem, ServiceState};
use crate::fake_provider::dialect::sse_event;
use crate::fake_provider::loopback::{ResponseAction, stream_head};
use serde_json::{Value, json};

/// One item of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputKind {
    Reasoning,
    Message,
    Call,
    /// The beginning of a message.
    PartialMessage,
}

/// How an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerEnd {
    Completed,
    /// At the limit, in the middle of its last item.
    Limited,
    /// It does not end: nothing more is sent.
    Stalled,
}

/// The kind of answer that a keyword of the last message selects.
fn plan_answer(words: &str, results: usize, has_stopped: bool) -> (&'static [OutputKind], AnswerEnd) {
    use OutputKind::{Call, Message, PartialMessage, Reasoning};
    let asks = |word: &str| words.split(|c: char| !c.is_alphanumeric()).any(|other| other == word);
    match results {
        _ if asks("limit") => (&[Reasoning, PartialMessage], AnswerEnd::Limited),
        _ if asks("stop") && !has_stopped => (&[Reasoning, PartialMessage], AnswerEnd::Stalled),
        0 if asks("fetch") => (&[Reasoning, Call], AnswerEnd::Completed),
        0 if asks("compare") => (&[Reasoning, Call, Call], AnswerEnd::Completed),
        0 if asks("chain") => (&[Reasoning, Message, Reasoning, Call], AnswerEnd::Completed),
        1 if asks("chain") => (&[Reasoning, Call], AnswerEnd::Completed),
        2 if asks("chain") => (&[Reasoning, Reasoning, Message], AnswerEnd::Completed),
        _ => (&[Reasoning, Message], AnswerEnd::Completed),
    }
}

/// The answer to an accepted request.
pub(super) fn build_answer(book: &mut ServiceState, account: &str, body: &Value) -> Vec<ResponseAction> {
    let (words, results) = last_user_message(body);
    let (outs, end) = plan_answer(&words, results, book.stalled.contains(&words));
    let model = body["model"].as_str().unwrap_or_default();
    let outs: Vec<OutputKind> =
        outs.iter().copied().filter(|out| *out != OutputKind::Reasoning || !model.starts_with("gpt-4")).collect();
    if end == AnswerEnd::Stalled {
        book.stalled.insert(words);
    }
    let is_encrypted = body["include"].to_string().contains("reasoning.encrypted_content");
    let is_kept = body["store"].as_bool().unwrap_or(true);
    let mut items: Vec<Value> = outs.iter().map(|out| new_item(book, *out, is_encrypted)).collect();
    record_items(book, &items, is_kept);
    for blob in items.iter().filter(|item| item["encrypted_content"].is_string()) {
        let reasoning = blob["id"].as_str().unwrap().to_owned();
        let (account, model) = (account.to_owned(), model.to_owned());
        book.blobs.insert(
            blob["encrypted_content"].as_str().unwrap().to_owned(),
            EncryptedReasoning { reasoning, account, model },
        );
    }
    let mut writer = EventWriter::default();
    let response = json!({"id": format!("resp_{:024x}", book.next_number()), "object": "response", "created_at": 1,
        "model": model, "status": "in_progress", "output": []});
    writer.event(json!({"type": "response.created", "response": response}));
    writer.event(json!({"type": "response.in_progress", "response": response}));
    for (index, (out, item)) in outs.iter().zip(&mut items).enumerate() {
        writer.item(index, *out, item, end);
    }
    writer.end(response, &items, end);
    let mut acts = vec![stream_head(), ResponseAction::Send(writer.text.into_bytes())];
    acts.extend((end == AnswerEnd::Stalled).then_some(ResponseAction::WaitForClose));
    acts
}

/// The last message, and the number of results after it.
fn last_user_message(body: &Value) -> (String, usize) {
    let Some(input) = body["input"].as_array() else {
        return (body["input"].as_str().unwrap_or_default().to_owned(), 0);
    };
    let Some(place) = input.iter().rposition(|item| item["role"] == "user") else { return (String::new(), 0) };
    let content = &input[place]["content"];
    let words = content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default();
    let results = input.iter().skip(place).filter(|item| item["type"] == "function_call_output").count();
    (words.to_owned(), results)
}

/// A new complete item.
fn new_item(book: &mut ServiceState, out: OutputKind, is_encrypted: bool) -> Value {
    let number = book.next_number();
    match out {
        OutputKind::Reasoning => {
            let summary = json!([{"type": "summary_text", "text": format!("thought {number}")}]);
            let blob = is_encrypted.then(|| format!("gAAAA{number:024x}"));
            json!({"id": format!("rs_{number:024x}"), "type": "reasoning", "summary": summary,
                "encrypted_content": blob})
        }
        OutputKind::Message | OutputKind::PartialMessage => {
            let text = format!("answer {number}");
            if out == OutputKind::Message {
                book.sent_messages.push(text.clone());
            }
            let content = json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]);
            json!({"id": format!("msg_{number:024x}"), "type": "message", "status": "completed", "role": "assistant",
                "content": content})
        }
        OutputKind::Call => json!({"id": format!("fc_{number:024x}"), "type": "function_call", "status": "completed",
            "call_id": format!("call_{number:024x}"), "name": "work", "arguments": format!("{{\"number\":{number}}}")}),
    }
}

/// Records which items followed which reasoning.
fn record_items(book: &mut ServiceState, items: &[Value], is_kept: bool) {
    let is_reasoning = |item: &&Value| item["type"] == "reasoning";
    for (place, item) in items.iter().enumerate() {
        let partner = match is_reasoning(&item) {
            true => items.iter().skip(place).find(|later| !is_reasoning(later)),
            false => items.iter().take(place).rev().find(is_reasoning),
        };
        let partner = partner.map(|partner| partner["id"].as_str().unwrap().to_owned());
        let id = item["id"].as_str().unwrap().to_owned();
        book.items.insert(id, SentItem { item: item.clone(), paired_item: partner, is_stored: is_kept });
    }
}

#[derive(Default)]
struct EventWriter {
    sequence: u32,
    text: String,
}

impl EventWriter {
    fn event(&mut self, mut data: Value) {
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.text.push_str(&sse_event(&data));
    }

    fn item(&mut self, index: usize, out: OutputKind, item: &mut Value, end: AnswerEnd) {
        let mut added = item.clone();
        match out {
            OutputKind::Reasoning => {
                added["summary"] = json!([]);
                // The `added` event does not have the readable blob yet.
                if item["encrypted_content"].is_string() {
                    added["encrypted_content"] = "gAAAAbegun".into();
                }
            }
            OutputKind::Message | OutputKind::PartialMessage => added["content"] = json!([]),
            OutputKind::Call => added["arguments"] = "".into(),
        }
        added["status"] = "in_progress".into();
        self.event(json!({"type": "response.output_item.added", "output_index": index, "item": added}));
        let id = item["id"].clone();
        match out {
            OutputKind::Reasoning => self.reasoning(index, &id, &item["summary"][0]),
            OutputKind::Message => self.message(index, &id, &item["content"][0]),
            OutputKind::PartialMessage => {
                self.message_delta(index, &id, "half of it");
                if end == AnswerEnd::Stalled {
                    return;
                }
                item["status"] = "incomplete".into();
                item["content"][0]["text"] = "half of it".into();
            }
            OutputKind::Call => {
                let arguments = item["arguments"].as_str().unwrap();
                let (first, second) = arguments.split_at(arguments.len() / 2);
                for delta in [first, second] {
                    self.event(json!({"type": "response.function_call_arguments.delta", "item_id": id,
                        "output_index": index, "delta": delta}));
                }
                self.event(json!({"type": "response.function_call_arguments.done", "item_id": id,
                    "output_index": index, "arguments": arguments}));
            }
        }
        self.event(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }

    fn reasoning(&mut self, index: usize, id: &Value, part: &Value) {
        let place = |kind: &str| json!({"type": kind, "item_id": id, "output_index": index, "summary_index": 0});
        let mut events = [
            place("response.reasoning_summary_part.added"),
            place("response.reasoning_summary_text.delta"),
            place("response.reasoning_summary_text.done"),
            place("response.reasoning_summary_part.done"),
        ];
        events[0]["part"] = json!({"type": "summary_text", "text": ""});
        events[1]["delta"] = part["text"].clone();
        events[2]["text"] = part["text"].clone();
        events[3]["part"] = part.clone();
        events.into_iter().for_each(|event| self.event(event));
    }

    fn message(&mut self, index: usize, id: &Value, part: &Value) {
        let text = part["text"].as_str().unwrap();
        self.message_delta(index, id, text);
        let place = json!({"item_id": id, "output_index": index, "content_index": 0});
        let mut done = place.clone();
        done["type"] = "response.output_text.done".into();
        done["text"] = text.into();
        done["logprobs"] = json!([]);
        self.event(done);
        let mut done = place;
        done["type"] = "response.content_part.done".into();
        done["part"] = part.clone();
        self.event(done);
    }

    /// A message begins with this.
    fn message_delta(&mut self, index: usize, id: &Value, text: &str) {
        let part = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
        self.event(json!({"type": "response.content_part.added", "item_id": id, "output_index": index,
            "content_index": 0, "part": part}));
        self.event(json!({"type": "response.output_text.delta", "item_id": id, "output_index": index,
            "content_index": 0, "delta": text, "logprobs": []}));
    }

    fn end(&mut self, mut response: Value, items: &[Value], end: AnswerEnd) {
        let (kind, status) = match end {
            AnswerEnd::Completed => ("response.completed", "completed"),
            AnswerEnd::Limited => ("response.incomplete", "incomplete"),
            AnswerEnd::Stalled => return,
        };
        if end == AnswerEnd::Limited {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        response["status"] = status.into();
        response["output"] = json!(items);
        response["usage"] = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 15});
        self.event(json!({"type": kind, "response": response}));
    }
}
