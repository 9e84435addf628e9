//! What outlives a run, and what the model is given of it.
//!
//! [`ThreadFold`] is what a thread keeps between runs; [`Replay`] builds it from records, with or without a checkpoint.
//! The model is given the items of whole steps and every result; of steps that a cancel, a failure or a limit ended, the
//! text alone; of attempts that were done again, nothing. So no call is ever without its result (law 12). Of a file that
//! was read it is given the content.

use crate::content::ContentPart;
use crate::definition::HistoryWindow;
use crate::event::{Event, HistoryCompacted, StopReason};
use crate::fold::{ItemFold, RunFold, TaskFold};
use crate::history::HistoryEntry;
use crate::id::{CallId, TaskId};
use crate::item::Block;
use crate::item::{Item, ResultStatus};
use crate::record::{RECORD_FORMAT, Record};
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
    #[serde(rename = "v")]
    pub format: u16,
    /// The last record in here.
    pub seq: Seq,
    /// Its moment: the next run's records are not before it, whatever the clock does.
    #[serde(default)]
    pub at: Millis,
    /// What the model is given of each run, oldest first.
    pub runs: Vec<PastRun>,
    /// How many reference groups there are: numbers 1 to this are in the pool.
    #[serde(rename = "references")]
    pub reference_count: u32,
    /// The agent that the last run ended with.
    pub agent: Option<String>,
    /// The shared state.
    pub state: Value,
    /// What the thread cost so far.
    pub usage: Usage,
    /// What was summed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<CompactedHistory>,
    /// Records that did not fit. A thread with any is not executed further.
    #[serde(rename = "misfits")]
    pub fold_errors: u32,
}

/// What the model is given instead of runs long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedHistory {
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
    #[serde(rename = "last")]
    pub last_seq: Seq,
    /// What was said and done.
    pub entries: Vec<HistoryEntry>,
}

impl ThreadFold {
    /// A run that begins after everything in here: it goes on with the shared state.
    #[must_use]
    pub fn new_run_fold(&self) -> RunFold {
        let state = Some(self.state.clone()).filter(|state| !state.is_null());
        RunFold { seq: self.seq, at: self.at, state, ..RunFold::default() }
    }

    /// Takes in a run that ended.
    pub fn add_finished_run(&mut self, run: &RunFold) {
        self.format = RECORD_FORMAT;
        self.seq = run.seq;
        self.at = self.at.max(run.at);
        self.fold_errors = self.fold_errors.saturating_add(run.fold_errors);
        self.reference_count = self.reference_count.max(run.reference_count);
        if let Some(state) = &run.state {
            self.state = state.clone();
        }
        let Some(root) = run.root() else { return };
        self.usage.add(run.total_usage(root));
        self.agent = Some(root.agent.clone());
        let previous = root.spec.previous.clone().or_else(|| self.runs.last().map(|past| past.run.clone()));
        self.runs.push(PastRun {
            run: root.id.clone(),
            previous,
            last_seq: run.seq,
            entries: entries_with_prior_history(root),
        });
    }

    /// What the model is given of the chain of runs that ends with `previous`, or with the last one.
    #[must_use]
    pub fn history(&self, previous: Option<&TaskId>, window: HistoryWindow) -> Vec<HistoryEntry> {
        let chain = self.run_chain(previous);
        let summed = self.compacted.as_ref();
        let summed = summed.and_then(|sum| Some((chain.iter().position(|past| past.run == sum.run)?, sum)));
        let whole = chain.get(summed.map_or(0, |(place, _)| place + 1)..).unwrap_or_default();
        let kept = apply_history_window(whole, window);
        // Whoever wants less than there is does not want the summary of what came before it.
        let summary = summed.filter(|_| kept.len() == whole.len());
        let summary = summary.map(|(_, sum)| HistoryEntry::Summary { text: sum.summary.clone() });
        summary.into_iter().chain(kept.iter().flat_map(|past| past.entries.iter().cloned())).collect()
    }

    /// The runs that lead to `previous`, or to the last one, oldest first.
    #[must_use]
    pub fn run_chain(&self, previous: Option<&TaskId>) -> Vec<&PastRun> {
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
    pub fn apply_compaction(&mut self, e: &HistoryCompacted) {
        let run = self.runs.iter().rev().find(|past| past.last_seq <= e.up_to).map(|past| past.run.clone());
        self.compacted = run.map(|run| CompactedHistory { run, summary: e.summary.clone() }).or(self.compacted.take());
    }
}

/// What the model is given of a run, after what was said before it elsewhere.
fn entries_with_prior_history(root: &TaskFold) -> Vec<HistoryEntry> {
    let before = root.prior_history.as_ref().map_or(&[][..], |before| &before.entries);
    root.entries_with_file_contents(before).into_iter().chain(history_entries(root)).collect()
}

/// The newest runs that fit.
fn apply_history_window<'a, 'b>(chain: &'b [&'a PastRun], window: HistoryWindow) -> &'b [&'a PastRun] {
    let turns = window.turns.unwrap_or(usize::MAX);
    let mut left = window.tokens.unwrap_or(u64::MAX);
    let fits = |past: &&&PastRun| {
        let tokens = estimate_tokens(&past.entries);
        let fits = tokens <= left;
        left = left.saturating_sub(tokens);
        fits
    };
    let kept = chain.iter().rev().take(turns).take_while(fits).count();
    chain.get(chain.len() - kept..).unwrap_or_default()
}

/// A model sees about as much in a picture as in so many letters.
const IMAGE_CHARS_ESTIMATE: u64 = 4_000;
/// Nobody is given more than this of a file's words.
const FILE_CHARS_MAX: u64 = 1024 * 1024;

/// About how many tokens a model reads here: a quarter of the letters. Providers count differently, and none of them is
/// asked before it is known what it will be given.
#[must_use]
pub fn estimate_tokens(entries: &[HistoryEntry]) -> u64 {
    let written = |entry: &HistoryEntry| serde_json::to_vec(entry).map_or(0, |bytes| bytes.len()) as u64;
    let elsewhere = |entry: &HistoryEntry| entry.parts().iter().map(estimate_external_chars).sum::<u64>();
    entries.iter().map(|entry| written(entry) + elsewhere(entry)).sum::<u64>() / 4
}

/// What a model reads of something of which an entry only says where it is.
fn estimate_external_chars(part: &ContentPart) -> u64 {
    match part {
        ContentPart::Text { .. } => 0,
        ContentPart::ImageUrl { image_url, .. } if image_url.url.starts_with("data:") => 0,
        ContentPart::ImageUrl { .. } => IMAGE_CHARS_ESTIMATE,
        ContentPart::File { file } => file.size.unwrap_or_default().min(FILE_CHARS_MAX),
    }
}

/// Builds a thread's state from its records.
#[derive(Clone, Debug, Default)]
pub struct ThreadReplay {
    /// What outlives the runs seen so far.
    pub thread: ThreadFold,
    /// The run that has not ended, if there is one.
    pub run: Option<RunFold>,
}

impl ThreadReplay {
    /// Goes on from a checkpoint; from nothing when it cannot be read, for it is only a cache, and when a later version
    /// wrote it: its records say the same, and that they are too new.
    #[must_use]
    pub fn from_checkpoint(body: Option<&str>) -> Self {
        let read = body.and_then(|body| serde_json::from_str::<ThreadFold>(body).ok());
        let thread = read.filter(|thread| thread.format <= RECORD_FORMAT).unwrap_or_default();
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
                Event::HistoryCompacted(e) => self.thread.apply_compaction(e),
                Event::RunHidden(_) => {}
                _ => self.thread.fold_errors = self.thread.fold_errors.saturating_add(1),
            }
            return;
        }
        let run = self.run.get_or_insert_with(|| self.thread.new_run_fold());
        // A misfit is counted by the fold itself.
        let _counted = run.apply(record);
        if run.has_ended() {
            self.thread.add_finished_run(run);
            self.run = None;
        }
    }
}

/// What the model is given of a task.
#[must_use]
pub fn history_entries(task: &TaskFold) -> Vec<HistoryEntry> {
    split_history_entries(task, task.steps.len()).0
}

/// The same in two parts: what was said and done until so many attempts had begun, and what came after.
#[must_use]
pub fn split_history_entries(task: &TaskFold, attempts: usize) -> (Vec<HistoryEntry>, Vec<HistoryEntry>) {
    let mut before: Vec<HistoryEntry> = task
        .spec
        .input
        .iter()
        .map(|message| HistoryEntry::User { content: task.with_file_contents(&message.content) })
        .collect();
    before.extend(inputs_after_steps(task, 0));
    before.extend(entries_of_steps(task, 0, attempts));
    (before, entries_of_steps(task, attempts, task.steps.len()))
}

fn entries_of_steps(task: &TaskFold, from: usize, to: usize) -> Vec<HistoryEntry> {
    let mut out = Vec::new();
    for (place, step) in task.steps.iter().enumerate().take(to).skip(from) {
        let items = task.items.iter().filter(|fold| fold.step_index == Some(place) && !fold.superseded);
        let mut calls: Vec<CallId> = Vec::new();
        for fold in items {
            push_item_entries(&mut out, &mut calls, fold, step.stop_reason);
        }
        out.extend(calls.iter().filter_map(|call| result_entry(task, call)));
        out.extend(inputs_after_steps(task, place + 1));
    }
    out
}

/// What was said while this many attempts had begun: the turn after them reads it.
fn inputs_after_steps(task: &TaskFold, attempts: usize) -> impl Iterator<Item = HistoryEntry> {
    let said = task.inputs.iter().filter(move |input| input.after_steps == attempts);
    said.map(|input| HistoryEntry::User { content: task.with_file_contents(&input.message.content) })
}

fn push_item_entries(out: &mut Vec<HistoryEntry>, calls: &mut Vec<CallId>, fold: &ItemFold, end: Option<StopReason>) {
    let whole = end.is_some_and(StopReason::is_complete);
    let pictures = || {
        Some(generated_images(&fold.item))
            .filter(|content| !content.is_empty())
            .map(|content| HistoryEntry::GeneratedImages { content })
    };
    match &fold.item {
        Item::Reasoning(item) if whole => {
            out.extend(fold.raw.clone().map(|raw| HistoryEntry::Reasoning { id: item.id.clone(), raw }));
        }
        Item::Message(item) => {
            let text = item.text();
            // Providers refuse empty messages, and blank ones.
            if !text.trim().is_empty() {
                out.push(HistoryEntry::Assistant {
                    id: item.id.clone(),
                    text,
                    raw: fold.raw.clone().filter(|_| whole),
                });
            }
            out.extend(pictures());
        }
        Item::ToolCall(call) if whole && fold.arguments_complete => {
            calls.push(call.call_id.clone());
            out.push(HistoryEntry::Call {
                call_id: call.call_id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone().unwrap_or_default(),
                provider_call_id: fold.provider_call_id.clone(),
                raw: fold.raw.clone(),
            });
        }
        Item::HostedCall(item) if whole => {
            let (id, name) = (item.id.clone(), item.name.clone());
            out.extend(fold.raw.clone().map(|raw| HistoryEntry::Hosted { id, name, raw }).or_else(pictures));
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
pub fn generated_images(item: &Item) -> Vec<ContentPart> {
    let blocks = match item {
        Item::Message(_) => item.blocks(),
        Item::HostedCall(_) => item.blocks().last().map_or(&[][..], std::slice::from_ref),
        Item::Reasoning(_) | Item::ToolCall(_) | Item::ToolResult(_) | Item::FileProcessing(_) => &[],
    };
    let pictures = blocks.iter().filter_map(|block| match block {
        Block::Image(image) if !image.image_url.url.is_empty() => {
            Some(ContentPart::ImageUrl { image_url: image.image_url.clone(), id: None })
        }
        _ => None,
    });
    pictures.collect()
}

/// The result of a call; while there is none, the model is not asked.
fn result_entry(task: &TaskFold, call_id: &CallId) -> Option<HistoryEntry> {
    let (_, fold) = task.result(call_id)?;
    let Item::ToolResult(result) = &fold.item else { return None };
    let status = result.status.unwrap_or(ResultStatus::Completed);
    // What would not fit a record's private half is read from the blocks again.
    let content = fold
        .content
        .clone()
        .unwrap_or_else(|| reference::wrap_reference_groups(reference::blocks_to_parts(fold.item.blocks())));
    Some(HistoryEntry::Result { call_id: call_id.clone(), status, content })
}
