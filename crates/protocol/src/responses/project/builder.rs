//! One response as it is built: its object and its items. Its events go to a [`ResponsesSink`].
//!
//! A closed item is kept as it was sent, so that the last frame repeats the frames before it. An open item is read from
//! the run whenever it is needed.

use super::super::wire::{DEFAULT_SERVICE_TIER, ItemObject, ResponseObject, ResponsesEvent, SentItem, TextDeltaEvent};
use super::hosted;
use super::item::{self, McpCallOutcome};
use super::object::{self, ResponseHead};
use crate::run_end::RunEnd;
use model::fold::{ItemFold, RunFold};
use model::item::Item;
use model::json::SharedJson;
use model::shared_text::SharedText;
use model::usage::Usage;
use model::{Millis, ThreadId};
use serde_json::Value;
use std::sync::Arc;

/// How an item is represented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemStyle {
    /// As its own type.
    Plain,
    /// A call that the client answers.
    Function,
    /// A call that the server answers.
    Mcp,
}

impl ItemStyle {
    pub(super) const fn arguments_delta_event(self) -> &'static str {
        match self {
            Self::Plain | Self::Function => "response.function_call_arguments.delta",
            Self::Mcp => "response.mcp_call_arguments.delta",
        }
    }

    pub(super) const fn arguments_done_event(self) -> &'static str {
        match self {
            Self::Plain | Self::Function => "response.function_call_arguments.done",
            Self::Mcp => "response.mcp_call_arguments.done",
        }
    }
}

/// One item of a response. Its position among them is its `output_index`.
#[derive(Clone, Debug)]
pub(super) struct OutputItem {
    pub(super) id: String,
    pub(super) style: ItemStyle,
    /// Its position in the root's output. Items of sub-agents and approval requests have none.
    pub(super) root_index: Option<u32>,
    /// A call's arguments, once their `done` event was sent.
    pub(super) arguments: Option<String>,
    pub(super) approval_id: Option<String>,
    pub(super) sent_states: Vec<String>,
    /// How much of a hosted call's input was sent.
    pub(super) input_bytes_sent: usize,
    pub(super) input_done: bool,
    /// The log probabilities of each text block.
    pub(super) logprobs: Vec<(u32, Vec<Value>)>,
    /// Set when the item is closed.
    pub(super) final_item: Option<Arc<SentItem>>,
}

impl OutputItem {
    pub(super) const fn new(id: String, style: ItemStyle, root_index: Option<u32>) -> Self {
        Self {
            id,
            style,
            root_index,
            arguments: None,
            approval_id: None,
            sent_states: Vec::new(),
            input_bytes_sent: 0,
            input_done: false,
            logprobs: Vec::new(),
            final_item: None,
        }
    }

    pub(super) fn logprobs(&self, block: usize) -> &[Value] {
        let of_block = self.logprobs.iter().find(|(index, _)| *index as usize == block);
        of_block.map_or(&[], |(_, logprobs)| logprobs.as_slice())
    }
}

/// Takes the events of a response in their order.
pub(crate) trait ResponsesSink {
    fn push(&mut self, event: &ResponsesEvent<'_>);

    /// Takes a delta of a text, which nearly all events are.
    fn push_text_delta(&mut self, delta: &TextDeltaEvent<'_>) {
        self.push(&delta.to_event());
    }

    /// How many events each of them stands for.
    fn frames_per_event(&self) -> u64;
}

#[derive(Clone, Debug)]
pub(crate) struct ResponseBuilder {
    /// Its `output` is empty until the response ends.
    object: ResponseObject,
    pub(super) items: Vec<OutputItem>,
    /// The address of the thread's own references.
    pub(super) references_url: String,
    usage: Usage,
    /// As the provider reported it.
    service_tier: Option<String>,
    frame_count: u64,
    finished: bool,
}

impl ResponseBuilder {
    pub(crate) fn start(head: ResponseHead<'_>, thread: &ThreadId, out: &mut dyn ResponsesSink) -> Self {
        let mut response = Self {
            object: object::initial_object(head),
            items: Vec::new(),
            references_url: format!("headwater:/threads/{thread}/references/"),
            usage: Usage::default(),
            service_tier: None,
            frame_count: 0,
            finished: false,
        };
        // The two have the same object, which is written once.
        let object = SentItem::new(&response.object);
        for event_type in ["response.created", "response.in_progress"] {
            let event = ResponsesEvent { written_response: Some(&object), ..ResponsesEvent::new(event_type) };
            push_numbered(&mut response.frame_count, event, out);
        }
        response
    }

    pub(crate) const fn frame_count(&self) -> u64 {
        self.frame_count
    }

    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn is_stored(&self) -> bool {
        self.object.store.as_bool().unwrap_or(true)
    }

    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.usage.add(usage);
    }

    /// Sets the model that answered, which may differ from the requested one.
    pub(crate) fn set_model(&mut self, model: &str) {
        self.object.model = model.into();
    }

    /// Sets the tier that the provider reported, which may differ from the requested one.
    pub(crate) fn set_service_tier(&mut self, tier: Option<&str>) {
        self.service_tier = tier.map(str::to_owned).or_else(|| self.service_tier.take());
    }

    /// The object, with its items so far.
    pub(crate) fn object(&self, run: &RunFold) -> ResponseObject {
        let mut object = self.object.clone();
        if !self.finished {
            let items = self.items.iter();
            object.output = items.map(|item| self.sent_item(run, item, &McpCallOutcome::IN_PROGRESS)).collect();
        }
        object
    }

    /// Ends the response and closes its open items. Items that a later attempt replaced are left out of the output.
    pub(crate) fn finish(&mut self, run: &RunFold, end: &RunEnd, at: Millis, out: &mut dyn ResponsesSink) {
        for index in 0..self.items.len() {
            self.close_item(run, index, &McpCallOutcome::INCOMPLETE, out);
        }
        let is_superseded = |item: &OutputItem| {
            item.root_index.and_then(|index| root_item(run, index)).is_some_and(|fold| fold.superseded)
        };
        let kept = self.items.iter().filter(|item| !is_superseded(item));
        self.object.output = kept.filter_map(|item| item.final_item.clone()).collect();
        object::apply_end(&mut self.object, end, at);
        self.object.usage = Some(self.usage.into());
        self.object.service_tier = self.service_tier.as_deref().unwrap_or(DEFAULT_SERVICE_TIER).into();
        self.finished = true;
        let event_type = end.names().responses_event;
        let event = ResponsesEvent { response: Some(&self.object), ..ResponsesEvent::new(event_type) };
        push_numbered(&mut self.frame_count, event, out);
    }

    pub(crate) fn add_item(&mut self, run: &RunFold, root_index: u32, style: ItemStyle, out: &mut dyn ResponsesSink) {
        let Some(fold) = root_item(run, root_index) else { return };
        let id = match (&fold.item, style) {
            (Item::ToolCall(call), ItemStyle::Mcp) => call.call_id.item_id("mcp").to_string(),
            (item, _) => item.id().to_string(),
        };
        self.open_item(run, OutputItem::new(id, style, Some(root_index)), out);
    }

    pub(super) fn open_item(&mut self, run: &RunFold, item: OutputItem, out: &mut dyn ResponsesSink) -> usize {
        let object = self.sent_item(run, &item, &McpCallOutcome::IN_PROGRESS);
        self.open_item_as(item, &object, out)
    }

    pub(super) fn open_item_as(&mut self, item: OutputItem, object: &SentItem, out: &mut dyn ResponsesSink) -> usize {
        let index = self.items.len();
        self.items.push(item);
        self.push_output_item_event("response.output_item.added", index, object, out);
        index
    }

    /// Adds an item that is complete from the start.
    pub(super) fn add_complete_item(&mut self, id: String, object: &ItemObject<'_>, out: &mut dyn ResponsesSink) {
        let object = SentItem::new(object);
        let index = self.open_item_as(OutputItem::new(id, ItemStyle::Plain, None), &object, out);
        self.close_item_as(index, object, out);
    }

    /// Closes an item unless it is closed. Returns the item as it was sent.
    pub(super) fn close_item(
        &mut self,
        run: &RunFold,
        index: usize,
        outcome: &McpCallOutcome,
        out: &mut dyn ResponsesSink,
    ) -> Option<&Arc<SentItem>> {
        let item = self.items.get(index).filter(|item| item.final_item.is_none())?;
        let object = match self.item_object(run, item, outcome) {
            Some(mut object) => {
                object.close();
                SentItem::with_long_texts(&object, long_texts(run, item))
            }
            None => SentItem::new(&()),
        };
        self.close_item_as(index, object, out);
        self.items.get(index)?.final_item.as_ref()
    }

    pub(super) fn close_item_as(&mut self, index: usize, object: Arc<SentItem>, out: &mut dyn ResponsesSink) {
        self.push_output_item_event("response.output_item.done", index, &object, out);
        if let Some(item) = self.items.get_mut(index) {
            item.final_item = Some(object);
        }
    }

    /// The open item that shows this item of the root's output.
    pub(super) fn find_open_item(&self, root_index: u32) -> Option<usize> {
        self.items.iter().rposition(|item| item.root_index == Some(root_index) && item.final_item.is_none())
    }

    /// An item as it was closed, or as it is so far.
    fn sent_item(&self, run: &RunFold, item: &OutputItem, outcome: &McpCallOutcome) -> Arc<SentItem> {
        if let Some(object) = &item.final_item {
            return Arc::clone(object);
        }
        match self.item_object(run, item, outcome) {
            Some(object) => SentItem::with_long_texts(&object, long_texts(run, item)),
            None => SentItem::new(&()),
        }
    }

    /// An open item. `None` for items that have no place in a response.
    fn item_object<'a>(
        &'a self,
        run: &'a RunFold,
        item: &'a OutputItem,
        outcome: &'a McpCallOutcome,
    ) -> Option<ItemObject<'a>> {
        let fold = item.root_index.and_then(|index| root_item(run, index))?;
        let phase = fold.into();
        Some(match &fold.item {
            Item::Reasoning(reasoning) => item::reasoning_item(reasoning, phase),
            Item::Message(message) => {
                item::message_item(message, phase, &self.references_url, |block| item.logprobs(block))
            }
            Item::HostedCall(call) => ItemObject::Hosted(hosted::hosted_item(call, phase)),
            Item::ToolCall(call) => {
                let arguments = item.arguments.as_deref().or(call.arguments.as_deref()).unwrap_or_default();
                if item.style == ItemStyle::Mcp {
                    item::mcp_call_item(call, arguments, item.approval_id.as_deref(), outcome)
                } else {
                    item::function_call_item(call, arguments, item::item_status(call.status, phase))
                }
            }
            Item::ToolResult(_) | Item::FileProcessing(_) => return None,
        })
    }

    pub(super) fn push_item_event(&mut self, index: usize, event: ResponsesEvent<'_>, out: &mut dyn ResponsesSink) {
        let Some(item) = self.items.get(index) else { return };
        let event = ResponsesEvent { item_id: Some(&item.id), output_index: Some(index), ..event };
        push_numbered(&mut self.frame_count, event, out);
    }

    pub(super) fn push_text_delta(
        &mut self,
        index: usize,
        content_index: usize,
        delta: &str,
        out: &mut dyn ResponsesSink,
    ) {
        let Some(item) = self.items.get(index) else { return };
        let (item_id, sequence_number) = (item.id.as_str(), self.frame_count);
        out.push_text_delta(&TextDeltaEvent { content_index, delta, item_id, output_index: index, sequence_number });
        self.frame_count += out.frames_per_event();
    }

    fn push_output_item_event(
        &mut self,
        event_type: &'static str,
        index: usize,
        object: &SentItem,
        out: &mut dyn ResponsesSink,
    ) {
        let event = ResponsesEvent { item: Some(object), output_index: Some(index), ..ResponsesEvent::new(event_type) };
        push_numbered(&mut self.frame_count, event, out);
    }
}

/// An item of the root's output.
pub(super) fn root_item(run: &RunFold, index: u32) -> Option<&ItemFold> {
    run.root()?.items.get(index as usize)
}

/// The long texts of an item of the root's output.
fn long_texts(run: &RunFold, item: &OutputItem) -> Vec<SharedJson> {
    let fold = item.root_index.and_then(|index| root_item(run, index));
    fold.into_iter().flat_map(|fold| fold.item.long_texts()).map(SharedText::to_json).collect()
}

fn push_numbered(frame_count: &mut u64, event: ResponsesEvent<'_>, out: &mut dyn ResponsesSink) {
    out.push(&ResponsesEvent { sequence_number: *frame_count, ..event });
    *frame_count += out.frames_per_event();
}
