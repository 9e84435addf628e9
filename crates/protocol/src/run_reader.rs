//! A run, event by event, as projections read it.
//!
//! The log may record a short block as one `done` event, and abbreviates the items of `done` events. Projections see
//! neither: every block is added, grows and is done, and the fold has the complete items.

use crate::event_groups::{item_progress_events, native_only_events, terminal_events};
use model::content::{ImageBlock, TextBlock};
use model::event::{
    AnnotationAdded, ArgumentsDelta, ArgumentsDone, Event, ImageEvent, SummaryDelta, SummaryEvent, TaggedImageBlock,
    TaggedTextBlock, TextDelta, TextEvent,
};
use model::fold::{ItemFold, RunFold};
use model::item::{Item, SummaryPart};
use model::{Record, TaskId};

/// A run up to the last record that was read. Clients are not shown the private halves of records, so the fold has nothing
/// of them, and they are not parsed.
#[derive(Clone, Debug, Default)]
pub struct RunReader {
    fold: RunFold,
}

impl RunReader {
    /// The run after the last record.
    pub const fn fold(&self) -> &RunFold {
        &self.fold
    }

    /// Applies the next record and passes each of its events, in full, to `on_event` with the run after the record. A record
    /// that does not fit the run is ignored; the first record of a run starts a new fold.
    pub fn read_record(&mut self, record: &Record, mut on_event: impl FnMut(&RunFold, &Event)) {
        let event = record.event();
        if matches!(event, Event::Created(created) if created.task.parent_task_id.is_none()) {
            self.fold = RunFold::default();
        }
        let expanded = expand_short_event(&self.fold, event);
        if self.fold.apply_public(record).is_err() {
            return;
        }
        match expanded {
            None => on_event(&self.fold, event),
            Some(events) => events.iter().for_each(|event| on_event(&self.fold, event)),
        }
    }
}

/// Expands a short form into its events; `None` if the event is not a short form.
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
            let so_far = call.arguments.as_deref().unwrap_or_default();
            let complete = done.arguments.as_deref().unwrap_or_default();
            (so_far.is_empty() && !complete.is_empty()).then(|| expand_arguments(done, complete))
        }
        // Only the `done` events of blocks have a short form.
        native_only_events!()
        | item_progress_events!()
        | terminal_events!()
        | Event::Created(_)
        | Event::StepStarted(_)
        | Event::ItemAdded(_)
        | Event::SummaryAdded(_)
        | Event::SummaryDelta(_)
        | Event::FileProcessingUpdated(_)
        | Event::TextAdded(_)
        | Event::TextDelta(_)
        | Event::ImageAdded(_)
        | Event::ItemDone(_)
        | Event::StepDone(_)
        | Event::ToolStarted(_)
        | Event::AgentUpdated(_)
        | Event::InputAdded(_)
        | Event::ApprovalRequested(_)
        | Event::ApprovalResolved(_)
        | Event::Paused(_)
        | Event::Resumed(_)
        | Event::Recovered(_) => None,
    }
}

fn find_item<'a>(fold: &'a RunFold, task: &TaskId, output_index: u32) -> Option<&'a ItemFold> {
    fold.task(task)?.items.get(output_index as usize)
}

fn expand_text(done: &TextEvent) -> Vec<Event> {
    let TextEvent { task_id, item_id, output_index, block_index, item } = done;
    let block = item.block();
    let empty = TextBlock { text: Some("".into()), annotations: None, ..block.clone() };
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
    for (index, annotation) in block.annotations.iter().flatten().enumerate() {
        events.push(Event::AnnotationAdded(Box::new(AnnotationAdded {
            task_id: task_id.clone(),
            item_id: item_id.clone(),
            output_index: *output_index,
            block_index: *block_index,
            annotation_index: u32::try_from(index).unwrap_or(u32::MAX),
            annotation: annotation.clone(),
        })));
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

fn expand_arguments(done: &ArgumentsDone, arguments: &str) -> Vec<Event> {
    let delta = ArgumentsDelta {
        task_id: done.task_id.clone(),
        item_id: done.item_id.clone(),
        output_index: done.output_index,
        delta: arguments.to_owned(),
    };
    vec![Event::ArgumentsDelta(delta), Event::ArgumentsDone(done.clone())]
}
