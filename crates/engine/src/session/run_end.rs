//! The end of a run: it becomes a past run of its thread, and a row of the thread's checkpoint.

use super::ThreadSession;
use crate::effect_streams::EffectStreams;
use crate::idle_threads::IdleThread;
use crate::timers::Timers;
use machine::{RunState, ThreadInput};
use model::ports::{Checkpoint, CheckpointRun, DirectoryChange};
use model::task::TaskStatus;
use std::sync::Arc;

impl ThreadSession<'_> {
    pub(super) fn finish_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if let Some(root) = run.fold.root() {
            self.context.shared.ports.resolver.forget_credentials(&root.id);
        }
        let status = run.fold.root().map_or(TaskStatus::Failed, |root| root.status);
        metrics::counter!("headwater_runs_ended_total", "status" => status.as_str()).increment(1);
        self.daily_spend = machine::user_spend_today(&run);
        let RunState { fold, thread_fold, definitions, .. } = run;
        // Otherwise the thread would be copied in order to be changed.
        drop(thread_fold);
        Arc::make_mut(&mut self.thread.fold).add_finished_run(&fold);
        self.timers = Timers::default();
        self.effect_streams = EffectStreams::default();
        self.push_checkpoint();
        self.step_thread(ThreadInput::RunEnded(definitions));
    }

    /// Stores the state between two runs: what changes with each of them, and the runs that are not stored yet. That is the
    /// last one; all of them after the checkpoint of an older version, or after one that could not be read.
    pub(super) fn push_checkpoint(&mut self) {
        let thread = &self.thread.fold;
        let (Ok(body), mut checkpointed, mut runs) = (thread.checkpoint_body(), self.checkpointed, Vec::new()) else {
            return;
        };
        for (run, index) in thread.runs.iter().zip(0..).skip(checkpointed.count) {
            let Ok(body) = run.checkpoint_row() else { return };
            checkpointed.push(&body, run);
            runs.push(CheckpointRun { index, body });
        }
        self.checkpointed = checkpointed;
        self.next_batch.changes.push(DirectoryChange::Checkpoint(Checkpoint { seq: thread.seq, body, runs }));
    }

    /// Keeps the state of a thread that has nothing to do, if all of it is durable.
    pub(crate) fn keep_idle_thread(&self) {
        let (context, thread) = (self.context, &self.thread.fold);
        let is_durable = self.in_flight.is_none() && self.next_batch.is_empty() && thread.seq == self.submitted_seq;
        if is_durable && self.run.is_none() && self.checkpointed.count == thread.runs.len() {
            let (owner, thread, checkpointed) = (context.owner.clone(), Arc::clone(thread), self.checkpointed);
            context.shared.idle_threads.put(&context.thread, IdleThread { owner, thread, checkpointed });
        }
    }
}
