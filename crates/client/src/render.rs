//! Formats events for a terminal. A renderer does no I/O: it takes an event and returns text.
//!
//! Messages stream as they arrive; reasoning is dim; calls, results and notices are lines of their own; those of
//! sub-agents are indented. The output of models and tools is not trusted: a control character, which could move the
//! cursor or change the window's title, is printed as its code.

use model::content::ImageBlock;
use model::event::{Event, ItemEvent};
use model::item::Block;
use model::item::{Item, ToolResult};
use model::task::{TaskObject, TaskStatus};
use model::usage::Usage;
use model::{ItemId, TaskId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Palette {
    Colors,
    Plain,
}

/// How much of a tool's result is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultText {
    Whole,
    /// At most this many characters.
    AtMost(usize),
}

#[derive(Clone, Copy)]
enum TextTone {
    Message,
    Reasoning,
    Call,
    Result,
    Failure,
    Notice,
}

/// A text that streams: task, item and part.
type TextPosition = (TaskId, u32, u32);

pub struct Renderer {
    root: TaskId,
    palette: Palette,
    /// Nesting depth of sub-agents.
    depths: BTreeMap<TaskId, usize>,
    /// The text that the current line belongs to, until the line ends.
    open_line: Option<TextPosition>,
    /// Texts that were printed as they streamed, and need not be printed at their end.
    printed: BTreeSet<TextPosition>,
    has_output: bool,
    result_text: ResultText,
    /// Characters of results that were printed, if they are limited.
    result_chars: BTreeMap<TextPosition, usize>,
}

impl Renderer {
    pub fn new(root: TaskId, palette: Palette) -> Self {
        Self {
            root,
            palette,
            depths: BTreeMap::new(),
            open_line: None,
            printed: BTreeSet::new(),
            has_output: false,
            result_text: ResultText::Whole,
            result_chars: BTreeMap::new(),
        }
    }

    pub fn with_result_text(mut self, result_text: ResultText) -> Self {
        self.result_text = result_text;
        self
    }

    pub const fn is_blank(&self) -> bool {
        !self.has_output
    }

    /// The status of the task, if the event is its end.
    pub fn terminal_status(&self, event: &Event) -> Option<TaskStatus> {
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

    pub fn render(&mut self, event: &Event) -> String {
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
            Event::ItemAdded(e) => {
                if let Item::HostedCall(call) = &e.item {
                    self.push_line(&e.task_id, &call.name, TextTone::Call, &mut out);
                }
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

    /// Ends the current line.
    pub fn finish(&mut self) -> String {
        self.open_line.take().map(|_| "\n".to_owned()).unwrap_or_default()
    }

    /// One line for stderr about the end of the task.
    pub fn summary_line(event: &Event) -> String {
        let spent = |usage: &Usage, ms: u64| {
            let tenths = ms / 100;
            format!("after {}.{} s, {} output tokens", tenths / 10, tenths % 10, usage.output_tokens)
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

    /// Ends the line of another text.
    fn append_text(&mut self, place: TextPosition, text: &str, tone: TextTone, out: &mut String) {
        let shortened = match tone {
            TextTone::Result => self.shorten_result(&place, text),
            _ => Cow::Borrowed(text),
        };
        let text = shortened.as_ref();
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

    /// The part of a result that is shown, with a mark where it is cut.
    fn shorten_result<'a>(&mut self, place: &TextPosition, text: &'a str) -> Cow<'a, str> {
        let ResultText::AtMost(max) = self.result_text else { return Cow::Borrowed(text) };
        let printed = self.result_chars.entry(place.clone()).or_default();
        let left = max.saturating_sub(*printed);
        let had_room = *printed <= max;
        *printed = printed.saturating_add(text.chars().count());
        match text.char_indices().nth(left) {
            None => Cow::Borrowed(text),
            Some((end, _)) if had_room => {
                *printed = max + 1;
                Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
            }
            Some(_) => Cow::Borrowed(""),
        }
    }

    /// Prints the text if it did not stream.
    fn finish_text(&mut self, place: &TextPosition, whole: &str, tone: TextTone, out: &mut String) {
        if !self.printed.remove(place) {
            self.append_text(place.clone(), whole, tone, out);
            self.printed.remove(place);
        }
        if self.open_line.as_ref() == Some(place) {
            out.push_str(&self.finish());
        }
    }

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

/// The last message of a task that has ended.
pub fn last_message_text(object: &TaskObject) -> String {
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

/// The event's JSON, safe for a terminal: raw control characters can only be inside strings, where they are escaped.
pub fn raw_line(data: &str) -> String {
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

/// Replaces control characters except newline and tab by their codes.
pub fn escape_control(text: &str) -> Cow<'_, str> {
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

/// The prefix of an item's id is its type, which is also known if the item was added before the stream started.
fn tone_of_item(item: &ItemId) -> TextTone {
    if item.as_str().starts_with("fco_") { TextTone::Result } else { TextTone::Message }
}

fn image_label(image: &ImageBlock) -> String {
    let url = &image.image_url.url;
    match url.strip_prefix("data:").and_then(|data| data.split_once(',')) {
        Some((kind, data)) => format!("[image {}, {} bytes encoded]", kind.trim_end_matches(";base64"), data.len()),
        None => format!("[image {url}]"),
    }
}

fn wire_name(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Text for events other than messages, calls and results.
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
        Event::AgentUpdated(e) => Some(format!("{} continues", e.agent)),
        Event::ApprovalRequested(e) => {
            if let Some(question) = &e.question {
                return Some(format!("asks {}: {}", e.key, question.message));
            }
            let names: Vec<&str> = e.action_requests.iter().map(|request| request.name.as_str()).collect();
            Some(format!("waits for approval {} of {}", e.key, names.join(", ")))
        }
        Event::Recovered(_) => Some("the server restarted; the turn is repeated".to_owned()),
        Event::Cancelling(_) => Some("stopping after this turn".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
