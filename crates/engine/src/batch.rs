//! Records on their way into the log: gathered, appended together, shown when they are durable.

use crate::session::Session;
use machine::EffectId;
use model::defects::Defect;
use model::event::{ApprovalRequested, ApprovalResolved, Event, StepDone};
use model::limits::{UNDURABLE_BYTES_MAX, UNDURABLE_RECORDS_MAX};
use model::ports::{AppendBatch, AppendOutcome, ApprovalRow, BoxFuture, Day, DirectoryChange, OnCommit, Spend};
use model::record::RecordDraft;
use model::task::TaskStatus;
use model::tool::ToolRequest;
use model::{Millis, Record, TaskId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What the next append will hold.
#[derive(Default)]
pub(crate) struct Gathered {
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: usize,
    pub(crate) changes: Vec<DirectoryChange>,
    pub(crate) tools: Vec<(EffectId, Box<ToolRequest>)>,
}

/// An append on its way.
pub(crate) struct Flight {
    pub(crate) verdict: BoxFuture<'static, AppendOutcome>,
    records: Arc<[Record]>,
    /// Have its records been shown?
    shown: Arc<AtomicBool>,
    bytes: usize,
    /// Rows that it consumes.
    consumed: Vec<u64>,
    /// They may begin when it is durable (law 10).
    pub(crate) tools: Vec<(EffectId, Box<ToolRequest>)>,
}

impl Session<'_> {
    /// How many inputs may be taken before something must become durable first.
    pub(crate) fn room(&self) -> usize {
        let (records, bytes) = self.flight.as_ref().map_or((0, 0), |flight| (flight.records.len(), flight.bytes));
        if bytes + self.gathered.bytes >= UNDURABLE_BYTES_MAX {
            return 0;
        }
        UNDURABLE_RECORDS_MAX.saturating_sub(records + self.gathered.records.len())
    }

    pub(crate) fn gather(&mut self, root: &TaskId, draft: RecordDraft) {
        let (seq, at) = (draft.seq, draft.at);
        let status = if draft.event.task_id() == Some(root) { status_after(&draft.event) } else { None };
        self.change_with(root, &draft.event, at);
        let record = Record::seal(&self.actor.thread, root, self.lease.epoch, draft);
        self.gathered.bytes += record.size_bytes();
        self.gathered.records.push(record);
        if let Some(status) = status {
            self.gathered.changes.push(DirectoryChange::RunStatus { run: root.clone(), status, last: seq, at });
        }
    }

    /// What an event changes in the directory.
    fn change_with(&mut self, root: &TaskId, event: &Event, at: Millis) {
        let change = match event {
            Event::ApprovalRequested(asked) => self.asked(root, asked, at),
            Event::ApprovalResolved(resolved) => answered(resolved, at),
            Event::StepDone(done) => self.spent_by(done, at),
            Event::Paused(_) => Some(DirectoryChange::ScheduleWakeup { at: self.wakes_at() }),
            Event::Resumed(_) => Some(DirectoryChange::ScheduleWakeup { at: None }),
            _ => None,
        };
        self.gathered.changes.extend(change);
    }

    fn asked(&self, root: &TaskId, asked: &ApprovalRequested, at: Millis) -> Option<DirectoryChange> {
        let row = ApprovalRow {
            key: asked.key.clone(),
            thread_id: self.actor.thread.clone(),
            run_id: root.clone(),
            task_id: asked.task_id.clone(),
            call_id: asked.call_id.clone(),
            action: asked.action_requests.first()?.clone(),
            requested_at: at,
            expires_at: asked.expires_at,
            answer: None,
        };
        Some(DirectoryChange::ApprovalRequested(Box::new(row)))
    }

    fn spent_by(&self, done: &StepDone, at: Millis) -> Option<DirectoryChange> {
        let cost = self.run.as_ref().and_then(|run| run.definitions.cost(&done.model, done.usage));
        let spent = Spend { usage: done.usage, cost: machine::millionths(cost.unwrap_or_default()) };
        (spent != Spend::default()).then(|| DirectoryChange::AddSpend { day: Day::from_millis(at), spent })
    }

    /// Hands what has gathered to the journal, when nothing is in flight.
    pub(crate) fn flush(&mut self) {
        if self.flight.is_some() || self.gathered.is_empty() {
            return;
        }
        let Gathered { records, bytes, changes, tools } = std::mem::take(&mut self.gathered);
        let row_of = |change: &DirectoryChange| {
            if let DirectoryChange::ConsumeInboxRow { row } = change { Some(*row) } else { None }
        };
        let consumed = changes.iter().filter_map(row_of).collect();
        let actor = self.actor;
        let shown = Arc::new(AtomicBool::new(false));
        if Defect::PublishBeforeCommit.is_planted() {
            actor.shared.hub.publish(&actor.thread, &records);
            shown.store(true, Relaxed);
        }
        let records: Arc<[Record]> = records.into();
        let batch = AppendBatch {
            owner: actor.owner.clone(),
            thread: actor.thread.clone(),
            epoch: self.lease.epoch,
            head: self.sent,
            records: Arc::clone(&records),
            changes,
        };
        self.sent = records.last().map_or(self.sent, |last| last.seq);
        let landed = self.show_when_durable(&records, &shown);
        let journal = Arc::clone(&actor.shared.ports.journal);
        let verdict = Box::pin(async move { journal.append_with_callback(batch, landed).await });
        self.flight = Some(Flight { verdict, records, shown, bytes, consumed, tools });
    }

    /// Whoever learns first that the records are durable shows them. The actor is woken when it has to do that itself, and
    /// when they are not.
    fn show_when_durable(&self, records: &Arc<[Record]>, shown: &Arc<AtomicBool>) -> OnCommit {
        let (hub, thread) = (Arc::clone(&self.actor.shared.hub), self.actor.thread.clone());
        let (poke, records, shown) = (Arc::clone(&self.actor.poke), Arc::clone(records), Arc::clone(shown));
        OnCommit::new(move |verdict| {
            let durable = *verdict == AppendOutcome::Durable;
            if durable && (shown.load(Relaxed) || hub.publish_to_few(&thread, &records)) {
                shown.store(true, Relaxed);
            } else {
                poke.wake();
            }
        })
    }

    /// The append in flight is durable: it is shown, and its tools begin.
    pub(crate) fn landed(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        let actor = self.actor;
        flight.consumed.iter().for_each(|row| {
            self.answered.remove(row);
        });
        metrics::counter!("headwater_records_total").increment(flight.records.len() as u64);
        if !flight.shown.load(Relaxed) {
            actor.shared.hub.publish(&actor.thread, &flight.records);
        }
        if self.is_paused()
            && let Some(at) = self.wakes_at()
        {
            actor.shared.wakes.set(&actor.owner, &actor.thread, at);
        }
        self.begin_tools(flight);
    }
}

impl Gathered {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.changes.is_empty()
    }
}

fn answered(resolved: &ApprovalResolved, at: Millis) -> Option<DirectoryChange> {
    let decision = resolved.decisions.first()?.clone();
    Some(DirectoryChange::ApprovalResolved { key: resolved.key.clone(), decision, by: resolved.by, at })
}

/// The state that an event of the root task puts the run into.
const fn status_after(event: &Event) -> Option<TaskStatus> {
    match event {
        Event::Resumed(_) => Some(TaskStatus::Running),
        Event::Paused(_) => Some(TaskStatus::Paused),
        Event::Completed(_) => Some(TaskStatus::Completed),
        Event::Incomplete(_) => Some(TaskStatus::Incomplete),
        Event::Failed(_) => Some(TaskStatus::Failed),
        Event::Cancelled(_) => Some(TaskStatus::Cancelled),
        _ => None,
    }
}
