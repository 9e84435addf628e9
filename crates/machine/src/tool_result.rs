//! Results of calls: the blocks that people see, and the content that the model reads.

use crate::open_results::{blocks_bytes, close_open_block, new_open_result, open_result, shown_blocks, streamed_group};
use crate::output::{RunWriter, json_size, split_delta};
use crate::positions::{BlockPosition, next_output_index, to_output_index};
use crate::state::RunState;
use crate::{calls, tool_lookup};
use model::content::{ContentPart, FileRef, ImageBlock, ImageUrl, TextBlock, UrlKind};
use model::definition::ReferencePolicy;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{Event, ItemEvent};
use model::item::Block;
use model::item::{COMPUTER_TOOL, CallKind, Item, ResultStatus, ToolCall};
use model::limits::{DELTA_BYTES_MAX, DONE_REPEAT_BYTES_MAX, RECORD_BYTES_MAX};
use model::record::PrivatePayload;
use model::tool::ToolOutput;
use model::{CallId, reference};
use serde_json::Value;
use std::collections::BTreeMap;

/// Answers a call with the output of its tool. `drive` decides whether the model is called next.
pub(crate) fn finish_call(writer: &mut RunWriter<'_>, call: &CallId, output: ToolOutput) {
    let (status, output) = bounded_output(writer.run, call, output);
    write_result(writer, call, status, output);
}

/// Answers a call with what the client sent. Only a computer call has safety checks, and their acknowledgement is recorded
/// even if there is none: nobody else may give it.
pub(crate) fn finish_client_call(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    output: ToolOutput,
    acknowledged_checks: Vec<Value>,
) {
    let (status, output) = bounded_output(writer.run, call, output);
    let item = writer.run.task_of_call(call).and_then(|task| task.call(call));
    let is_computer = item.is_some_and(|(_, item)| item.name == COMPUTER_TOOL);
    let checks = Some(acknowledged_checks).filter(|checks| is_computer && json_size(checks) <= DONE_REPEAT_BYTES_MAX);
    let private = PrivatePayload { acknowledged_checks: checks, ..PrivatePayload::default() };
    write_result_with_private(writer, call, (status, output), CitationGroups::None, private);
}

/// The output and its status, or the error of one that is too large.
fn bounded_output(run: &RunState, call: &CallId, output: ToolOutput) -> (ResultStatus, ToolOutput) {
    let limit = tool_lookup::tool_output_bytes_max(run, call);
    // Blocks are logged in pieces, but the record that ends the result has to hold everything else.
    let rest = json_size(&(&output.summary, &output.artifact, &output.ui_hints, &output.error));
    let bytes = json_size(&output).saturating_add(blocks_bytes(shown_blocks(run, call)));
    // What was shown before an error has been within the limit.
    let is_large = bytes > limit && output.error.is_none() || json_size(&output) > limit;
    let output = if is_large || rest > DONE_REPEAT_BYTES_MAX { oversized_output(run, call) } else { output };
    (if output.error.is_some() { ResultStatus::Failed } else { ResultStatus::Completed }, output)
}

fn oversized_output(run: &RunState, call: &CallId) -> ToolOutput {
    let limit = tool_lookup::tool_output_bytes_max(run, call);
    let message = format!(
        "The tool gave more than {limit} bytes, or more than {DONE_REPEAT_BYTES_MAX} beside its content. Ask it for less."
    );
    ToolOutput::failed(ErrorCode::OutputTooLarge, message)
}

/// Ends the result of a tool that has shown more than it may. What was shown stays.
pub(crate) fn finish_oversized_call(writer: &mut RunWriter<'_>, call: &CallId) {
    let output = oversized_output(writer.run, call);
    write_result(writer, call, ResultStatus::Failed, output);
}

/// Answers a call with a result of this status. It can be cited unless it is an error.
pub(crate) fn write_result(writer: &mut RunWriter<'_>, call: &CallId, status: ResultStatus, output: ToolOutput) {
    let can_cite = output.error.is_none() && is_citable(writer.run, call);
    let groups = if can_cite { CitationGroups::New } else { CitationGroups::None };
    write_numbered_result(writer, call, status, output, groups);
}

/// Whether the agent cites results of this call. Those of the client's own tools it does not, nor decisions and tools.
pub(crate) fn is_citable(run: &RunState, call: &CallId) -> bool {
    let Some(task) = run.task_of_call(call) else { return false };
    let is_uncited =
        |call: &ToolCall| matches!(call.kind, Some(CallKind::Client | CallKind::Hosted | CallKind::ToolSearch));
    !task.call(call).is_some_and(|(_, call)| is_uncited(call))
        && run.agent_of_task(task).references != ReferencePolicy::Off
}

/// How the reference groups of a result are numbered.
#[derive(Clone, Copy)]
pub(crate) enum CitationGroups {
    New,
    /// The result repeats that of an earlier call.
    Kept,
    /// There is nothing in the result to cite.
    None,
}

pub(crate) fn write_numbered_result(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    status: ResultStatus,
    output: ToolOutput,
    groups: CitationGroups,
) {
    write_result_with_private(writer, call, (status, output), groups, PrivatePayload::default());
}

fn write_result_with_private(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    (status, output): (ResultStatus, ToolOutput),
    groups: CitationGroups,
    private: PrivatePayload,
) {
    let Some(task) = writer.run.task_of_call(call) else { return };
    let task_id = task.id.clone();
    let agent = Some(task.agent.clone());
    let shown = close_shown_blocks(writer, call);
    let task = writer.run.task_of_call(call);
    let output_index = shown.as_ref().map_or_else(|| task.map_or(0, next_output_index), |shown| shown.output_index);
    let ToolOutput { message_content, block_list, summary, artifact, ui_hints, error } = output;
    let (mut content, blocks) = match &shown {
        Some(shown) => shown.complete(message_content, block_list, error.as_ref()),
        None => number_reference_groups(writer.run.reference_count(), message_content, block_list, groups),
    };
    if content.is_empty() {
        // Providers refuse empty results.
        let message = error.as_ref().map(|error| error.message.as_str()).filter(|message| !message.trim().is_empty());
        content.push(ContentPart::text(message.unwrap_or("(no output)")));
    }
    let mut result = new_open_result(call, agent);
    let id = result.id.clone();
    if shown.is_none() {
        let item = Item::ToolResult(result.clone());
        writer.emit(Event::ItemAdded(Box::new(ItemEvent { task_id: task_id.clone(), output_index, item })));
    }
    let first_block = shown.map_or(0, |shown| shown.block_count);
    for (block_index, block) in (first_block..).zip(blocks) {
        let at = BlockPosition { task_id: task_id.clone(), item_id: id.clone(), output_index, block_index };
        emit_block(writer, &at, block);
    }
    let written = writer.run.item(&task_id, output_index).map(|fold| fold.item.blocks().to_vec()).unwrap_or_default();
    result.block_list = Some(written).filter(|blocks| json_size(blocks) <= DONE_REPEAT_BYTES_MAX);
    result.status = Some(status);
    result.error = error;
    result.summary = summary;
    result.artifact = artifact;
    result.ui_hints = ui_hints;
    // Content that does not fit a record is rebuilt from the blocks when the model needs it.
    let content = Some(content).filter(|content| json_size(content) <= RECORD_BYTES_MAX / 2);
    let done = ItemEvent { task_id, output_index, item: Item::ToolResult(result) };
    writer.emit_with_private(Event::ItemDone(Box::new(done)), Some(PrivatePayload { content, ..private }));
}

/// What people have seen of a result before its tool ended.
struct ShownBlocks {
    output_index: u32,
    /// Of all attempts.
    block_count: u32,
    /// Of the last attempt.
    blocks: Vec<Block>,
    /// All of it is one.
    group: Option<u32>,
}

/// Closes the block that is open. `None` if nothing of the result was shown.
fn close_shown_blocks(writer: &mut RunWriter<'_>, call: &CallId) -> Option<ShownBlocks> {
    close_open_block(writer, call);
    let (output_index, fold) = open_result(writer.run, call)?;
    let blocks = fold.item.blocks();
    let (group, block_count) = (streamed_group(blocks), to_output_index(blocks.len()));
    Some(ShownBlocks { output_index, block_count, blocks: shown_blocks(writer.run, call).to_vec(), group })
}

impl ShownBlocks {
    /// The content of the complete result, and its blocks that were not shown yet. Of a failed tool the model reads what was
    /// shown and the error, and cannot cite it.
    fn complete(
        &self,
        content: Vec<ContentPart>,
        more: Vec<Block>,
        error: Option<&ErrorInfo>,
    ) -> (Vec<ContentPart>, Vec<Block>) {
        let more: Vec<Block> = more.into_iter().map(|block| block_in_group(block, self.group)).collect();
        let shown = || reference::blocks_to_parts(&[self.blocks.as_slice(), more.as_slice()].concat());
        let group = self.group.filter(|_| error.is_none());
        let mut content = match (error, content.is_empty()) {
            (Some(error), true) => shown().into_iter().chain([ContentPart::text(&error.message)]).collect(),
            (Some(_), false) => shown().into_iter().chain(content).collect(),
            (None, true) => shown(),
            (None, false) => content,
        };
        content.retain(|part| !matches!(part, ContentPart::Text { text, .. } if text.trim().is_empty()));
        let content = content.into_iter().map(|part| part_in_group(part, group)).collect();
        (reference::wrap_reference_groups(content), more)
    }
}

/// Numbers the reference groups of a result within the thread, and wraps them for the model.
fn number_reference_groups(
    reference_count: u32,
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
        let content = content.into_iter().map(|part| part_in_group(part, None)).collect();
        let blocks = blocks.into_iter().map(|block| block_in_group(block, None)).collect();
        return (reference::wrap_reference_groups(content), blocks);
    }
    let has_groups = content.iter().any(|part| reference::reference_group(part).is_some());
    // Without groups of its own, the whole result is one.
    let key = |group: Option<u32>| if has_groups { group } else { Some(0) };
    let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
    let mut number = |group: Option<u32>| -> Option<u32> {
        let next = reference_count.saturating_add(1).saturating_add(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
        key(group).map(|key| *numbers.entry(key).or_insert(next))
    };
    let content = content.into_iter().map(|part| match part {
        ContentPart::Text { text, id, tags } => ContentPart::Text { text, id: number(id), tags },
        ContentPart::ImageUrl { image_url, id } => ContentPart::ImageUrl { image_url, id: number(id) },
        ContentPart::File { file } => ContentPart::File { file },
    });
    let content: Vec<ContentPart> = content.collect();
    // A group that the model is not shown cannot be cited, so it has no number.
    let shown = |group: Option<u32>| key(group).and_then(|key| numbers.get(&key).copied());
    let blocks = blocks.into_iter().map(|block| match block {
        Block::Text(text) => Block::Text(TextBlock { id: shown(text.id), ..text }),
        Block::Image(image) => Block::Image(ImageBlock { id: shown(image.id), ..image }),
        other => other,
    });
    let blocks = blocks.collect();
    (reference::wrap_reference_groups(content), blocks)
}

fn part_in_group(part: ContentPart, id: Option<u32>) -> ContentPart {
    match part {
        ContentPart::Text { text, tags, .. } => ContentPart::Text { text, id, tags },
        ContentPart::ImageUrl { image_url, .. } => ContentPart::ImageUrl { image_url, id },
        ContentPart::File { file } => ContentPart::File { file },
    }
}

fn block_in_group(block: Block, id: Option<u32>) -> Block {
    match block {
        Block::Text(text) => Block::Text(TextBlock { id, ..text }),
        Block::Image(image) => Block::Image(ImageBlock { id, ..image }),
        other => other,
    }
}

fn part_to_block(part: &ContentPart) -> Option<Block> {
    match part {
        ContentPart::Text { text, id, .. } => Some(Block::Text(TextBlock { id: *id, ..TextBlock::new(text) })),
        ContentPart::ImageUrl { image_url, id } => {
            Some(Block::Image(ImageBlock { image_url: image_url.clone(), id: *id }))
        }
        ContentPart::File { file } => file_link(file).map(|text| Block::Text(TextBlock::new(text))),
    }
}

/// How people see a file that has an address.
fn file_link(file: &FileRef) -> Option<String> {
    let url = file.url.as_deref().filter(|url| UrlKind::of(url) != UrlKind::Data)?;
    // In a link these would end its text.
    let name = file.display_name().unwrap_or("file").replace(['[', ']', '\n'], " ");
    Some(format!("[{name}]({url})"))
}

/// Replaces an image that fits no record.
pub(crate) fn omitted_image_note(url: &str) -> String {
    format!("[an image of {} bytes was left out]", url.len())
}

/// Emits a block: a short one in one event, a long text in pieces.
fn emit_block(writer: &mut RunWriter<'_>, at: &BlockPosition, block: Block) {
    match block {
        Block::Text(block) if block.text().len() <= DELTA_BYTES_MAX => {
            writer.emit(Event::TextDone(at.text_event(block)));
        }
        Block::Text(block) => {
            let empty = TextBlock { text: Some("".into()), ..block.clone() };
            writer.emit(Event::TextAdded(at.text_event(empty)));
            for piece in split_delta(block.text()) {
                writer.emit(Event::TextDelta(at.text_delta(piece, None)));
            }
            let repeated = block.text.filter(|text| text.len() <= DONE_REPEAT_BYTES_MAX);
            writer.emit(Event::TextDone(at.text_event(TextBlock { text: repeated, ..block })));
        }
        Block::Image(block) if block.image_url.url.len() > RECORD_BYTES_MAX / 2 => {
            let text = omitted_image_note(&block.image_url.url);
            writer.emit(Event::TextDone(at.text_event(TextBlock { id: block.id, ..TextBlock::new(text) })));
        }
        Block::Image(block) => {
            let empty = ImageBlock { image_url: ImageUrl::default(), id: block.id };
            writer.emit(Event::ImageAdded(at.image_event(empty)));
            writer.emit(Event::ImageDone(at.image_event(block)));
        }
        // A tool cannot return items: only sub-agents produce them.
        Block::Reasoning(_)
        | Block::ToolCall(_)
        | Block::ToolResult(_)
        | Block::Message(_)
        | Block::HostedCall(_)
        | Block::FileProcessing(_) => writer.emit(Event::TextDone(at.text_event(TextBlock::new("")))),
    }
}

/// Answers a call with an error.
pub(crate) fn write_error_result(writer: &mut RunWriter<'_>, call: &CallId, status: ResultStatus, error: ErrorInfo) {
    write_result(writer, call, status, calls::error_output(error));
}
