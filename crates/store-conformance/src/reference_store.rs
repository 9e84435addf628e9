//! A reference store made of lists: an operation works on a copy, which is dropped if anything is invalid.

use model::command::{AnswerBody, Command};
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use model::limits::CostMicros;
use model::ports::{
    AliasData, AliasKind, AliasRow, AliasUpdate, AppendBatch, ApprovalAnswer, ApprovalFilter, ApprovalRow, Checkpoint,
    ConversationData, Day, DirectoryChange, InboxRow, RunFilter, RunRow, ScheduledWakeup, Spend, Submission,
    SubmitError, ThreadMode, ThreadRow,
};
use model::record::Record;
use model::seq::{Epoch, Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, TaskId, ThreadId, UserId};

/// The outcome of an append without its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedAppend {
    Durable,
    Fenced,
    Rejected,
}

/// The outcome of a submission without its message.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpectedSubmit {
    Queued,
    Duplicate(TaskId, ThreadId),
    KeyReused,
    InboxFull,
    AlreadyDecided(Box<ApprovalRow>),
    ApprovalNotFound,
    ThreadNotFound,
    ThreadExists,
    IdTaken,
}

#[derive(Clone, Debug)]
pub(super) struct ReferenceThread {
    pub(super) row: ThreadRow,
    pub(super) owner: UserId,
    pub(super) newest_epoch: Option<Epoch>,
    pub(super) records: Vec<Record>,
    pub(super) runs: Vec<RunRow>,
    pub(super) inbox: Vec<InboxRow>,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) approvals: Vec<ApprovalRow>,
    pub(super) wake_at: Option<Millis>,
}

struct UsedIdempotencyKey {
    owner: UserId,
    key: String,
    digest: String,
    task: TaskId,
    thread: ThreadId,
}

#[derive(Default)]
pub(super) struct ReferenceStore {
    pub(super) threads: Vec<ReferenceThread>,
    used_keys: Vec<UsedIdempotencyKey>,
    spend: Vec<(UserId, Day, Spend)>,
    pub(super) aliases: Vec<(UserId, AliasRow)>,
}

impl ReferenceStore {
    pub(super) fn thread(&self, owner: &UserId, id: &ThreadId) -> Option<&ReferenceThread> {
        self.threads.iter().find(|thread| thread.row.id == *id && thread.owner == *owner)
    }

    pub(super) fn thread_mut(&mut self, owner: &UserId, id: &ThreadId) -> Option<&mut ReferenceThread> {
        self.threads.iter_mut().find(|thread| thread.row.id == *id && thread.owner == *owner)
    }

    pub(super) fn run(&self, owner: &UserId, id: &TaskId) -> Option<&RunRow> {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        mine.flat_map(|thread| &thread.runs).find(|run| run.id == *id)
    }

    pub(super) fn find_approval(&self, owner: &UserId, key: &ApprovalKey) -> Option<&ApprovalRow> {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        mine.flat_map(|thread| &thread.approvals).find(|question| question.key == *key)
    }

    pub(super) fn submit(&mut self, owner: &UserId, submission: &Submission, rows_max: usize) -> ExpectedSubmit {
        if let Some(given) = &submission.idempotency_key
            && let Some(used) = self.used_keys.iter().find(|used| used.owner == *owner && used.key == given.key)
        {
            let same = used.digest == given.request_digest;
            return if same {
                ExpectedSubmit::Duplicate(used.task.clone(), used.thread.clone())
            } else {
                ExpectedSubmit::KeyReused
            };
        }
        let start = matches!(submission.command, Command::Start(_));
        let exists = self.threads.iter().any(|thread| thread.row.id == submission.thread);
        let creates = submission.thread_mode == ThreadMode::CreateNew;
        if creates && exists {
            return if self.thread(owner, &submission.thread).is_some() {
                ExpectedSubmit::ThreadExists
            } else {
                ExpectedSubmit::IdTaken
            };
        }
        if self.thread(owner, &submission.thread).is_none() && !(creates && start) {
            return ExpectedSubmit::ThreadNotFound;
        }
        if let Some((key, decision, by)) = approval_decision(&submission.command) {
            let Some(question) = self.find_approval(owner, key).filter(|known| known.thread_id == submission.thread)
            else {
                return ExpectedSubmit::ApprovalNotFound;
            };
            let is_cancel = |row: &&InboxRow| matches!(&row.command, Command::Cancel(cancel) if cancel.task_id == *submission.command.task_id());
            let inbox = self.thread(owner, &submission.thread).map(|thread| &thread.inbox);
            let cancel = inbox.and_then(|inbox| inbox.iter().find(is_cancel));
            match &question.answer {
                None if cancel.is_some() => {
                    let answer = ApprovalAnswer {
                        decision: ApprovalDecision {
                            kind: ApprovalDecisionKind::Reject,
                            always: false,
                            message: None,
                            args: None,
                        },
                        by: Initiator::System,
                        at: cancel.unwrap().at,
                    };
                    return ExpectedSubmit::AlreadyDecided(Box::new(ApprovalRow {
                        answer: Some(answer),
                        ..question.clone()
                    }));
                }
                None if by == Initiator::Timeout || submission.at < question.expires_at => {}
                Some(answer) if answer.decision == *decision && answer.by == by => {
                    return ExpectedSubmit::Duplicate(question.run_id.clone(), question.thread_id.clone());
                }
                _ => return ExpectedSubmit::AlreadyDecided(Box::new(question.clone())),
            }
        }
        let mine = self.thread(owner, &submission.thread);
        let by_clock = approval_decision(&submission.command).is_some_and(|(.., by)| by == Initiator::Timeout);
        if !by_clock && mine.is_some_and(|thread| thread.inbox.len() >= rows_max) {
            return ExpectedSubmit::InboxFull;
        }
        if start && self.run(owner, submission.command.task_id()).is_some() {
            return ExpectedSubmit::IdTaken;
        }
        self.accept_submission(owner, submission);
        ExpectedSubmit::Queued
    }

    fn accept_submission(&mut self, owner: &UserId, submission: &Submission) {
        let (id, at) = (submission.thread.clone(), submission.at);
        if submission.thread_mode == ThreadMode::CreateNew {
            let row = ThreadRow { id: id.clone(), created_at: at, updated_at: at };
            self.threads.push(ReferenceThread {
                row,
                owner: owner.clone(),
                newest_epoch: None,
                records: Vec::new(),
                runs: Vec::new(),
                inbox: Vec::new(),
                checkpoint: None,
                approvals: Vec::new(),
                wake_at: None,
            });
        }
        let task = submission.command.task_id().clone();
        if let Some(given) = submission.idempotency_key.clone() {
            let (owner, thread) = (owner.clone(), id.clone());
            self.used_keys.push(UsedIdempotencyKey {
                owner,
                key: given.key,
                digest: given.request_digest,
                task: task.clone(),
                thread,
            });
        }
        let thread = self.thread_mut(owner, &id).unwrap();
        if let Command::Start(start) = &submission.command {
            thread.runs.push(queued_run(task, id, start.agent.clone(), at));
        }
        if let Some((key, decision, by)) = approval_decision(&submission.command) {
            let question = thread.approvals.iter_mut().find(|question| question.key == *key).unwrap();
            question.answer = Some(ApprovalAnswer { decision: decision.clone(), by, at });
        }
        // The backend assigns the id.
        thread.inbox.push(InboxRow { id: 0, at, command: submission.command.clone() });
    }

    pub(super) fn append(&mut self, batch: &AppendBatch) -> ExpectedAppend {
        let Some(thread) = self.thread(&batch.owner, &batch.thread) else { return ExpectedAppend::Rejected };
        if thread.newest_epoch != Some(batch.epoch) {
            return ExpectedAppend::Fenced;
        }
        let mut after = thread.clone();
        if batch.head.0 != after.records.len() as u64 {
            return ExpectedAppend::Rejected;
        }
        for record in batch.records.iter() {
            let next = after.records.len() as u64 + 1;
            if record.seq.0 != next || record.epoch != batch.epoch || !record.has_valid_checksum(&batch.thread) {
                return ExpectedAppend::Rejected;
            }
            after.records.push(record.clone());
        }
        for change in batch.changes.iter() {
            if !self.apply_change(&mut after, change, batch.head) {
                return ExpectedAppend::Rejected;
            }
        }
        let known = |record: &Record| after.runs.iter().any(|run| run.id == record.run);
        if !batch.records.iter().all(known) {
            return ExpectedAppend::Rejected;
        }
        *self.thread_mut(&batch.owner, &batch.thread).unwrap() = after;
        self.spend.extend(batch.changes.iter().filter_map(|change| match change {
            DirectoryChange::AddSpend { day, spent } => Some((batch.owner.clone(), *day, *spent)),
            _ => None,
        }));
        ExpectedAppend::Durable
    }

    fn apply_change(&self, after: &mut ReferenceThread, change: &DirectoryChange, head: Seq) -> bool {
        let end = Seq(after.records.len() as u64);
        let is_new = |seq: Seq| seq > head && seq <= end;
        match change {
            DirectoryChange::ConsumeInboxRow { row } => {
                let place = after.inbox.iter().position(|waiting| waiting.id == *row);
                place.map(|place| after.inbox.remove(place)).is_some()
            }
            DirectoryChange::Checkpoint(new) => {
                let mut runs = after.checkpoint.take().map(|known| known.runs).unwrap_or_default();
                runs.retain(|known| new.runs.iter().all(|run| run.index != known.index));
                runs.extend(new.runs.iter().cloned());
                runs.sort_by_key(|run| run.index);
                after.checkpoint = Some(Checkpoint { runs, ..new.clone() });
                new.seq <= end
            }
            DirectoryChange::RunStarted { run, agent, first, at } => {
                if self.run(&after.owner, run).is_none() && !after.runs.iter().any(|row| row.id == *run) {
                    after.runs.push(queued_run(run.clone(), after.row.id.clone(), String::new(), *at));
                }
                after.row.updated_at = *at;
                let Some(row) = after.runs.iter_mut().find(|row| row.id == *run) else { return false };
                let waits = row.status == TaskStatus::Queued;
                (row.status, row.agent) = (TaskStatus::Running, agent.clone());
                (row.first_seq, row.last_seq) = (Some(*first), Some(*first));
                waits && is_new(*first)
            }
            DirectoryChange::RunStatus { run, status, last, at } => {
                let Some(row) = after.runs.iter_mut().find(|row| row.id == *run) else { return false };
                let begun = matches!(row.status, TaskStatus::Running | TaskStatus::Paused);
                (row.status, row.last_seq) = (*status, Some(*last));
                if status.is_terminal() {
                    row.ended_at = Some(*at);
                    after.row.updated_at = *at;
                }
                begun && *status != TaskStatus::Queued && is_new(*last)
            }
            DirectoryChange::RunDropped { run, at } => {
                after.row.updated_at = *at;
                let Some(row) = after.runs.iter_mut().find(|row| row.id == *run) else { return false };
                let waits = row.status == TaskStatus::Queued;
                (row.status, row.ended_at) = (TaskStatus::Cancelled, Some(*at));
                waits
            }
            DirectoryChange::ApprovalRequested(question) => {
                let elsewhere = self.find_approval(&after.owner, &question.key).map(|known| &known.thread_id);
                after.approvals.retain(|known| known.key != question.key);
                after.approvals.push(ApprovalRow { answer: None, ..(**question).clone() });
                let runs = after.runs.iter().any(|row| row.id == question.run_id);
                runs && question.thread_id == after.row.id && elsewhere.is_none_or(|id| *id == after.row.id)
            }
            DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                let known = after.approvals.iter_mut().find(|question| question.key == *key);
                let Some(question) = known else { return false };
                let said = |answer: &ApprovalAnswer| answer.decision == *decision && answer.by == *by;
                if !question.answer.as_ref().is_some_and(said) {
                    question.answer = Some(ApprovalAnswer { decision: decision.clone(), by: *by, at: *at });
                }
                true
            }
            DirectoryChange::ScheduleWakeup { at } => {
                after.wake_at = *at;
                true
            }
            // Not part of what is compared.
            DirectoryChange::ClientCallClosed { .. } => true,
            // Not part of the thread: added once the batch is valid.
            DirectoryChange::AddSpend { .. } => true,
        }
    }

    pub(super) fn delete_thread(&mut self, owner: &UserId, id: &ThreadId) -> bool {
        let there = self.thread(owner, id).is_some();
        if there {
            self.threads.retain(|thread| thread.row.id != *id);
            self.used_keys.retain(|used| used.thread != *id);
            self.aliases.retain(|(of, row)| of != owner || row.thread != *id);
        }
        there
    }

    pub(super) fn find_alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> Option<&AliasRow> {
        let mut aliases = self.aliases.iter().filter(|(of, _)| of == owner).map(|(_, row)| row);
        aliases.find(|row| row.data.kind() == kind && row.name == name)
    }

    pub(super) fn create_alias(&mut self, owner: &UserId, row: &AliasRow) -> AliasRow {
        if self.find_alias(owner, row.data.kind(), &row.name).is_none() {
            self.aliases.push((owner.clone(), row.clone()));
        }
        self.find_alias(owner, row.data.kind(), &row.name).unwrap().clone()
    }

    pub(super) fn update_conversation(
        &mut self,
        owner: &UserId,
        current: &AliasRow,
        data: &ConversationData,
    ) -> AliasUpdate {
        match self.find_alias(owner, AliasKind::Conversation, &current.name) {
            None => return AliasUpdate::NotFound,
            Some(row) if row != current => return AliasUpdate::Conflict,
            Some(_) => {}
        }
        for (_, row) in self.aliases.iter_mut().filter(|(of, row)| of == owner && row == current) {
            row.data = AliasData::Conversation(data.clone());
        }
        AliasUpdate::Updated
    }

    pub(super) fn delete_alias(&mut self, owner: &UserId, like: &AliasRow) -> bool {
        let before = self.aliases.len();
        let same = |row: &AliasRow| row.data.kind() == like.data.kind() && row.name == like.name;
        self.aliases.retain(|(of, row)| of != owner || !same(row));
        self.aliases.len() < before
    }

    pub(super) fn log_bytes(&self, owner: &UserId) -> u64 {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        mine.flat_map(|thread| &thread.records).map(|record| record.size_bytes() as u64).sum()
    }

    pub(super) fn threads_of(&self, owner: &UserId) -> Vec<ThreadRow> {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        let mut rows: Vec<_> = mine.map(|thread| thread.row.clone()).collect();
        rows.sort_by(|one, other| other.id.cmp(&one.id));
        rows
    }

    pub(super) fn runs_of(&self, owner: &UserId, filter: &RunFilter) -> Vec<RunRow> {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        let mut rows: Vec<_> = mine.flat_map(|thread| thread.runs.clone()).collect();
        rows.retain(|run| filter.status.is_empty() || filter.status.contains(&run.status));
        rows.retain(|run| filter.thread.is_none() || filter.thread.as_ref() == Some(&run.thread));
        rows.sort_by(|one, other| other.id.cmp(&one.id));
        rows
    }

    pub(super) fn approvals_of(&self, owner: &UserId, filter: ApprovalFilter) -> Vec<ApprovalRow> {
        let mine = self.threads.iter().filter(|thread| thread.owner == *owner);
        let mut rows: Vec<_> = mine.flat_map(|thread| thread.approvals.clone()).collect();
        rows.retain(|question| filter == ApprovalFilter::All || question.answer.is_none());
        rows.sort_by(|one, other| (other.requested_at, &other.key).cmp(&(one.requested_at, &one.key)));
        rows
    }

    pub(super) fn scheduled_wakeups(&self) -> Vec<ScheduledWakeup> {
        let wake = |thread: &ReferenceThread| {
            thread.wake_at.map(|at| ScheduledWakeup { owner: thread.owner.clone(), thread: thread.row.id.clone(), at })
        };
        let mut wakes: Vec<_> = self.threads.iter().filter_map(wake).collect();
        wakes.sort_by(|one, other| (one.at, &one.thread).cmp(&(other.at, &other.thread)));
        wakes
    }

    pub(super) fn daily_spend(&self, owner: &UserId, day: Day) -> Spend {
        let mut sum = Spend::default();
        for (_, _, more) in self.spend.iter().filter(|(of, on, _)| of == owner && *on == day) {
            sum.usage.add(more.usage);
            sum.cost = CostMicros(sum.cost.0.saturating_add(more.cost.0));
        }
        sum
    }

    pub(super) fn claimable_threads(&self) -> Vec<(UserId, ThreadId)> {
        let goes_on = |run: &RunRow| matches!(run.status, TaskStatus::Queued | TaskStatus::Running);
        let found = self.threads.iter().filter(|thread| !thread.inbox.is_empty() || thread.runs.iter().any(goes_on));
        let mut found: Vec<_> = found.map(|thread| (thread.owner.clone(), thread.row.id.clone())).collect();
        found.sort();
        found
    }
}

fn approval_decision(command: &Command) -> Option<(&ApprovalKey, &ApprovalDecision, Initiator)> {
    let Command::Answer(answer) = command else { return None };
    let AnswerBody::Approval { key, decision, by } = &answer.body else { return None };
    Some((key, decision, *by))
}

fn queued_run(id: TaskId, thread: ThreadId, agent: String, created_at: u64) -> RunRow {
    let status = TaskStatus::Queued;
    RunRow { id, thread, agent, status, first_seq: None, last_seq: None, created_at, ended_at: None }
}

pub(super) fn submit_outcome(answer: &Result<model::ports::Submitted, SubmitError>) -> ExpectedSubmit {
    use model::ports::{StoreError, Submitted};
    match answer {
        Ok(Submitted::Queued | Submitted::Claimed { .. }) => ExpectedSubmit::Queued,
        Ok(Submitted::Duplicate { task, thread }) => ExpectedSubmit::Duplicate(task.clone(), thread.clone()),
        Err(SubmitError::KeyReused) => ExpectedSubmit::KeyReused,
        Err(SubmitError::InboxFull(_)) => ExpectedSubmit::InboxFull,
        Err(SubmitError::ThreadExists) => ExpectedSubmit::ThreadExists,
        Err(SubmitError::AlreadyDecided(row)) => ExpectedSubmit::AlreadyDecided(row.clone()),
        Err(SubmitError::ApprovalNotFound) => ExpectedSubmit::ApprovalNotFound,
        Err(SubmitError::CallClosed(_)) => panic!("the walk submits no results: {answer:?}"),
        Err(SubmitError::ThreadParked) => panic!("a store parks nothing: {answer:?}"),
        Err(SubmitError::LogQuotaExceeded { .. }) => panic!("the walk has no quota: {answer:?}"),
        Err(SubmitError::Store(StoreError::ThreadNotFound)) => ExpectedSubmit::ThreadNotFound,
        Err(SubmitError::Store(StoreError::Unavailable(_))) => ExpectedSubmit::IdTaken,
        Err(SubmitError::Store(StoreError::Corrupt { .. } | StoreError::NoSpace)) => panic!("{answer:?}"),
    }
}
