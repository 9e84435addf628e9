//! What a projection of runs goes through: the run so far, and each change of it written out in full.
//!
//! The log may say a short block in one `done`, and a `done` leaves out what would repeat too much. A projection sees
//! neither: every block is added, grows and is done, and what is whole stands in the fold.

use model::content::{ImageBlock, TextBlock};
use model::event::{
    AnnotationAdded, ArgumentsDelta, ArgumentsDone, Event, ImageEvent, SummaryDelta, SummaryEvent, TaggedImageBlock,
    TaggedTextBlock, TextDelta, TextEvent,
};
use model::fold::{ItemFold, RunFold};
use model::item::{Item, SummaryPart};
use model::{Record, TaskId};

/// A run as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct RunReader {
    fold: RunFold,
}

impl RunReader {
    /// The run so far.
    #[must_use]
    pub const fn fold(&self) -> &RunFold {
        &self.fold
    }

    /// Takes in the next record, and shows what it changed: the run after it, and each event of it in full. A record that
    /// does not fit shows nothing; the first record of a run begins anew.
    pub fn read_record(&mut self, record: &Record, mut see: impl FnMut(&RunFold, &Event)) {
        let event = record.event();
        if matches!(event, Event::Created(created) if created.task.parent_task_id.is_none()) {
            self.fold = RunFold::default();
        }
        let whole = expand_short_event(&self.fold, event);
        if self.fold.apply(record).is_err() {
            return;
        }
        match whole {
            None => see(&self.fold, event),
            Some(events) => events.iter().for_each(|event| see(&self.fold, event)),
        }
    }
}

/// The events that a short form stands for; `None` when it is no short form.
fn expand_short_event(fold: &RunFold, event: &Event) -> Option<Vec<Event>> {
    match event {
        Event::TextDone(done) => {
            let item = find_item(fold, &done.task_id, done.output_index)?;
            item.item.blocks().get(done.block_index as usize).is_none().then(|| expand_text(done))
        }
        Event::ImageDone(done) => {
            let item = find_item(fold, &done.task_id, done.output_index)?;
            item.item.blocks().get(done.block_index as usize).is_none().then(|| expand_image(done))
        }
        Event::SummaryDone(done) => {
            let Item::Reasoning(reasoning) = &find_item(fold, &done.task_id, done.output_index)?.item else {
                return None;
            };
            let parts = reasoning.summary.as_deref().unwrap_or_default();
            parts.get(done.summary_index as usize).is_none().then(|| expand_summary(done))
        }
        Event::ArgumentsDone(done) => {
            let Item::ToolCall(call) = &find_item(fold, &done.task_id, done.output_index)?.item else { return None };
            let said = call.arguments.as_deref().unwrap_or_default();
            let whole = done.arguments.as_deref().unwrap_or_default();
            (said.is_empty() && !whole.is_empty()).then(|| expand_arguments(done, whole))
        }
        _ => None,
    }
}

fn find_item<'a>(fold: &'a RunFold, task: &TaskId, output_index: u32) -> Option<&'a ItemFold> {
    fold.task(task)?.items.get(output_index as usize)
}

fn expand_text(done: &TextEvent) -> Vec<Event> {
    let TextEvent { task_id, item_id, output_index, block_index, item } = done;
    let block = item.block();
    let empty = TextBlock { text: Some(String::new()), annotations: None, ..block.clone() };
    let mut events = vec![Event::TextAdded(TextEvent { item: TaggedTextBlock::Text(empty), ..done.clone() })];
    if !block.text().is_empty() {
        events.push(Event::TextDelta(TextDelta {
            task_id: task_id.clone(),
            item_id: item_id.clone(),
            output_index: *output_index,
            block_index: *block_index,
            delta: block.text().to_owned(),
            logprobs: None,
        }));
    }
    for (place, annotation) in block.annotations.iter().flatten().enumerate() {
        events.push(Event::AnnotationAdded(AnnotationAdded {
            task_id: task_id.clone(),
            item_id: item_id.clone(),
            output_index: *output_index,
            block_index: *block_index,
            annotation_index: u32::try_from(place).unwrap_or(u32::MAX),
            annotation: annotation.clone(),
        }));
    }
    events.push(Event::TextDone(done.clone()));
    events
}

fn expand_image(done: &ImageEvent) -> Vec<Event> {
    let empty = ImageBlock { image_url: model::content::ImageUrl::default(), ..done.item.block().clone() };
    let added = ImageEvent { item: TaggedImageBlock::Image(empty), ..done.clone() };
    vec![Event::ImageAdded(added), Event::ImageDone(done.clone())]
}

fn expand_summary(done: &SummaryEvent) -> Vec<Event> {
    let mut events = vec![Event::SummaryAdded(SummaryEvent { item: SummaryPart::new(""), ..done.clone() })];
    if !done.item.text().is_empty() {
        events.push(Event::SummaryDelta(SummaryDelta {
            task_id: done.task_id.clone(),
            item_id: done.item_id.clone(),
            output_index: done.output_index,
            summary_index: done.summary_index,
            delta: done.item.text().to_owned(),
        }));
    }
    events.push(Event::SummaryDone(done.clone()));
    events
}

fn expand_arguments(done: &ArgumentsDone, whole: &str) -> Vec<Event> {
    let delta = ArgumentsDelta {
        task_id: done.task_id.clone(),
        item_id: done.item_id.clone(),
        output_index: done.output_index,
        delta: whole.to_owned(),
    };
    vec![Event::ArgumentsDelta(delta), Event::ArgumentsDone(done.clone())]
}
