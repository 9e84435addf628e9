//! The model speaks: its deltas become items and blocks.
//!
//! A turn maps the provider's slots to items of the output. Parts of an item come one after the other: when the next one
//! begins, the one before it is done. What does not fit (a piece for an item that is done, a slot opened twice) is
//! dropped: a provider's disorder must not become ours.

use crate::close_items::{self, ItemEnd};
use crate::effect::EffectId;
use crate::state::RunState;
use crate::{MachineOutput, calls, model_call};
use model::content::{Annotation, ImageBlock, ImageUrl, TextBlock};
use model::definition::Tool;
use model::event::{
    AnnotationAdded, ArgumentsDelta, Event, HostedCallUpdated, ImageDelta, ImageEvent, ItemEvent, ProviderEvent,
    StepDone, StopReason, SummaryDelta, SummaryEvent, TaggedImageBlock, TaggedTextBlock, TextDelta, TextEvent,
};
use model::item::Block;
use model::item::{
    ApprovalGate, CallKind, HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, Role, SummaryPart,
    ToolCall,
};
use model::limits::{DELTA_BYTES_MAX, RECORD_BYTES_MAX};
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelTurnEnd};
use model::record::PrivatePayload;
use model::reference::CitationScanner;
use model::usage::Usage;
use model::{CallId, ItemId, TaskId};
use serde_json::Value;
use std::collections::BTreeMap;

/// The answer that is being heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelTurn {
    model: String,
    /// Tokens of the tries before this one, which failed.
    failed_usage: Usage,
    usage: Usage,
    /// What the next record of the turn takes along, for whoever folds the log when this process has died.
    pub(crate) unlogged_usage: Option<Usage>,
    slots: BTreeMap<u32, ItemSlot>,
}

/// One item of the answer.
#[derive(Clone, Debug)]
struct ItemSlot {
    output_index: u32,
    item_id: ItemId,
    kind: SlotKind,
    /// The part that is open: the provider's number for it, and the block or summary part that it became.
    open_part: Option<OpenPart>,
    /// How many blocks or summary parts there are.
    part_count: u32,
    scan: CitationScanner,
}

#[derive(Clone, Copy, Debug)]
struct OpenPart {
    part: u32,
    block: u32,
    kind: PartKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotKind {
    Reasoning,
    Message,
    Call,
    Hosted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Summary,
    Text,
    Image,
}

impl SlotKind {
    /// May an item of this kind have such parts?
    const fn allows_part(self, part: PartKind) -> bool {
        match part {
            PartKind::Summary => matches!(self, Self::Reasoning),
            PartKind::Text => matches!(self, Self::Message),
            PartKind::Image => matches!(self, Self::Message | Self::Hosted),
        }
    }
}

impl ModelTurn {
    /// All tokens so far.
    fn total_usage(&self) -> Usage {
        let mut spent = self.failed_usage;
        spent.add(self.usage);
        spent
    }
}

/// A model is asked. A turn that is there still was a try that failed: its tokens count.
pub(crate) fn begin_turn(run: &mut RunState, task: &TaskId, model: &str) {
    let before = run.turns.remove(task).map(|failed| failed.total_usage()).unwrap_or_default();
    run.turns.insert(task.clone(), ModelTurn { model: model.to_owned(), failed_usage: before, ..ModelTurn::default() });
}

/// The model said something. What answers nothing outstanding is ignored.
pub(crate) fn on_model_event(run: &mut RunState, id: &EffectId, event: ModelEvent, out: &mut MachineOutput) {
    let EffectId::Model { task, step, attempt } = id else { return };
    let open = run.fold.task(task).and_then(|fold| fold.open_step());
    if !open.is_some_and(|open| open.step == *step && open.attempt == *attempt) {
        return;
    }
    match event {
        ModelEvent::Delta(delta) => DeltaWriter { run, task, out }.write_delta(delta),
        ModelEvent::End(end) => finish_turn(run, task, end, out),
        ModelEvent::Failed(failure) => model_call::on_model_failure(run, task, failure, out),
    }
}

/// The turn ended by itself: what is open is whole, unless a limit ended it.
fn finish_turn(run: &mut RunState, task: &TaskId, end: ModelTurnEnd, out: &mut MachineOutput) {
    let limited = matches!(end.stop_reason, StopReason::MaxTokens | StopReason::ContentFilter);
    let cut = limited.then_some(IncompleteReason::Limit);
    if let Some(turn) = run.turns.get_mut(task) {
        turn.usage = end.usage;
        if let Some(model) = end.model {
            turn.model = model;
        }
    }
    close_items::close_open_items(run, task, cut, out);
    let step = run.fold.task(task).map_or(0, |fold| fold.steps.len().saturating_sub(1));
    let calls = run
        .fold
        .task(task)
        .is_some_and(|fold| fold.calls().any(|(item, _)| item.step_index == Some(step) && item.arguments_complete));
    let stop = match (limited, calls) {
        (true, _) => end.stop_reason,
        (false, true) => StopReason::ToolCalls,
        (false, false) => StopReason::Stop,
    };
    finish_step(run, task, stop, end.service_tier, out);
}

/// Ends the open step.
pub(crate) fn finish_step(
    run: &mut RunState,
    task: &TaskId,
    stop_reason: StopReason,
    service_tier: Option<String>,
    out: &mut MachineOutput,
) {
    let turn = run.turns.remove(task);
    let Some(fold) = run.fold.task(task) else { return };
    let Some(open) = fold.open_step() else { return };
    let (usage, model) = match turn {
        Some(turn) => (turn.total_usage(), turn.model),
        // Another process heard it: what it knew of the tokens stands in the log.
        None => (open.usage, model_call::step_model(run, fold, open)),
    };
    let (task_id, step) = (task.clone(), open.step);
    out.emit(run, Event::StepDone(StepDone { task_id, step, model, stop_reason, usage, service_tier }));
}

/// A text in pieces that fit a record.
pub(crate) fn split_delta(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(rest.floor_char_boundary(DELTA_BYTES_MAX));
        rest = tail;
        Some(piece)
    })
}

/// Where a part of an item is.
struct PartPosition {
    output_index: u32,
    item_id: ItemId,
    /// The block's place in `block_list`, or the summary part's in `summary`.
    block: u32,
    new: bool,
}

/// One delta's way into the log.
struct DeltaWriter<'a> {
    run: &'a mut RunState,
    task: &'a TaskId,
    out: &'a mut MachineOutput,
}

impl DeltaWriter<'_> {
    fn write_delta(&mut self, delta: ModelDelta) {
        match delta {
            ModelDelta::Started { slot, item } => self.start_item(slot, item),
            ModelDelta::Reasoning { slot, part, text } => self.write_reasoning(slot, part, &text),
            ModelDelta::Text { slot, part, text, logprobs } => {
                self.write_text(slot, part, &text, logprobs.as_ref(), None)
            }
            ModelDelta::Refusal { slot, part, text } => self.write_text(slot, part, &text, None, Some(true)),
            ModelDelta::Annotation { slot, part, annotation } => self.write_annotation(slot, part, annotation),
            ModelDelta::Arguments { slot, text } => self.write_arguments(slot, &text),
            ModelDelta::Image { slot, part, partial, url } => self.write_image(slot, part, partial, url),
            ModelDelta::Hosted { slot, state, action } => self.write_hosted_call(slot, state, action),
            ModelDelta::Done { slot, raw } => {
                if let Some(index) = self.open_slot(slot).map(|slot| slot.output_index) {
                    close_items::close_item(
                        self.run,
                        self.task,
                        index,
                        &ItemEnd { incomplete_reason: None, raw },
                        self.out,
                    );
                }
            }
            ModelDelta::Usage(usage) => {
                if let Some(turn) = self.run.turns.get_mut(self.task) {
                    turn.usage = usage;
                    turn.unlogged_usage = Some(turn.total_usage());
                }
            }
            ModelDelta::Unknown(event) => {
                let task_id = self.task.clone();
                let event = Event::ProviderEvent(ProviderEvent { task_id, event });
                self.out.emit_if_fits(self.run, event);
            }
        }
    }

    /// The slot's item, while it is open.
    fn open_slot(&mut self, slot: u32) -> Option<&mut ItemSlot> {
        let fold = self.run.fold.task(self.task)?;
        let slot = self.run.turns.get_mut(self.task)?.slots.get_mut(&slot)?;
        let open = fold.items.get(slot.output_index as usize).is_some_and(|item| !item.done);
        open.then_some(slot)
    }

    /// The slot's item, made when the provider did not announce it.
    fn open_slot_or_start(&mut self, slot: u32, item: ModelItemKind) -> Option<&mut ItemSlot> {
        let known = self.run.turns.get(self.task).is_some_and(|turn| turn.slots.contains_key(&slot));
        if !known {
            self.start_item(slot, item);
        }
        self.open_slot(slot)
    }

    fn start_item(&mut self, slot: u32, item: ModelItemKind) {
        let known = self.run.turns.get(self.task).is_none_or(|turn| turn.slots.contains_key(&slot));
        let Some(fold) = self.run.fold.task(self.task).filter(|_| !known) else { return };
        let agent = Some(fold.agent.clone());
        let output_index = u32::try_from(fold.items.len()).unwrap_or(u32::MAX);
        let (suffix, number) = self.run.next_id_number();
        let id = |prefix| ItemId::numbered(prefix, &suffix, number);
        let status = Some(ItemStatus::InProgress);
        let mut private = None;
        let item = match item {
            ModelItemKind::Reasoning => {
                Item::Reasoning(Reasoning { id: id("rs"), summary: Some(Vec::new()), status, reason: None, agent })
            }
            ModelItemKind::Message { phase } => Item::Message(Message {
                id: id("msg"),
                role: Role::Assistant,
                block_list: Some(Vec::new()),
                phase,
                status,
                reason: None,
                agent,
            }),
            ModelItemKind::ToolCall { name, provider_call_id } => {
                private = Some(PrivatePayload { provider_call_id, ..PrivatePayload::default() });
                Item::ToolCall(self.new_tool_call(CallId::numbered(&suffix, number), name, agent))
            }
            ModelItemKind::HostedCall { name } => Item::HostedCall(HostedCall {
                id: id("hc"),
                name,
                block_list: Some(Vec::new()),
                state: None,
                action: None,
                status,
                reason: None,
                agent,
            }),
        };
        let item_id = item.id().clone();
        let kind = match item {
            Item::Reasoning(_) => SlotKind::Reasoning,
            Item::ToolCall(_) | Item::ToolResult(_) => SlotKind::Call,
            Item::Message(_) => SlotKind::Message,
            Item::HostedCall(_) | Item::FileProcessing(_) => SlotKind::Hosted,
        };
        let event = ItemEvent { task_id: self.task.clone(), output_index, item };
        self.out.emit_with_private(self.run, Event::ItemAdded(event), private);
        if let Some(turn) = self.run.turns.get_mut(self.task) {
            let scan = CitationScanner::default();
            turn.slots.insert(slot, ItemSlot { output_index, item_id, kind, open_part: None, part_count: 0, scan });
        }
    }

    fn new_tool_call(&self, call_id: CallId, name: String, agent: Option<String>) -> ToolCall {
        let tool = self.run.fold.task(self.task).and_then(|task| calls::find_tool(self.run, task, &name));
        ToolCall {
            id: call_id.item_id("fc"),
            call_id,
            kind: Some(tool.as_ref().map_or(CallKind::Tool, Tool::call_kind)),
            gate: Some(tool.as_ref().map_or(ApprovalGate::Never, Tool::approval_gate)),
            display_name: tool.and_then(|tool| tool.display_name),
            name,
            arguments: Some(String::new()),
            status: Some(ItemStatus::InProgress),
            reason: None,
            agent,
        }
    }

    /// The place of a part of a slot, opened when it is new. `None` when it is done already or cannot be there.
    fn open_part(&mut self, slot: u32, part: u32, kind: PartKind) -> Option<PartPosition> {
        let held = self.open_slot(slot).filter(|held| held.kind.allows_part(kind))?;
        let (output_index, item_id) = (held.output_index, held.item_id.clone());
        match held.open_part {
            Some(open) if open.part == part && open.kind == kind => {
                // A picture is done by its own last event.
                let fold = self.run.fold.task(self.task).and_then(|task| task.items.get(output_index as usize))?;
                let is_open = fold.open_parts.contains(&open.block);
                is_open.then_some(PartPosition { output_index, item_id, block: open.block, new: false })
            }
            Some(open) if open.part >= part => None,
            before => {
                let block = held.part_count;
                held.open_part = Some(OpenPart { part, block, kind });
                held.part_count = block.saturating_add(1);
                held.scan = CitationScanner::default();
                if let Some(before) = before {
                    close_items::close_part(self.run, self.task, output_index, before.block, self.out);
                }
                Some(PartPosition { output_index, item_id, block, new: true })
            }
        }
    }

    fn write_reasoning(&mut self, slot: u32, part: u32, text: &str) {
        self.open_slot_or_start(slot, ModelItemKind::Reasoning);
        let Some(place) = self.open_part(slot, part, PartKind::Summary) else { return };
        let PartPosition { output_index, item_id, block: summary_index, new } = place;
        if new {
            let (task_id, item_id) = (self.task.clone(), item_id.clone());
            let item = SummaryPart::new("");
            let event = SummaryEvent { task_id, item_id, output_index, summary_index, item };
            self.out.emit(self.run, Event::SummaryAdded(event));
        }
        for piece in split_delta(text) {
            let (task_id, item_id, delta) = (self.task.clone(), item_id.clone(), piece.to_owned());
            let event = SummaryDelta { task_id, item_id, output_index, summary_index, delta };
            self.out.emit(self.run, Event::SummaryDelta(event));
        }
    }

    fn write_text(&mut self, slot: u32, part: u32, text: &str, logprobs: Option<&Value>, refusal: Option<bool>) {
        self.open_slot_or_start(slot, ModelItemKind::Message { phase: None });
        let Some(place) = self.open_part(slot, part, PartKind::Text) else { return };
        let PartPosition { output_index, item_id, block: block_index, new } = place;
        if new {
            let item = TaggedTextBlock::Text(TextBlock { refusal, ..TextBlock::new("") });
            let (task_id, item_id) = (self.task.clone(), item_id.clone());
            let event = TextEvent { task_id, item_id, output_index, block_index, item };
            self.out.emit(self.run, Event::TextAdded(event));
        }
        let pool = self.run.reference_count();
        for piece in split_delta(text) {
            let (task_id, item_id, delta) = (self.task.clone(), item_id.clone(), piece.to_owned());
            let logprobs = logprobs.cloned();
            let event = TextDelta { task_id, item_id, output_index, block_index, delta, logprobs };
            self.out.emit(self.run, Event::TextDelta(event));
            let found = self.open_slot(slot).map(|held| held.scan.push(piece, pool)).unwrap_or_default();
            for annotation in found {
                self.emit_annotation(output_index, block_index, annotation);
            }
        }
    }

    fn write_annotation(&mut self, slot: u32, part: u32, annotation: Annotation) {
        let Some(held) = self.open_slot(slot) else { return };
        let open = held.open_part.filter(|open| open.part == part && open.kind == PartKind::Text);
        let output_index = held.output_index;
        if let Some(open) = open {
            self.emit_annotation(output_index, open.block, annotation);
        }
    }

    fn emit_annotation(&mut self, output_index: u32, block_index: u32, annotation: Annotation) {
        let fold = self.run.fold.task(self.task).and_then(|task| task.items.get(output_index as usize));
        let Some(item) = fold.map(|fold| &fold.item) else { return };
        let Some(Block::Text(block)) = item.blocks().get(block_index as usize) else { return };
        let count = block.annotations.as_ref().map_or(0, Vec::len);
        let annotation_index = u32::try_from(count).unwrap_or(u32::MAX);
        let (task_id, item_id) = (self.task.clone(), item.id().clone());
        let event = AnnotationAdded { task_id, item_id, output_index, block_index, annotation_index, annotation };
        self.out.emit(self.run, Event::AnnotationAdded(event));
    }

    fn write_arguments(&mut self, slot: u32, text: &str) {
        let Some(held) = self.open_slot(slot) else { return };
        let (output_index, item_id) = (held.output_index, held.item_id.clone());
        let fold = self.run.fold.task(self.task).and_then(|task| task.items.get(output_index as usize));
        if !fold.is_some_and(|fold| matches!(fold.item, Item::ToolCall(_)) && !fold.arguments_complete) {
            return;
        }
        for piece in split_delta(text) {
            let (task_id, item_id, delta) = (self.task.clone(), item_id.clone(), piece.to_owned());
            let event = ArgumentsDelta { task_id, item_id, output_index, delta };
            self.out.emit(self.run, Event::ArgumentsDelta(event));
        }
    }

    fn write_image(&mut self, slot: u32, part: u32, partial: Option<u32>, url: String) {
        // A picture that fits no record cannot be shown; the one before it stays.
        let url = if url.len() > RECORD_BYTES_MAX / 2 { String::new() } else { url };
        if partial.is_some() && url.is_empty() {
            return;
        }
        self.open_slot_or_start(slot, ModelItemKind::Message { phase: None });
        let Some(place) = self.open_part(slot, part, PartKind::Image) else { return };
        let PartPosition { output_index, item_id, block: block_index, new } = place;
        let task_id = self.task.clone();
        let item = |url| TaggedImageBlock::Image(ImageBlock { image_url: ImageUrl::new(url), id: None });
        if new {
            let (task_id, item_id, item) = (task_id.clone(), item_id.clone(), item(String::new()));
            let event = ImageEvent { task_id, item_id, output_index, block_index, item };
            self.out.emit(self.run, Event::ImageAdded(event));
        }
        if url.is_empty() {
            close_items::close_part(self.run, self.task, output_index, block_index, self.out);
            return;
        }
        let item = item(url);
        let event = match partial {
            Some(partial_image_index) => {
                Event::ImageDelta(ImageDelta { task_id, item_id, output_index, block_index, partial_image_index, item })
            }
            None => Event::ImageDone(ImageEvent { task_id, item_id, output_index, block_index, item }),
        };
        self.out.emit(self.run, event);
    }

    fn write_hosted_call(&mut self, slot: u32, state: String, action: Option<Value>) {
        let Some(held) = self.open_slot(slot) else { return };
        let (item_id, output_index) = (held.item_id.clone(), held.output_index);
        let task_id = self.task.clone();
        let fold = self.run.fold.task(self.task).and_then(|task| task.items.get(output_index as usize));
        if fold.is_some_and(|fold| matches!(fold.item, Item::HostedCall(_))) {
            let event = HostedCallUpdated { task_id, item_id, output_index, state, action };
            self.out.emit(self.run, Event::HostedCallUpdated(event));
        }
    }
}
