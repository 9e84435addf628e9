//! The state that outlives a run.
//!
//! [`ThreadFold`] is what a thread keeps between runs; [`ThreadReplay`] builds it from records, with or without a
//! checkpoint. `history` builds what the model reads of each run; `checkpoint` is how a thread is stored.

mod checkpoint;
mod history;

pub use history::{estimate_tokens, generated_images, history_entries, split_history_entries};

use crate::definition::{HistoryWindow, mcp_list_digest};
use crate::event::{Event, HistoryCompacted};
use crate::fold::{ItemFold, RunFold};
use crate::history::{HistoryCache, HistoryEntry};
use crate::id::TaskId;
use crate::record::{RECORD_FORMAT, Record};
use crate::seq::{Millis, Seq};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// What a thread keeps between runs. Stored as its checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadFold {
    /// The record format of the version that wrote the checkpoint.
    #[serde(default, rename = "v")]
    pub format: u16,
    /// The last record that was folded.
    pub seq: Seq,
    /// The time of that record. Later records never carry an earlier one, even if the clock goes back.
    #[serde(default)]
    pub at: Millis,
    /// Oldest first. They never change, so copies of the fold share them. A checkpoint stores each in a row of its own;
    /// those of older versions have them here.
    #[serde(default, skip_serializing)]
    pub runs: Vec<Arc<PastRun>>,
    /// Reference groups are numbered from 1 to this.
    #[serde(rename = "references")]
    pub reference_count: u32,
    /// The agent that was active when the last run ended.
    pub agent: Option<String>,
    pub state: Value,
    pub usage: Usage,
    /// The digests of the lists of MCP tools that its items show last, by the server's label.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp_lists: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compacted: Option<CompactedHistory>,
    /// Records that could not be applied. A thread with any is not executed further.
    #[serde(rename = "misfits")]
    pub fold_errors: u32,
    /// What the next turn has in common with the last one.
    #[serde(skip)]
    pub history_cache: HistoryCache,
}

/// The summary that replaces older runs in the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedHistory {
    /// The last run that the summary covers, with all runs before it in its chain.
    pub run: TaskId,
    pub summary: String,
}

/// A finished run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastRun {
    pub run: TaskId,
    /// The run that it continued.
    pub previous: Option<TaskId>,
    #[serde(default, rename = "last")]
    pub last_seq: Seq,
    /// What the model reads of it. Later turns share them.
    pub entries: Vec<Arc<HistoryEntry>>,
}

impl ThreadFold {
    /// An empty run that follows the records folded so far and inherits the shared state.
    pub fn new_run_fold(&self) -> RunFold {
        let state = Some(self.state.clone()).filter(|state| !state.is_null());
        RunFold { seq: self.seq, at: self.at, state, ..RunFold::default() }
    }

    pub fn add_finished_run(&mut self, run: &RunFold) {
        self.format = RECORD_FORMAT;
        self.seq = run.seq;
        self.at = self.at.max(run.at);
        self.fold_errors = self.fold_errors.saturating_add(run.fold_errors);
        self.reference_count = self.reference_count.max(run.reference_count);
        if let Some(state) = &run.state {
            self.state = state.clone();
        }
        self.note_mcp_lists(run);
        let Some(root) = run.root() else { return };
        self.usage.add(run.total_usage(root));
        self.agent = Some(root.agent.clone());
        let previous = root.spec.previous.clone().or_else(|| self.runs.last().map(|past| past.run.clone()));
        let entries = history::entries_with_prior_history(root).into_iter().map(Arc::new).collect();
        self.push_run(PastRun { run: root.id.clone(), previous, last_seq: run.seq, entries });
    }

    fn push_run(&mut self, mut run: PastRun) {
        // The same id, not an equal one: a long chain of runs is then followed without a look at their texts.
        if let Some(last) = self.runs.last().filter(|last| run.previous.as_ref() == Some(&last.run)) {
            run.previous = Some(last.run.clone());
        }
        self.runs.push(Arc::new(run));
    }

    /// A server that did not answer is listed anew when it does.
    fn note_mcp_lists(&mut self, run: &RunFold) {
        for (label, call) in run.tasks.iter().flat_map(|task| &task.items).filter_map(ItemFold::mcp_list) {
            match (&call.action, call.has_failed()) {
                (Some(action), false) => drop(self.mcp_lists.insert(label.to_owned(), mcp_list_digest(action))),
                _ => drop(self.mcp_lists.remove(label)),
            }
        }
    }

    /// The history of the chain of runs that ends with `previous`, or with the last run.
    pub fn history(&self, previous: Option<&TaskId>, window: HistoryWindow) -> Vec<Arc<HistoryEntry>> {
        self.list_history(Vec::new(), previous, window)
    }

    /// The same for a turn. It goes on from the list of the last turn, and its own comes back to [`ThreadFold::history_cache`]: to
    /// share thousands of entries again takes longer than to compare their addresses.
    pub fn turn_history(&self, previous: Option<&TaskId>, window: HistoryWindow) -> Vec<Arc<HistoryEntry>> {
        self.list_history(self.history_cache.take_entries(), previous, window)
    }

    /// Changes a list of entries to that of a history.
    fn list_history(
        &self,
        mut entries: Vec<Arc<HistoryEntry>>,
        previous: Option<&TaskId>,
        window: HistoryWindow,
    ) -> Vec<Arc<HistoryEntry>> {
        let chain = self.run_chain(previous);
        let compacted = self.compacted.as_ref();
        let compacted = compacted.and_then(|sum| Some((chain.iter().position(|past| past.run == sum.run)?, sum)));
        let recent = chain.get(compacted.map_or(0, |(index, _)| index + 1)..).unwrap_or_default();
        let kept = apply_history_window(recent, window);
        // A window that drops recent runs also drops the summary of the older ones.
        let summary = compacted.filter(|_| kept.len() == recent.len());
        let summary = summary.map(|(_, sum)| Arc::new(HistoryEntry::Summary { text: sum.summary.clone() }));
        let listed = || summary.iter().chain(kept.iter().flat_map(|past| &past.entries));
        let same = entries.iter().zip(listed()).take_while(|(old, new)| Arc::ptr_eq(old, new)).count();
        entries.truncate(same);
        entries.reserve(listed().count() - same);
        entries.extend(listed().skip(same).cloned());
        entries
    }

    /// The runs that lead to `previous`, or to the last one, oldest first. None lead to [`TaskId::no_run`].
    pub fn run_chain(&self, previous: Option<&TaskId>) -> Vec<&PastRun> {
        let mut chain: Vec<&PastRun> = Vec::new();
        if previous.is_some_and(TaskId::is_no_run) {
            return chain;
        }
        // A run that was cancelled before it started left no records: its chain continues with the run before it.
        let started: LazyCell<HashSet<&TaskId>, _> = LazyCell::new(|| self.runs.iter().map(|past| &past.run).collect());
        let last = self.runs.last().map(|past| &past.run);
        let mut next = previous.filter(|run| last == Some(*run) || started.contains(run)).or(last);
        // Newest first: a run's `previous` always stands before it, so one pass finds the whole chain.
        for (index, past) in self.runs.iter().enumerate().rev() {
            if next == Some(&past.run) {
                let before = index.checked_sub(1).and_then(|index| self.runs.get(index)).map(|past| &past.run);
                // Almost always it is the run before.
                next = match &past.previous {
                    Some(run) if before == Some(run) => before,
                    Some(run) if run.is_no_run() => None,
                    Some(run) => started.get(run).copied().or(before),
                    None => None,
                };
                chain.push(past);
            }
        }
        chain.reverse();
        chain
    }

    pub fn apply_compaction(&mut self, e: &HistoryCompacted) {
        let run = self.runs.iter().rev().find(|past| past.last_seq <= e.up_to).map(|past| past.run.clone());
        self.compacted = run.map(|run| CompactedHistory { run, summary: e.summary.clone() }).or(self.compacted.take());
    }
}

/// The newest runs that fit into the window.
fn apply_history_window<'a, 'b>(chain: &'b [&'a PastRun], window: HistoryWindow) -> &'b [&'a PastRun] {
    let turns = window.turns.unwrap_or(usize::MAX);
    // Counting tokens serialises every entry: without a limit nobody needs the figure.
    let Some(mut tokens_left) = window.tokens else {
        return chain.get(chain.len().saturating_sub(turns)..).unwrap_or_default();
    };
    let fits = |past: &&&PastRun| {
        let tokens = estimate_tokens(past.entries.iter().map(AsRef::as_ref));
        let fits = tokens <= tokens_left;
        tokens_left = tokens_left.saturating_sub(tokens);
        fits
    };
    let kept = chain.iter().rev().take(turns).take_while(fits).count();
    chain.get(chain.len() - kept..).unwrap_or_default()
}

/// Builds a thread's state from its records.
#[derive(Clone, Debug, Default)]
pub struct ThreadReplay {
    pub thread: ThreadFold,
    /// The run in progress.
    pub run: Option<RunFold>,
    /// The number of runs, from the first, that have rows in the checkpoint.
    pub stored_runs: usize,
}

impl ThreadReplay {
    pub fn push(&mut self, record: &Record) {
        let starts_run = matches!(record.event(), Event::Created(e) if e.task.parent_task_id.is_none());
        if self.run.is_none() && !starts_run {
            self.thread.seq = record.seq;
            self.thread.at = self.thread.at.max(record.at);
            // Between runs only `thread.*` events are valid.
            match record.event() {
                Event::HistoryCompacted(e) => self.thread.apply_compaction(e),
                Event::RunHidden(_) => {}
                _ => {
                    let count = u32::try_from(record.record_count()).unwrap_or(u32::MAX);
                    self.thread.fold_errors = self.thread.fold_errors.saturating_add(count);
                }
            }
            return;
        }
        let run = self.run.get_or_insert_with(|| self.thread.new_run_fold());
        // The fold counts its own errors.
        let _counted = run.apply(record);
        if run.has_ended() {
            self.thread.add_finished_run(run);
            self.run = None;
        }
    }
}
