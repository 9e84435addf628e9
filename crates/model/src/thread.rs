//! What outlives a run, and what the model is given of it.
//!
//! [`ThreadFold`] is what a thread keeps between runs; [`Replay`] builds it from records, with or without a checkpoint.
//! The model is given the items of whole steps and every result; of steps that a cancel, a failure or a limit ended, the
//! text alone; of attempts that were done again, nothing. So no call is ever without its result (law 12). Of a file that
//! was read it is given the content.

use crate::block::{Block, Part};
use crate::definition::HistoryWindow;
use crate::event::{Event, HistoryCompacted, StopReason};
use crate::fold::{ItemFold, RunFold, TaskFold};
use crate::history::Entry;
use crate::id::{CallId, TaskId};
use crate::item::{Item, ResultStatus};
use crate::record::{FORMAT, Record};
use crate::reference;
use crate::seq::{Millis, Seq};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;

/// What outlives a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadFold {
    /// The format of the version that wrote it: a later one may know more than this one reads.
    #[serde(default)]
    pub v: u16,
    /// The last record in here.
    pub seq: Seq,
    /// Its moment: the next run's records are not before it, whatever the clock does.
    #[serde(default)]
    pub at: Millis,
    /// What the model is given of each run, oldest first.
    pub runs: Vec<PastRun>,
    /// How many reference groups there are: numbers 1 to this are in the pool.
    pub references: u32,
    /// The agent that the last run ended with.
    pub agent: Option<String>,
    /// The shared state.
    pub state: Value,
    /// What the thread cost so far.
    pub usage: Usage,
    /// What was summed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<Compacted>,
    /// Records that did not fit. A thread with any is not executed further.
    pub misfits: u32,
}

/// What the model is given instead of runs long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compacted {
    /// The last run in it; those before it in its chain are in it, too.
    pub run: TaskId,
    /// The summary.
    pub summary: String,
}

/// What the model is given of a run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastRun {
    /// The run.
    pub run: TaskId,
    /// The run after which it went on.
    pub previous: Option<TaskId>,
    /// Its last record.
    #[serde(default)]
    pub last: Seq,
    /// What was said and done.
    pub entries: Vec<Entry>,
}

impl ThreadFold {
    /// A run that begins after everything in here: it goes on with the shared state.
    #[must_use]
    pub fn next_run(&self) -> RunFold {
        let state = Some(self.state.clone()).filter(|state| !state.is_null());
        RunFold { seq: self.seq, at: self.at, state, ..RunFold::default() }
    }

    /// Takes in a run that ended.
    pub fn absorb(&mut self, run: &RunFold) {
        self.v = FORMAT;
        self.seq = run.seq;
        self.at = self.at.max(run.at);
        self.misfits = self.misfits.saturating_add(run.misfits);
        self.references = self.references.max(run.references);
        if let Some(state) = &run.state {
            self.state = state.clone();
        }
        let Some(root) = run.root() else { return };
        self.usage.add(run.usage(root));
        self.agent = Some(root.agent.clone());
        let previous = root.spec.previous.clone().or_else(|| self.runs.last().map(|past| past.run.clone()));
        self.runs.push(PastRun { run: root.id.clone(), previous, last: run.seq, entries: with_before(root) });
    }

    /// What the model is given of the chain of runs that ends with `previous`, or with the last one.
    #[must_use]
    pub fn history(&self, previous: Option<&TaskId>, window: HistoryWindow) -> Vec<Entry> {
        let chain = self.chain(previous);
        let summed = self.compacted.as_ref();
        let summed = summed.and_then(|sum| Some((chain.iter().position(|past| past.run == sum.run)?, sum)));
        let whole = chain.get(summed.map_or(0, |(place, _)| place + 1)..).unwrap_or_default();
        let kept = windowed(whole, window);
        // Whoever wants less than there is does not want the summary of what came before it.
        let summary = summed.filter(|_| kept.len() == whole.len());
        let summary = summary.map(|(_, sum)| Entry::Summary { text: sum.summary.clone() });
        summary.into_iter().chain(kept.iter().flat_map(|past| past.entries.iter().cloned())).collect()
    }

    /// The runs that lead to `previous`, or to the last one, oldest first.
    #[must_use]
    pub fn chain(&self, previous: Option<&TaskId>) -> Vec<&PastRun> {
        let mut chain: Vec<&PastRun> = Vec::new();
        // A run that was given up before it began has left nothing to go on from: what was there before is gone on from.
        let begun: HashSet<&TaskId> = self.runs.iter().map(|past| &past.run).collect();
        let mut wanted = previous.filter(|run| begun.contains(run)).or_else(|| self.runs.last().map(|past| &past.run));
        // Newest first: a run's `previous` always stands before it, so one pass finds the whole chain.
        for (place, past) in self.runs.iter().enumerate().rev() {
            if wanted == Some(&past.run) {
                let before = place.checked_sub(1).and_then(|place| self.runs.get(place)).map(|past| &past.run);
                wanted = past.previous.as_ref().and_then(|run| begun.get(run).copied().or(before));
                chain.push(past);
            }
        }
        chain.reverse();
        chain
    }

    /// Takes in a summary.
    pub fn compact(&mut self, e: &HistoryCompacted) {
        let run = self.runs.iter().rev().find(|past| past.last <= e.up_to).map(|past| past.run.clone());
        self.compacted = run.map(|run| Compacted { run, summary: e.summary.clone() }).or(self.compacted.take());
    }
}

/// What the model is given of a run, after what was said before it elsewhere.
fn with_before(root: &TaskFold) -> Vec<Entry> {
    let before = root.before.as_ref().map_or(&[][..], |before| &before.entries);
    root.past_as_read(before).into_iter().chain(entries(root)).collect()
}

/// The newest runs that fit.
fn windowed<'a, 'b>(chain: &'b [&'a PastRun], window: HistoryWindow) -> &'b [&'a PastRun] {
    let turns = window.turns.unwrap_or(usize::MAX);
    let mut left = window.tokens.unwrap_or(u64::MAX);
    let fits = |past: &&&PastRun| {
        let tokens = tokens(&past.entries);
        let fits = tokens <= left;
        left = left.saturating_sub(tokens);
        fits
    };
    let kept = chain.iter().rev().take(turns).take_while(fits).count();
    chain.get(chain.len() - kept..).unwrap_or_default()
}

/// A model sees about as much in a picture as in so many letters.
const PICTURE_LETTERS: u64 = 4_000;
/// Nobody is given more than this of a file's words.
const FILE_LETTERS_MAX: u64 = 1024 * 1024;

/// About how many tokens a model reads here: a quarter of the letters. Providers count differently, and none of them is
/// asked before it is known what it will be given.
#[must_use]
pub fn tokens(entries: &[Entry]) -> u64 {
    let written = |entry: &Entry| serde_json::to_vec(entry).map_or(0, |bytes| bytes.len()) as u64;
    let elsewhere = |entry: &Entry| entry.parts().iter().map(letters_elsewhere).sum::<u64>();
    entries.iter().map(|entry| written(entry) + elsewhere(entry)).sum::<u64>() / 4
}

/// What a model reads of something of which an entry only says where it is.
fn letters_elsewhere(part: &Part) -> u64 {
    match part {
        Part::Text { .. } => 0,
        Part::ImageUrl { image_url, .. } if image_url.url.starts_with("data:") => 0,
        Part::ImageUrl { .. } => PICTURE_LETTERS,
        Part::File { file } => file.size.unwrap_or_default().min(FILE_LETTERS_MAX),
    }
}

/// Builds a thread's state from its records.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// What outlives the runs seen so far.
    pub thread: ThreadFold,
    /// The run that has not ended, if there is one.
    pub run: Option<RunFold>,
}

impl Replay {
    /// Goes on from a checkpoint; from nothing when it cannot be read, for it is only a cache, and when a later version
    /// wrote it: its records say the same, and that they are too new.
    #[must_use]
    pub fn from_checkpoint(body: Option<&str>) -> Self {
        let read = body.and_then(|body| serde_json::from_str::<ThreadFold>(body).ok());
        let thread = read.filter(|thread| thread.v <= FORMAT).unwrap_or_default();
        Self { thread, run: None }
    }

    /// Takes in the next record.
    pub fn push(&mut self, record: &Record) {
        let begins = matches!(record.event(), Event::Created(e) if e.task.parent_task_id.is_none());
        if self.run.is_none() && !begins {
            self.thread.seq = record.seq;
            self.thread.at = self.thread.at.max(record.at);
            // Between runs only `thread.*` has a place, as far as this version knows it.
            match record.event() {
                Event::HistoryCompacted(e) => self.thread.compact(e),
                Event::RunHidden(_) => {}
                _ => self.thread.misfits = self.thread.misfits.saturating_add(1),
            }
            return;
        }
        let run = self.run.get_or_insert_with(|| self.thread.next_run());
        // A misfit is counted by the fold itself.
        let _counted = run.apply(record);
        if run.is_over() {
            self.thread.absorb(run);
            self.run = None;
        }
    }
}

/// What the model is given of a task.
#[must_use]
pub fn entries(task: &TaskFold) -> Vec<Entry> {
    entries_until(task, task.steps.len()).0
}

/// The same in two parts: what was said and done until so many attempts had begun, and what came after.
#[must_use]
pub fn entries_until(task: &TaskFold, attempts: usize) -> (Vec<Entry>, Vec<Entry>) {
    let mut before: Vec<Entry> =
        task.spec.input.iter().map(|message| Entry::User { content: task.as_read(&message.content) }).collect();
    before.extend(said_after(task, 0));
    before.extend(attempts_of(task, 0, attempts));
    (before, attempts_of(task, attempts, task.steps.len()))
}

fn attempts_of(task: &TaskFold, from: usize, to: usize) -> Vec<Entry> {
    let mut out = Vec::new();
    for (place, step) in task.steps.iter().enumerate().take(to).skip(from) {
        let items = task.items.iter().filter(|fold| fold.step == Some(place) && !fold.dropped);
        let mut calls: Vec<CallId> = Vec::new();
        for fold in items {
            push_item(&mut out, &mut calls, fold, step.end);
        }
        out.extend(calls.iter().filter_map(|call| result_of(task, call)));
        out.extend(said_after(task, place + 1));
    }
    out
}

/// What was said while this many attempts had begun: the turn after them reads it.
fn said_after(task: &TaskFold, attempts: usize) -> impl Iterator<Item = Entry> {
    let said = task.inputs.iter().filter(move |input| input.after_steps == attempts);
    said.map(|input| Entry::User { content: task.as_read(&input.message.content) })
}

fn push_item(out: &mut Vec<Entry>, calls: &mut Vec<CallId>, fold: &ItemFold, end: Option<StopReason>) {
    let whole = end.is_some_and(StopReason::is_whole);
    let pictures =
        || Some(drawn(&fold.item)).filter(|content| !content.is_empty()).map(|content| Entry::Drawn { content });
    match &fold.item {
        Item::Reasoning(item) if whole => {
            out.extend(fold.raw.clone().map(|raw| Entry::Reasoning { id: item.id.clone(), raw }));
        }
        Item::Message(item) => {
            let text = item.text();
            // Providers refuse empty messages, and blank ones.
            if !text.trim().is_empty() {
                out.push(Entry::Assistant { id: item.id.clone(), text, raw: fold.raw.clone().filter(|_| whole) });
            }
            out.extend(pictures());
        }
        Item::ToolCall(call) if whole && fold.arguments_whole => {
            calls.push(call.call_id.clone());
            out.push(Entry::Call {
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone().unwrap_or_default(),
                provider_call_id: fold.provider_call_id.clone(),
                raw: fold.raw.clone(),
            });
        }
        Item::HostedCall(item) if whole => {
            let (id, name) = (item.id.clone(), item.name.clone());
            out.extend(fold.raw.clone().map(|raw| Entry::Hosted { id, name, raw }).or_else(pictures));
        }
        Item::Reasoning(_)
        | Item::ToolCall(_)
        | Item::ToolResult(_)
        | Item::HostedCall(_)
        | Item::FileProcessing(_) => {}
    }
}

/// The pictures in what a model said or had drawn: those of a message, and the last one of a tool of its service, of which
/// each is sharper than the one before.
#[must_use]
pub fn drawn(item: &Item) -> Vec<Part> {
    let blocks = match item {
        Item::Message(_) => item.blocks(),
        Item::HostedCall(_) => item.blocks().last().map_or(&[][..], std::slice::from_ref),
        Item::Reasoning(_) | Item::ToolCall(_) | Item::ToolResult(_) | Item::FileProcessing(_) => &[],
    };
    let pictures = blocks.iter().filter_map(|block| match block {
        Block::Image(image) if !image.image_url.url.is_empty() => {
            Some(Part::ImageUrl { image_url: image.image_url.clone(), id: None })
        }
        _ => None,
    });
    pictures.collect()
}

/// The result of a call; while there is none, the model is not asked.
fn result_of(task: &TaskFold, call_id: &CallId) -> Option<Entry> {
    let (_, fold) = task.result(call_id)?;
    let Item::ToolResult(result) = &fold.item else { return None };
    let status = result.status.unwrap_or(ResultStatus::Completed);
    // What would not fit a record's private half is read from the blocks again.
    let content = fold.content.clone().unwrap_or_else(|| reference::wrap(reference::parts_of(fold.item.blocks())));
    Some(Entry::Result { call_id: call_id.clone(), status, content })
}
