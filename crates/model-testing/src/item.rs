//! One item on its way into the log, piece by piece.

use super::world::World;
use model::block::{Annotation, Block, ImageBlock, ImageUrl, TextBlock};
use model::event::{
    AnnotationAdded, ArgumentsDelta, ArgumentsDone, Event, HostedCallUpdated, ImageDelta, ImageEvent, ItemEvent,
    SummaryDelta, SummaryEvent, TaggedImageBlock, TaggedTextBlock, TextDelta, TextEvent,
};
use model::id::{ItemId, TaskId};
use model::item::{IncompleteReason, Item, ItemStatus, SummaryPart};
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::record::{PrivatePayload, RawItem};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// What will be said of an item, one event each.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    SummaryOpen,
    Summary(String),
    SummaryClose,
    SummaryWhole(String),
    TextOpen(TextBlock),
    Text(String, Option<Value>),
    Cite(Annotation),
    TextClose,
    TextWhole(TextBlock),
    ImageOpen(Option<u32>),
    ImagePartial(String),
    ImageClose(String),
    Arguments(String),
    ArgumentsClose,
    Hosted(String, Option<Value>),
}

/// The part of an item that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    None,
    Summary,
    Text,
    Image,
}

/// An item that is open.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) index: u32,
    /// The item as its events have made it.
    pub(super) item: Item,
    pieces: VecDeque<Piece>,
    part: Part,
    partials: u32,
}

impl Open {
    /// Adds the item to its task's output.
    pub(super) fn begin(
        world: &mut World,
        task: &TaskId,
        index: u32,
        item: Item,
        pieces: VecDeque<Piece>,
        private: Option<PrivatePayload>,
    ) -> Self {
        let event = ItemEvent { task_id: task.clone(), output_index: index, item: item.clone() };
        world.emit_with(Event::ItemAdded(event), private);
        Self { index, item, pieces, part: Part::None, partials: 0 }
    }

    /// Says the next piece; false when all is said.
    pub(super) fn say(&mut self, world: &mut World, task: &TaskId, private: Option<PrivatePayload>) -> bool {
        let Some(piece) = self.pieces.pop_front() else { return false };
        let place = Place { task, item: self.item.id().clone(), index: self.index };
        let event = match piece {
            Piece::SummaryOpen | Piece::Summary(_) | Piece::SummaryClose | Piece::SummaryWhole(_) => {
                self.summary(&place, piece)
            }
            Piece::TextOpen(_) | Piece::Text(..) | Piece::Cite(_) | Piece::TextClose | Piece::TextWhole(_) => {
                self.text(world, &place, piece)
            }
            Piece::ImageOpen(_) | Piece::ImagePartial(_) | Piece::ImageClose(_) => self.image(&place, piece),
            Piece::Arguments(_) | Piece::ArgumentsClose | Piece::Hosted(..) => self.call(&place, piece),
        };
        if let Some(event) = event {
            world.emit_with(event, private);
        }
        true
    }

    /// Ends it whole.
    pub(super) fn close(mut self, world: &mut World, task: &TaskId) -> Item {
        while self.say(world, task, None) {}
        match &mut self.item {
            Item::Reasoning(item) => item.status = Some(ItemStatus::Completed),
            Item::ToolCall(item) => item.status = Some(ItemStatus::Completed),
            Item::Message(item) => item.status = Some(ItemStatus::Completed),
            Item::HostedCall(item) => item.status = Some(ItemStatus::Completed),
            Item::FileProcessing(item) => item.status = Some(ItemStatus::Completed),
            Item::ToolResult(_) => {}
        }
        let raw = world.rng.chance(50).then(|| RawItem { origin: "openai/gpt-x".to_owned(), item: json!({"n": 1.5}) });
        let private = raw.map(|raw| PrivatePayload { raw: Some(raw), ..PrivatePayload::default() });
        self.done(world, task, private)
    }

    /// Ends it where it is. Text and summary get their `done`, arguments do not.
    pub(super) fn cut(mut self, world: &mut World, task: &TaskId, why: IncompleteReason) -> Item {
        let close = match self.part {
            Part::None => None,
            Part::Summary => Some(Piece::SummaryClose),
            Part::Text => Some(Piece::TextClose),
            Part::Image => Some(Piece::ImageClose(self.picture())),
        };
        self.pieces = close.into_iter().collect();
        while self.say(world, task, None) {}
        self.item.mark_incomplete(why);
        self.done(world, task, None)
    }

    /// Says the `done`, less what would repeat too much; gives the item as it then is.
    pub(super) fn done(self, world: &mut World, task: &TaskId, private: Option<PrivatePayload>) -> Item {
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
        let event = ItemEvent { task_id: task.clone(), output_index: self.index, item };
        world.emit_with(Event::ItemDone(event), private);
        self.item
    }

    fn summary(&mut self, place: &Place<'_>, piece: Piece) -> Option<Event> {
        let Item::Reasoning(reasoning) = &mut self.item else { return None };
        let parts = reasoning.summary.get_or_insert_default();
        if matches!(piece, Piece::SummaryOpen | Piece::SummaryWhole(_)) {
            parts.push(SummaryPart::new(""));
        }
        let index = last_of(parts.len());
        let SummaryPart::Text { text } = parts.last_mut()?;
        let text = text.get_or_insert_default();
        match piece {
            Piece::SummaryOpen => {
                self.part = Part::Summary;
                Some(Event::SummaryAdded(place.summary(index, SummaryPart::new(""))))
            }
            Piece::Summary(delta) => {
                text.push_str(&delta);
                let (task_id, item_id) = place.names();
                let output_index = place.index;
                Some(Event::SummaryDelta(SummaryDelta { task_id, item_id, output_index, summary_index: index, delta }))
            }
            Piece::SummaryWhole(whole) => {
                text.clone_from(&whole);
                Some(Event::SummaryDone(place.summary(index, SummaryPart::new(whole))))
            }
            _ => {
                self.part = Part::None;
                let whole = Some(text.clone()).filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
                Some(Event::SummaryDone(place.summary(index, SummaryPart::Text { text: whole })))
            }
        }
    }

    fn text(&mut self, world: &mut World, place: &Place<'_>, piece: Piece) -> Option<Event> {
        let blocks = self.item.blocks_mut()?;
        if let Piece::TextOpen(block) | Piece::TextWhole(block) = &piece {
            blocks.push(Block::Text(block.clone()));
        }
        let index = last_of(blocks.len());
        let Some(Block::Text(block)) = blocks.last_mut() else { return None };
        match piece {
            Piece::TextOpen(block) => {
                self.part = Part::Text;
                Some(Event::TextAdded(place.text(index, block)))
            }
            Piece::Text(delta, logprobs) => {
                block.text.get_or_insert_default().push_str(&delta);
                let (task_id, item_id) = place.names();
                let (output_index, block_index) = (place.index, index);
                Some(Event::TextDelta(TextDelta { task_id, item_id, output_index, block_index, delta, logprobs }))
            }
            Piece::Cite(annotation) => {
                let annotations = block.annotations.get_or_insert_default();
                annotations.push(annotation.clone());
                let annotation_index = last_of(annotations.len());
                let (task_id, item_id) = place.names();
                let (output_index, block_index) = (place.index, index);
                let event =
                    AnnotationAdded { task_id, item_id, output_index, block_index, annotation_index, annotation };
                Some(Event::AnnotationAdded(event))
            }
            Piece::TextWhole(block) => Some(Event::TextDone(place.text(index, block))),
            _ => {
                self.part = Part::None;
                let mut whole = block.clone();
                if whole.text().len() > DONE_REPEAT_BYTES_MAX {
                    whole.text = None;
                    whole.annotations = whole.annotations.filter(|_| world.rng.chance(50));
                }
                Some(Event::TextDone(place.text(index, whole)))
            }
        }
    }

    fn image(&mut self, place: &Place<'_>, piece: Piece) -> Option<Event> {
        let blocks = self.item.blocks_mut()?;
        if let Piece::ImageOpen(id) = &piece {
            blocks.push(Block::Image(ImageBlock { image_url: ImageUrl::default(), id: *id }));
        }
        let block_index = last_of(blocks.len());
        let Some(Block::Image(block)) = blocks.last_mut() else { return None };
        match piece {
            Piece::ImagePartial(url) => {
                block.image_url.url = url;
                let partial_image_index = self.partials;
                self.partials = self.partials.saturating_add(1);
                let (task_id, item_id) = place.names();
                let (output_index, item) = (place.index, TaggedImageBlock::Image(block.clone()));
                let event = ImageDelta { task_id, item_id, output_index, block_index, partial_image_index, item };
                Some(Event::ImageDelta(event))
            }
            Piece::ImageClose(url) => {
                block.image_url.url = url;
                self.part = Part::None;
                Some(Event::ImageDone(place.image(block_index, block.clone())))
            }
            _ => {
                self.part = Part::Image;
                self.partials = 0;
                Some(Event::ImageAdded(place.image(block_index, block.clone())))
            }
        }
    }

    fn call(&mut self, place: &Place<'_>, piece: Piece) -> Option<Event> {
        let (task_id, item_id) = place.names();
        let output_index = place.index;
        match (&mut self.item, piece) {
            (Item::ToolCall(call), Piece::Arguments(delta)) => {
                call.arguments.get_or_insert_default().push_str(&delta);
                Some(Event::ArgumentsDelta(ArgumentsDelta { task_id, item_id, output_index, delta }))
            }
            (Item::ToolCall(call), _) => {
                let arguments = call.arguments.clone().filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
                Some(Event::ArgumentsDone(ArgumentsDone { task_id, item_id, output_index, arguments }))
            }
            (Item::HostedCall(call), Piece::Hosted(state, action)) => {
                call.state = Some(state.clone());
                call.action = action.clone().or_else(|| call.action.take());
                Some(Event::HostedCallUpdated(HostedCallUpdated { task_id, item_id, output_index, state, action }))
            }
            _ => None,
        }
    }

    fn picture(&self) -> String {
        match self.item.blocks().last() {
            Some(Block::Image(block)) => block.image_url.url.clone(),
            _ => String::new(),
        }
    }
}

/// Where an item's events happen.
struct Place<'a> {
    task: &'a TaskId,
    item: ItemId,
    index: u32,
}

impl Place<'_> {
    fn names(&self) -> (TaskId, ItemId) {
        (self.task.clone(), self.item.clone())
    }

    fn summary(&self, summary_index: u32, item: SummaryPart) -> SummaryEvent {
        let (task_id, item_id) = self.names();
        SummaryEvent { task_id, item_id, output_index: self.index, summary_index, item }
    }

    fn text(&self, block_index: u32, block: TextBlock) -> TextEvent {
        let (task_id, item_id) = self.names();
        TextEvent { task_id, item_id, output_index: self.index, block_index, item: TaggedTextBlock::Text(block) }
    }

    fn image(&self, block_index: u32, block: ImageBlock) -> ImageEvent {
        let (task_id, item_id) = self.names();
        ImageEvent { task_id, item_id, output_index: self.index, block_index, item: TaggedImageBlock::Image(block) }
    }
}

fn last_of(length: usize) -> u32 {
    u32::try_from(length.saturating_sub(1)).unwrap_or(u32::MAX)
}
