//! What happens inside an item: words, thoughts, arguments, and what the provider's own tools do.

use super::builder::{ItemStyle, ResponseBuilder, root_item};
use super::hosted;
use super::item::{self, McpCallOutcome};
use model::content::TextBlock;
use model::event::{AnnotationAdded, Event, HostedCallUpdated, ImageDelta, SummaryEvent, TextDelta, TextEvent};
use model::fold::RunFold;
use model::item::Block;
use model::item::{HostedCall, Item, ItemStatus};
use serde_json::{Value, json};

impl ResponseBuilder {
    /// Something happened inside an item of the root's output. What is not shown is passed over.
    pub(crate) fn on_event(&mut self, run: &RunFold, event: &Event) {
        match event {
            Event::SummaryAdded(e) => self.summary_added(e),
            Event::SummaryDelta(e) => {
                let more = json!({"summary_index": e.summary_index, "delta": e.delta});
                self.push_event_at(e.output_index, "response.reasoning_summary_text.delta", more);
            }
            Event::SummaryDone(e) => self.summary_done(run, e),
            Event::TextAdded(e) => self.text_added(run, e),
            Event::TextDelta(e) => self.text_delta(run, e),
            Event::AnnotationAdded(e) => self.on_annotation_added(run, e),
            Event::TextDone(e) => self.text_done(run, e),
            Event::ArgumentsDelta(e) => {
                let Some(index) = self.find_open_item(e.output_index) else { return };
                self.arguments_delta(index, &e.delta);
            }
            Event::ArgumentsDone(e) => self.arguments_done(run, e.output_index),
            Event::HostedCallUpdated(e) => self.on_hosted_updated(run, e),
            Event::ImageDelta(e) => self.partial_image(run, e),
            _ => {}
        }
    }

    /// An item of the root's output ended: it is shown whole, unless its answer is still to come.
    pub(crate) fn on_item_done(&mut self, run: &RunFold, place: u32) -> Option<Value> {
        let index = self.find_open_item(place)?;
        let fold = root_item(run, place)?;
        match &fold.item {
            Item::HostedCall(call) => self.on_hosted_done(index, call),
            Item::ToolCall(call) => {
                let cut = item::item_status(call.status, true) == "incomplete";
                if !cut {
                    self.arguments_done(run, place);
                    // Whoever answers it is yet to do so.
                    if self.items.get(index)?.style == ItemStyle::Mcp {
                        return None;
                    }
                }
            }
            _ => {}
        }
        self.close_item(run, index, &McpCallOutcome::INCOMPLETE)
    }

    fn push_event_at(&mut self, place: u32, kind: &str, more: Value) {
        if let Some(index) = self.find_open_item(place) {
            self.push_item_event(index, kind, more);
        }
    }

    fn summary_added(&mut self, e: &SummaryEvent) {
        let more = json!({"summary_index": e.summary_index, "part": item::summary_part("")});
        self.push_event_at(e.output_index, "response.reasoning_summary_part.added", more);
    }

    fn summary_done(&mut self, run: &RunFold, e: &SummaryEvent) {
        let Some(fold) = root_item(run, e.output_index) else { return };
        let text = item::summary_text(&fold.item, e.summary_index);
        let done = json!({"summary_index": e.summary_index, "text": text});
        self.push_event_at(e.output_index, "response.reasoning_summary_text.done", done);
        let part = json!({"summary_index": e.summary_index, "part": item::summary_part(text)});
        self.push_event_at(e.output_index, "response.reasoning_summary_part.done", part);
    }

    fn text_added(&mut self, run: &RunFold, e: &TextEvent) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        let empty = TextBlock { refusal: block.refusal, ..TextBlock::new("") };
        let part = item::content_part(&empty, &self.references_url, &[]);
        let more = json!({"content_index": content_index, "part": part});
        self.push_event_at(e.output_index, "response.content_part.added", more);
    }

    fn text_delta(&mut self, run: &RunFold, e: &TextDelta) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        if item::is_refusal(block) {
            let more = json!({"content_index": content_index, "delta": e.delta});
            return self.push_event_at(e.output_index, "response.refusal.delta", more);
        }
        let logprobs = e.logprobs.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        self.store_logprobs(e.output_index, e.block_index, &logprobs);
        let more = json!({"content_index": content_index, "delta": e.delta, "logprobs": logprobs});
        self.push_event_at(e.output_index, "response.output_text.delta", more);
    }

    fn store_logprobs(&mut self, place: u32, block: u32, logprobs: &[Value]) {
        if logprobs.is_empty() {
            return;
        }
        let Some(shown) = self.find_open_item(place).and_then(|index| self.items.get_mut(index)) else { return };
        match shown.logprobs.iter_mut().find(|(known, _)| *known == block) {
            Some((_, kept)) => kept.extend_from_slice(logprobs),
            None => shown.logprobs.push((block, logprobs.to_vec())),
        }
    }

    fn on_annotation_added(&mut self, run: &RunFold, e: &AnnotationAdded) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        if item::is_refusal(block) {
            return;
        }
        let annotation = item::annotation_object(&e.annotation, &self.references_url);
        let annotation_index = e.annotation_index;
        let more =
            json!({"content_index": content_index, "annotation_index": annotation_index, "annotation": annotation});
        self.push_event_at(e.output_index, "response.output_text.annotation.added", more);
    }

    fn text_done(&mut self, run: &RunFold, e: &TextEvent) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        let Some(shown) = self.find_open_item(e.output_index).and_then(|index| self.items.get(index)) else { return };
        let logprobs = shown.logprobs(e.block_index as usize);
        if item::is_refusal(block) {
            let done = json!({"content_index": content_index, "refusal": block.text()});
            self.push_event_at(e.output_index, "response.refusal.done", done);
        } else {
            let done = json!({"content_index": content_index, "text": block.text(), "logprobs": logprobs});
            self.push_event_at(e.output_index, "response.output_text.done", done);
        }
        let part = item::content_part(block, &self.references_url, &logprobs);
        self.push_event_at(
            e.output_index,
            "response.content_part.done",
            json!({"content_index": content_index, "part": part}),
        );
    }

    fn arguments_delta(&mut self, index: usize, delta: &str) {
        let Some(shown) = self.items.get(index) else { return };
        let kind = format!("response.{}.delta", shown.style.arguments_event());
        self.push_item_event(index, &kind, json!({ "delta": delta }));
    }

    /// The arguments that the model wrote are whole, if nobody has said so.
    fn arguments_done(&mut self, run: &RunFold, place: u32) {
        let Some(index) = self.find_open_item(place) else { return };
        let Some(Item::ToolCall(call)) = root_item(run, place).map(|fold| &fold.item) else { return };
        self.send_arguments_done(index, call.arguments.as_deref().unwrap_or_default());
    }

    fn send_arguments_done(&mut self, index: usize, whole: &str) {
        let Some(shown) = self.items.get_mut(index).filter(|shown| shown.arguments.is_none()) else { return };
        let kind = format!("response.{}.done", shown.style.arguments_event());
        shown.arguments = Some(whole.to_owned());
        self.push_item_event(index, &kind, json!({ "arguments": whole }));
    }

    /// The arguments come all at once.
    pub(super) fn send_arguments(&mut self, index: usize, whole: &str) {
        if let Some(shown) = self.items.get_mut(index) {
            shown.arguments = None;
        }
        if !whole.is_empty() {
            self.arguments_delta(index, whole);
        }
        self.send_arguments_done(index, whole);
    }

    fn on_hosted_updated(&mut self, run: &RunFold, e: &HostedCallUpdated) {
        let Some(index) = self.find_open_item(e.output_index) else { return };
        let Some(Item::HostedCall(call)) = root_item(run, e.output_index).map(|fold| &fold.item) else { return };
        self.code_delta(index, call);
        if matches!(e.state.as_str(), "interpreting" | "completed") {
            self.code_done(index, call);
        }
        self.send_state(index, call, &e.state);
    }

    /// Says where a call is, once, if there is a word for it.
    fn send_state(&mut self, index: usize, call: &HostedCall, state: &str) {
        let shape = hosted::hosted_item_type(&call.name);
        let Some(shown) = self.items.get_mut(index) else { return };
        if !shape.states.contains(&state) || shown.sent_states.iter().any(|said| said == state) {
            return;
        }
        shown.sent_states.push(state.to_owned());
        self.push_item_event(index, &format!("response.{}.{state}", shape.type_name), json!({}));
    }

    fn on_hosted_done(&mut self, index: usize, call: &HostedCall) {
        self.code_delta(index, call);
        self.code_done(index, call);
        if hosted::hosted_item_type(&call.name).type_name == "mcp_call" {
            self.send_hosted_arguments(index, call);
        }
        match call.status {
            Some(ItemStatus::Incomplete) => {}
            Some(ItemStatus::Failed) => self.send_state(index, call, "failed"),
            _ => self.send_state(index, call, "completed"),
        }
    }

    fn send_hosted_arguments(&mut self, index: usize, call: &HostedCall) {
        let arguments = hosted::hosted_arguments(call);
        self.push_item_event(index, "response.mcp_call_arguments.delta", json!({ "delta": arguments }));
        self.push_item_event(index, "response.mcp_call_arguments.done", json!({ "arguments": arguments }));
    }

    /// The code that was not said yet. Code that does not go on from what was said is left to the item's end.
    fn code_delta(&mut self, index: usize, call: &HostedCall) {
        let Some(code) = hosted::interpreter_code(call) else { return };
        let Some(shown) = self.items.get_mut(index).filter(|shown| !shown.code_done) else { return };
        let Some(delta) = code.get(shown.code_bytes_sent..).filter(|delta| !delta.is_empty()) else { return };
        shown.code_bytes_sent = code.len();
        self.push_item_event(index, "response.code_interpreter_call_code.delta", json!({ "delta": delta }));
    }

    fn code_done(&mut self, index: usize, call: &HostedCall) {
        let Some(code) = hosted::interpreter_code(call) else { return };
        let Some(shown) = self.items.get_mut(index).filter(|shown| !shown.code_done) else { return };
        shown.code_done = true;
        self.push_item_event(index, "response.code_interpreter_call_code.done", json!({ "code": code }));
    }

    fn partial_image(&mut self, run: &RunFold, e: &ImageDelta) {
        let Some(Item::HostedCall(call)) = root_item(run, e.output_index).map(|fold| &fold.item) else { return };
        if call.name != "image_generation" {
            return;
        }
        let picture = hosted::image_base64_or_url(&e.item.block().image_url.url);
        let more = json!({"partial_image_index": e.partial_image_index, "partial_image_b64": picture});
        self.push_event_at(e.output_index, "response.image_generation_call.partial_image", more);
    }
}

/// A text block of a message, and its place among the texts.
fn text_block_at(run: &RunFold, place: u32, block: u32) -> Option<(usize, &TextBlock)> {
    let Item::Message(message) = &root_item(run, place)?.item else { return None };
    let mut texts = message.block_list.iter().flatten().enumerate().filter_map(|(at, block)| match block {
        Block::Text(text) => Some((at, text)),
        _ => None,
    });
    let content_index = texts.clone().take_while(|(at, _)| *at < block as usize).count();
    let (_, text) = texts.find(|(at, _)| *at == block as usize)?;
    Some((content_index, text))
}
