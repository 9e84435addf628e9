//! One segment of a run, part by part: each is opened, grows and is closed before the next one is opened.
//!
//! Only what the root says and thinks is told word by word. What the server does for it is told whole: a call when it
//! starts, with the arguments that it runs with, and its result when it ends. A call that the client answers is told when
//! the run waits for it, never before: one that was cut, or that had the wrong arguments, is none of the client's
//! business. So a sub-agent's call of a client's tool is told, too; else nothing of sub-agents is.
//!
//! Where a part's words are, is known by the fold: nothing is kept twice, and parts that overlap in the log wait their
//! turn without being collected.

use super::failure::{Failure, FailureKind};
use crate::reading::Reading;
use model::block::{Annotation, Block, TextBlock};
use model::event::{Event, LimitReason, PendingKind, PendingRequest, TaskPaused};
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::{CallKind, Item, ItemStatus, ResultStatus, ToolCall};
use model::usage::Usage;
use model::{CallId, Millis, Record, TaskId};
use serde_json::{Value, json};
use std::collections::HashSet;

/// A segment, as far as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Telling {
    run: TaskId,
    segment: u32,
    reading: Reading,
    /// The segment that the log is in.
    current: u32,
    began: Option<Millis>,
    /// What is told, in this order.
    parts: Vec<Shown>,
    /// The first of them that is not closed.
    next: usize,
    /// How many were opened.
    opened: u32,
    /// The server's calls that were told, in earlier segments, too.
    used: HashSet<CallId>,
    usage: Usage,
    end: Option<End>,
}

/// A part, and how much of it was told.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) part: Part,
    /// Its number among those that were opened.
    pub(crate) index: Option<u32>,
    bytes: usize,
    cited: usize,
}

/// Something that is told. Places are those in the root's output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    /// A part of what was thought.
    Thought { item: usize, part: usize },
    /// A text block of a message.
    Words { item: usize, block: usize },
    /// A picture in a message.
    Picture { item: usize, block: usize },
    /// A call that the client answers.
    Call { call_id: CallId, name: String, arguments: String },
    /// A call that the server answers.
    Used { id: String, name: String, arguments: String },
    /// What came of it.
    Given { item: usize },
}

/// One thing that is told next. Numbers are places among the parts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Told {
    /// The segment begins.
    Begun,
    /// A part begins.
    Opened(usize),
    /// More of it.
    Grew(usize, String),
    /// It refers to something.
    Cited(usize, Annotation),
    /// It is whole.
    Closed(usize),
    /// The segment ends.
    Over,
}

/// How a segment ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum End {
    /// All was said.
    Done,
    /// The model declined.
    Refused,
    /// It is the client's turn to run its tools.
    Calls,
    /// A limit.
    Length,
    /// The provider's filter.
    Filtered,
    /// It went wrong.
    Failed(Failure),
}

impl Telling {
    pub(crate) fn new(run: TaskId, segment: u32) -> Self {
        Self {
            run,
            segment,
            reading: Reading::default(),
            current: 1,
            began: None,
            parts: Vec::new(),
            next: 0,
            opened: 0,
            used: HashSet::new(),
            usage: Usage::default(),
            end: None,
        }
    }

    /// What a record has to tell.
    pub(crate) fn take(&mut self, record: &Record) -> Vec<Told> {
        let mut told = Vec::new();
        if record.run != self.run || self.end.is_some() {
            return told;
        }
        let had_begun = self.began.is_some();
        let mut reading = std::mem::take(&mut self.reading);
        reading.take(record, |fold, event| self.see(fold, event, record.at));
        if self.began.is_some() {
            if !had_begun {
                told.push(Told::Begun);
            }
            self.tell(reading.fold(), &mut told);
            if self.end.is_some() {
                told.push(Told::Over);
            }
        }
        self.reading = reading;
        told
    }

    pub(crate) fn run(&self) -> (&TaskId, u32) {
        (&self.run, self.segment)
    }

    /// The agent that was asked.
    pub(crate) fn model(&self) -> &str {
        self.reading.fold().root().map_or("", |root| root.spec.agent.as_str())
    }

    /// When it began.
    pub(crate) fn began(&self) -> Millis {
        self.began.unwrap_or_default()
    }

    /// What its turns cost, those of sub-agents included.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    pub(crate) fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        match &self.end {
            Some(End::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// A part, by its place.
    pub(crate) fn part(&self, place: usize) -> Option<&Shown> {
        self.parts.get(place)
    }

    /// What was told before this place.
    pub(crate) fn before(&self, place: usize) -> impl Iterator<Item = &Part> {
        let opened = self.parts.iter().take(place).filter(|shown| shown.index.is_some());
        opened.map(|shown| &shown.part)
    }

    /// Everything that was told.
    pub(crate) fn told(&self) -> impl Iterator<Item = &Part> {
        self.before(self.parts.len())
    }

    /// What was told and still counts: what a crash cut has been said anew.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Part> {
        let dropped = |place: usize| self.item(place).is_some_and(|item| item.superseded);
        self.told().filter(move |part| match part {
            Part::Thought { item, .. } | Part::Words { item, .. } | Part::Picture { item, .. } => !dropped(*item),
            Part::Call { .. } | Part::Used { .. } | Part::Given { .. } => true,
        })
    }

    fn item(&self, place: usize) -> Option<&ItemFold> {
        item(self.reading.fold(), place)
    }

    /// The text block that these words are.
    pub(crate) fn words(&self, part: &Part) -> Option<&TextBlock> {
        words(self.reading.fold(), part)
    }

    /// A part's text as far as it is: words, thoughts, arguments, or what stands for a picture or a result.
    pub(crate) fn text(&self, part: &Part) -> String {
        match part {
            Part::Thought { .. } | Part::Words { .. } => {
                growing(self.reading.fold(), part).map(|(text, _)| text.to_owned()).unwrap_or_default()
            }
            Part::Picture { item, block } => match self.item(*item).and_then(|fold| fold.item.blocks().get(*block)) {
                Some(Block::Image(image)) => image.image_url.placeholder(),
                _ => String::new(),
            },
            Part::Call { arguments, .. } | Part::Used { arguments, .. } => arguments.clone(),
            Part::Given { item } => self.item(*item).map(|fold| given(self.reading.fold(), fold)).unwrap_or_default(),
        }
    }

    /// The item that a part is of, where it has a name.
    pub(crate) fn item_id(&self, place: usize) -> &str {
        self.item(place).map_or("", |fold| fold.item.id().as_str())
    }

    /// Whose result this is, and whether it is what was hoped for.
    pub(crate) fn outcome(&self, place: usize) -> (String, bool) {
        match self.item(place).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => {
                (result.call_id.to_string(), result.status == Some(ResultStatus::Completed))
            }
            Some(Item::HostedCall(call)) => (call.id.to_string(), call.status == Some(ItemStatus::Completed)),
            _ => (String::new(), false),
        }
    }

    /// Where the words of the thread's references are.
    pub(crate) fn reference(&self, number: u32) -> String {
        let thread = self.reading.fold().root().map_or("", |root| root.spec.thread_id.as_str());
        format!("headwater:/threads/{thread}/references/{number}")
    }

    fn is_going(&self) -> bool {
        self.began.is_some() && self.end.is_none()
    }

    fn see(&mut self, fold: &RunFold, event: &Event, at: Millis) {
        let Some(root) = fold.root() else { return };
        if let Event::StepDone(done) = event
            && self.is_going()
        {
            self.usage.add(done.usage);
        }
        if event.task_id() == Some(&root.id) {
            self.see_root(fold, root, event, at);
        }
    }

    fn see_root(&mut self, fold: &RunFold, root: &TaskFold, event: &Event, at: Millis) {
        match event {
            Event::Created(_) | Event::Resumed(_) if self.current == self.segment => {
                self.began.get_or_insert(at);
            }
            Event::Paused(paused) => self.paused(fold, paused),
            Event::SummaryAdded(e) => {
                self.add(Part::Thought { item: e.output_index as usize, part: e.summary_index as usize });
            }
            Event::TextAdded(e) if is_message(root, e.output_index) => {
                self.add(Part::Words { item: e.output_index as usize, block: e.block_index as usize });
            }
            Event::ImageDone(e) if is_message(root, e.output_index) => {
                self.add(Part::Picture { item: e.output_index as usize, block: e.block_index as usize });
            }
            Event::ToolStarted(e) => self.used(root, &e.call_id, Some(&e.arguments)),
            Event::ItemDone(e) => self.done(root, e.output_index as usize),
            Event::Completed(_) => self.finish(if self.declined(fold) { End::Refused } else { End::Done }),
            Event::Incomplete(e) if e.reason == LimitReason::ContentFilter => self.finish(End::Filtered),
            Event::Incomplete(_) => self.finish(End::Length),
            Event::Failed(e) => self.finish(End::Failed(Failure::from(&e.error))),
            Event::Cancelled(_) => {
                let message = "The run was cancelled.".to_owned();
                self.finish(End::Failed(Failure { kind: FailureKind::Cancelled, message, may_retry: false }));
            }
            // Everything else either makes a part that is there already grow, or is not told.
            _ => {}
        }
    }

    /// A pause for the client's tools ends the segment; one for people alone does not.
    fn paused(&mut self, fold: &RunFold, paused: &TaskPaused) {
        let of_client: Vec<&PendingRequest> = client_calls(paused).collect();
        if of_client.is_empty() {
            return;
        }
        self.current = self.current.saturating_add(1);
        for pending in of_client {
            let Some((_, call)) = fold.task(&pending.task_id).and_then(|task| task.call(&pending.call_id)) else {
                continue;
            };
            let (call_id, name) = (call.call_id.clone(), call.name.clone());
            self.add(Part::Call { call_id, name, arguments: arguments(call) });
        }
        self.finish(End::Calls);
    }

    /// An item is whole: a result is told, and what a provider ran itself as a call and its result.
    fn done(&mut self, root: &TaskFold, place: usize) {
        match root.items.get(place).map(|fold| &fold.item) {
            Some(Item::ToolResult(result)) => {
                let is_clients = root.call(&result.call_id).is_none_or(|(_, call)| call.kind == Some(CallKind::Client));
                if !is_clients {
                    self.used(root, &result.call_id, None);
                    self.add(Part::Given { item: place });
                }
            }
            Some(Item::HostedCall(call)) => {
                let arguments = call.action.as_ref().filter(|action| action.is_object()).map(Value::to_string);
                let arguments = arguments.unwrap_or_else(|| "{}".to_owned());
                self.add(Part::Used { id: call.id.to_string(), name: call.name.clone(), arguments });
                self.add(Part::Given { item: place });
            }
            _ => {}
        }
    }

    /// A call that the server answers is told once, with the arguments that it runs with.
    fn used(&mut self, root: &TaskFold, call_id: &CallId, with: Option<&str>) {
        let Some((_, call)) = root.call(call_id).filter(|_| self.used.insert(call_id.clone())) else { return };
        let arguments = with.map_or_else(|| arguments(call), str::to_owned);
        self.add(Part::Used { id: call_id.to_string(), name: call.name.clone(), arguments });
    }

    fn add(&mut self, part: Part) {
        if self.is_going() {
            self.parts.push(Shown { part, index: None, bytes: 0, cited: 0 });
        }
    }

    fn finish(&mut self, end: End) {
        if self.is_going() {
            self.end = Some(end);
        }
    }

    /// Were the last words a refusal?
    fn declined(&self, fold: &RunFold) -> bool {
        let last = self.parts.iter().rev().find_map(|shown| words(fold, &shown.part));
        last.is_some_and(|block| block.refusal == Some(true))
    }

    /// Tells what there is to tell, until a part that is not whole.
    fn tell(&mut self, fold: &RunFold, told: &mut Vec<Told>) {
        while let Some(shown) = self.parts.get_mut(self.next) {
            let place = self.next;
            let (text, is_whole) = match &shown.part {
                Part::Picture { .. } | Part::Call { .. } | Part::Used { .. } | Part::Given { .. } => ("", true),
                part => growing(fold, part).unwrap_or(("", true)),
            };
            let may_be_empty = !matches!(shown.part, Part::Thought { .. } | Part::Words { .. });
            if shown.index.is_none() && (may_be_empty || !text.is_empty()) {
                shown.index = Some(self.opened);
                self.opened = self.opened.saturating_add(1);
                told.push(Told::Opened(place));
            }
            if let Some(more) = text.get(shown.bytes..).filter(|more| !more.is_empty()) {
                told.push(Told::Grew(place, more.to_owned()));
                shown.bytes = text.len();
            }
            if shown.index.is_some() {
                let cited = words(fold, &shown.part).and_then(|block| block.annotations.as_deref()).unwrap_or_default();
                told.extend(cited.iter().skip(shown.cited).map(|cited| Told::Cited(place, cited.clone())));
                shown.cited = shown.cited.max(cited.len());
            }
            if !is_whole && self.end.is_none() {
                return;
            }
            if shown.index.is_some() {
                told.push(Told::Closed(place));
            }
            self.next = self.next.saturating_add(1);
        }
    }
}

/// The calls of a client's tools that a pause waits for.
fn client_calls(paused: &TaskPaused) -> impl Iterator<Item = &PendingRequest> {
    paused.pending.iter().filter(|pending| pending.kind == PendingKind::ClientTool)
}

fn item(fold: &RunFold, place: usize) -> Option<&ItemFold> {
    fold.root()?.items.get(place)
}

fn is_message(root: &TaskFold, output_index: u32) -> bool {
    root.items.get(output_index as usize).is_some_and(|fold| matches!(fold.item, Item::Message(_)))
}

fn words<'a>(fold: &'a RunFold, part: &Part) -> Option<&'a TextBlock> {
    let Part::Words { item: place, block } = part else { return None };
    match item(fold, *place)?.item.blocks().get(*block)? {
        Block::Text(block) => Some(block),
        _ => None,
    }
}

/// The text of a part that grows, as far as it is, and whether that is all of it.
fn growing<'a>(fold: &'a RunFold, part: &Part) -> Option<(&'a str, bool)> {
    let (place, inner) = match part {
        Part::Thought { item, part } => (*item, *part),
        Part::Words { item, block } => (*item, *block),
        Part::Picture { .. } | Part::Call { .. } | Part::Used { .. } | Part::Given { .. } => return None,
    };
    let item = item(fold, place)?;
    let text = match &item.item {
        Item::Reasoning(reasoning) => reasoning.summary.as_deref()?.get(inner)?.text(),
        _ => words(fold, part)?.text(),
    };
    let is_open = !item.done && item.open_parts.iter().any(|open| *open as usize == inner);
    Some((text, !is_open))
}

/// A call's arguments; none are an empty object.
fn arguments(call: &ToolCall) -> String {
    let arguments = call.arguments.as_deref().filter(|arguments| !arguments.trim().is_empty());
    arguments.unwrap_or("{}").to_owned()
}

/// Arguments as the object that they have to be.
pub(crate) fn input(arguments: &str) -> Value {
    model::json::parse_lenient_json(arguments).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// What a call gave, in words: of a sub-agent, the last that it said.
fn given(fold: &RunFold, item: &ItemFold) -> String {
    let mut text = shown(item.item.blocks());
    if let Item::ToolResult(result) = &item.item {
        if let Some(child) = fold.task(&result.call_id.child_task_id()) {
            text = last_words(child);
        }
        // The reader must learn something: if nothing else, what went wrong.
        if let Some(error) = result.error.as_ref().filter(|_| text.trim().is_empty()) {
            text.clone_from(&error.message);
        }
    }
    text
}

fn last_words(task: &TaskFold) -> String {
    let said = task.items.iter().rev().filter(|fold| !fold.superseded).find_map(|fold| match &fold.item {
        Item::Message(message) => Some(message.text()),
        _ => None,
    });
    said.unwrap_or_default()
}

/// Blocks in words.
fn shown(blocks: &[Block]) -> String {
    let named = blocks.iter().filter_map(|block| match block {
        Block::Text(block) => Some(block.text().to_owned()),
        Block::Image(image) => Some(image.image_url.placeholder()),
        _ => None,
    });
    named.collect::<Vec<_>>().join("\n")
}

/// Does an answer end here, and the next one begin when the run goes on? A pause for the client's tools is such a place,
/// one for people alone is not.
#[must_use]
pub fn is_handed_over(event: &Event) -> bool {
    matches!(event, Event::Paused(paused) if client_calls(paused).next().is_some())
}
