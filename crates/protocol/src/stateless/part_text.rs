//! The parts of a segment, and their texts as read from the run so far.

use crate::hosted_calls::hosted_output_text;
use crate::tool_results::{latest_messages, subagent_of_result};
use model::CallId;
use model::content::TextBlock;
use model::fold::{ItemFold, RunFold};
use model::item::{Block, Item, Message, ToolCall};
use model::json::{ExactObject, ExactValue, parse_lenient_exact};

/// A part of a segment. Numbers are positions in the root's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SegmentPart {
    /// A part of a reasoning summary.
    Reasoning { item: usize, part: usize },
    /// A text block of a message.
    Text { item: usize, block: usize },
    /// An image in a message.
    Image { item: usize, block: usize },
    /// A call that the client answers.
    ClientCall { call_id: CallId, name: String, arguments: String },
    /// A call that the server answers, or the provider. `server` is the provider's MCP server.
    ServerCall { id: String, name: String, server: Option<String>, arguments: ExactObject },
    /// The result of a call that the server answered.
    ServerResult { item: usize },
}

/// The text of a part that grows.
pub(super) struct PartText<'a> {
    pub(super) text: &'a str,
    pub(super) is_complete: bool,
}

/// An item of the root's output.
pub(super) fn root_item(run: &RunFold, item: usize) -> Option<&ItemFold> {
    run.root()?.items.get(item)
}

pub(super) fn text_block<'a>(run: &'a RunFold, part: &SegmentPart) -> Option<&'a TextBlock> {
    let SegmentPart::Text { item, block } = part else { return None };
    match root_item(run, *item)?.item.blocks().get(*block)? {
        Block::Text(block) => Some(block),
        _ => None,
    }
}

/// The text so far of reasoning or of a message; `None` for parts that are sent whole.
pub(super) fn growing_text<'a>(run: &'a RunFold, part: &SegmentPart) -> Option<PartText<'a>> {
    let (item, inner) = match part {
        SegmentPart::Reasoning { item, part } => (*item, *part),
        SegmentPart::Text { item, block } => (*item, *block),
        SegmentPart::Image { .. }
        | SegmentPart::ClientCall { .. }
        | SegmentPart::ServerCall { .. }
        | SegmentPart::ServerResult { .. } => return None,
    };
    let fold = root_item(run, item)?;
    let text = match &fold.item {
        Item::Reasoning(reasoning) => reasoning.summary.as_deref()?.get(inner)?.text(),
        _ => text_block(run, part)?.text(),
    };
    let is_open = !fold.done && fold.open_parts.iter().any(|open| *open as usize == inner);
    Some(PartText { text, is_complete: !is_open })
}

pub(super) fn part_text(run: &RunFold, part: &SegmentPart) -> String {
    match part {
        SegmentPart::Reasoning { .. } | SegmentPart::Text { .. } => {
            growing_text(run, part).map(|part| part.text.to_owned()).unwrap_or_default()
        }
        SegmentPart::Image { item, block } => {
            match root_item(run, *item).and_then(|fold| fold.item.blocks().get(*block)) {
                Some(Block::Image(image)) => image.image_url.placeholder(),
                _ => String::new(),
            }
        }
        SegmentPart::ClientCall { arguments, .. } => arguments.clone(),
        SegmentPart::ServerCall { arguments, .. } => ExactValue::Object(arguments.clone()).to_string(),
        SegmentPart::ServerResult { item } => {
            root_item(run, *item).map(|fold| tool_result_text(run, &fold.item)).unwrap_or_default()
        }
    }
}

/// A call's arguments; a call without any has an empty object.
pub(super) fn call_arguments(call: &ToolCall) -> String {
    let arguments = call.arguments.as_deref().filter(|arguments| !arguments.trim().is_empty());
    arguments.unwrap_or("{}").to_owned()
}

/// Arguments as the object that the protocol requires.
pub(crate) fn parse_arguments_object(arguments: &str) -> ExactObject {
    match parse_lenient_exact(arguments) {
        Ok(ExactValue::Object(arguments)) => arguments,
        _ => ExactObject::new(),
    }
}

fn tool_result_text(run: &RunFold, item: &Item) -> String {
    let result = match item {
        Item::ToolResult(result) => result,
        Item::HostedCall(call) => return hosted_output_text(call),
        _ => return String::new(),
    };
    let child = run.root().and_then(|root| subagent_of_result(run, root, result));
    let text = match child {
        Some(child) => latest_messages(child).next().map(Message::text).unwrap_or_default(),
        None => blocks_text(item.blocks()),
    };
    match &result.error {
        Some(error) if text.trim().is_empty() => error.message.clone(),
        _ => text,
    }
}

fn blocks_text(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text(block) => Some(block.text().to_owned()),
        Block::Image(image) => Some(image.image_url.placeholder()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
