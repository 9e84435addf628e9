//! Records on their way into the log: gathered, appended together, published when they are durable.

use super::{HEAVY_STATE_BYTES, ThreadSession, failure_log};
use crate::run_waiters::settled_runs;
use crate::shared::{StopMode, ThreadPublisher};
use crate::sync::{Mutex, lock};
use heavy_work::run_in_place_if;
use machine::EffectId;
use model::defects::Defect;
use model::event::{ApprovalRequested, ApprovalResolved, Event};
use model::item::{CallKind, Item};
use model::limits::{UNDURABLE_BYTES_MAX, UNDURABLE_RECORDS_MAX};
use model::ports::{
    AppendBatch, AppendOutcome, ApprovalRow, BoxFuture, CommitListener, DirectoryChange, OnCommit, StorageSpace,
};
use model::record::RecordDraft;
use model::task::TaskStatus;
use model::tool::ToolRequest;
use model::{Millis, Record, TaskId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

/// The next append.
#[derive(Default)]
pub(crate) struct BatchBuilder {
    pub(crate) records: Vec<Record>,
    pub(crate) bytes: usize,
    pub(crate) changes: Vec<DirectoryChange>,
    pub(crate) tools: Vec<(EffectId, Box<ToolRequest>)>,
}

/// The append that the journal is executing.
pub(crate) struct InFlightAppend {
    batch: AppendBatch,
    commit: Arc<PendingCommit>,
    /// While the store has no room for it: until it may have.
    space: Option<BoxFuture<'static, ()>>,
    bytes: usize,
    /// They start when the append is durable (law 10).
    pub(crate) tools: Vec<(EffectId, Box<ToolRequest>)>,
}

impl InFlightAppend {
    /// Whether it was refused for want of space, and is repeated when there is room.
    pub(crate) const fn waits_for_space(&self) -> bool {
        self.space.is_some()
    }
}

/// An append that is not durable yet. The store publishes the records itself as soon as they are; it wakes the actor when
/// that would take too long, when they are not durable, and when the actor waits for it.
struct PendingCommit {
    publisher: Arc<ThreadPublisher>,
    records: Arc<[Record]>,
    /// Runs that the append ends or pauses.
    settled: Vec<TaskId>,
    /// Whether the frames of these records are short.
    is_quick: bool,
    published: AtomicBool,
    outcome: Mutex<CommitOutcome>,
}

#[derive(Default)]
struct CommitOutcome {
    outcome: Option<AppendOutcome>,
    wakes_actor: bool,
}

impl CommitListener for PendingCommit {
    fn on_commit(&self, outcome: &AppendOutcome) {
        let ThreadPublisher { thread, hub, run_waiters, wakeup, .. } = &*self.publisher;
        let is_durable = *outcome == AppendOutcome::Durable;
        if is_durable {
            run_waiters.wake_runs(thread, &self.settled);
            self.publisher.ring();
        }
        let is_published = is_durable
            && (self.published.load(Relaxed) || (self.is_quick && hub.try_publish_inline(thread, &self.records)));
        self.published.store(is_published, Relaxed);
        let mut state = lock(&self.outcome);
        state.outcome = Some(outcome.clone());
        let wakes_actor = state.wakes_actor || !is_published;
        drop(state);
        if wakes_actor {
            wakeup.wake_only();
        }
    }
}

impl PendingCommit {
    /// The outcome, once there is one; whether the actor is to be woken for it.
    fn take_outcome(&self, wakes_actor: bool) -> Option<AppendOutcome> {
        let mut state = lock(&self.outcome);
        state.wakes_actor = wakes_actor;
        state.outcome.take()
    }
}

impl ThreadSession<'_> {
    /// How many inputs may be applied before something has to become durable.
    pub(crate) fn input_capacity(&self) -> usize {
        let (records, bytes) =
            self.in_flight.as_ref().map_or((0, 0), |flight| (flight.batch.records.len(), flight.bytes));
        if bytes + self.next_batch.bytes >= UNDURABLE_BYTES_MAX {
            return 0;
        }
        UNDURABLE_RECORDS_MAX.saturating_sub(records + self.next_batch.records.len())
    }

    pub(crate) fn push_record(&mut self, root: &TaskId, draft: RecordDraft) {
        let (seq, at) = (draft.seq, draft.at);
        let status = if draft.event.task_id() == Some(root) { status_after(&draft.event) } else { None };
        failure_log::log_failure(&self.context.thread, root, &draft.event);
        self.push_directory_change(root, &draft.event, at);
        let record = Record::seal(&self.context.thread, root, self.lease.epoch, draft);
        self.next_batch.bytes += record.size_bytes();
        self.run_bytes += record.size_bytes();
        self.next_batch.records.push(record);
        if let Some(status) = status {
            self.next_batch.changes.push(DirectoryChange::RunStatus { run: root.clone(), status, last: seq, at });
        }
    }

    fn push_directory_change(&mut self, root: &TaskId, event: &Event, at: Millis) {
        let change = match event {
            Event::ApprovalRequested(request) => self.approval_requested_change(root, request, at),
            Event::ApprovalResolved(resolved) => approval_resolved_change(resolved, at),
            Event::ItemAdded(added) => self.client_call_change(&added.item),
            // A tool that waits with the run is lost with this process. The next process or node has to notice it at once.
            Event::Paused(_) if self.has_asking_tool() => Some(DirectoryChange::ScheduleWakeup { at: Some(at) }),
            Event::Paused(_) => Some(DirectoryChange::ScheduleWakeup { at: self.next_wake_at() }),
            Event::Resumed(_) => Some(DirectoryChange::ScheduleWakeup { at: None }),
            _ => None,
        };
        self.next_batch.changes.extend(change);
    }

    /// A result closes a call of a client tool, also a result that the server wrote (a time-out, a cancel).
    fn client_call_change(&self, item: &Item) -> Option<DirectoryChange> {
        let Item::ToolResult(result) = item else { return None };
        let tasks = &self.run.as_ref()?.fold.tasks;
        let (_, call) = tasks.iter().find_map(|task| task.call(&result.call_id))?;
        let call_id = || result.call_id.clone();
        (call.kind == Some(CallKind::Client)).then(|| DirectoryChange::ClientCallClosed { call: call_id() })
    }

    fn approval_requested_change(
        &self,
        root: &TaskId,
        request: &ApprovalRequested,
        at: Millis,
    ) -> Option<DirectoryChange> {
        let row = ApprovalRow {
            key: request.key.clone(),
            thread_id: self.context.thread.clone(),
            run_id: root.clone(),
            task_id: request.task_id.clone(),
            call_id: request.call_id.clone(),
            action: request.action_requests.first()?.clone(),
            requested_at: at,
            expires_at: request.expires_at,
            question: request.question.clone(),
            answer: None,
        };
        Some(DirectoryChange::ApprovalRequested(Box::new(row)))
    }

    /// Appends the batch, if no append is in flight.
    pub(crate) fn flush(&mut self) {
        if self.in_flight.is_some() || self.next_batch.is_empty() {
            return;
        }
        let BatchBuilder { records, bytes, changes, mut tools } = std::mem::take(&mut self.next_batch);
        if Defect::ToolBeforeDurable.is_planted() {
            self.start_tools(std::mem::take(&mut tools));
        }
        let context = self.context;
        let records: Arc<[Record]> = records.into();
        if Defect::PublishBeforeCommit.is_planted() {
            context.shared.hub.publish(&context.thread, &records);
        }
        let settled = settled_runs(&changes);
        let batch = AppendBatch {
            owner: context.owner.clone(),
            thread: context.thread.clone(),
            epoch: self.lease.epoch,
            head: self.submitted_seq,
            records: Arc::clone(&records),
            changes: changes.into(),
        };
        self.submitted_seq = records.last().map_or(self.submitted_seq, |last| last.seq);
        let commit = Arc::new(PendingCommit {
            publisher: Arc::clone(&context.publisher),
            is_quick: !self.has_long_frames(&records),
            records,
            settled,
            published: AtomicBool::new(Defect::PublishBeforeCommit.is_planted()),
            outcome: Mutex::default(),
        });
        context.shared.ports.journal.start_append(batch.clone(), OnCommit::shared(Arc::clone(&commit) as _));
        self.in_flight = Some(InFlightAppend { batch, commit, space: None, bytes, tools });
    }

    /// The outcome of the append in flight. While nothing waits for it, it need not wake the session: the store publishes
    /// the records itself, and the next poll finds the outcome.
    ///
    /// While the store has no room for the batch, nothing of it is durable, nothing of it was shown, and its numbers are still
    /// free: it waits, and with it everything after it, while the tools that run go on.
    pub(crate) fn poll_append(&mut self, cx: &mut Context<'_>) -> Poll<AppendOutcome> {
        let is_running =
            self.run.is_some() && !self.is_paused() && self.context.shared.stop_mode() == StopMode::Running;
        let needs_outcome = !is_running || !self.next_batch.is_empty() || self.input_capacity() == 0;
        let journal = &self.context.shared.ports.journal;
        let Some(flight) = &mut self.in_flight else { return Poll::Pending };
        loop {
            if let Some(space) = &mut flight.space {
                ready!(space.as_mut().poll(cx));
                flight.space = None;
                journal.start_append(flight.batch.clone(), OnCommit::shared(Arc::clone(&flight.commit) as _));
            }
            match flight.commit.take_outcome(needs_outcome || !flight.tools.is_empty()) {
                None => return Poll::Pending,
                Some(AppendOutcome::NoSpace) => flight.space = Some(journal.space_changed(StorageSpace::Full)),
                Some(outcome) => return Poll::Ready(outcome),
            }
        }
    }

    /// Whether the frames of these records may repeat a long run, which the thread that commits for all must not wait for.
    fn has_long_frames(&self, records: &[Record]) -> bool {
        self.run_bytes >= HEAVY_STATE_BYTES && !records.iter().all(|record| record.event_type().ends_with(".delta"))
    }

    /// The append in flight is durable: publishes its records and starts its tools.
    pub(crate) fn on_durable(&mut self) {
        let Some(flight) = self.in_flight.take() else { return };
        let context = self.context;
        self.burst.on_durable(&context.shared.burst_permits);
        let records = &flight.batch.records;
        if !records.is_empty() {
            context.mark_progress();
        }
        context.shared.records_total.increment(records.len() as u64);
        if !flight.commit.published.load(Relaxed) {
            let publish = || context.shared.hub.publish(&context.thread, records);
            run_in_place_if(self.has_long_frames(records), publish);
        }
        if self.is_paused()
            && let Some(at) = self.next_wake_at()
        {
            context.shared.wake_schedule.schedule(&context.owner, &context.thread, at);
        }
        self.start_tools(flight.tools);
    }
}

impl BatchBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.changes.is_empty()
    }
}

fn approval_resolved_change(resolved: &ApprovalResolved, at: Millis) -> Option<DirectoryChange> {
    let decision = resolved.decisions.first()?.clone();
    Some(DirectoryChange::ApprovalResolved { key: resolved.key.clone(), decision, by: resolved.by, at })
}

/// The status of a run after an event of its root task.
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
