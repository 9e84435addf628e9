//! Results: what people see of a tool's end, and what the model reads of it.

use crate::state::RunState;
use crate::{MachineOutput, calls};
use model::content::{ContentPart, ImageBlock, ImageUrl, TextBlock};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, ImageEvent, ItemEvent, TaggedImageBlock, TaggedTextBlock, TextDelta, TextEvent};
use model::item::Block;
use model::item::{Item, ResultStatus, ToolResult};
use model::limits::{DELTA_BYTES_MAX, DONE_REPEAT_BYTES_MAX, RECORD_BYTES_MAX};
use model::record::PrivatePayload;
use model::tool::ToolOutput;
use model::{CallId, ItemId, TaskId, reference};
use std::collections::BTreeMap;

/// A call is answered: its result is shown at once. Whether the model is asked again is for `drive` to see.
pub(crate) fn finish_call(run: &mut RunState, call: &CallId, output: ToolOutput, out: &mut MachineOutput) {
    let limit = calls::tool_output_bytes_max(run, call);
    // Blocks are logged in pieces, but what comes beside them must fit the one record that ends the result.
    let beside = json_size(&(&output.summary, &output.artifact, &output.ui_hints, &output.error));
    let output = if json_size(&output) > limit || beside > DONE_REPEAT_BYTES_MAX {
        let message = format!(
            "The tool gave more than {limit} bytes, or more than {DONE_REPEAT_BYTES_MAX} beside its content. Ask it for less."
        );
        ToolOutput::failed(ErrorCode::OutputTooLarge, message)
    } else {
        output
    };
    let status = if output.error.is_some() { ResultStatus::Failed } else { ResultStatus::Completed };
    write_result(run, call, status, output, out);
}

/// Answers a call with a result of this status, which can be cited unless it says what went wrong.
pub(crate) fn write_result(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    output: ToolOutput,
    out: &mut MachineOutput,
) {
    let groups = if output.error.is_none() { CitationGroups::New } else { CitationGroups::None };
    emit_result(run, call, status, output, groups, out);
}

/// Answers a call in our own words: there is nothing in them to cite.
pub(crate) fn write_uncited_result(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    output: ToolOutput,
    out: &mut MachineOutput,
) {
    emit_result(run, call, status, output, CitationGroups::None, out);
}

/// Answers a call with what was an answer before.
pub(crate) fn write_repeated_result(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    output: ToolOutput,
    out: &mut MachineOutput,
) {
    emit_result(run, call, status, output, CitationGroups::Kept, out);
}

/// What can be cited of a result.
#[derive(Clone, Copy)]
enum CitationGroups {
    /// Its groups get numbers of their own.
    New,
    /// They have theirs.
    Kept,
    /// Nothing.
    None,
}

fn emit_result(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    output: ToolOutput,
    groups: CitationGroups,
    out: &mut MachineOutput,
) {
    let Some(task) = run.task_of_call(call) else { return };
    let task_id = task.id.clone();
    let agent = Some(task.agent.clone());
    let index = u32::try_from(task.items.len()).unwrap_or(u32::MAX);
    let ToolOutput { message_content, block_list, summary, artifact, ui_hints, error } = output;
    let (mut content, blocks) = number_reference_groups(run.reference_count(), message_content, block_list, groups);
    if content.is_empty() {
        // Providers refuse empty results.
        let why = error.as_ref().map(|error| error.message.as_str()).filter(|message| !message.trim().is_empty());
        content.push(ContentPart::text(why.unwrap_or("(no output)")));
    }
    let mut result = new_open_result(call, agent);
    let id = result.id.clone();
    let item = Item::ToolResult(result.clone());
    out.emit(run, Event::ItemAdded(ItemEvent { task_id: task_id.clone(), output_index: index, item }));
    for (at, block) in (0..).zip(blocks) {
        emit_block(
            run,
            &BlockPosition { task_id: &task_id, item_id: &id, output_index: index, block_index: at },
            block,
            out,
        );
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
    out.emit_with_private(run, Event::ItemDone(done), Some(PrivatePayload { content, ..PrivatePayload::default() }));
}

/// A result of which nothing is known yet.
pub(crate) fn new_open_result(call: &CallId, agent: Option<String>) -> ToolResult {
    ToolResult {
        id: call.item_id("fco"),
        call_id: call.clone(),
        block_list: Some(Vec::new()),
        status: Some(ResultStatus::InProgress),
        error: None,
        summary: None,
        artifact: None,
        ui_hints: None,
        reason: None,
        agent,
    }
}

/// Gives a result's groups their numbers in the thread, and wraps them for the model. What went wrong is not citable.
fn number_reference_groups(
    pool: u32,
    content: Vec<ContentPart>,
    blocks: Vec<Block>,
    groups: CitationGroups,
) -> (Vec<ContentPart>, Vec<Block>) {
    if matches!(groups, CitationGroups::Kept) {
        return (content, blocks);
    }
    let blocks = if blocks.is_empty() { content.iter().filter_map(part_to_block).collect() } else { blocks };
    let mut content = if content.is_empty() { reference::blocks_to_parts(&blocks) } else { content };
    // Providers refuse empty texts, too.
    content.retain(|part| !matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty()));
    if matches!(groups, CitationGroups::None) {
        return (reference::wrap_reference_groups(content.into_iter().map(without_group).collect()), blocks);
    }
    let mut numbers: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let has_groups = content.iter().any(|part| reference::reference_group(part).is_some());
    let mut number = |group: Option<u32>| -> Option<u32> {
        if has_groups && group.is_none() {
            return None;
        }
        let next = pool.saturating_add(1).saturating_add(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
        Some(*numbers.entry(if has_groups { group } else { None }).or_insert(next))
    };
    let content = content.into_iter().map(|part| match part {
        ContentPart::Text { text, id, tags } => ContentPart::Text { text, id: number(id), tags },
        ContentPart::ImageUrl { image_url, id } => ContentPart::ImageUrl { image_url, id: number(id) },
        ContentPart::File { file } => ContentPart::File { file },
    });
    let content: Vec<ContentPart> = content.collect();
    let blocks = blocks.into_iter().map(|block| match block {
        Block::Text(text) => Block::Text(TextBlock { id: number(text.id), ..text }),
        Block::Image(image) => Block::Image(ImageBlock { id: number(image.id), ..image }),
        other => other,
    });
    let blocks = blocks.collect();
    (reference::wrap_reference_groups(content), blocks)
}

fn without_group(part: ContentPart) -> ContentPart {
    match part {
        ContentPart::Text { text, tags, .. } => ContentPart::Text { text, id: None, tags },
        ContentPart::ImageUrl { image_url, .. } => ContentPart::ImageUrl { image_url, id: None },
        ContentPart::File { file } => ContentPart::File { file },
    }
}

fn part_to_block(part: &ContentPart) -> Option<Block> {
    match part {
        ContentPart::Text { text, id, .. } => Some(Block::Text(TextBlock { id: *id, ..TextBlock::new(text) })),
        ContentPart::ImageUrl { image_url, id } => {
            Some(Block::Image(ImageBlock { image_url: image_url.clone(), id: *id }))
        }
        ContentPart::File { .. } => None,
    }
}

/// Where a block goes.
struct BlockPosition<'a> {
    task_id: &'a TaskId,
    item_id: &'a ItemId,
    output_index: u32,
    block_index: u32,
}

impl BlockPosition<'_> {
    fn text_event(&self, block: TextBlock) -> TextEvent {
        let (task_id, item_id) = (self.task_id.clone(), self.item_id.clone());
        let (output_index, block_index) = (self.output_index, self.block_index);
        TextEvent { task_id, item_id, output_index, block_index, item: TaggedTextBlock::Text(block) }
    }

    fn image_event(&self, block: ImageBlock) -> ImageEvent {
        let (task_id, item_id) = (self.task_id.clone(), self.item_id.clone());
        let (output_index, block_index) = (self.output_index, self.block_index);
        ImageEvent { task_id, item_id, output_index, block_index, item: TaggedImageBlock::Image(block) }
    }
}

/// Shows a block: a short one in one event, a long text in pieces.
fn emit_block(run: &mut RunState, place: &BlockPosition<'_>, block: Block, out: &mut MachineOutput) {
    match block {
        Block::Text(block) if block.text().len() <= DELTA_BYTES_MAX => {
            out.emit(run, Event::TextDone(place.text_event(block)));
        }
        Block::Text(block) => {
            let empty = TextBlock { text: Some(String::new()), ..block.clone() };
            out.emit(run, Event::TextAdded(place.text_event(empty)));
            for piece in crate::model_turn::split_delta(block.text()) {
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
            out.emit(run, Event::TextDone(place.text_event(TextBlock { text: repeated, ..block })));
        }
        Block::Image(block) if block.image_url.url.len() > RECORD_BYTES_MAX / 2 => {
            let text = format!("[an image of {} bytes was left out]", block.image_url.url.len());
            out.emit(run, Event::TextDone(place.text_event(TextBlock { id: block.id, ..TextBlock::new(text) })));
        }
        Block::Image(block) => {
            let empty = ImageBlock { image_url: ImageUrl::default(), id: block.id };
            out.emit(run, Event::ImageAdded(place.image_event(empty)));
            out.emit(run, Event::ImageDone(place.image_event(block)));
        }
        // A tool cannot give items; those are a sub-agent's own.
        Block::Reasoning(_)
        | Block::ToolCall(_)
        | Block::ToolResult(_)
        | Block::Message(_)
        | Block::HostedCall(_)
        | Block::FileProcessing(_) => out.emit(run, Event::TextDone(place.text_event(TextBlock::new("")))),
    }
}

/// Answers a call that nobody will answer any more.
pub(crate) fn write_error_result(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    error: ErrorInfo,
    out: &mut MachineOutput,
) {
    let output = ToolOutput {
        message_content: vec![ContentPart::text(&error.message)],
        error: Some(error),
        ..ToolOutput::default()
    };
    write_result(run, call, status, output, out);
}

pub(crate) fn json_size(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |bytes| bytes.len())
}
