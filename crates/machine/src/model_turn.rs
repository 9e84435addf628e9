//! Model deltas become items and blocks of the output.
//!
//! A turn maps the provider's slots to items. The parts of an item come one after the other: the next one ends the one
//! before it. A delta that does not fit (for an item that is done, for a slot that was opened twice) is dropped: a
//! provider's disorder must not become ours.

use crate::close_items::{self, ItemEnd};
use crate::effect::EffectId;
use crate::output::{RunWriter, split_delta};
use crate::positions::{BlockPosition, next_output_index, to_output_index};
use crate::turn_state::{ItemSlot, OpenPart, PartKind, SlotKind};
use crate::{model_call, step, tool_lookup};
use model::content::{Annotation, ImageBlock, ImageUrl, TextBlock};
use model::definition::{Tool, ToolExecutor};
use model::event::{
    AnnotationAdded, ArgumentsDelta, Event, HostedCallUpdated, ImageDelta, ItemEvent, ProviderEvent, StopReason,
    SummaryDelta, SummaryEvent, TaggedImageBlock,
};
use model::fold::TaskFold;
use model::item::Block;
use model::item::{
    ApprovalGate, COMPUTER_TOOL, CallKind, HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, Role,
    SummaryPart, ToolCall,
};
use model::limits::RECORD_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelItemKind, ModelTurnEnd};
use model::record::PrivatePayload;
use model::reference::CitationScanner;
use model::{CallId, ItemId, TaskId};
use serde_json::Value;

/// Handles an event of the model. An event of another attempt is ignored.
pub(crate) fn on_model_event(writer: &mut RunWriter<'_>, id: &EffectId, event: ModelEvent) {
    let EffectId::Model { task, step, attempt } = id else { return };
    let open = writer.run.fold.task(task).and_then(|fold| fold.open_step());
    if !open.is_some_and(|open| open.step == *step && open.attempt == *attempt) {
        return;
    }
    match event {
        ModelEvent::Delta(delta) => DeltaWriter { writer, task }.write_delta(delta),
        ModelEvent::End(end) => finish_turn(writer, task, end),
        ModelEvent::Failed(failure) => model_call::on_model_failure(writer, task, failure),
    }
}

/// The turn ended by itself: open items are complete, unless a limit ended it.
fn finish_turn(writer: &mut RunWriter<'_>, task: &TaskId, end: ModelTurnEnd) {
    let limited = matches!(end.stop_reason, StopReason::MaxTokens | StopReason::ContentFilter);
    let incomplete = limited.then_some(IncompleteReason::Limit);
    if let Some(turn) = writer.run.turns.get_mut(task) {
        turn.usage = end.usage;
        if let Some(model) = end.model {
            turn.model = model;
        }
    }
    close_items::close_open_items(writer, task, incomplete);
    let has_calls = writer.run.fold.task(task).is_some_and(|fold| {
        let step = fold.steps.len().saturating_sub(1);
        fold.calls().any(|(item, _)| item.step_index == Some(step) && item.arguments_complete)
    });
    let stop_reason = match (limited, has_calls) {
        (true, _) => end.stop_reason,
        (false, true) => StopReason::ToolCalls,
        (false, false) => StopReason::Stop,
    };
    step::finish_step(writer, task, stop_reason, end.service_tier);
}

/// A part of an item; for a summary part, `at.block_index` is its index in `summary`.
struct PartPosition {
    at: BlockPosition,
    /// Whether this delta opened it.
    is_new: bool,
}

/// What kind of text a delta carries.
#[derive(Clone, Copy)]
enum TextKind {
    Answer,
    Refusal,
}

struct DeltaWriter<'a, 'b> {
    writer: &'a mut RunWriter<'b>,
    task: &'a TaskId,
}

impl DeltaWriter<'_, '_> {
    fn write_delta(&mut self, delta: ModelDelta) {
        match delta {
            ModelDelta::Started { slot, item } => self.start_item(slot, item),
            ModelDelta::Reasoning { slot, part, text } => self.write_reasoning(slot, part, &text),
            ModelDelta::Text { slot, part, text, logprobs } => {
                self.write_text(slot, part, &text, logprobs.as_ref(), TextKind::Answer);
            }
            ModelDelta::Refusal { slot, part, text } => self.write_text(slot, part, &text, None, TextKind::Refusal),
            ModelDelta::Annotation { slot, part, annotation } => self.write_annotation(slot, part, annotation),
            ModelDelta::Arguments { slot, text } => self.write_arguments(slot, &text),
            ModelDelta::Image { slot, part, partial, url } => self.write_image(slot, part, partial, url),
            ModelDelta::Hosted { slot, state, action } => self.write_hosted_call(slot, state, action),
            ModelDelta::Done { slot, raw } => {
                if let Some(index) = self.open_slot(slot).map(|slot| slot.output_index) {
                    close_items::close_item(self.writer, self.task, index, &ItemEnd { incomplete_reason: None, raw });
                }
            }
            ModelDelta::Usage(usage) => {
                if let Some(turn) = self.writer.run.turns.get_mut(self.task) {
                    turn.usage = usage;
                    turn.unlogged_usage = Some(turn.total_usage());
                }
            }
            ModelDelta::Unknown(event) => {
                let task_id = self.task.clone();
                let event = Event::ProviderEvent(ProviderEvent { task_id, event });
                self.writer.emit_if_fits(event);
            }
        }
    }

    /// The item of a slot, while it is open.
    fn open_slot(&mut self, slot: u32) -> Option<&mut ItemSlot> {
        let fold = self.writer.run.fold.task(self.task)?;
        let slot = self.writer.run.turns.get_mut(self.task)?.slots.get_mut(&slot)?;
        let open = fold.items.get(slot.output_index as usize).is_some_and(|item| !item.done);
        open.then_some(slot)
    }

    /// The item of a slot, started when the provider did not announce it.
    fn open_slot_or_start(&mut self, slot: u32, item: ModelItemKind) -> Option<&mut ItemSlot> {
        let known = self.writer.run.turns.get(self.task).is_some_and(|turn| turn.slots.contains_key(&slot));
        if !known {
            self.start_item(slot, item);
        }
        self.open_slot(slot)
    }

    fn start_item(&mut self, slot: u32, item: ModelItemKind) {
        let known = self.writer.run.turns.get(self.task).is_none_or(|turn| turn.slots.contains_key(&slot));
        let Some(fold) = self.writer.run.fold.task(self.task).filter(|_| !known) else { return };
        let agent = Some(fold.agent.clone());
        let output_index = next_output_index(fold);
        let (suffix, number) = self.writer.run.next_id_number();
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
            ModelItemKind::ComputerCall { provider_call_id } => {
                private = Some(PrivatePayload { provider_call_id, ..PrivatePayload::default() });
                Item::ToolCall(self.new_computer_call(CallId::numbered(&suffix, number), agent))
            }
            ModelItemKind::HostedApproval { name, server_label, provider_call_id } => {
                private = Some(PrivatePayload { provider_call_id, ..PrivatePayload::default() });
                let (kind, gate) = (Some(CallKind::Hosted), Some(ApprovalGate::Always));
                let call = new_call(CallId::numbered(&suffix, number), name, agent);
                Item::ToolCall(ToolCall { kind, gate, server_label: Some(server_label), ..call })
            }
            ModelItemKind::HostedCall { name, action } => Item::HostedCall(HostedCall {
                id: id("hc"),
                name,
                block_list: Some(Vec::new()),
                state: None,
                action: action.map(|action| with_own_approval_key(fold, action)),
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
        self.writer.emit_with_private(Event::ItemAdded(Box::new(event)), private);
        if let Some(turn) = self.writer.run.turns.get_mut(self.task) {
            let citations = CitationScanner::default();
            turn.slots
                .insert(slot, ItemSlot { output_index, item_id, kind, open_part: None, part_count: 0, citations });
        }
    }

    fn new_tool_call(&self, call_id: CallId, name: String, agent: Option<String>) -> ToolCall {
        let tool =
            self.writer.run.fold.task(self.task).and_then(|task| tool_lookup::find_tool(self.writer.run, task, &name));
        let kind = Some(tool.as_ref().map_or(CallKind::Tool, Tool::call_kind));
        let gate = Some(tool.as_ref().map_or(ApprovalGate::Never, Tool::approval_gate));
        let (server_label, server_tool) = match tool.as_ref().map(|tool| &tool.executor) {
            Some(ToolExecutor::Mcp(tool)) => (Some(tool.server.clone()), Some(tool.tool.clone())),
            _ => (None, None),
        };
        let display_name = tool.and_then(|tool| tool.display_name);
        ToolCall { kind, gate, display_name, server_label, server_tool, ..new_call(call_id, name, agent) }
    }

    /// A call for the tool of this name. Without one, the client operates the computer.
    fn new_computer_call(&self, call_id: CallId, agent: Option<String>) -> ToolCall {
        let task = self.writer.run.fold.task(self.task);
        let is_declared =
            task.is_some_and(|task| tool_lookup::find_tool(self.writer.run, task, COMPUTER_TOOL).is_some());
        let call = self.new_tool_call(call_id, COMPUTER_TOOL.to_owned(), agent);
        if is_declared { call } else { ToolCall { kind: Some(CallKind::Client), ..call } }
    }

    /// The part of a slot, opened when it is new. `None` when it is done already or its item cannot have such a part.
    fn open_part(&mut self, slot: u32, part: u32, kind: PartKind) -> Option<PartPosition> {
        let item = self.open_slot(slot).filter(|item| item.kind.allows_part(kind))?;
        let (output_index, item_id, block_index) = (item.output_index, item.item_id.clone(), item.part_count);
        let at =
            |task: &TaskId, block_index| BlockPosition { task_id: task.clone(), item_id, output_index, block_index };
        match item.open_part {
            Some(open) if open.part == part && open.kind == kind => {
                // An image is done by its own last event.
                let is_open = self.writer.run.item(self.task, output_index)?.open_parts.contains(&open.block);
                is_open.then(|| PartPosition { at: at(self.task, open.block), is_new: false })
            }
            Some(open) if open.part >= part => None,
            before => {
                item.open_part = Some(OpenPart { part, block: block_index, kind });
                item.part_count = block_index.saturating_add(1);
                item.citations = CitationScanner::default();
                if let Some(before) = before {
                    close_items::close_part(self.writer, self.task, output_index, before.block);
                }
                Some(PartPosition { at: at(self.task, block_index), is_new: true })
            }
        }
    }

    fn write_reasoning(&mut self, slot: u32, part: u32, text: &str) {
        self.open_slot_or_start(slot, ModelItemKind::Reasoning);
        let Some(PartPosition { at, is_new }) = self.open_part(slot, part, PartKind::Summary) else { return };
        let BlockPosition { task_id, item_id, output_index, block_index: summary_index } = at;
        if is_new {
            let (task_id, item_id, item) = (task_id.clone(), item_id.clone(), SummaryPart::new(""));
            let event = SummaryEvent { task_id, item_id, output_index, summary_index, item };
            self.writer.emit(Event::SummaryAdded(event));
        }
        for piece in split_delta(text) {
            let (task_id, item_id, delta) = (task_id.clone(), item_id.clone(), piece.to_owned());
            let event = SummaryDelta { task_id, item_id, output_index, summary_index, delta };
            self.writer.emit(Event::SummaryDelta(event));
        }
    }

    fn write_text(&mut self, slot: u32, part: u32, text: &str, logprobs: Option<&Value>, kind: TextKind) {
        self.open_slot_or_start(slot, ModelItemKind::Message { phase: None });
        let Some(PartPosition { at, is_new }) = self.open_part(slot, part, PartKind::Text) else { return };
        if is_new {
            let refusal = matches!(kind, TextKind::Refusal).then_some(true);
            let block = TextBlock { refusal, ..TextBlock::new("") };
            self.writer.emit(Event::TextAdded(at.text_event(block)));
        }
        let turn = self.writer.run.turns.get(self.task);
        let shown = turn.map(|turn| turn.shown_references.clone()).unwrap_or_default();
        for piece in split_delta(text) {
            self.writer.emit(Event::TextDelta(at.text_delta(piece, logprobs)));
            let found = self.open_slot(slot).map(|item| item.citations.push(piece, &shown));
            for annotation in found.unwrap_or_default() {
                self.emit_annotation(at.output_index, at.block_index, annotation);
            }
        }
    }

    fn write_annotation(&mut self, slot: u32, part: u32, annotation: Annotation) {
        let Some(item) = self.open_slot(slot) else { return };
        let open = item.open_part.filter(|open| open.part == part && open.kind == PartKind::Text);
        let output_index = item.output_index;
        let Some(open) = open else { return };
        let block = self.writer.run.item(self.task, output_index).map(|fold| fold.item.blocks());
        let Some(Block::Text(text)) = block.and_then(|blocks| blocks.get(open.block as usize)) else { return };
        let chars = u32::try_from(text.text.as_deref().unwrap_or_default().chars().count()).unwrap_or(u32::MAX);
        match annotation.clamp_to_text(chars) {
            Ok(annotation) => self.emit_annotation(output_index, open.block, annotation),
            // What cites nothing of the text is kept as it came.
            Err(outside) => {
                let event = serde_json::to_value(&outside).unwrap_or_default();
                self.write_delta(ModelDelta::Unknown(event));
            }
        }
    }

    fn emit_annotation(&mut self, output_index: u32, block_index: u32, annotation: Annotation) {
        let Some(item) = self.writer.run.item(self.task, output_index).map(|fold| &fold.item) else { return };
        let Some(Block::Text(block)) = item.blocks().get(block_index as usize) else { return };
        let count = block.annotations.as_ref().map_or(0, Vec::len);
        let annotation_index = to_output_index(count);
        let (task_id, item_id) = (self.task.clone(), item.id().clone());
        let event = AnnotationAdded { task_id, item_id, output_index, block_index, annotation_index, annotation };
        self.writer.emit(Event::AnnotationAdded(Box::new(event)));
    }

    fn write_arguments(&mut self, slot: u32, text: &str) {
        let Some(item) = self.open_slot(slot) else { return };
        let (output_index, item_id) = (item.output_index, item.item_id.clone());
        let fold = self.writer.run.item(self.task, output_index);
        if !fold.is_some_and(|fold| matches!(fold.item, Item::ToolCall(_)) && !fold.arguments_complete) {
            return;
        }
        for piece in split_delta(text) {
            let (task_id, item_id, delta) = (self.task.clone(), item_id.clone(), piece.to_owned());
            let event = ArgumentsDelta { task_id, item_id, output_index, delta };
            self.writer.emit(Event::ArgumentsDelta(event));
        }
    }

    fn write_image(&mut self, slot: u32, part: u32, partial: Option<u32>, url: String) {
        // An image that is too large for a record cannot be shown; the one before it stays.
        let url = if url.len() > RECORD_BYTES_MAX / 2 { String::new() } else { url };
        if partial.is_some() && url.is_empty() {
            return;
        }
        self.open_slot_or_start(slot, ModelItemKind::Message { phase: None });
        let Some(PartPosition { at, is_new }) = self.open_part(slot, part, PartKind::Image) else { return };
        let block = |url| ImageBlock { image_url: ImageUrl::new(url), id: None };
        if is_new {
            self.writer.emit(Event::ImageAdded(at.image_event(block(String::new()))));
        }
        if url.is_empty() {
            close_items::close_part(self.writer, self.task, at.output_index, at.block_index);
            return;
        }
        let event = match partial {
            Some(partial_image_index) => {
                let BlockPosition { task_id, item_id, output_index, block_index } = at;
                let item = TaggedImageBlock::Image(block(url));
                Event::ImageDelta(ImageDelta { task_id, item_id, output_index, block_index, partial_image_index, item })
            }
            None => Event::ImageDone(at.image_event(block(url))),
        };
        self.writer.emit(event);
    }

    fn write_hosted_call(&mut self, slot: u32, state: String, action: Option<Value>) {
        let Some(item) = self.open_slot(slot) else { return };
        let (item_id, output_index) = (item.item_id.clone(), item.output_index);
        let task_id = self.task.clone();
        let fold = self.writer.run.item(self.task, output_index);
        if fold.is_some_and(|fold| matches!(fold.item, Item::HostedCall(_))) {
            let task = self.writer.run.fold.task(self.task);
            let action = action.map(|action| task.map_or(action.clone(), |task| with_own_approval_key(task, action)));
            let event = HostedCallUpdated { task_id, item_id, output_index, state, action };
            self.writer.emit(Event::HostedCallUpdated(event));
        }
    }
}

/// A call in progress, without what its tool decides.
fn new_call(call_id: CallId, name: String, agent: Option<String>) -> ToolCall {
    ToolCall {
        id: call_id.item_id("fc"),
        call_id,
        name,
        arguments: Some(String::new()),
        original_arguments: None,
        kind: None,
        display_name: None,
        gate: None,
        status: Some(ItemStatus::InProgress),
        reason: None,
        agent,
        server_label: None,
        server_tool: None,
    }
}

/// A hosted call names the request that approved it by the provider's id. People know that request by its key.
fn with_own_approval_key(task: &TaskFold, mut action: Value) -> Value {
    if let Some(Value::String(id)) = action.get_mut("approval_request_id")
        && let Some((_, call)) = task.calls().find(|(fold, _)| fold.provider_call_id.as_deref() == Some(id.as_str()))
    {
        *id = call.call_id.approval_key().to_string();
    }
    action
}
