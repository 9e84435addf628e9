//! Inboxes and runs.

use crate::{MemoryStore, MemoryTables, MemoryThread, run_of_start};
use async_trait::async_trait;
use model::command::Command;
use model::ports::validation;
use model::ports::{
    ApprovalAnswer, Checkpoint, IdempotencyKey, Inbox, InboxRow, InboxWriter, Lease, ListPage, RunFilter, RunRow,
    ScheduledWakeup, StoreError, StoreResult, Submission, SubmitError, Submitted, ThreadMode,
};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{TaskId, ThreadId, UserId};

#[async_trait]
impl Inbox for MemoryStore {
    async fn find_submission(
        &self,
        owner: &UserId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Submitted>, SubmitError> {
        let tables = self.lock_tables();
        let known = tables.idempotency.get(&(owner.clone(), idempotency.key.clone()));
        match known {
            None => Ok(None),
            Some((digest, _, _)) if *digest != idempotency.request_digest => Err(SubmitError::KeyReused),
            Some((_, task, thread)) => Ok(Some(Submitted::Duplicate { task: task.clone(), thread: thread.clone() })),
        }
    }

    async fn inbox_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: u64,
        rows_max: usize,
    ) -> StoreResult<Vec<InboxRow>> {
        let tables = self.lock_tables();
        let thread = tables.thread(owner, thread).ok_or(StoreError::ThreadNotFound)?;
        Ok(thread.inbox.iter().filter(|row| row.id > after).take(rows_max).cloned().collect())
    }

    async fn claimable_threads(&self) -> StoreResult<Vec<(UserId, ThreadId)>> {
        let goes_on = |run: &RunRow| !run.status.is_terminal() && run.status != TaskStatus::Paused;
        let tables = self.lock_tables();
        let wanting = |thread: &MemoryThread| !thread.inbox.is_empty() || thread.runs.iter().any(goes_on);
        let found = tables.threads.iter().filter(|(_, thread)| wanting(thread));
        Ok(found.map(|(id, thread)| (thread.owner.clone(), id.clone())).collect())
    }

    async fn scheduled_wakeups(&self) -> StoreResult<Vec<ScheduledWakeup>> {
        let tables = self.lock_tables();
        let wake = |(id, thread): (&ThreadId, &MemoryThread)| {
            thread.wake_at.map(|at| ScheduledWakeup { owner: thread.owner.clone(), thread: id.clone(), at })
        };
        let mut wakes: Vec<ScheduledWakeup> = tables.threads.iter().filter_map(wake).collect();
        wakes.sort_by(|one, other| (one.at, &one.thread).cmp(&(other.at, &other.thread)));
        Ok(wakes)
    }

    async fn runs(&self, owner: &UserId, filter: RunFilter, page: ListPage) -> StoreResult<Vec<RunRow>> {
        let tables = self.lock_tables();
        let mine = tables.threads.values().filter(|thread| thread.owner == *owner);
        let mut runs: Vec<&RunRow> = mine.flat_map(|thread| &thread.runs).collect();
        runs.sort_by(|one, other| other.id.cmp(&one.id));
        runs.retain(|run| filter.status.is_empty() || filter.status.contains(&run.status));
        runs.retain(|run| match &filter.thread {
            Some(thread) => run.thread == *thread,
            None => !run.thread.is_unlisted(),
        });
        runs.retain(|run| page.before.as_ref().is_none_or(|before| run.id.as_str() < before.as_str()));
        Ok(runs.into_iter().take(page.limit).cloned().collect())
    }

    async fn run(&self, owner: &UserId, run: &TaskId) -> StoreResult<Option<RunRow>> {
        Ok(self.lock_tables().find_run(owner, run).cloned())
    }

    async fn checkpoint(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<Checkpoint>> {
        Ok(self.lock_tables().thread(owner, thread).and_then(|thread| thread.checkpoint.clone()))
    }
}

#[async_trait]
impl InboxWriter for MemoryStore {
    async fn submit(&self, owner: &UserId, submission: Submission) -> Result<Submitted, SubmitError> {
        if !matches!(submission.command, Command::Cancel(_)) {
            self.check_space()?;
        }
        self.lock_tables().submit(owner, submission, self)
    }
}

impl MemoryTables {
    fn submit(
        &mut self,
        owner: &UserId,
        submission: Submission,
        limits: &MemoryStore,
    ) -> Result<Submitted, SubmitError> {
        let Submission { thread: id, thread_mode, at, .. } = submission.clone();
        let key = submission.idempotency_key.clone().map(|key| ((owner.clone(), key.key), key.request_digest));
        if let Some((key, digest)) = &key
            && let Some((known, task, thread)) = self.idempotency.get(key)
        {
            let repeated = Submitted::Duplicate { task: task.clone(), thread: thread.clone() };
            return if known == digest { Ok(repeated) } else { Err(SubmitError::KeyReused) };
        }
        if thread_mode == ThreadMode::CreateNew && self.threads.contains_key(&id) {
            let is_own = self.thread(owner, &id).is_some();
            return Err(if is_own { SubmitError::ThreadExists } else { validation::id_taken_error(id.as_str()) });
        }
        let creates = thread_mode == ThreadMode::CreateNew && matches!(submission.command, Command::Start(_));
        if !creates && self.thread(owner, &id).is_none() {
            return Err(SubmitError::Store(StoreError::ThreadNotFound));
        }
        if let Some(result) = self.closed_question_result(owner, &submission) {
            return result;
        }
        let command = submission.command;
        if let Some(max) = limits.log_bytes_per_user_max.filter(|_| validation::adds_input(&command)) {
            let used = self.log_bytes(owner);
            if used >= max {
                return Err(SubmitError::LogQuotaExceeded { used, max });
            }
        }
        let decision =
            validation::approval_decision(&command).map(|(key, decision, by)| (key.clone(), decision.clone(), by));
        let results: Vec<_> = validation::client_results(&command)
            .iter()
            .map(|result| (result.call_id.clone(), validation::result_digest(result)))
            .collect();
        let waiting = self.threads.get(&id).map_or(0, |thread| thread.inbox.len());
        if waiting >= limits.inbox_rows_max && !validation::bypasses_inbox_limit(&command) {
            return Err(SubmitError::InboxFull(waiting));
        }
        let run = run_of_start(&command, &id, at);
        if let Some(run) = run.as_ref().filter(|run| self.find_run(owner, &run.id).is_some()) {
            return Err(validation::id_taken_error(run.id.as_str()));
        }
        if let Some((key, digest)) = key {
            self.idempotency.insert(key, (digest, command.task_id().clone(), id.clone()));
        }
        self.last_inbox_row += 1;
        let row = InboxRow { id: self.last_inbox_row, at, command };
        let thread = self.threads.entry(id).or_insert_with(|| MemoryThread::new(owner.clone(), at));
        thread.runs.extend(run);
        thread.inbox.push(row);
        thread.client_results.extend(results);
        if let Some((key, decision, by)) = decision {
            thread.close_approval(&key, ApprovalAnswer { decision, by, at });
        }
        if !creates {
            return Ok(Submitted::Queued);
        }
        self.last_epoch += 1;
        let epoch = Epoch(self.last_epoch);
        thread.epoch = Some(epoch);
        Ok(Submitted::Claimed { lease: Lease { epoch, head: Seq::ZERO }, row: self.last_inbox_row })
    }
    /// The result of an answer to a question that is closed; `None` for an open question and for other commands.
    fn closed_question_result(
        &self,
        owner: &UserId,
        submission: &Submission,
    ) -> Option<Result<Submitted, SubmitError>> {
        let thread = self.thread(owner, &submission.thread)?;
        let is_cancel = |row: &&InboxRow| validation::is_cancel_of_question(&row.command, submission);
        let cancelled_at = thread.inbox.iter().find(is_cancel).map(|row| row.at);
        if let Some((key, decision, by)) = validation::approval_decision(&submission.command) {
            let question = self.find_approval(owner, key).filter(|question| question.thread_id == submission.thread);
            let Some(question) = question else { return Some(Err(SubmitError::ApprovalNotFound)) };
            return validation::closed_approval_result(question, (decision, by), submission.at, cancelled_at);
        }
        let results = validation::client_results(&submission.command).iter();
        let stored: Vec<_> = results.map(|result| thread.client_results.get(&result.call_id).cloned()).collect();
        validation::closed_calls_result(submission, &stored, cancelled_at.is_some())
    }
}
