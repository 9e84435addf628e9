//! One response on its way: its object, its items, and its frames so far.
//!
//! An item that ended is kept as it was shown, so that the last frame repeats what the frames before it said. One that is
//! open is read from the run each time somebody asks.

use super::hosted;
use super::item::{self, Outcome};
use super::object::{End, Head, head, usage};
use model::ThreadId;
use model::block::JsonObject;
use model::fold::{ItemFold, RunFold};
use model::item::Item;
use model::usage::Usage;
use serde_json::{Value, json};

/// How an item is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// As what it is.
    Plain,
    /// A call, as one that the client answers.
    Function,
    /// A call, as one that the server answers.
    Mcp,
}

impl Style {
    /// What the events of a call's arguments are named after.
    pub(super) const fn arguments(self) -> &'static str {
        match self {
            Self::Plain | Self::Function => "function_call_arguments",
            Self::Mcp => "mcp_call_arguments",
        }
    }
}

/// One item of a response. Its place among them is its `output_index`.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) id: String,
    pub(super) style: Style,
    /// Its place in the root's output. What is a descendant's, or a question, has none.
    pub(super) place: Option<u32>,
    /// A call's arguments as they were said, once they were said whole.
    pub(super) arguments: Option<String>,
    /// The question that a person was asked about the call.
    pub(super) approval: Option<String>,
    /// The states that were said.
    pub(super) states: Vec<String>,
    /// How much of a hosted call's code was said, in bytes; and whether that was all.
    pub(super) code: usize,
    pub(super) code_done: bool,
    /// The probabilities that came with each block's words.
    pub(super) logprobs: Vec<(u32, Vec<Value>)>,
    /// The item as it ended.
    pub(super) done: Option<Value>,
}

impl Shown {
    pub(super) fn new(id: String, style: Style, place: Option<u32>) -> Self {
        Self {
            id,
            style,
            place,
            arguments: None,
            approval: None,
            states: Vec::new(),
            code: 0,
            code_done: false,
            logprobs: Vec::new(),
            done: None,
        }
    }

    pub(super) fn logprobs(&self, block: usize) -> Vec<Value> {
        let of_block = self.logprobs.iter().find(|(place, _)| *place as usize == block);
        of_block.map(|(_, logprobs)| logprobs.clone()).unwrap_or_default()
    }
}

/// One response.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The object, without its output until it ends.
    object: JsonObject,
    pub(super) shown: Vec<Shown>,
    /// The address of the thread's own references.
    pub(super) references: String,
    usage: Usage,
    frames: u64,
    over: bool,
    out: Vec<Value>,
}

impl Answer {
    /// It begins.
    pub(crate) fn begin(about: Head<'_>, thread: &ThreadId) -> Self {
        let mut answer = Self {
            object: head(about),
            shown: Vec::new(),
            references: format!("headwater:/threads/{thread}/references/"),
            usage: Usage::default(),
            frames: 0,
            over: false,
            out: Vec::new(),
        };
        let object = answer.object_with(Vec::new());
        answer.frame("response.created", json!({ "response": object }));
        answer.frame("response.in_progress", json!({ "response": object }));
        answer
    }

    /// The frames since this was last asked.
    pub(crate) fn take_frames(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.out)
    }

    /// How many frames there were.
    pub(crate) const fn frames_so_far(&self) -> u64 {
        self.frames
    }

    /// Has it ended?
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// A turn cost this.
    pub(crate) fn spend(&mut self, usage: Usage) {
        self.usage.add(usage);
    }

    /// Another model answered than was asked first, or at another tier.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.object.insert(key.to_owned(), value.into());
    }

    /// The object as it stands.
    pub(crate) fn object(&self, run: &RunFold) -> Value {
        if self.over { Value::Object(self.object.clone()) } else { self.object_with(self.output(run)) }
    }

    fn object_with(&self, output: Vec<Value>) -> Value {
        let mut object = self.object.clone();
        object.insert("output".to_owned(), output.into());
        Value::Object(object)
    }

    fn output(&self, run: &RunFold) -> Vec<Value> {
        self.shown.iter().map(|shown| self.value(run, shown, &Outcome::OPEN)).collect()
    }

    /// It ends. What is still open ends with it; what was done again is left out.
    pub(crate) fn end(&mut self, run: &RunFold, end: &End) {
        for index in 0..self.shown.len() {
            self.close(run, index, &Outcome::CUT);
        }
        let dropped =
            |shown: &&Shown| shown.place.and_then(|place| fold_at(run, place)).is_some_and(|fold| fold.superseded);
        let kept = self.shown.iter().filter(|shown| !dropped(shown));
        let output: Vec<Value> = kept.filter_map(|shown| shown.done.clone()).collect();
        end.put(&mut self.object);
        self.object.insert("usage".to_owned(), usage(self.usage));
        self.object.insert("output".to_owned(), output.into());
        self.over = true;
        self.frame(end.event(), json!({ "response": self.object }));
    }

    /// A new item, from the run's own output.
    pub(crate) fn add(&mut self, run: &RunFold, place: u32, style: Style) {
        let Some(fold) = fold_at(run, place) else { return };
        let id = match (&fold.item, style) {
            (Item::ToolCall(call), Style::Mcp) => call.call_id.item_id("mcp").to_string(),
            (item, _) => item.id().to_string(),
        };
        self.push(run, Shown::new(id, style, Some(place)));
    }

    /// A new item.
    pub(super) fn push(&mut self, run: &RunFold, shown: Shown) -> usize {
        let item = self.value(run, &shown, &Outcome::OPEN);
        self.push_value(shown, &item)
    }

    /// A new item, as it is at first.
    pub(super) fn push_value(&mut self, shown: Shown, item: &Value) -> usize {
        let index = self.shown.len();
        self.shown.push(shown);
        self.frame("response.output_item.added", json!({"output_index": index, "item": item}));
        index
    }

    /// An item that comes whole.
    pub(super) fn push_whole(&mut self, id: String, item: &Value) {
        let index = self.push_value(Shown::new(id, Style::Plain, None), item);
        self.close_as(index, item.clone());
    }

    /// An item ends, unless it has.
    pub(super) fn close(&mut self, run: &RunFold, index: usize, outcome: &Outcome) -> Option<Value> {
        let shown = self.shown.get(index).filter(|shown| shown.done.is_none())?;
        let mut item = self.value(run, shown, outcome);
        // Nothing ends without saying how: what nobody ended was cut.
        if let Some(status) = item.get_mut("status").filter(|status| *status == "in_progress") {
            *status = "incomplete".into();
        }
        self.close_as(index, item.clone());
        Some(item)
    }

    pub(super) fn close_as(&mut self, index: usize, item: Value) {
        self.frame("response.output_item.done", json!({"output_index": index, "item": item}));
        if let Some(shown) = self.shown.get_mut(index) {
            shown.done = Some(item);
        }
    }

    /// The item that shows this place of the root's output, while it is open.
    pub(super) fn open(&self, place: u32) -> Option<usize> {
        self.shown.iter().rposition(|shown| shown.place == Some(place) && shown.done.is_none())
    }

    /// An item as it ended, or as it is so far.
    fn value(&self, run: &RunFold, shown: &Shown, outcome: &Outcome) -> Value {
        if let Some(done) = &shown.done {
            return done.clone();
        }
        let Some(fold) = shown.place.and_then(|place| fold_at(run, place)) else { return Value::Null };
        match &fold.item {
            Item::Reasoning(reasoning) => item::reasoning(reasoning, fold.done),
            Item::Message(message) => {
                item::message(message, fold.done, &self.references, |block| shown.logprobs(block))
            }
            Item::HostedCall(call) => hosted::value(call, fold.done),
            Item::ToolCall(call) => {
                let arguments = shown.arguments.as_deref().or(call.arguments.as_deref()).unwrap_or_default();
                if shown.style == Style::Mcp {
                    item::mcp(call, arguments, shown.approval.as_deref(), outcome)
                } else {
                    item::function(call, arguments, item::status(call.status, fold.done))
                }
            }
            Item::ToolResult(_) | Item::FileProcessing(_) => Value::Null,
        }
    }

    /// A frame about an item.
    pub(super) fn item_frame(&mut self, index: usize, kind: &str, mut more: Value) {
        let Some(shown) = self.shown.get(index) else { return };
        if let Some(more) = more.as_object_mut() {
            more.insert("item_id".to_owned(), shown.id.as_str().into());
            more.insert("output_index".to_owned(), index.into());
        }
        self.frame(kind, more);
    }

    fn frame(&mut self, kind: &str, mut data: Value) {
        if let Some(data) = data.as_object_mut() {
            data.insert("type".to_owned(), kind.into());
            data.insert("sequence_number".to_owned(), self.frames.into());
        }
        self.frames += 1;
        self.out.push(data);
    }
}

/// An item of the root's output.
pub(super) fn fold_at(run: &RunFold, place: u32) -> Option<&ItemFold> {
    run.root()?.items.get(place as usize)
}
