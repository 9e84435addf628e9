//! Events inside an item: texts, reasoning, arguments, and the progress of hosted tools.

use super::super::wire::{AnnotationObject, PartObject, ResponsesEvent, SentItem, TextDeltaEvent};
use super::builder::{ItemStyle, ResponseBuilder, ResponsesSink, root_item};
use super::hosted::{self, HostedInputKind};
use super::item::{self, ItemPhase, McpCallOutcome};
use crate::event_groups::{native_only_events, terminal_events};
use model::content::TextBlock;
use model::event::{AnnotationAdded, Event, HostedCallUpdated, ImageDelta, SummaryEvent, TextDelta, TextEvent};
use model::fold::RunFold;
use model::item::{Block, HostedCall, Item, ItemStatus};
use serde_json::Value;
use std::sync::Arc;

impl ResponseBuilder {
    /// Applies an event inside an item of the root's output.
    pub(crate) fn on_item_event(&mut self, run: &RunFold, event: &Event, out: &mut dyn ResponsesSink) {
        match event {
            Event::SummaryAdded(e) => self.on_summary_added(e, out),
            Event::SummaryDelta(e) => self.push_event_at(
                e.output_index,
                ResponsesEvent {
                    summary_index: Some(e.summary_index),
                    delta: Some(&e.delta),
                    ..ResponsesEvent::new("response.reasoning_summary_text.delta")
                },
                out,
            ),
            Event::SummaryDone(e) => self.on_summary_done(run, e, out),
            Event::TextAdded(e) => self.on_text_added(run, e, out),
            Event::TextDelta(e) => self.on_text_delta(run, e, out),
            Event::AnnotationAdded(e) => self.on_annotation_added(run, e, out),
            Event::TextDone(e) => self.on_text_done(run, e, out),
            Event::ArgumentsDelta(e) => {
                if let Some(index) = self.find_open_item(e.output_index) {
                    self.send_arguments_delta(index, &e.delta, out);
                }
            }
            Event::ArgumentsDone(e) => self.on_arguments_done(run, e.output_index, out),
            Event::HostedCallUpdated(e) => self.on_hosted_updated(run, e, out),
            Event::ImageDelta(e) => self.on_partial_image(run, e, out),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name.
            native_only_events!()
            | terminal_events!()
            | Event::Created(_)
            | Event::StepStarted(_)
            | Event::ItemAdded(_)
            | Event::FileProcessingUpdated(_)
            | Event::ImageAdded(_)
            | Event::ImageDone(_)
            | Event::ItemDone(_)
            | Event::StepDone(_)
            | Event::ToolStarted(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalRequested(_)
            | Event::ApprovalResolved(_)
            | Event::Paused(_)
            | Event::Resumed(_)
            | Event::Recovered(_) => {}
        }
    }

    /// Closes an item of the root's output, unless it is a call that the server has yet to answer.
    pub(crate) fn on_item_done(
        &mut self,
        run: &RunFold,
        root_index: u32,
        out: &mut dyn ResponsesSink,
    ) -> Option<&Arc<SentItem>> {
        let index = self.find_open_item(root_index)?;
        match &root_item(run, root_index)?.item {
            Item::HostedCall(call) => self.on_hosted_done(index, call, out),
            Item::ToolCall(call) if item::item_status(call.status, ItemPhase::Done) == "completed" => {
                self.on_arguments_done(run, root_index, out);
                if self.items.get(index)?.style == ItemStyle::Mcp {
                    return None;
                }
            }
            Item::Reasoning(_)
            | Item::Message(_)
            | Item::ToolCall(_)
            | Item::ToolResult(_)
            | Item::FileProcessing(_) => {}
        }
        self.close_item(run, index, &McpCallOutcome::INCOMPLETE, out)
    }

    fn push_event_at(&mut self, root_index: u32, event: ResponsesEvent<'_>, out: &mut dyn ResponsesSink) {
        if let Some(index) = self.find_open_item(root_index) {
            self.push_item_event(index, event, out);
        }
    }

    fn on_summary_added(&mut self, e: &SummaryEvent, out: &mut dyn ResponsesSink) {
        let event = ResponsesEvent {
            summary_index: Some(e.summary_index),
            part: Some(PartObject::summary_text("")),
            ..ResponsesEvent::new("response.reasoning_summary_part.added")
        };
        self.push_event_at(e.output_index, event, out);
    }

    fn on_summary_done(&mut self, run: &RunFold, e: &SummaryEvent, out: &mut dyn ResponsesSink) {
        let Some(fold) = root_item(run, e.output_index) else { return };
        let text = item::summary_text(&fold.item, e.summary_index);
        let text_done = ResponsesEvent {
            summary_index: Some(e.summary_index),
            text: Some(text),
            ..ResponsesEvent::new("response.reasoning_summary_text.done")
        };
        self.push_event_at(e.output_index, text_done, out);
        let part_done = ResponsesEvent {
            summary_index: Some(e.summary_index),
            part: Some(PartObject::summary_text(text)),
            ..ResponsesEvent::new("response.reasoning_summary_part.done")
        };
        self.push_event_at(e.output_index, part_done, out);
    }

    fn on_text_added(&mut self, run: &RunFold, e: &TextEvent, out: &mut dyn ResponsesSink) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        let empty = TextBlock { refusal: block.refusal, ..TextBlock::new("") };
        let event = ResponsesEvent {
            content_index: Some(content_index),
            part: Some(item::content_part(&empty, &self.references_url, &[])),
            ..ResponsesEvent::new("response.content_part.added")
        };
        self.push_event_at(e.output_index, event, out);
    }

    fn on_text_delta(&mut self, run: &RunFold, e: &TextDelta, out: &mut dyn ResponsesSink) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        let delta = Some(e.delta.as_str());
        if item::is_refusal(block) {
            let content_index = Some(content_index);
            let event = ResponsesEvent { content_index, delta, ..ResponsesEvent::new("response.refusal.delta") };
            return self.push_event_at(e.output_index, event, out);
        }
        let logprobs = e.logprobs.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let Some(index) = self.find_open_item(e.output_index) else { return };
        if logprobs.is_empty() {
            return self.push_text_delta(index, content_index, &e.delta, out);
        }
        self.store_logprobs(index, e.block_index, logprobs);
        let event = ResponsesEvent {
            content_index: Some(content_index),
            delta,
            logprobs: Some(logprobs),
            ..ResponsesEvent::new(TextDeltaEvent::TYPE)
        };
        self.push_item_event(index, event, out);
    }

    fn store_logprobs(&mut self, index: usize, block: u32, logprobs: &[Value]) {
        let Some(item) = self.items.get_mut(index) else { return };
        match item.logprobs.iter_mut().find(|(known, _)| *known == block) {
            Some((_, stored)) => stored.extend_from_slice(logprobs),
            None => item.logprobs.push((block, logprobs.to_vec())),
        }
    }

    fn on_annotation_added(&mut self, run: &RunFold, e: &AnnotationAdded, out: &mut dyn ResponsesSink) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        if item::is_refusal(block) {
            return;
        }
        let event = ResponsesEvent {
            content_index: Some(content_index),
            annotation_index: Some(e.annotation_index),
            annotation: Some(AnnotationObject::new(&e.annotation, &self.references_url)),
            ..ResponsesEvent::new("response.output_text.annotation.added")
        };
        self.push_event_at(e.output_index, event, out);
    }

    fn on_text_done(&mut self, run: &RunFold, e: &TextEvent, out: &mut dyn ResponsesSink) {
        let Some((content_index, block)) = text_block_at(run, e.output_index, e.block_index) else { return };
        let Some(item) = self.find_open_item(e.output_index).and_then(|index| self.items.get(index)) else { return };
        let content_index = Some(content_index);
        let logprobs = item.logprobs(e.block_index as usize).to_vec();
        let event =
            |event_type| ResponsesEvent { content_index, block: Some(block), ..ResponsesEvent::new(event_type) };
        let text_done = if item::is_refusal(block) {
            ResponsesEvent { refusal: Some(block.text()), ..event("response.refusal.done") }
        } else {
            let (text, logprobs) = (Some(block.text()), Some(logprobs.as_slice()));
            ResponsesEvent { text, logprobs, ..event("response.output_text.done") }
        };
        self.push_event_at(e.output_index, text_done, out);
        let part = Some(item::content_part(block, &self.references_url, &logprobs));
        self.push_event_at(e.output_index, ResponsesEvent { part, ..event("response.content_part.done") }, out);
    }

    fn send_arguments_delta(&mut self, index: usize, delta: &str, out: &mut dyn ResponsesSink) {
        let Some(item) = self.items.get(index) else { return };
        let event_type = item.style.arguments_delta_event();
        self.push_item_event(index, ResponsesEvent { delta: Some(delta), ..ResponsesEvent::new(event_type) }, out);
    }

    fn on_arguments_done(&mut self, run: &RunFold, root_index: u32, out: &mut dyn ResponsesSink) {
        let Some(index) = self.find_open_item(root_index) else { return };
        let Some(Item::ToolCall(call)) = root_item(run, root_index).map(|fold| &fold.item) else { return };
        self.send_arguments_done(index, call.arguments.as_deref().unwrap_or_default(), out);
    }

    fn send_arguments_done(&mut self, index: usize, arguments: &str, out: &mut dyn ResponsesSink) {
        let Some(item) = self.items.get_mut(index).filter(|item| item.arguments.is_none()) else { return };
        let event_type = item.style.arguments_done_event();
        item.arguments = Some(arguments.to_owned());
        self.push_item_event(
            index,
            ResponsesEvent { arguments: Some(arguments), ..ResponsesEvent::new(event_type) },
            out,
        );
    }

    /// Sends arguments in one piece.
    pub(super) fn send_arguments(&mut self, index: usize, arguments: &str, out: &mut dyn ResponsesSink) {
        if let Some(item) = self.items.get_mut(index) {
            item.arguments = None;
        }
        if !arguments.is_empty() {
            self.send_arguments_delta(index, arguments, out);
        }
        self.send_arguments_done(index, arguments, out);
    }

    fn on_hosted_updated(&mut self, run: &RunFold, e: &HostedCallUpdated, out: &mut dyn ResponsesSink) {
        let Some(index) = self.find_open_item(e.output_index) else { return };
        let Some(Item::HostedCall(call)) = root_item(run, e.output_index).map(|fold| &fold.item) else { return };
        self.send_input_delta(index, call, out);
        // The outcome of an MCP call comes after its arguments, which may be known only at its end.
        if hosted::is_mcp_call(call) && matches!(e.state.as_str(), "completed" | "failed") {
            return;
        }
        if matches!(e.state.as_str(), "interpreting" | "completed") {
            self.send_input_done(index, call, out);
        }
        self.send_state(index, call, &e.state, out);
    }

    /// Sends the state of a hosted call once, if the protocol has an event for it.
    fn send_state(&mut self, index: usize, call: &HostedCall, state: &str, out: &mut dyn ResponsesSink) {
        let item_type = hosted::hosted_item_type(&call.name);
        let Some(item) = self.items.get_mut(index) else { return };
        if !item_type.states.contains(&state) || item.sent_states.iter().any(|sent| sent == state) {
            return;
        }
        item.sent_states.push(state.to_owned());
        self.push_item_event(index, ResponsesEvent::new(format!("response.{}.{state}", item_type.type_name)), out);
    }

    fn on_hosted_done(&mut self, index: usize, call: &HostedCall, out: &mut dyn ResponsesSink) {
        self.send_input_delta(index, call, out);
        self.send_input_done(index, call, out);
        if hosted::is_mcp_call(call) && hosted::streamed_input(call).is_none() {
            self.send_hosted_arguments(index, &hosted::hosted_arguments(call), out);
        }
        match call.status {
            Some(ItemStatus::Incomplete) => {}
            Some(ItemStatus::Failed) => self.send_state(index, call, "failed", out),
            _ => self.send_state(index, call, "completed", out),
        }
    }

    /// Sends the arguments of a call that is not streamed.
    fn send_hosted_arguments(&mut self, index: usize, arguments: &str, out: &mut dyn ResponsesSink) {
        let [delta, done] = [ItemStyle::Mcp.arguments_delta_event(), ItemStyle::Mcp.arguments_done_event()];
        let delta = ResponsesEvent { delta: Some(arguments), ..ResponsesEvent::new(delta) };
        self.push_item_event(index, delta, out);
        let done = ResponsesEvent { arguments: Some(arguments), ..ResponsesEvent::new(done) };
        self.push_item_event(index, done, out);
    }

    /// Sends the unsent suffix of the input. Input that does not extend the sent prefix waits for the end of the item.
    fn send_input_delta(&mut self, index: usize, call: &HostedCall, out: &mut dyn ResponsesSink) {
        let Some(input) = hosted::streamed_input(call) else { return };
        let Some(item) = self.items.get_mut(index).filter(|item| !item.input_done) else { return };
        let Some(delta) = input.text.get(item.input_bytes_sent..).filter(|delta| !delta.is_empty()) else { return };
        item.input_bytes_sent = input.text.len();
        let event_type = format!("{}.delta", input.event);
        self.push_item_event(index, ResponsesEvent { delta: Some(delta), ..ResponsesEvent::new(event_type) }, out);
    }

    fn send_input_done(&mut self, index: usize, call: &HostedCall, out: &mut dyn ResponsesSink) {
        let Some(input) = hosted::streamed_input(call) else { return };
        let Some(item) = self.items.get_mut(index).filter(|item| !item.input_done) else { return };
        item.input_done = true;
        let done = ResponsesEvent::new(format!("{}.done", input.event));
        let done = match input.kind {
            HostedInputKind::Code => ResponsesEvent { code: Some(input.text), ..done },
            HostedInputKind::Arguments => ResponsesEvent { arguments: Some(input.text), ..done },
        };
        self.push_item_event(index, done, out);
    }

    fn on_partial_image(&mut self, run: &RunFold, e: &ImageDelta, out: &mut dyn ResponsesSink) {
        let Some(Item::HostedCall(call)) = root_item(run, e.output_index).map(|fold| &fold.item) else { return };
        if call.name != "image_generation" {
            return;
        }
        let event = ResponsesEvent {
            partial_image_index: Some(e.partial_image_index),
            partial_image_b64: Some(hosted::image_base64_or_url(&e.item.block().image_url.url)),
            ..ResponsesEvent::new("response.image_generation_call.partial_image")
        };
        self.push_event_at(e.output_index, event, out);
    }
}

/// A text block of a message, and its index among the message's texts.
fn text_block_at(run: &RunFold, root_index: u32, block_index: u32) -> Option<(usize, &TextBlock)> {
    let Item::Message(message) = &root_item(run, root_index)?.item else { return None };
    let mut texts = message.block_list.iter().flatten().enumerate().filter_map(|(index, block)| match block {
        Block::Text(text) => Some((index, text)),
        _ => None,
    });
    let content_index = texts.clone().take_while(|(index, _)| *index < block_index as usize).count();
    let (_, text) = texts.find(|(index, _)| *index == block_index as usize)?;
    Some((content_index, text))
}
