//! One response on its way: its object, its items, and its frames so far.
//!
//! An item that ended is kept as it was shown, so that the last frame repeats what the frames before it said. One that is
//! open is read from the run each time somebody asks.

use super::hosted;
use super::item::{self, McpCallOutcome};
use super::object::{ResponseEnd, ResponseHead, initial_object, usage_object};
use model::ThreadId;
use model::fold::{ItemFold, RunFold};
use model::item::Item;
use model::json::JsonObject;
use model::usage::Usage;
use serde_json::{Value, json};

/// How an item is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemStyle {
    /// As what it is.
    Plain,
    /// A call, as one that the client answers.
    Function,
    /// A call, as one that the server answers.
    Mcp,
}

impl ItemStyle {
    /// What the events of a call's arguments are named after.
    pub(super) const fn arguments_event(self) -> &'static str {
        match self {
            Self::Plain | Self::Function => "function_call_arguments",
            Self::Mcp => "mcp_call_arguments",
        }
    }
}

/// One item of a response. Its place among them is its `output_index`.
#[derive(Clone, Debug)]
pub(super) struct OutputItem {
    pub(super) id: String,
    pub(super) style: ItemStyle,
    /// Its place in the root's output. What is a descendant's, or a question, has none.
    pub(super) root_index: Option<u32>,
    /// A call's arguments as they were said, once they were said whole.
    pub(super) arguments: Option<String>,
    /// The question that a person was asked about the call.
    pub(super) approval_id: Option<String>,
    /// The states that were said.
    pub(super) sent_states: Vec<String>,
    /// How much of a hosted call's code was said, in bytes; and whether that was all.
    pub(super) code_bytes_sent: usize,
    pub(super) code_done: bool,
    /// The probabilities that came with each block's words.
    pub(super) logprobs: Vec<(u32, Vec<Value>)>,
    /// The item as it ended.
    pub(super) final_item: Option<Value>,
}

impl OutputItem {
    pub(super) fn new(id: String, style: ItemStyle, place: Option<u32>) -> Self {
        Self {
            id,
            style,
            root_index: place,
            arguments: None,
            approval_id: None,
            sent_states: Vec::new(),
            code_bytes_sent: 0,
            code_done: false,
            logprobs: Vec::new(),
            final_item: None,
        }
    }

    pub(super) fn logprobs(&self, block: usize) -> Vec<Value> {
        let of_block = self.logprobs.iter().find(|(place, _)| *place as usize == block);
        of_block.map(|(_, logprobs)| logprobs.clone()).unwrap_or_default()
    }
}

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseBuilder {
    /// The object, without its output until it ends.
    object: JsonObject,
    pub(super) items: Vec<OutputItem>,
    /// The address of the thread's own references.
    pub(super) references_url: String,
    usage: Usage,
    frame_count: u64,
    finished: bool,
    pending_frames: Vec<Value>,
}

impl ResponseBuilder {
    /// It begins.
    pub(crate) fn start(about: ResponseHead<'_>, thread: &ThreadId) -> Self {
        let mut answer = Self {
            object: initial_object(about),
            items: Vec::new(),
            references_url: format!("headwater:/threads/{thread}/references/"),
            usage: Usage::default(),
            frame_count: 0,
            finished: false,
            pending_frames: Vec::new(),
        };
        let object = answer.object_with_output(Vec::new());
        answer.push_event("response.created", json!({ "response": object }));
        answer.push_event("response.in_progress", json!({ "response": object }));
        answer
    }

    /// The frames since this was last asked.
    pub(crate) fn take_frames(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.pending_frames)
    }

    /// How many frames there were.
    pub(crate) const fn frame_count(&self) -> u64 {
        self.frame_count
    }

    /// Has it ended?
    pub(crate) const fn is_finished(&self) -> bool {
        self.finished
    }

    /// A turn cost this.
    pub(crate) fn add_usage(&mut self, usage: Usage) {
        self.usage.add(usage);
    }

    /// Another model answered than was asked first, or at another tier.
    pub(crate) fn set_field(&mut self, key: &str, value: &str) {
        self.object.insert(key.to_owned(), value.into());
    }

    /// The object as it stands.
    pub(crate) fn object(&self, run: &RunFold) -> Value {
        if self.finished {
            Value::Object(self.object.clone())
        } else {
            self.object_with_output(self.current_output(run))
        }
    }

    fn object_with_output(&self, output: Vec<Value>) -> Value {
        let mut object = self.object.clone();
        object.insert("output".to_owned(), output.into());
        Value::Object(object)
    }

    fn current_output(&self, run: &RunFold) -> Vec<Value> {
        self.items.iter().map(|shown| self.item_value(run, shown, &McpCallOutcome::IN_PROGRESS)).collect()
    }

    /// It ends. What is still open ends with it; what was done again is left out.
    pub(crate) fn finish(&mut self, run: &RunFold, end: &ResponseEnd) {
        for index in 0..self.items.len() {
            self.close_item(run, index, &McpCallOutcome::INCOMPLETE);
        }
        let dropped = |shown: &&OutputItem| {
            shown.root_index.and_then(|place| root_item(run, place)).is_some_and(|fold| fold.superseded)
        };
        let kept = self.items.iter().filter(|shown| !dropped(shown));
        let output: Vec<Value> = kept.filter_map(|shown| shown.final_item.clone()).collect();
        end.apply_to(&mut self.object);
        self.object.insert("usage".to_owned(), usage_object(self.usage));
        self.object.insert("output".to_owned(), output.into());
        self.finished = true;
        self.push_event(end.event_type(), json!({ "response": self.object }));
    }

    /// A new item, from the run's own output.
    pub(crate) fn add_item(&mut self, run: &RunFold, place: u32, style: ItemStyle) {
        let Some(fold) = root_item(run, place) else { return };
        let id = match (&fold.item, style) {
            (Item::ToolCall(call), ItemStyle::Mcp) => call.call_id.item_id("mcp").to_string(),
            (item, _) => item.id().to_string(),
        };
        self.open_item(run, OutputItem::new(id, style, Some(place)));
    }

    /// A new item.
    pub(super) fn open_item(&mut self, run: &RunFold, shown: OutputItem) -> usize {
        let item = self.item_value(run, &shown, &McpCallOutcome::IN_PROGRESS);
        self.open_item_as(shown, &item)
    }

    /// A new item, as it is at first.
    pub(super) fn open_item_as(&mut self, shown: OutputItem, item: &Value) -> usize {
        let index = self.items.len();
        self.items.push(shown);
        self.push_event("response.output_item.added", json!({"output_index": index, "item": item}));
        index
    }

    /// An item that comes whole.
    pub(super) fn add_complete_item(&mut self, id: String, item: &Value) {
        let index = self.open_item_as(OutputItem::new(id, ItemStyle::Plain, None), item);
        self.close_item_as(index, item.clone());
    }

    /// An item ends, unless it has.
    pub(super) fn close_item(&mut self, run: &RunFold, index: usize, outcome: &McpCallOutcome) -> Option<Value> {
        let shown = self.items.get(index).filter(|shown| shown.final_item.is_none())?;
        let mut item = self.item_value(run, shown, outcome);
        // Nothing ends without saying how: what nobody ended was cut.
        if let Some(status) = item.get_mut("status").filter(|status| *status == "in_progress") {
            *status = "incomplete".into();
        }
        self.close_item_as(index, item.clone());
        Some(item)
    }

    pub(super) fn close_item_as(&mut self, index: usize, item: Value) {
        self.push_event("response.output_item.done", json!({"output_index": index, "item": item}));
        if let Some(shown) = self.items.get_mut(index) {
            shown.final_item = Some(item);
        }
    }

    /// The item that shows this place of the root's output, while it is open.
    pub(super) fn find_open_item(&self, place: u32) -> Option<usize> {
        self.items.iter().rposition(|shown| shown.root_index == Some(place) && shown.final_item.is_none())
    }

    /// An item as it ended, or as it is so far.
    fn item_value(&self, run: &RunFold, shown: &OutputItem, outcome: &McpCallOutcome) -> Value {
        if let Some(done) = &shown.final_item {
            return done.clone();
        }
        let Some(fold) = shown.root_index.and_then(|place| root_item(run, place)) else { return Value::Null };
        match &fold.item {
            Item::Reasoning(reasoning) => item::reasoning_item(reasoning, fold.done),
            Item::Message(message) => {
                item::message_item(message, fold.done, &self.references_url, |block| shown.logprobs(block))
            }
            Item::HostedCall(call) => hosted::hosted_item(call, fold.done),
            Item::ToolCall(call) => {
                let arguments = shown.arguments.as_deref().or(call.arguments.as_deref()).unwrap_or_default();
                if shown.style == ItemStyle::Mcp {
                    item::mcp_call_item(call, arguments, shown.approval_id.as_deref(), outcome)
                } else {
                    item::function_call_item(call, arguments, item::item_status(call.status, fold.done))
                }
            }
            Item::ToolResult(_) | Item::FileProcessing(_) => Value::Null,
        }
    }

    /// A frame about an item.
    pub(super) fn push_item_event(&mut self, index: usize, kind: &str, mut more: Value) {
        let Some(shown) = self.items.get(index) else { return };
        if let Some(more) = more.as_object_mut() {
            more.insert("item_id".to_owned(), shown.id.as_str().into());
            more.insert("output_index".to_owned(), index.into());
        }
        self.push_event(kind, more);
    }

    fn push_event(&mut self, kind: &str, mut data: Value) {
        if let Some(data) = data.as_object_mut() {
            data.insert("type".to_owned(), kind.into());
            data.insert("sequence_number".to_owned(), self.frame_count.into());
        }
        self.frame_count += 1;
        self.pending_frames.push(data);
    }
}

/// An item of the root's output.
pub(super) fn root_item(run: &RunFold, place: u32) -> Option<&ItemFold> {
    run.root()?.items.get(place as usize)
}
