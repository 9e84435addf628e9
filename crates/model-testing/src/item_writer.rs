//! Writes the events of one item.

use super::log_builder::LogBuilder;
use model::content::{Annotation, ImageBlock, ImageUrl, TextBlock};
use model::event::{
    AnnotationAdded, ArgumentsDelta, ArgumentsDone, Event, HostedCallUpdated, ImageDelta, ImageEvent, ItemEvent,
    SummaryDelta, SummaryEvent, TaggedImageBlock, TaggedTextBlock, TextDelta, TextEvent,
};
use model::history::RawItem;
use model::id::{ItemId, TaskId};
use model::item::{Block, IncompleteReason, Item, ItemStatus, SummaryPart};
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::record::PrivatePayload;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// One event of an item.
#[derive(Clone, Debug)]
pub(super) enum ItemStep {
    SummaryAdded,
    SummaryDelta(String),
    SummaryDone,
    SummaryWhole(String),
    TextAdded(TextBlock),
    TextDelta(String, Option<Value>),
    Annotation(Annotation),
    TextDone,
    TextWhole(TextBlock),
    ImageAdded(Option<u32>),
    ImagePartial(String),
    ImageDone(String),
    ArgumentsDelta(String),
    ArgumentsDone,
    HostedUpdate(String, Option<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPart {
    None,
    Summary,
    Text,
    Image,
}

#[derive(Clone, Debug)]
pub(super) struct ItemWriter {
    pub(super) output_index: u32,
    /// The item as of the events written so far.
    pub(super) item: Item,
    steps: VecDeque<ItemStep>,
    open_part: OpenPart,
    partial_images: u32,
}

impl ItemWriter {
    /// Adds the item to its task's output.
    pub(super) fn add(
        log: &mut LogBuilder,
        task: &TaskId,
        index: u32,
        item: Item,
        steps: VecDeque<ItemStep>,
        private: Option<PrivatePayload>,
    ) -> Self {
        let event = ItemEvent { task_id: task.clone(), output_index: index, item: item.clone() };
        log.emit_with_private(Event::ItemAdded(Box::new(event)), private);
        Self { output_index: index, item, steps, open_part: OpenPart::None, partial_images: 0 }
    }

    /// Writes the next event; returns false if none is left.
    pub(super) fn emit_next(&mut self, log: &mut LogBuilder, task: &TaskId, private: Option<PrivatePayload>) -> bool {
        let Some(step) = self.steps.pop_front() else { return false };
        let address = ItemAddress { task, item: self.item.id().clone(), output_index: self.output_index };
        let event = match step {
            ItemStep::SummaryAdded | ItemStep::SummaryDelta(_) | ItemStep::SummaryDone | ItemStep::SummaryWhole(_) => {
                self.apply_summary(&address, step)
            }
            ItemStep::TextAdded(_)
            | ItemStep::TextDelta(..)
            | ItemStep::Annotation(_)
            | ItemStep::TextDone
            | ItemStep::TextWhole(_) => self.apply_text(log, &address, step),
            ItemStep::ImageAdded(_) | ItemStep::ImagePartial(_) | ItemStep::ImageDone(_) => {
                self.apply_image(&address, step)
            }
            ItemStep::ArgumentsDelta(_) | ItemStep::ArgumentsDone | ItemStep::HostedUpdate(..) => {
                self.apply_call(&address, step)
            }
        };
        if let Some(event) = event {
            log.emit_with_private(event, private);
        }
        true
    }

    /// Writes the remaining events and the `done`.
    pub(super) fn complete(mut self, log: &mut LogBuilder, task: &TaskId) -> Item {
        while self.emit_next(log, task, None) {}
        match &mut self.item {
            Item::Reasoning(item) => item.status = Some(ItemStatus::Completed),
            Item::ToolCall(item) => item.status = Some(ItemStatus::Completed),
            Item::Message(item) => item.status = Some(ItemStatus::Completed),
            Item::HostedCall(item) => item.status = Some(ItemStatus::Completed),
            Item::FileProcessing(item) => item.status = Some(ItemStatus::Completed),
            Item::ToolResult(_) => {}
        }
        let raw = log.rng.chance(50).then(|| RawItem { origin: "openai/gpt-x".to_owned(), item: json!({"n": 1.5}) });
        let private = raw.map(|raw| PrivatePayload { raw: Some(raw), ..PrivatePayload::default() });
        self.emit_done(log, task, private)
    }

    /// Ends the item early. Open text and summaries get their `done`, arguments do not.
    pub(super) fn cut_short(mut self, log: &mut LogBuilder, task: &TaskId, reason: IncompleteReason) -> Item {
        self.close_part(log, task);
        self.item.mark_incomplete(reason);
        self.emit_done(log, task, None)
    }

    /// Ends the part that is open, and forgets the steps that are left.
    pub(super) fn close_part(&mut self, log: &mut LogBuilder, task: &TaskId) {
        let close = match self.open_part {
            OpenPart::None => None,
            OpenPart::Summary => Some(ItemStep::SummaryDone),
            OpenPart::Text => Some(ItemStep::TextDone),
            OpenPart::Image => Some(ItemStep::ImageDone(self.image_url())),
        };
        self.steps = close.into_iter().collect();
        while self.emit_next(log, task, None) {}
    }

    pub(super) fn add_steps(&mut self, steps: VecDeque<ItemStep>) {
        self.steps.extend(steps);
    }

    /// Writes the `done` without content that is too long to repeat; returns the complete item.
    pub(super) fn emit_done(self, log: &mut LogBuilder, task: &TaskId, private: Option<PrivatePayload>) -> Item {
        let mut item = self.item.clone();
        if serde_json::to_vec(&item).map_or(0, |bytes| bytes.len()) > DONE_REPEAT_BYTES_MAX {
            match &mut item {
                Item::Reasoning(item) => item.summary = None,
                Item::ToolCall(item) => item.arguments = None,
                Item::ToolResult(item) => item.block_list = None,
                Item::Message(item) => item.block_list = None,
                Item::HostedCall(item) => item.block_list = None,
                Item::FileProcessing(_) => {}
            }
        }
        let event = ItemEvent { task_id: task.clone(), output_index: self.output_index, item };
        log.emit_with_private(Event::ItemDone(Box::new(event)), private);
        self.item
    }

    fn apply_summary(&mut self, address: &ItemAddress<'_>, step: ItemStep) -> Option<Event> {
        let Item::Reasoning(reasoning) = &mut self.item else { return None };
        let parts = reasoning.summary.get_or_insert_default();
        if matches!(step, ItemStep::SummaryAdded | ItemStep::SummaryWhole(_)) {
            parts.push(SummaryPart::new(""));
        }
        let index = last_index(parts.len());
        let SummaryPart::Text { text } = parts.last_mut()?;
        let text = text.get_or_insert_default();
        match step {
            ItemStep::SummaryAdded => {
                self.open_part = OpenPart::Summary;
                Some(Event::SummaryAdded(address.summary_event(index, SummaryPart::new(""))))
            }
            ItemStep::SummaryDelta(delta) => {
                text.push_str(&delta);
                let (task_id, item_id) = address.ids();
                let output_index = address.output_index;
                Some(Event::SummaryDelta(SummaryDelta { task_id, item_id, output_index, summary_index: index, delta }))
            }
            ItemStep::SummaryWhole(complete) => {
                text.clone_from(&complete);
                Some(Event::SummaryDone(address.summary_event(index, SummaryPart::new(complete))))
            }
            _ => {
                self.open_part = OpenPart::None;
                let complete = Some(text.clone()).filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
                Some(Event::SummaryDone(address.summary_event(index, SummaryPart::Text { text: complete })))
            }
        }
    }

    fn apply_text(&mut self, log: &mut LogBuilder, address: &ItemAddress<'_>, step: ItemStep) -> Option<Event> {
        let blocks = self.item.blocks_mut()?;
        if let ItemStep::TextAdded(block) | ItemStep::TextWhole(block) = &step {
            blocks.push(Block::Text(block.clone()));
        }
        let index = last_index(blocks.len());
        let Some(Block::Text(block)) = blocks.last_mut() else { return None };
        match step {
            ItemStep::TextAdded(block) => {
                self.open_part = OpenPart::Text;
                Some(Event::TextAdded(address.text_event(index, block)))
            }
            ItemStep::TextDelta(delta, logprobs) => {
                block.text.get_or_insert_default().make_mut().push_str(&delta);
                let (task_id, item_id) = address.ids();
                let (output_index, block_index) = (address.output_index, index);
                Some(Event::TextDelta(TextDelta { task_id, item_id, output_index, block_index, delta, logprobs }))
            }
            ItemStep::Annotation(annotation) => {
                let annotations = block.annotations.get_or_insert_default();
                annotations.push(annotation.clone());
                let annotation_index = last_index(annotations.len());
                block.id = block.id.or_else(|| annotation.reference_id());
                let (task_id, item_id) = address.ids();
                let (output_index, block_index) = (address.output_index, index);
                let event =
                    AnnotationAdded { task_id, item_id, output_index, block_index, annotation_index, annotation };
                Some(Event::AnnotationAdded(Box::new(event)))
            }
            ItemStep::TextWhole(block) => Some(Event::TextDone(address.text_event(index, block))),
            _ => {
                self.open_part = OpenPart::None;
                let mut complete = block.clone();
                if complete.text().len() > DONE_REPEAT_BYTES_MAX {
                    complete.text = None;
                    complete.annotations = complete.annotations.filter(|_| log.rng.chance(50));
                }
                Some(Event::TextDone(address.text_event(index, complete)))
            }
        }
    }

    fn apply_image(&mut self, address: &ItemAddress<'_>, step: ItemStep) -> Option<Event> {
        let blocks = self.item.blocks_mut()?;
        if let ItemStep::ImageAdded(id) = &step {
            blocks.push(Block::Image(ImageBlock { image_url: ImageUrl::default(), id: *id }));
        }
        let block_index = last_index(blocks.len());
        let Some(Block::Image(block)) = blocks.last_mut() else { return None };
        match step {
            ItemStep::ImagePartial(url) => {
                block.image_url.url = url;
                let partial_image_index = self.partial_images;
                self.partial_images = self.partial_images.saturating_add(1);
                let (task_id, item_id) = address.ids();
                let (output_index, item) = (address.output_index, TaggedImageBlock::Image(block.clone()));
                let event = ImageDelta { task_id, item_id, output_index, block_index, partial_image_index, item };
                Some(Event::ImageDelta(event))
            }
            ItemStep::ImageDone(url) => {
                block.image_url.url = url;
                self.open_part = OpenPart::None;
                Some(Event::ImageDone(address.image_event(block_index, block.clone())))
            }
            _ => {
                self.open_part = OpenPart::Image;
                self.partial_images = 0;
                Some(Event::ImageAdded(address.image_event(block_index, block.clone())))
            }
        }
    }

    fn apply_call(&mut self, address: &ItemAddress<'_>, step: ItemStep) -> Option<Event> {
        let (task_id, item_id) = address.ids();
        let output_index = address.output_index;
        match (&mut self.item, step) {
            (Item::ToolCall(call), ItemStep::ArgumentsDelta(delta)) => {
                call.arguments.get_or_insert_default().push_str(&delta);
                Some(Event::ArgumentsDelta(ArgumentsDelta { task_id, item_id, output_index, delta }))
            }
            (Item::ToolCall(call), _) => {
                let arguments = call.arguments.clone().filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
                Some(Event::ArgumentsDone(ArgumentsDone { task_id, item_id, output_index, arguments }))
            }
            (Item::HostedCall(call), ItemStep::HostedUpdate(state, action)) => {
                call.state = Some(state.clone());
                call.action = action.clone().or_else(|| call.action.take());
                Some(Event::HostedCallUpdated(HostedCallUpdated { task_id, item_id, output_index, state, action }))
            }
            _ => None,
        }
    }

    fn image_url(&self) -> String {
        match self.item.blocks().last() {
            Some(Block::Image(block)) => block.image_url.url.clone(),
            _ => String::new(),
        }
    }
}

struct ItemAddress<'a> {
    task: &'a TaskId,
    item: ItemId,
    output_index: u32,
}

impl ItemAddress<'_> {
    fn ids(&self) -> (TaskId, ItemId) {
        (self.task.clone(), self.item.clone())
    }

    fn summary_event(&self, summary_index: u32, item: SummaryPart) -> SummaryEvent {
        let (task_id, item_id) = self.ids();
        SummaryEvent { task_id, item_id, output_index: self.output_index, summary_index, item }
    }

    fn text_event(&self, block_index: u32, block: TextBlock) -> TextEvent {
        let (task_id, item_id) = self.ids();
        TextEvent { task_id, item_id, output_index: self.output_index, block_index, item: TaggedTextBlock::Text(block) }
    }

    fn image_event(&self, block_index: u32, block: ImageBlock) -> ImageEvent {
        let (task_id, item_id) = self.ids();
        ImageEvent {
            task_id,
            item_id,
            output_index: self.output_index,
            block_index,
            item: TaggedImageBlock::Image(block),
        }
    }
}

fn last_index(length: usize) -> u32 {
    u32::try_from(length.saturating_sub(1)).unwrap_or(u32::MAX)
}
