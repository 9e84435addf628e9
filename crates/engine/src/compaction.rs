//! After a run has ended: what was said long ago may be summed up.
//!
//! Nothing is removed. The model is asked for a summary, `thread.history.compacted` records it, and later turns are given
//! it instead of the runs that it covers. A new run does not wait for it: it is dropped, and done after that run.

use crate::session::ThreadSession;
use futures_util::StreamExt as _;
use model::content::ContentPart;
use model::definition::{CompactionPolicy, Definitions, HistoryWindow};
use model::event::{Event, HistoryCompacted};
use model::history::HistoryEntry;
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::ports::BoxStream;
use model::record::RecordDraft;
use model::thread::{PastRun, estimate_tokens};
use model::{Seq, TaskId};
use std::sync::Arc;
use std::task::{Context, Poll};

const SUMMARY_PROMPT: &str = "Sum up the conversation so far for somebody who goes on with it: what was wanted, what was found out \
                   and done, what is still open. Keep names, numbers and decisions. Answer with the summary alone.";

/// A summary that is being written.
pub(crate) struct RunningCompaction {
    events: BoxStream<'static, ModelEvent>,
    text: String,
    up_to: Seq,
    run: TaskId,
}

impl ThreadSession<'_> {
    /// Begins to sum up, if it is time.
    pub(crate) fn start_compaction(&mut self, definitions: &Arc<Definitions>) {
        let agent = self.thread_fold.agent.as_ref().and_then(|name| definitions.resolve_agent(name));
        let Some(agent) = agent else { return };
        let Some(compaction) = &agent.compaction else { return };
        let Some(covered) = self.compaction_range(compaction) else { return };
        let (up_to, run) = covered;
        let mut history = self.thread_fold.history(Some(&run), HistoryWindow::default());
        history.push(HistoryEntry::User { content: vec![ContentPart::text(SUMMARY_PROMPT)] });
        let model = compaction.model.clone().or_else(|| agent.models.first().cloned()).unwrap_or_default();
        let request = ModelRequest {
            user: self.actor.owner.clone(),
            thread: self.actor.thread.clone(),
            task: run.clone(),
            step: 0,
            attempt: 1,
            model,
            instructions: String::new(),
            history: history.into(),
            tools: Vec::new().into(),
            provider_options: Arc::default(),
            model_settings: Arc::default(),
        };
        let events = self.actor.shared.ports.models.stream_turn(request);
        self.compaction = Some(RunningCompaction { events, text: String::new(), up_to, run });
    }

    /// Up to where it is summed up, when what is not summed up yet is too much.
    fn compaction_range(&self, compaction: &CompactionPolicy) -> Option<(Seq, TaskId)> {
        let chain = self.thread_fold.run_chain(None);
        let done = self.thread_fold.compacted.as_ref();
        let done =
            done.and_then(|done| chain.iter().position(|past| past.run == done.run)).map_or(0, |place| place + 1);
        let fresh: &[&PastRun] = chain.get(done..).unwrap_or_default();
        let size: u64 = fresh.iter().map(|past| estimate_tokens(&past.entries)).sum();
        let kept = compaction.keep_turns.max(1);
        let last = fresh.len().checked_sub(kept + 1).and_then(|place| fresh.get(place))?;
        (size > compaction.after_tokens).then(|| (last.last_seq, last.run.clone()))
    }

    /// Hears more of the summary; when it is whole it is recorded.
    pub(crate) fn poll_compaction(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(compacting) = &mut self.compaction else { return Poll::Pending };
        loop {
            let Poll::Ready(event) = compacting.events.poll_next_unpin(cx) else { return Poll::Pending };
            match event {
                Some(ModelEvent::Delta(ModelDelta::Text { text, .. })) => {
                    if compacting.text.len() + text.len() <= DONE_REPEAT_BYTES_MAX {
                        compacting.text.push_str(&text);
                    }
                }
                Some(ModelEvent::Delta(_)) => {}
                Some(ModelEvent::End(_)) => break,
                Some(ModelEvent::Failed(_)) | None => {
                    tracing::warn!(thread = %self.actor.thread, "the past could not be summed up; the next run tries again");
                    self.compaction = None;
                    return Poll::Ready(());
                }
            }
        }
        if let Some(done) = self.compaction.take().filter(|done| !done.text.is_empty()) {
            self.record_summary(done);
        }
        Poll::Ready(())
    }

    fn record_summary(&mut self, done: RunningCompaction) {
        let event = HistoryCompacted { up_to: done.up_to, summary: done.text, details: model::json::JsonObject::new() };
        self.thread_fold.apply_compaction(&event);
        let at = self.thread_fold.at.max(self.actor.shared.ports.clock.now());
        let seq = self.thread_fold.seq.next();
        (self.thread_fold.seq, self.thread_fold.at) = (seq, at);
        self.push_record(&done.run, RecordDraft { seq, at, event: Event::HistoryCompacted(event), private: None });
        self.push_checkpoint();
    }
}
