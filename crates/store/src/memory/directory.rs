//! The directory's side of the store without a disk.

use super::{MemoryStore, MemoryTables, MemoryThread, run_of_start};
use crate::validation;
use model::command::Command;
use model::ports::{
    AccessKeyRow, AliasRow, ApprovalAnswer, ApprovalRow, BoxFuture, Checkpoint, Day, Directory, IdempotencyKey,
    InboxRow, Lease, ListPage, RunFilter, RunRow, ScheduledWakeup, ShareRow, Spend, StoreError, Submission,
    SubmitError, Submitted, ThreadRow,
};
use model::seq::{Epoch, Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use std::cmp::Reverse;

impl Directory for MemoryStore {
    fn submit<'a>(
        &'a self,
        owner: &'a UserId,
        submission: Submission,
    ) -> BoxFuture<'a, Result<Submitted, SubmitError>> {
        Box::pin(async move { self.lock_tables().submit(owner, submission, self.inbox_rows_max) })
    }

    fn find_submission<'a>(
        &'a self,
        owner: &'a UserId,
        idempotency: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<Submitted>, SubmitError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let known = tables.idempotency.get(&(owner.clone(), idempotency.key.clone()));
            match known {
                None => Ok(None),
                Some((digest, _, _)) if *digest != idempotency.request_digest => Err(SubmitError::KeyReused),
                Some((_, task, thread)) => {
                    Ok(Some(Submitted::Duplicate { task: task.clone(), thread: thread.clone() }))
                }
            }
        })
    }

    fn inbox<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<InboxRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let thread = tables.thread(owner, thread).ok_or(StoreError::ThreadNotFound)?;
            Ok(thread.inbox.clone())
        })
    }

    fn claimable_threads(&self) -> BoxFuture<'_, Result<Vec<(UserId, ThreadId)>, StoreError>> {
        Box::pin(async move {
            let goes_on = |run: &RunRow| !run.status.is_terminal() && run.status != TaskStatus::Paused;
            let tables = self.lock_tables();
            let wanting = |thread: &MemoryThread| !thread.inbox.is_empty() || thread.runs.iter().any(goes_on);
            let found = tables.threads.iter().filter(|(_, thread)| wanting(thread));
            Ok(found.map(|(id, thread)| (thread.owner.clone(), id.clone())).collect())
        })
    }

    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> BoxFuture<'a, Result<Vec<ThreadRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let mine = tables.threads.iter().rev().filter(|(_, thread)| thread.owner == *owner);
            let older = mine.filter(|(id, _)| page.before.as_ref().is_none_or(|before| id.as_str() < before.as_str()));
            Ok(older.take(page.limit).map(|(id, thread)| thread.row(id)).collect())
        })
    }

    fn thread<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<ThreadRow>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().thread(owner, thread).map(|found| found.row(thread))) })
    }

    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            tables.unlink_thread(owner, thread);
            if tables.thread(owner, thread).is_none() {
                return Ok(false);
            }
            tables.threads.remove(thread);
            tables.idempotency.retain(|_, (_, _, of)| of != thread);
            tables.aliases.retain(|(of, ..), row| of != owner || row.thread != *thread);
            tables.shares.retain(|share| share.thread != *thread);
            Ok(true)
        })
    }

    fn runs<'a>(
        &'a self,
        owner: &'a UserId,
        filter: RunFilter,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<RunRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let mine = tables.threads.values().filter(|thread| thread.owner == *owner);
            let mut runs: Vec<&RunRow> = mine.flat_map(|thread| &thread.runs).collect();
            runs.sort_by(|one, other| other.id.cmp(&one.id));
            runs.retain(|run| filter.status.is_empty() || filter.status.contains(&run.status));
            runs.retain(|run| filter.thread.as_ref().is_none_or(|thread| run.thread == *thread));
            runs.retain(|run| page.before.as_ref().is_none_or(|before| run.id.as_str() < before.as_str()));
            Ok(runs.into_iter().take(page.limit).cloned().collect())
        })
    }

    fn run<'a>(&'a self, owner: &'a UserId, run: &'a TaskId) -> BoxFuture<'a, Result<Option<RunRow>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().find_run(owner, run).cloned()) })
    }

    fn checkpoint<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Option<Checkpoint>, StoreError>> {
        Box::pin(
            async move { Ok(self.lock_tables().thread(owner, thread).and_then(|thread| thread.checkpoint.clone())) },
        )
    }

    fn approvals<'a>(
        &'a self,
        owner: &'a UserId,
        pending: bool,
        page: ListPage,
    ) -> BoxFuture<'a, Result<Vec<ApprovalRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let before = page.before.and_then(|key| tables.find_approval(owner, &ApprovalKey::from(key)));
            let mine = tables.threads.values().filter(|thread| thread.owner == *owner);
            let mut questions: Vec<&ApprovalRow> = mine.flat_map(|thread| &thread.approvals).collect();
            questions.sort_by_key(|question| Reverse(approval_sort_key(question)));
            questions
                .retain(|question| before.is_none_or(|before| approval_sort_key(question) < approval_sort_key(before)));
            questions.retain(|question| !pending || question.answer.is_none());
            Ok(questions.into_iter().take(page.limit).cloned().collect())
        })
    }

    fn approval<'a>(
        &'a self,
        owner: &'a UserId,
        key: &'a ApprovalKey,
    ) -> BoxFuture<'a, Result<Option<ApprovalRow>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().find_approval(owner, key).cloned()) })
    }

    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> BoxFuture<'a, Result<Spend, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().spend.get(&(owner.clone(), day)).copied().unwrap_or_default()) })
    }

    fn scheduled_wakeups(&self) -> BoxFuture<'_, Result<Vec<ScheduledWakeup>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let wake = |(id, thread): (&ThreadId, &MemoryThread)| {
                thread.wake_at.map(|at| ScheduledWakeup { owner: thread.owner.clone(), thread: id.clone(), at })
            };
            let mut wakes: Vec<ScheduledWakeup> = tables.threads.iter().filter_map(wake).collect();
            wakes.sort_by(|one, other| (one.at, &one.thread).cmp(&(other.at, &other.thread)));
            Ok(wakes)
        })
    }

    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> BoxFuture<'a, Result<AliasRow, StoreError>> {
        Box::pin(async move {
            let key = (owner.clone(), row.protocol.clone(), row.name.clone());
            Ok(self.lock_tables().aliases.entry(key).or_insert(row).clone())
        })
    }

    fn alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<AliasRow>, StoreError>> {
        let key = (owner.clone(), protocol.to_owned(), name.to_owned());
        Box::pin(async move { Ok(self.lock_tables().aliases.get(&key).cloned()) })
    }

    fn update_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
        note: String,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let key = (owner.clone(), protocol.to_owned(), name.to_owned());
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let Some(row) = tables.aliases.get_mut(&key) else { return Ok(false) };
            row.note = note;
            Ok(true)
        })
    }

    fn delete_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let key = (owner.clone(), protocol.to_owned(), name.to_owned());
        Box::pin(async move { Ok(self.lock_tables().aliases.remove(&key).is_some()) })
    }

    fn create_share(&self, share: ShareRow) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            tables.thread(&share.owner, &share.thread).ok_or(StoreError::ThreadNotFound)?;
            if tables.shares.iter().any(|known| known.id == share.id) {
                return Err(StoreError::Unavailable(format!("there is a share named {} already", share.id)));
            }
            tables.shares.push(share);
            Ok(())
        })
    }

    fn shares<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Vec<ShareRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let mut shares: Vec<ShareRow> = tables
                .shares
                .iter()
                .filter(|share| share.owner == *owner && share.thread == *thread)
                .cloned()
                .collect();
            shares.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(shares)
        })
    }

    fn revoke_share<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        id: &'a str,
        at: Millis,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let mut shares = tables.shares.iter_mut();
            let share = shares.find(|share| share.id == id && share.owner == *owner && share.thread == *thread);
            let Some(share) = share else { return Ok(false) };
            share.revoked_at.get_or_insert(at);
            Ok(true)
        })
    }

    fn active_shares(&self, at: Millis) -> BoxFuture<'_, Result<Vec<ShareRow>, StoreError>> {
        Box::pin(async move {
            let mut open: Vec<ShareRow> =
                self.lock_tables().shares.iter().filter(|share| share.is_active(at)).cloned().collect();
            open.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(open)
        })
    }

    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock_tables().definitions.entry(digest.to_owned()).or_insert_with(|| body.to_owned());
            Ok(())
        })
    }

    fn definitions<'a>(&'a self, digest: &'a str) -> BoxFuture<'a, Result<Option<String>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().definitions.get(digest).cloned()) })
    }

    fn create_access_key(&self, key: AccessKeyRow) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            if tables.access_keys.iter().any(|known| known.id == key.id) {
                return Err(StoreError::Unavailable(format!("there is a key named {} already", key.id)));
            }
            tables.access_keys.push(key);
            tables.access_keys.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
            Ok(())
        })
    }

    fn access_keys(&self) -> BoxFuture<'_, Result<Vec<AccessKeyRow>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().access_keys.clone()) })
    }

    fn revoke_access_key<'a>(&'a self, id: &'a str, at: Millis) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let Some(key) = tables.access_keys.iter_mut().find(|key| key.id == id) else { return Ok(false) };
            key.revoked_at.get_or_insert(at);
            Ok(true)
        })
    }
}

impl MemoryTables {
    fn submit(
        &mut self,
        owner: &UserId,
        submission: Submission,
        inbox_rows_max: usize,
    ) -> Result<Submitted, SubmitError> {
        let Submission { thread: id, new_thread, at, command, idempotency_key: idempotency } = submission;
        let key = idempotency.map(|given| ((owner.clone(), given.key), given.request_digest));
        if let Some((key, digest)) = &key
            && let Some((known, task, thread)) = self.idempotency.get(key)
        {
            let repeated = Submitted::Duplicate { task: task.clone(), thread: thread.clone() };
            return if known == digest { Ok(repeated) } else { Err(SubmitError::KeyReused) };
        }
        if new_thread && self.threads.contains_key(&id) {
            let mine = self.thread(owner, &id).is_some();
            return Err(if mine { SubmitError::ThreadExists } else { id_taken_error(id.as_str()) });
        }
        let makes = new_thread && matches!(command, Command::Start(_));
        if !makes && self.thread(owner, &id).is_none() {
            return Err(SubmitError::Store(StoreError::ThreadNotFound));
        }
        let decision =
            validation::approval_decision(&command).map(|(key, decision, by)| (key.clone(), decision.clone(), by));
        if let Some((key, decision, by)) = &decision {
            let question = self.find_approval(owner, key).filter(|question| question.thread_id == id);
            if let Some(late) =
                validation::closed_approval_result(question.ok_or(SubmitError::ApprovalNotFound)?, (decision, *by), at)
            {
                return late;
            }
        }
        let waiting = self.threads.get(&id).map_or(0, |thread| thread.inbox.len());
        if waiting >= inbox_rows_max && !validation::bypasses_inbox_limit(&command) {
            return Err(SubmitError::InboxFull(waiting));
        }
        let run = run_of_start(&command, &id, at);
        if let Some(run) = run.as_ref().filter(|run| self.find_run(owner, &run.id).is_some()) {
            return Err(id_taken_error(run.id.as_str()));
        }
        if let Some((key, digest)) = key {
            self.idempotency.insert(key, (digest, command.task_id().clone(), id.clone()));
        }
        self.last_inbox_row += 1;
        let row = InboxRow { id: self.last_inbox_row, at, command };
        let thread = self.threads.entry(id).or_insert_with(|| MemoryThread::new(owner.clone(), at));
        thread.runs.extend(run);
        thread.inbox.push(row);
        if let Some((key, decision, by)) = decision {
            thread.close_approval(&key, ApprovalAnswer { decision, by, at });
        }
        if !new_thread {
            return Ok(Submitted::Queued);
        }
        self.last_epoch += 1;
        let epoch = Epoch(self.last_epoch);
        thread.epoch = Some(epoch);
        Ok(Submitted::ThreadCreated { lease: Lease { epoch, head: Seq::ZERO }, row: self.last_inbox_row })
    }
}

impl MemoryThread {
    fn new(owner: UserId, at: Millis) -> Self {
        Self {
            owner,
            created_at: at,
            updated_at: at,
            epoch: None,
            records: Vec::new(),
            runs: Vec::new(),
            inbox: Vec::new(),
            checkpoint: None,
            approvals: Vec::new(),
            wake_at: None,
        }
    }

    fn row(&self, id: &ThreadId) -> ThreadRow {
        ThreadRow { id: id.clone(), created_at: self.created_at, updated_at: self.updated_at }
    }
}

/// Where a question stands in a listing.
const fn approval_sort_key(question: &ApprovalRow) -> (Millis, &ApprovalKey) {
    (question.requested_at, &question.key)
}

fn id_taken_error(name: &str) -> SubmitError {
    SubmitError::Store(StoreError::Unavailable(format!("{name} is taken: use another name")))
}
