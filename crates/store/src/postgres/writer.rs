//! The task that commits appends: all that are queued, up to a limit, in one transaction.
//!
//! The next group queues up during the commit, so no timer is needed. While the database cannot be reached, the group waits
//! and is tried again: a run survives a restart of the database. A commit whose outcome is not known is resolved by the next
//! attempt (see `append_group`), and a batch that was applied is not applied twice.

use super::append_group::{AppendGroup, GroupError};
use super::pool::DatabasePool;
use crate::space_state::SpaceState;
use crate::sqlite::WriterStats;
use deadpool_postgres::Object;
use model::NodeId;
use model::defects::Defect;
use model::ports::{AppendBatch, AppendOutcome, DirectoryChange, OnCommit, StorageSpace};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// An attempt that takes longer is given up together with its connection.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
const RETRY_DELAY_MAX: Duration = Duration::from_secs(1);

pub(super) struct AppendTask {
    pub(super) batch: AppendBatch,
    /// Why no log can accept the batch.
    pub(super) invalid_reason: Option<String>,
    pub(super) on_commit: OnCommit,
}

impl AppendTask {
    /// Calls back. Catches panics, because they would end the writer.
    fn finish(self, outcome: &AppendOutcome) {
        if catch_unwind(AssertUnwindSafe(|| self.on_commit.call(outcome))).is_err() {
            tracing::error!("a callback of an append panicked");
        }
    }
}

pub(super) enum WriterMessage {
    Append(AppendTask),
    Close { reply: oneshot::Sender<()> },
}

/// The limits of one commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLimits {
    pub(super) ops_max: usize,
    pub(super) bytes_max: usize,
}

pub(super) struct PostgresWriter {
    pool: DatabasePool,
    node: NodeId,
    limits: GroupLimits,
    stats: Arc<Mutex<WriterStats>>,
    space: Arc<SpaceState>,
    group: AppendGroup,
    /// Appends that wait because one of the same thread is in the current group.
    deferred: VecDeque<AppendTask>,
}

impl PostgresWriter {
    pub(super) fn new(
        pool: DatabasePool,
        node: NodeId,
        limits: GroupLimits,
        stats: Arc<Mutex<WriterStats>>,
        space: Arc<SpaceState>,
    ) -> Self {
        Self { pool, node, limits, stats, space, group: AppendGroup::default(), deferred: VecDeque::new() }
    }

    /// Runs until all senders are dropped or the store is closed. From the deadline on, the database is not waited for.
    pub(super) async fn run(
        mut self,
        mut messages: mpsc::UnboundedReceiver<WriterMessage>,
        deadline: watch::Receiver<Option<Instant>>,
    ) {
        let mut closing = None;
        loop {
            let first = match self.deferred.pop_front() {
                Some(task) => WriterMessage::Append(task),
                None => match messages.recv().await {
                    Some(message) => message,
                    None => break,
                },
            };
            let tasks = self.take_group(first, &mut messages, &mut closing);
            self.commit(tasks, &deadline).await;
        }
        self.pool.close();
        if let Some(reply) = closing {
            // The caller may have stopped waiting.
            let _ = reply.send(());
        }
    }

    /// Takes what is queued, up to the limits, and one append of each thread.
    fn take_group(
        &mut self,
        first: WriterMessage,
        messages: &mut mpsc::UnboundedReceiver<WriterMessage>,
        closing: &mut Option<oneshot::Sender<()>>,
    ) -> Vec<AppendTask> {
        let (mut tasks, mut bytes): (Vec<AppendTask>, usize) = (Vec::new(), 0);
        let (mut threads, mut later) = (HashSet::new(), VecDeque::new());
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                WriterMessage::Close { reply } => {
                    messages.close();
                    *closing = Some(reply);
                }
                WriterMessage::Append(task) if threads.contains(&task.batch.thread) => later.push_back(task),
                WriterMessage::Append(task) => {
                    threads.insert(task.batch.thread.clone());
                    bytes += batch_bytes(&task.batch);
                    tasks.push(task);
                }
            }
            if tasks.len() < self.limits.ops_max && bytes < self.limits.bytes_max {
                let queued = self.deferred.pop_front().map(WriterMessage::Append);
                next = queued.or_else(|| messages.try_recv().ok());
            }
        }
        // Of one thread the earlier append comes first.
        later.append(&mut self.deferred);
        self.deferred = later;
        tasks
    }

    async fn commit(&mut self, mut tasks: Vec<AppendTask>, deadline: &watch::Receiver<Option<Instant>>) {
        if tasks.is_empty() {
            return;
        }
        if self.space.is_full() && !self.group.has_unknown_outcomes() {
            return tasks.into_iter().for_each(|task| task.finish(&AppendOutcome::NoSpace));
        }
        self.group.begin();
        if Defect::CommitAcknowledgedEarly.is_planted() {
            for task in &mut tasks {
                std::mem::replace(&mut task.on_commit, OnCommit::new(|_| ())).call(&AppendOutcome::Durable);
            }
        }
        let known = tokio::select! {
            biased;
            known = self.try_until_known(&tasks) => known,
            () = passed(deadline.clone()) => Err(GroupError::Interrupted("the store was closed meanwhile".to_owned())),
        };
        let outcomes = match known {
            Ok(outcomes) => outcomes,
            Err(GroupError::NoSpace) => vec![AppendOutcome::NoSpace; tasks.len()],
            // One batch may be the cause: each gets its own transaction.
            Err(GroupError::Refused(_)) if tasks.len() > 1 => {
                for task in tasks {
                    Box::pin(self.commit(vec![task], deadline)).await;
                }
                return;
            }
            Err(GroupError::Refused(why) | GroupError::Interrupted(why)) => {
                tracing::error!(%why, "the database refused an append");
                self.count_failure();
                vec![AppendOutcome::Unknown(why); tasks.len()]
            }
        };
        if outcomes.contains(&AppendOutcome::NoSpace) {
            self.space.set(StorageSpace::Full);
        }
        for (task, outcome) in tasks.into_iter().zip(outcomes) {
            self.group.forget_attempt(&task.batch.thread);
            task.finish(&outcome);
        }
    }

    /// Tries until the database tells the outcome.
    async fn try_until_known(&mut self, tasks: &[AppendTask]) -> Result<Vec<AppendOutcome>, GroupError> {
        let mut delay = RETRY_DELAY_MIN;
        loop {
            let error = match tokio::time::timeout(ATTEMPT_TIMEOUT, self.attempt(tasks)).await {
                Ok(Err(GroupError::Interrupted(why))) => why,
                Ok(known) => return known,
                Err(_) => "the database did not answer in time".to_owned(),
            };
            tracing::warn!(%error, appends = tasks.len(), "appends wait for the database");
            self.count_failure();
            self.group.forget_runs();
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(RETRY_DELAY_MAX);
        }
    }

    async fn attempt(&mut self, tasks: &[AppendTask]) -> Result<Vec<AppendOutcome>, GroupError> {
        let connection = self.pool.get().await.map_err(|error| GroupError::Interrupted(error.to_string()))?;
        // Closed unless the transaction has ended: dropping the attempt must not leave it open in the pool.
        let mut guard = ConnectionGuard(Some(connection));
        let Some(client) = guard.0.as_deref() else { return Ok(Vec::new()) };
        let batches = tasks.iter().map(|task| (&task.batch, task.invalid_reason.as_deref()));
        let (outcomes, written) = self.group.commit(client, &self.node, batches).await?;
        drop(guard.0.take());
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.commits += u64::from(outcomes.contains(&AppendOutcome::Durable));
        stats.records += written.records;
        stats.bytes += written.bytes;
        Ok(outcomes)
    }

    fn count_failure(&self) {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).failures += 1;
    }
}

/// The approximate size of a batch: checkpoints can be larger than the records that they stand for.
fn batch_bytes(batch: &AppendBatch) -> usize {
    let records = batch.records.iter().map(|record| record.size_bytes() + 64);
    let changes = batch.changes.iter().map(|change| match change {
        DirectoryChange::Checkpoint(checkpoint) => {
            checkpoint.body.len() + checkpoint.runs.iter().map(|run| run.body.len()).sum::<usize>()
        }
        _ => 64,
    });
    records.chain(changes).sum()
}

/// Waits until there is a deadline and it has passed.
async fn passed(mut deadline: watch::Receiver<Option<Instant>>) {
    let known = deadline.wait_for(Option::is_some).await.ok().and_then(|deadline| *deadline);
    match known {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        // The store was dropped without having been closed.
        None => std::future::pending().await,
    }
}

/// Closes its connection when it is dropped.
struct ConnectionGuard(Option<Object>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        drop(self.0.take().map(Object::take));
    }
}
