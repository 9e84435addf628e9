//! Items: texts, reasoning, images and files.

use super::EventProjector;
use super::events::{reasoning_message_id, reasoning_message_start, text_start};
use crate::agui::wire::{AgUiContent, AgUiDelta, AgUiDetails, AgUiEvent, AgUiMetadata, AgUiStatus};
use crate::citations::message_citations;
use crate::event_groups::terminal_events;
use model::event::{Event, ItemEvent, SummaryDelta, SummaryEvent, TextDelta, TextEvent};
use model::item::{Block, FileProcessing, Item, ItemStatus, Message};
use serde_json::json;
use std::borrow::Cow;

impl<'a> EventProjector<'a, '_> {
    pub(super) fn on_item_event(&mut self, event: &'a Event) {
        match event {
            Event::ItemAdded(e) => self.on_item_added(e),
            Event::ItemDone(e) => self.on_item_done(e.output_index),
            Event::SummaryAdded(e) => self.on_summary_added(e),
            Event::SummaryDelta(e) => self.on_summary_delta(e),
            Event::SummaryDone(e) => self.push_reasoning("REASONING_MESSAGE_END", e.item_id.as_str(), e.summary_index),
            Event::TextAdded(e) => self.on_text_added(e),
            Event::TextDelta(e) => self.on_text_delta(e),
            Event::ImageDelta(e) => {
                let url = &e.item.block().image_url.url;
                self.push_image(e.output_index, e.block_index, url, Some(e.partial_image_index));
            }
            Event::ImageDone(e) => {
                let url = &e.item.block().image_url.url;
                self.push_image(e.output_index, e.block_index, url, None);
            }
            Event::ArgumentsDelta(e) => self.on_arguments_delta(e),
            Event::ArgumentsDone(e) => self.on_arguments_done(e),
            Event::HostedCallUpdated(e) => self.send_hosted_call(e.output_index),
            Event::FileProcessingUpdated(e) => self.push_files(e.output_index),
            Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::Custom(_)
            | Event::ProviderEvent(_)
            | Event::ToolProgress(_)
            | Event::Retrying(_)
            | Event::AgentUpdated(_)
            | Event::InputAdded(_)
            | Event::ApprovalResolved(_)
            | Event::Recovered(_)
            | Event::Cancelling(_) => self.on_other_event(event),
            // Exhaustive on purpose: a new event is either placed above or skipped here by name. The first two lines are
            // placed in `on_event`; approvals are shown when the run pauses, edited arguments with the result.
            terminal_events!()
            | Event::Created(_)
            | Event::Resumed(_)
            | Event::Paused(_)
            | Event::StepStarted(_)
            | Event::StepDone(_)
            | Event::Started(_)
            | Event::AnnotationAdded(_)
            | Event::TextDone(_)
            | Event::ImageAdded(_)
            | Event::ToolStarted(_)
            | Event::ApprovalRequested(_)
            | Event::HistoryCompacted(_)
            | Event::RunHidden(_)
            | Event::Unknown(_) => {}
        }
    }

    fn item_at(&self, output_index: u32) -> Option<&'a Item> {
        self.task.items.get(output_index as usize).map(|fold| &fold.item)
    }

    fn on_item_added(&mut self, e: &'a ItemEvent) {
        match &e.item {
            Item::Reasoning(reasoning) => {
                self.push_reasoning("REASONING_START", reasoning.id.as_str(), 0);
            }
            Item::Message(message) => {
                self.state.step_messages.insert(self.task.id.clone(), message.id.to_string());
                self.push(text_start(self.task, message));
            }
            Item::ToolCall(call) => self.start_call(call),
            Item::HostedCall(_) => self.send_hosted_call(e.output_index),
            Item::FileProcessing(_) => self.push_files(e.output_index),
            Item::ToolResult(_) => {}
        }
    }

    /// The item of a `done` event may be abbreviated; the fold's is complete.
    fn on_item_done(&mut self, output_index: u32) {
        let Some(fold) = self.task.items.get(output_index as usize) else { return };
        match &fold.item {
            Item::Reasoning(reasoning) => self.push_reasoning("REASONING_END", reasoning.id.as_str(), 0),
            Item::Message(message) => self.end_message(message),
            // A call that was cut has no complete arguments.
            Item::ToolCall(call) if !fold.arguments_complete => self.end_call(call.call_id.as_str()),
            Item::ToolCall(_) => {}
            Item::ToolResult(result) => self.push_result(result),
            Item::HostedCall(call) => self.end_hosted_call(call),
            Item::FileProcessing(_) => self.push_files(output_index),
        }
    }

    fn end_message(&mut self, message: &'a Message) {
        let citations = Some(message_citations(message)).filter(|citations| !citations.is_empty());
        let status = message.status.filter(|status| *status != ItemStatus::Completed).map(AgUiStatus::Item);
        let is_plain = citations.is_none() && status.is_none();
        let details = AgUiDetails { citations, status, reason: message.reason, ..AgUiDetails::default() };
        self.push_tagged(AgUiEvent {
            message_id: Some(message.id.as_str().into()),
            metadata: (!is_plain).then(|| AgUiMetadata::from(details)),
            ..AgUiEvent::new("TEXT_MESSAGE_END")
        });
    }

    fn push_reasoning(&mut self, event_type: &'static str, id: &'a str, part: u32) {
        let message_id = Some(reasoning_message_id(id, part));
        self.push_tagged(AgUiEvent { message_id, ..AgUiEvent::new(event_type) });
    }

    fn on_summary_added(&mut self, e: &'a SummaryEvent) {
        let Some(Item::Reasoning(reasoning)) = self.item_at(e.output_index) else { return };
        self.push(reasoning_message_start(self.task, reasoning, e.summary_index));
        self.push_reasoning_text(e.item_id.as_str(), e.summary_index, e.item.text());
    }

    fn on_summary_delta(&mut self, e: &'a SummaryDelta) {
        self.push_reasoning_text(e.item_id.as_str(), e.summary_index, &e.delta);
    }

    fn push_reasoning_text(&mut self, id: &'a str, part: u32, delta: &'a str) {
        if !delta.is_empty() {
            let (message_id, delta) = (Some(reasoning_message_id(id, part)), Some(AgUiDelta::Text(delta)));
            self.push_tagged(AgUiEvent { message_id, delta, ..AgUiEvent::new("REASONING_MESSAGE_CONTENT") });
        }
    }

    /// The text blocks of a message are lines of one text.
    fn on_text_added(&mut self, e: &'a TextEvent) {
        let Some(Item::Message(message)) = self.item_at(e.output_index) else { return };
        let mut before = message.block_list.iter().flatten().take(e.block_index as usize);
        if before.any(|block| matches!(block, Block::Text(_))) {
            self.push_text(message.id.as_str(), "\n");
        }
        self.push_text(message.id.as_str(), e.item.block().text());
    }

    fn on_text_delta(&mut self, e: &'a TextDelta) {
        match self.item_at(e.output_index) {
            Some(Item::Message(message)) => self.push_text(message.id.as_str(), &e.delta),
            Some(Item::ToolResult(result)) if self.is_piece => {
                self.push_result_piece(result.call_id.as_str(), e.block_index, &e.delta);
            }
            _ => {}
        }
    }

    fn push_text(&mut self, id: &'a str, delta: &str) {
        if !delta.is_empty() {
            let (message_id, delta) = (Some(id.into()), Some(AgUiDelta::Text(delta)));
            self.push_tagged(AgUiEvent { message_id, delta, ..AgUiEvent::new("TEXT_MESSAGE_CONTENT") });
        }
    }

    /// A picture of a message or of a hosted call. Those of results are parts of the result.
    fn push_image(&mut self, output_index: u32, block_index: u32, url: &str, partial: Option<u32>) {
        let Some(Item::Message(_) | Item::HostedCall(_)) = self.item_at(output_index) else { return };
        let Some(item) = self.item_at(output_index).filter(|_| !url.is_empty()) else { return };
        let id = format!("{}-image-{block_index}", item.id());
        let content = match partial {
            Some(partial) => json!({"url": url, "partial": partial}),
            None => json!({"url": url}),
        };
        self.push_activity(id.into(), "image", AgUiContent::Object(Cow::Owned(content)));
    }

    fn push_files(&mut self, output_index: u32) {
        let Some(Item::FileProcessing(FileProcessing { id, files, status, .. })) = self.item_at(output_index) else {
            return;
        };
        let content = json!({"files": files, "status": status});
        self.push_activity(id.as_str().into(), "file_processing", AgUiContent::Object(Cow::Owned(content)));
    }

    pub(super) fn push_activity(&mut self, id: Cow<'_, str>, activity_type: &str, content: AgUiContent<'_>) {
        self.push_tagged(AgUiEvent {
            message_id: Some(id),
            content: Some(content),
            activity_type: Some(activity_type),
            replace: Some(true),
            ..AgUiEvent::new("ACTIVITY_SNAPSHOT")
        });
    }
}
