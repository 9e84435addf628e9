//! Events → what a terminal shows. Pure: a renderer takes one event after the other and gives text.
//!
//! A message streams as it comes and ends its line; a thought is dim; a call, a result and a notice are lines of their
//! own; a sub-agent's are indented. Words of models and tools are not trusted: a control character, which could move the
//! cursor or retitle the window, is shown as its code.

use model::content::ImageBlock;
use model::event::{Event, ItemEvent};
use model::item::Block;
use model::item::{Item, ToolResult};
use model::task::{TaskObject, TaskStatus};
use model::usage::Usage;
use model::{ItemId, TaskId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Whether there are colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Palette {
    Colors,
    Plain,
}

/// In which tone something is shown.
#[derive(Clone, Copy)]
enum TextTone {
    Message,
    Reasoning,
    Call,
    Result,
    Failure,
    Notice,
}

/// Where words grow: a task's item, and the part of it.
type TextPosition = (TaskId, u32, u32);

/// Shows a task's events.
pub(super) struct Renderer {
    root: TaskId,
    palette: Palette,
    /// How deep each sub-agent stands.
    depths: BTreeMap<TaskId, usize>,
    /// Whose words the cursor stands behind, in a line that has not ended.
    open_line: Option<TextPosition>,
    /// The places of which something was shown, so that their end need not repeat it.
    printed: BTreeSet<TextPosition>,
    has_output: bool,
}

impl Renderer {
    pub(super) fn new(root: TaskId, palette: Palette) -> Self {
        let (depths, begun) = (BTreeMap::new(), BTreeSet::new());
        Self { root, palette, depths, open_line: None, printed: begun, has_output: false }
    }

    /// Was nothing shown so far?
    pub(super) const fn is_blank(&self) -> bool {
        !self.has_output
    }

    /// How the task ended, if this is its end.
    pub(super) fn terminal_status(&self, event: &Event) -> Option<TaskStatus> {
        if event.task_id() != Some(&self.root) {
            return None;
        }
        match event {
            Event::Completed(_) => Some(TaskStatus::Completed),
            Event::Incomplete(_) => Some(TaskStatus::Incomplete),
            Event::Failed(_) => Some(TaskStatus::Failed),
            Event::Cancelled(_) => Some(TaskStatus::Cancelled),
            _ => None,
        }
    }

    /// What the event adds to the screen.
    pub(super) fn render(&mut self, event: &Event) -> String {
        let mut out = String::new();
        match event {
            Event::Created(e) => {
                let parent = e.task.parent_task_id.as_ref().filter(|_| e.task_id != self.root);
                let depth = parent.map_or(0, |parent| self.depth(parent) + 1);
                self.depths.insert(e.task_id.clone(), depth);
            }
            Event::SummaryDelta(e) => {
                self.append_text(
                    (e.task_id.clone(), e.output_index, e.summary_index),
                    &e.delta,
                    TextTone::Reasoning,
                    &mut out,
                );
            }
            Event::SummaryDone(e) => {
                let place = (e.task_id.clone(), e.output_index, e.summary_index);
                self.finish_text(&place, e.item.text(), TextTone::Reasoning, &mut out);
            }
            Event::TextDelta(e) => {
                let place = (e.task_id.clone(), e.output_index, e.block_index);
                self.append_text(place, &e.delta, tone_of_item(&e.item_id), &mut out);
            }
            Event::TextDone(e) => {
                let place = (e.task_id.clone(), e.output_index, e.block_index);
                self.finish_text(&place, e.item.block().text(), tone_of_item(&e.item_id), &mut out);
            }
            Event::ImageDone(e) => {
                let tone = tone_of_item(&e.item_id);
                self.push_line(&e.task_id, &image_label(e.item.block()), tone, &mut out);
            }
            Event::ItemAdded(ItemEvent { task_id, item: Item::HostedCall(call), .. }) => {
                self.push_line(task_id, &call.name, TextTone::Call, &mut out);
            }
            Event::ItemDone(e) => self.item_done(e, &mut out),
            _ => {
                if let Some(notice) = notice_text(event) {
                    let task = event.task_id().unwrap_or(&self.root).clone();
                    self.push_line(&task, &notice, TextTone::Notice, &mut out);
                }
            }
        }
        self.has_output |= !out.is_empty();
        out
    }

    /// Ends the line that words were in.
    pub(super) fn finish(&mut self) -> String {
        self.open_line.take().map(|_| "\n".to_owned()).unwrap_or_default()
    }

    /// One line on how it ended, for stderr.
    pub(super) fn summary_line(event: &Event) -> String {
        let spent = |usage: &Usage, ms: u64| {
            let tenths = ms / 100;
            format!("after {}.{} s, {} tokens written", tenths / 10, tenths % 10, usage.output_tokens)
        };
        let line = match event {
            Event::Completed(e) => format!("completed {}", spent(&e.usage, e.duration_ms)),
            Event::Incomplete(e) => format!("incomplete ({}) {}", wire_name(e.reason), spent(&e.usage, e.duration_ms)),
            Event::Failed(e) => {
                format!("failed ({}: {}) {}", e.error.code, e.error.message, spent(&e.usage, e.duration_ms))
            }
            Event::Cancelled(e) => format!("cancelled {}", spent(&e.usage, e.duration_ms)),
            _ => String::new(),
        };
        escape_to_one_line(&line)
    }

    fn item_done(&mut self, e: &ItemEvent, out: &mut String) {
        match &e.item {
            Item::ToolCall(call) => {
                let line = format!("{} {}", call.name, call.arguments.as_deref().unwrap_or("…"));
                self.push_line(&e.task_id, &line, TextTone::Call, out);
            }
            Item::ToolResult(ToolResult { error: Some(error), .. }) => {
                self.push_line(&e.task_id, &format!("{}: {}", error.code, error.message), TextTone::Failure, out);
            }
            _ => {}
        }
    }

    fn depth(&self, task: &TaskId) -> usize {
        self.depths.get(task).copied().unwrap_or_default()
    }

    /// More words at a place. Words of another place that were on this line end it.
    fn append_text(&mut self, place: TextPosition, text: &str, tone: TextTone, out: &mut String) {
        if text.is_empty() {
            return;
        }
        let indent = "  ".repeat(self.depth(&place.0));
        if self.open_line.as_ref() != Some(&place) {
            out.push_str(&self.finish());
            out.push_str(&indent);
            out.push_str(line_prefix(tone));
        }
        let hanging = format!("\n{indent}{}", " ".repeat(line_prefix(tone).chars().count()));
        self.push_styled(&escape_control(text).replace('\n', &hanging), tone, out);
        self.printed.insert(place.clone());
        self.open_line = Some(place);
    }

    /// The end of the words at a place: all of them, if none was shown before.
    fn finish_text(&mut self, place: &TextPosition, whole: &str, tone: TextTone, out: &mut String) {
        if !self.printed.remove(place) {
            self.append_text(place.clone(), whole, tone, out);
            self.printed.remove(place);
        }
        if self.open_line.as_ref() == Some(place) {
            out.push_str(&self.finish());
        }
    }

    /// A line of its own.
    fn push_line(&mut self, task: &TaskId, text: &str, tone: TextTone, out: &mut String) {
        out.push_str(&self.finish());
        out.push_str(&"  ".repeat(self.depth(task)));
        out.push_str(line_prefix(tone));
        self.push_styled(&escape_to_one_line(text), tone, out);
        out.push('\n');
    }

    fn push_styled(&self, text: &str, tone: TextTone, out: &mut String) {
        let code = match (self.palette, tone) {
            (Palette::Plain, _) | (Palette::Colors, TextTone::Message) => {
                out.push_str(text);
                return;
            }
            (Palette::Colors, TextTone::Reasoning | TextTone::Result | TextTone::Notice) => "2",
            (Palette::Colors, TextTone::Call) => "36",
            (Palette::Colors, TextTone::Failure) => "31",
        };
        for part in ["\u{1b}[", code, "m", text, "\u{1b}[0m"] {
            out.push_str(part);
        }
    }
}

/// What was said last in a task that has ended.
pub(super) fn last_message_text(object: &TaskObject) -> String {
    let message = object.output.iter().rev().find_map(|item| match item {
        Item::Message(message) => Some(message),
        _ => None,
    });
    message
        .map(|message| format!("{}\n", escape_control(&model::item::plain_text(message_blocks(message)))))
        .unwrap_or_default()
}

fn message_blocks(message: &model::item::Message) -> &[Block] {
    message.block_list.as_deref().unwrap_or_default()
}

/// An event as it came, safe for a terminal and still the same JSON: what JSON leaves raw stands inside of a string.
pub(super) fn raw_line(data: &str) -> String {
    let mut out = String::with_capacity(data.len() + 1);
    for c in data.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}

/// The text without its power over terminals: control characters but newline and tab are shown as their codes.
pub(super) fn escape_control(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if harmful(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

fn escape_to_one_line(text: &str) -> String {
    escape_control(text).replace(['\n', '\t'], " ")
}

const fn line_prefix(tone: TextTone) -> &'static str {
    match tone {
        TextTone::Message | TextTone::Reasoning => "",
        TextTone::Call => "→ ",
        TextTone::Result | TextTone::Failure => "← ",
        TextTone::Notice => "· ",
    }
}

/// An item's id says what kind of item it is, also to somebody who came after it was added.
fn tone_of_item(item: &ItemId) -> TextTone {
    if item.as_str().starts_with("fco_") { TextTone::Result } else { TextTone::Message }
}

/// A picture in words: a terminal is no place for a megabyte of base64.
fn image_label(image: &ImageBlock) -> String {
    let url = &image.image_url.url;
    match url.strip_prefix("data:").and_then(|data| data.split_once(',')) {
        Some((kind, data)) => format!("[image {}, {} bytes encoded]", kind.trim_end_matches(";base64"), data.len()),
        None => format!("[image {url}]"),
    }
}

/// A word as it stands on the wire.
fn wire_name(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What an event says that is neither words nor a call nor a result.
fn notice_text(event: &Event) -> Option<String> {
    match event {
        Event::Retrying(e) => Some(format!("the model failed ({}), attempt {}", e.error.code, e.attempt)),
        Event::ToolProgress(e) => e.message.clone(),
        Event::HostedCallUpdated(e) => Some(e.state.clone()),
        Event::FileProcessingUpdated(e) => {
            let said = e
                .message
                .as_deref()
                .map_or_else(|| wire_name(e.status), |said| format!("{}. {said}", wire_name(e.status)));
            Some(format!("{}: {said}", e.url))
        }
        Event::AgentUpdated(e) => Some(format!("{} goes on", e.agent)),
        Event::ApprovalRequested(e) => {
            let names: Vec<&str> = e.action_requests.iter().map(|request| request.name.as_str()).collect();
            Some(format!("waits for approval {} of {}", e.key, names.join(", ")))
        }
        Event::Recovered(_) => Some("the server was restarted, the turn is done again".to_owned()),
        Event::Cancelling(_) => Some("will stop after this turn".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
