//! History compaction: after a run has ended, a model may summarize the older runs of its thread.
//!
//! Nothing is removed. `thread.history.compacted` records the summary, and later turns read it instead of the runs that it
//! covers. A new run does not wait: it abandons the summary, and the end of that run decides anew. The tokens count for
//! the owner's day and stand in the record, but never in the usage of a run.

use crate::budget;
use crate::effect::{Effect, EffectId};
use crate::output::MachineOutput;
use model::content::ContentPart;
use model::definition::{CompactionPolicy, Definitions, HistoryWindow};
use model::event::{Event, HistoryCompacted};
use model::history::{HistoryEntry, SUMMARY_PROMPT};
use model::json::JsonObject;
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::record::RecordDraft;
use model::thread::{PastRun, ThreadFold, estimate_tokens};
use model::usage::Usage;
use model::{Seq, TaskId, ThreadId, UserId};
use std::sync::Arc;

/// A thread between two runs.
#[derive(Clone, Debug)]
pub struct ThreadState {
    pub user: UserId,
    pub thread: ThreadId,
    /// What outlives the runs that have ended. Shared with the run in progress.
    pub fold: Arc<ThreadFold>,
    compaction: Option<Compaction>,
}

/// What can happen to a thread between two runs.
#[derive(Clone, Debug)]
pub enum ThreadInput {
    /// A run with these definitions has ended and is part of the fold.
    RunEnded(Arc<Definitions>),
    /// The model that writes the summary sent something. An event with another id is ignored.
    Model { id: EffectId, event: ModelEvent },
    /// The next run is about to start.
    RunStarting,
}

/// A summary that a model is writing.
#[derive(Clone, Debug)]
struct Compaction {
    /// The last run that the summary covers, and its last record.
    run: TaskId,
    up_to: Seq,
    definitions: Arc<Definitions>,
    model: String,
    summary: String,
    usage: Usage,
}

impl ThreadState {
    pub const fn new(user: UserId, thread: ThreadId, fold: Arc<ThreadFold>) -> Self {
        Self { user, thread, fold, compaction: None }
    }

    pub const fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// The run whose name a record between two runs bears: the last one that the summary covers.
    pub fn compacted_run(&self) -> Option<&TaskId> {
        self.fold.compacted.as_ref().map(|compacted| &compacted.run)
    }
}

/// Applies one input to a thread between two runs. Its records, effects and spend are in `out`.
pub fn apply_thread_input(thread: &mut ThreadState, input: ThreadInput, out: &mut MachineOutput) {
    match input {
        ThreadInput::RunEnded(definitions) => start_compaction(thread, definitions, out),
        ThreadInput::Model { id, event } => {
            let expected = thread.compaction.as_ref().map(Compaction::effect_id);
            if expected.is_some_and(|expected| expected == id) {
                on_summary_event(thread, event, out);
            }
        }
        ThreadInput::RunStarting => {
            if let Some(compaction) = thread.compaction.take() {
                out.push_effect(Effect::Abort(compaction.effect_id()));
                out.add_spend(budget::model_spend(&compaction.definitions, &compaction.model, compaction.usage));
            }
        }
    }
}

/// Requests a summary if the agent's policy says that it is time for one.
fn start_compaction(thread: &mut ThreadState, definitions: Arc<Definitions>, out: &mut MachineOutput) {
    let agent = thread.fold.agent.as_ref().and_then(|name| definitions.resolve_agent(name));
    let Some(agent) = agent else { return };
    let Some(policy) = &agent.compaction else { return };
    let Some((run, up_to)) = compaction_range(&thread.fold, policy) else { return };
    let mut history = thread.fold.history(Some(&run), HistoryWindow::default());
    history.push(Arc::new(HistoryEntry::User { content: vec![ContentPart::text(SUMMARY_PROMPT)] }));
    let model = policy.model.clone().or_else(|| agent.models.first().cloned()).unwrap_or_default();
    let request = ModelRequest {
        user: thread.user.clone(),
        thread: thread.thread.clone(),
        task: run.clone(),
        step: 0,
        attempt: 1,
        model: model.clone(),
        instructions: String::new(),
        history: history.into(),
        tools: Vec::new().into(),
        deferred_tools: Arc::default(),
        provider_options: Arc::default(),
        model_settings: Arc::default(),
    };
    let compaction = Compaction { run, up_to, definitions, model, summary: String::new(), usage: Usage::default() };
    out.push_effect(Effect::CallModel { id: compaction.effect_id(), request: Box::new(request), not_before: None });
    thread.compaction = Some(compaction);
}

/// The last run to summarize and its last record, when the runs that no summary covers are larger than the policy allows.
fn compaction_range(thread: &ThreadFold, policy: &CompactionPolicy) -> Option<(TaskId, Seq)> {
    let chain = thread.run_chain(None);
    let covered = thread.compacted.as_ref().and_then(|done| chain.iter().position(|past| past.run == done.run));
    let uncovered: &[&PastRun] = chain.get(covered.map_or(0, |index| index + 1)..).unwrap_or_default();
    let tokens: u64 = uncovered.iter().map(|past| estimate_tokens(past.entries.iter().map(AsRef::as_ref))).sum();
    let kept = policy.keep_turns.max(1);
    let last = uncovered.len().checked_sub(kept + 1).and_then(|index| uncovered.get(index))?;
    (tokens > policy.after_tokens).then(|| (last.run.clone(), last.last_seq))
}

fn on_summary_event(thread: &mut ThreadState, event: ModelEvent, out: &mut MachineOutput) {
    let Some(compaction) = &mut thread.compaction else { return };
    match event {
        ModelEvent::Delta(ModelDelta::Text { text, .. }) => {
            if compaction.summary.len() + text.len() <= DONE_REPEAT_BYTES_MAX {
                compaction.summary.push_str(&text);
            }
            return;
        }
        ModelEvent::Delta(ModelDelta::Usage(usage)) => {
            compaction.usage = usage;
            return;
        }
        ModelEvent::Delta(_) => return,
        ModelEvent::End(end) => {
            compaction.usage = end.usage;
            compaction.model = end.model.unwrap_or_else(|| std::mem::take(&mut compaction.model));
        }
        // Without a summary there is no record. The end of the next run tries again.
        ModelEvent::Failed(_) => compaction.summary.clear(),
    }
    let Some(compaction) = thread.compaction.take() else { return };
    out.add_spend(budget::model_spend(&compaction.definitions, &compaction.model, compaction.usage));
    if !compaction.summary.is_empty() {
        record_summary(Arc::make_mut(&mut thread.fold), compaction, out);
    }
}

fn record_summary(thread: &mut ThreadFold, compaction: Compaction, out: &mut MachineOutput) {
    let details = compaction.details();
    let event = HistoryCompacted { up_to: compaction.up_to, summary: compaction.summary, details };
    thread.apply_compaction(&event);
    thread.seq = thread.seq.next();
    thread.at = thread.at.max(out.now());
    let event = Event::HistoryCompacted(event);
    out.drafts.push(RecordDraft { seq: thread.seq, at: thread.at, event, private: None });
}

impl Compaction {
    fn effect_id(&self) -> EffectId {
        EffectId::Compaction { run: self.run.clone() }
    }

    /// What the summary cost, with the member names of `task.step.done` and `task.completed`.
    fn details(&self) -> JsonObject {
        let cost = self.definitions.cost(&self.model, self.usage).map(|cost| ("cost".to_owned(), cost.into()));
        let usage = serde_json::to_value(self.usage).unwrap_or_default();
        let model = self.model.clone().into();
        [("model".to_owned(), model), ("usage".to_owned(), usage)].into_iter().chain(cost).collect()
    }
}
