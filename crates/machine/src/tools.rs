//! Tools: which may start, what their ends become.

use crate::effect::{Effect, EffectId};
use crate::state::RunState;
use crate::{Ctx, Out};
use model::block::{Block, ImageBlock, ImageUrl, Object, Part, TextBlock};
use model::event::{
    Custom, ErrorInfo, Event, ImageEvent, ImageItem, ItemEvent, StateDelta, StateSnapshot, TextDelta, TextEvent,
    TextItem, ToolProgress, ToolStarted,
};
use model::fold::{ItemFold, TaskFold};
use model::item::{Item, ResultStatus, ToolCall, ToolResult};
use model::limits::{DELTA_BYTES_MAX, DONE_REPEAT_BYTES_MAX, RECORD_BYTES_MAX};
use model::record::Private;
use model::tool::{StateChange, ToolEvent, ToolOutput, ToolRequest};
use model::{CallId, ItemId, TaskId, reference};
use std::collections::BTreeMap;

/// The calls of the last step that are to be answered.
fn due(task: &TaskFold) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
    let last = task.steps.len().checked_sub(1);
    task.calls().filter(move |(fold, _)| fold.step == last && fold.arguments_whole)
}

pub(crate) fn is_answered(task: &TaskFold, call: &CallId) -> bool {
    task.result(call).is_some_and(|(_, fold)| fold.closed)
}

pub(crate) fn all_answered(task: &TaskFold) -> bool {
    due(task).all(|(_, call)| is_answered(task, &call.call_id))
}

/// Is there a call that waits, and room for it?
pub(crate) fn can_start(run: &RunState, task: &TaskFold) -> bool {
    let running = due(task).filter(|(fold, call)| fold.started.is_some() && !is_answered(task, &call.call_id)).count();
    let waiting = due(task).any(|(fold, call)| fold.started.is_none() && !is_answered(task, &call.call_id));
    waiting && running < run.definitions.limits.parallel_tools_max
}

/// Starts the first call that waits; answers it at once when it cannot run.
pub(crate) fn start(run: &mut RunState, task_id: &TaskId, ctx: Ctx, out: &mut Out) {
    let Some(task) = run.fold.task(task_id) else { return };
    let waiting = due(task).find(|(fold, call)| fold.started.is_none() && !is_answered(task, &call.call_id));
    let Some((_, call)) = waiting else { return };
    let (call_id, name) = (call.call_id.clone(), call.name.clone());
    let arguments = call.arguments.clone().unwrap_or_default();
    let agent = run.agent(task);
    let tool = run.definitions.tools.get(&name).filter(|_| agent.tools.contains(&name));
    let Some(tool) = tool else {
        let message = format!("There is no tool `{name}` here. There are: {}.", agent.tools.join(", "));
        finish(run, &call_id, ToolOutput::failed("unknown_tool", message), out);
        return;
    };
    if serde_json::from_str::<Object>(&arguments).is_err() {
        let message = format!("The arguments of `{name}` are not a JSON object. Nothing was run; call it again.");
        finish(run, &call_id, ToolOutput::failed("invalid_arguments", message), out);
        return;
    }
    let timeout = tool.timeout_ms.unwrap_or(run.definitions.limits.tool_timeout_ms);
    let deadline = ctx.now.saturating_add(timeout);
    let private = Private {
        idempotent: Some(tool.idempotent),
        on_crash: Some(tool.on_crash),
        deadline: Some(deadline),
        ..Private::default()
    };
    let attempt = 1;
    let started = ToolStarted { task_id: task_id.clone(), call_id: call_id.clone(), arguments, attempt };
    let request = ToolRequest {
        user: run.user.clone(),
        thread: run.thread.clone(),
        task: task_id.clone(),
        call_id: call_id.clone(),
        attempt,
        name,
        arguments: started.arguments.clone(),
        deadline,
    };
    out.emit_with(run, Event::ToolStarted(started), Some(private));
    out.effect(Effect::CallTool { id: EffectId::tool(&call_id, attempt), request: Box::new(request) });
}

/// A tool said something. What answers nothing outstanding is ignored.
pub(crate) fn heard(run: &mut RunState, id: &EffectId, event: ToolEvent, out: &mut Out) {
    let EffectId::Tool { call, attempt } = id else { return };
    let Some(task) = run.task_of_call(call) else { return };
    let started = task.call(call).and_then(|(fold, _)| fold.started.as_ref());
    let runs = started.is_some_and(|started| started.attempt == *attempt) && !is_answered(task, call);
    if !runs || task.status.is_terminal() {
        return; // a result after a time-out or a cancel: already answered
    }
    let task_id = task.id.clone();
    match event {
        ToolEvent::Progress(progress) => {
            let model::tool::Progress { message, progress, total } = progress;
            let call_id = call.clone();
            out.emit(run, Event::ToolProgress(ToolProgress { task_id, call_id, message, progress, total }));
        }
        ToolEvent::State(StateChange::Snapshot(state)) => {
            out.emit(run, Event::StateSnapshot(StateSnapshot { task_id, state }));
        }
        ToolEvent::State(StateChange::Delta(delta)) => {
            let delta = StateDelta { task_id, delta };
            // A change that does not apply is the tool's mistake, not the log's.
            if run.fold.accepts(&delta) {
                out.emit(run, Event::StateDelta(delta));
            }
        }
        ToolEvent::Custom { name, value } => out.emit(run, Event::Custom(Custom { task_id, name, value })),
        ToolEvent::End(output) => finish(run, call, output, out),
    }
}

/// A call is answered: its result is shown at once. Whether the model is asked again is for `drive` to see.
pub(crate) fn finish(run: &mut RunState, call: &CallId, output: ToolOutput, out: &mut Out) {
    let limit = run.definitions.limits.tool_output_bytes_max;
    // Blocks are logged in pieces, but what comes beside them must fit the one record that ends the result.
    let beside = json_size(&(&output.summary, &output.artifact, &output.ui_hints, &output.error));
    let output = if json_size(&output) > limit || beside > DONE_REPEAT_BYTES_MAX {
        let message = format!(
            "The tool gave more than {limit} bytes, or more than {DONE_REPEAT_BYTES_MAX} beside its content. Ask it for less."
        );
        ToolOutput::failed("output_too_large", message)
    } else {
        output
    };
    let status = if output.error.is_some() { ResultStatus::Failed } else { ResultStatus::Completed };
    answer(run, call, status, output, out);
}

/// Answers a call with a result of this status.
pub(crate) fn answer(run: &mut RunState, call: &CallId, status: ResultStatus, output: ToolOutput, out: &mut Out) {
    let Some(task) = run.task_of_call(call) else { return };
    let task_id = task.id.clone();
    let agent = Some(task.agent.clone());
    let index = u32::try_from(task.items.len()).unwrap_or(u32::MAX);
    let id = call.sibling("fco");
    let ToolOutput { message_content, block_list, summary, artifact, ui_hints, error } = output;
    let (content, blocks) = numbered(run.references(), message_content, block_list, error.is_some());
    let mut result = ToolResult {
        id: id.clone(),
        call_id: call.clone(),
        block_list: Some(Vec::new()),
        status: Some(ResultStatus::InProgress),
        error: None,
        summary: None,
        artifact: None,
        ui_hints: None,
        reason: None,
        agent,
    };
    let item = Item::ToolResult(result.clone());
    out.emit(run, Event::ItemAdded(ItemEvent { task_id: task_id.clone(), output_index: index, item }));
    for (at, block) in (0..).zip(blocks) {
        show(run, &Place { task_id: &task_id, item_id: &id, output_index: index, block_index: at }, block, out);
    }
    let shown = run.fold.task(&task_id).and_then(|task| task.items.get(index as usize));
    let shown = shown.map(|fold| fold.item.blocks().to_vec()).unwrap_or_default();
    result.block_list = Some(shown).filter(|blocks| json_size(blocks) <= DONE_REPEAT_BYTES_MAX);
    result.status = Some(status);
    result.error = error;
    result.summary = summary;
    result.artifact = artifact;
    result.ui_hints = ui_hints;
    // What does not fit a record is read from the blocks again when the model needs it.
    let content = Some(content).filter(|content| json_size(content) <= RECORD_BYTES_MAX / 2);
    let done = ItemEvent { task_id, output_index: index, item: Item::ToolResult(result) };
    out.emit_with(run, Event::ItemDone(done), Some(Private { content, ..Private::default() }));
}

/// Gives a result's groups their numbers in the thread, and wraps them for the model. What went wrong is not citable.
fn numbered(pool: u32, content: Vec<Part>, blocks: Vec<Block>, failed: bool) -> (Vec<Part>, Vec<Block>) {
    let blocks = if blocks.is_empty() { content.iter().filter_map(block_of).collect() } else { blocks };
    let content = if content.is_empty() { reference::parts_of(&blocks) } else { content };
    if failed {
        return (content, blocks);
    }
    let mut numbers: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let has_groups = content.iter().any(|part| reference::group_of(part).is_some());
    let mut number = |group: Option<u32>| -> Option<u32> {
        if has_groups && group.is_none() {
            return None;
        }
        let next = pool.saturating_add(1).saturating_add(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
        Some(*numbers.entry(if has_groups { group } else { None }).or_insert(next))
    };
    let content = content.into_iter().map(|part| match part {
        Part::Text { text, id, tags } => Part::Text { text, id: number(id), tags },
        Part::ImageUrl { image_url, id } => Part::ImageUrl { image_url, id: number(id) },
        Part::File { file } => Part::File { file },
    });
    let content: Vec<Part> = content.collect();
    let blocks = blocks.into_iter().map(|block| match block {
        Block::Text(text) => Block::Text(TextBlock { id: number(text.id), ..text }),
        Block::Image(image) => Block::Image(ImageBlock { id: number(image.id), ..image }),
        other => other,
    });
    let blocks = blocks.collect();
    (reference::wrap(content), blocks)
}

fn block_of(part: &Part) -> Option<Block> {
    match part {
        Part::Text { text, id, .. } => Some(Block::Text(TextBlock { id: *id, ..TextBlock::new(text) })),
        Part::ImageUrl { image_url, id } => Some(Block::Image(ImageBlock { image_url: image_url.clone(), id: *id })),
        Part::File { .. } => None,
    }
}

/// Where a block goes.
struct Place<'a> {
    task_id: &'a TaskId,
    item_id: &'a ItemId,
    output_index: u32,
    block_index: u32,
}

impl Place<'_> {
    fn text(&self, block: TextBlock) -> TextEvent {
        let (task_id, item_id) = (self.task_id.clone(), self.item_id.clone());
        let (output_index, block_index) = (self.output_index, self.block_index);
        TextEvent { task_id, item_id, output_index, block_index, item: TextItem::Text(block) }
    }

    fn image(&self, block: ImageBlock) -> ImageEvent {
        let (task_id, item_id) = (self.task_id.clone(), self.item_id.clone());
        let (output_index, block_index) = (self.output_index, self.block_index);
        ImageEvent { task_id, item_id, output_index, block_index, item: ImageItem::Image(block) }
    }
}

/// Shows a block: a short one in one event, a long text in pieces.
fn show(run: &mut RunState, place: &Place<'_>, block: Block, out: &mut Out) {
    match block {
        Block::Text(block) if block.text().len() <= DELTA_BYTES_MAX => {
            out.emit(run, Event::TextDone(place.text(block)));
        }
        Block::Text(block) => {
            let empty = TextBlock { text: Some(String::new()), ..block.clone() };
            out.emit(run, Event::TextAdded(place.text(empty)));
            for piece in crate::turn::pieces(block.text()) {
                out.emit(
                    run,
                    Event::TextDelta(TextDelta {
                        task_id: place.task_id.clone(),
                        item_id: place.item_id.clone(),
                        output_index: place.output_index,
                        block_index: place.block_index,
                        delta: piece.to_owned(),
                        logprobs: None,
                    }),
                );
            }
            let repeated = block.text.filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
            out.emit(run, Event::TextDone(place.text(TextBlock { text: repeated, ..block })));
        }
        Block::Image(block) if block.image_url.url.len() > RECORD_BYTES_MAX / 2 => {
            let text = format!("[an image of {} bytes was left out]", block.image_url.url.len());
            out.emit(run, Event::TextDone(place.text(TextBlock { id: block.id, ..TextBlock::new(text) })));
        }
        Block::Image(block) => {
            let empty = ImageBlock { image_url: ImageUrl::default(), id: block.id };
            out.emit(run, Event::ImageAdded(place.image(empty)));
            out.emit(run, Event::ImageDone(place.image(block)));
        }
        // A tool cannot give items; those are a sub-agent's own.
        Block::Reasoning(_)
        | Block::ToolCall(_)
        | Block::ToolResult(_)
        | Block::Message(_)
        | Block::HostedCall(_)
        | Block::FileProcessing(_) => out.emit(run, Event::TextDone(place.text(TextBlock::new("")))),
    }
}

/// Answers a call that nobody will answer any more.
pub(crate) fn give_up(run: &mut RunState, call: &CallId, status: ResultStatus, error: ErrorInfo, out: &mut Out) {
    let output =
        ToolOutput { message_content: vec![Part::text(&error.message)], error: Some(error), ..ToolOutput::default() };
    answer(run, call, status, output, out);
}

fn json_size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}
