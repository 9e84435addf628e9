//! A group of appends in one transaction: two round trips, each with a constant number of pipelined statements.
//!
//! ```text
//!   1.  BEGIN · lock the threads · read their runs, inbox rows and questions   → an outcome per batch
//!   2.  write what was accepted · COMMIT
//! ```
//!
//! The locks of the first round trip make the checks hold until the commit. If the connection breaks in the second, the
//! outcome is not known. The next attempt waits for the locks, so that the lost transaction has ended by then, and compares
//! the number of the thread's appends: while the epoch is the same, only this node can have increased it.

use super::connection::{BEGIN, is_disconnect};
use super::group_write::{GroupWrite, insert_new_runs};
use foldhash::{HashMap, HashSet};
use futures_util::future::{join, join_all};
use model::ports::validation;
use model::ports::{AppendBatch, AppendOutcome, ApprovalAnswer, DirectoryChange};
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model::{NodeId, TaskId, ThreadId};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// Maximum number of threads whose runs are cached.
const CACHED_THREADS_MAX: usize = 16_384;

/// Why a group has no outcomes.
#[derive(Debug)]
pub(super) enum GroupError {
    /// The connection broke, or the database asks to try again. The group may have been committed.
    Interrupted(String),
    NoSpace,
    /// The database refuses the group. Nothing changed.
    Refused(String),
}

impl GroupError {
    /// The same error of a group that an earlier attempt may have committed.
    fn after_unknown_outcome(self) -> Self {
        match self {
            Self::Interrupted(why) | Self::Refused(why) => Self::Interrupted(why),
            Self::NoSpace => Self::Interrupted("the disk is full".to_owned()),
        }
    }
}

impl From<tokio_postgres::Error> for GroupError {
    fn from(error: tokio_postgres::Error) -> Self {
        let why = super::connection::describe(&error);
        match error.code() {
            Some(code) if *code == SqlState::DISK_FULL => Self::NoSpace,
            Some(code) if is_transient(code) => Self::Interrupted(why),
            _ if is_disconnect(&error) => Self::Interrupted(why),
            _ => Self::Refused(why),
        }
    }
}

/// Whether the same statement may succeed later: after a failover, a conflict, or when resources are free again.
fn is_transient(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    // Conflicts of transactions, lacking resources, the operator's interventions.
    ["40", "53", "57"].contains(&class)
        || [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::IN_FAILED_SQL_TRANSACTION,
        ]
        .contains(code)
}

/// A batch with the reason for which no log accepts it.
type CheckedBatch<'a> = (&'a AppendBatch, Option<&'a str>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Written {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// What is remembered of threads between attempts and groups.
#[derive(Debug, Default)]
pub(super) struct AppendGroup {
    /// The number of appends that a thread had before an attempt whose outcome is not known.
    attempted: HashMap<ThreadId, i64>,
    /// The runs of live threads. Only the holder of the epoch changes them.
    runs: HashMap<ThreadId, (Epoch, Vec<KnownRun>)>,
}

#[derive(Clone, Debug)]
pub(super) struct KnownRun {
    pub(super) id: TaskId,
    /// `None` until the run is inserted.
    pub(super) num: Option<i64>,
    pub(super) status: TaskStatus,
}

/// A thread's row, locked.
#[derive(Debug)]
pub(super) struct LockedThread {
    pub(super) num: i64,
    owner: String,
    epoch: Epoch,
    pub(super) head: Seq,
    pub(super) appends: i64,
}

/// What the first round trip read.
#[derive(Debug, Default)]
struct GroupState {
    threads: HashMap<String, LockedThread>,
    /// The number of the thread, and the run.
    runs: HashMap<(String, String), (i64, KnownRun)>,
    /// Row and thread.
    inbox: HashSet<(i64, i64)>,
    approvals: HashMap<(String, String), StoredApproval>,
}

#[derive(Debug)]
pub(super) struct StoredApproval {
    thread: i64,
    pub(super) answer: Option<ApprovalAnswer>,
}

/// A batch that passed every check.
pub(super) struct AcceptedBatch<'a> {
    pub(super) batch: &'a AppendBatch,
    pub(super) thread: &'a LockedThread,
    /// The thread's runs after the batch.
    pub(super) runs: Vec<KnownRun>,
}

impl AppendGroup {
    /// Begins a group.
    pub(super) fn begin(&mut self) {
        if self.runs.len() > CACHED_THREADS_MAX {
            self.runs.clear();
        }
    }

    /// Forgets what an attempt with an unknown outcome may have changed.
    pub(super) fn forget_runs(&mut self) {
        self.runs.clear();
    }

    /// Whether the outcome of an earlier attempt is not known.
    pub(super) fn has_unknown_outcomes(&self) -> bool {
        !self.attempted.is_empty()
    }

    /// The caller knows the outcome of the thread's batch.
    pub(super) fn forget_attempt(&mut self, thread: &ThreadId) {
        self.attempted.remove(thread);
    }

    /// Appends the batches and returns an outcome for each.
    pub(super) async fn commit<'a>(
        &mut self,
        client: &Client,
        node: &NodeId,
        batches: impl ExactSizeIterator<Item = CheckedBatch<'a>> + Clone,
    ) -> Result<(Vec<AppendOutcome>, Written), GroupError> {
        let read = self.lock_and_read(client, batches.clone()).await;
        let is_certain = !self.has_unknown_outcomes();
        let state = read.map_err(|error| if is_certain { error } else { error.after_unknown_outcome() })?;
        let (mut outcomes, mut accepted) = (Vec::with_capacity(batches.len()), Vec::new());
        for (index, checked) in batches.enumerate() {
            let before = self.attempted.get(&checked.0.thread).copied();
            match self.check_batch(&state, checked, before) {
                Ok(batch) => {
                    // The lost transaction has ended without it.
                    self.attempted.remove(&batch.batch.thread);
                    accepted.push((index, batch));
                    outcomes.push(AppendOutcome::Durable);
                }
                Err(outcome) => outcomes.push(outcome),
            }
        }
        if accepted.is_empty() {
            client.batch_execute("ROLLBACK").await?;
            return Ok((outcomes, Written::default()));
        }
        match self.write(client, node, &state, accepted.iter_mut().map(|(_, batch)| batch)).await {
            Ok(written) => {
                for (_, AcceptedBatch { batch, runs, .. }) in accepted {
                    let live = runs.into_iter().filter(|run| !run.status.is_terminal()).collect();
                    self.runs.insert(batch.thread.clone(), (batch.epoch, live));
                }
                Ok((outcomes, written))
            }
            // The other outcomes are known.
            Err(GroupError::NoSpace) => {
                for (index, _) in accepted {
                    outcomes.splice(index..=index, [AppendOutcome::NoSpace]);
                }
                Ok((outcomes, Written::default()))
            }
            Err(error) => Err(error),
        }
    }

    /// The second round trip.
    async fn write<'a, 'b: 'a>(
        &mut self,
        client: &Client,
        node: &NodeId,
        state: &'b GroupState,
        accepted: impl Iterator<Item = &'a mut AcceptedBatch<'b>>,
    ) -> Result<Written, GroupError> {
        let mut accepted: Vec<&mut AcceptedBatch<'b>> = accepted.collect();
        insert_new_runs(client, &mut accepted).await?;
        let mut write = GroupWrite::default();
        for accepted in &accepted {
            write.add_batch(accepted, |key| state.approvals.get(&(accepted.batch.owner.to_string(), key.to_string())));
            self.attempted.insert(accepted.batch.thread.clone(), accepted.thread.appends);
        }
        let done = write.run(client, node).await.map_err(GroupError::from);
        if !matches!(done, Err(GroupError::Interrupted(_))) {
            accepted.iter().for_each(|accepted| self.forget_attempt(&accepted.batch.thread));
        }
        done.map(|()| Written { records: write.records(), bytes: write.bytes() })
    }

    /// The first round trip.
    async fn lock_and_read<'a>(
        &self,
        client: &Client,
        batches: impl ExactSizeIterator<Item = CheckedBatch<'a>> + Clone,
    ) -> Result<GroupState, GroupError> {
        let ids: Vec<&str> = batches.clone().map(|(batch, _)| batch.thread.as_str()).collect();
        let (mut run_owners, mut run_ids) = (Vec::new(), Vec::new());
        let (mut inbox, mut key_owners, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for (batch, _) in batches {
            for run in self.unknown_runs(batch) {
                run_owners.push(batch.owner.as_str());
                run_ids.push(run.as_str());
            }
            for change in batch.changes.iter() {
                match change {
                    DirectoryChange::ConsumeInboxRow { row } => inbox.push(row.cast_signed()),
                    DirectoryChange::ApprovalRequested(question) => {
                        key_owners.push(batch.owner.as_str());
                        keys.push(question.key.as_str());
                    }
                    DirectoryChange::ApprovalResolved { key, .. } => {
                        key_owners.push(batch.owner.as_str());
                        keys.push(key.as_str());
                    }
                    _ => {}
                }
            }
        }
        let begin = async { client.batch_execute(BEGIN).await.map(|()| Vec::new()) };
        let lock = select(client, LOCK_THREADS, vec![(&ids, Type::TEXT_ARRAY)]);
        let texts = |owners, ids| vec![(owners as _, Type::TEXT_ARRAY), (ids as _, Type::TEXT_ARRAY)];
        let runs = async {
            if run_ids.is_empty() {
                Ok(Vec::new())
            } else {
                select(client, READ_RUNS, texts(&run_owners, &run_ids)).await
            }
        };
        let rows = async {
            if inbox.is_empty() {
                Ok(Vec::new())
            } else {
                select(client, READ_INBOX, vec![(&inbox, Type::INT8_ARRAY)]).await
            }
        };
        let questions = async {
            if keys.is_empty() {
                Ok(Vec::new())
            } else {
                select(client, READ_APPROVALS, texts(&key_owners, &keys)).await
            }
        };
        // Polled in this order, so that they are sent in this order.
        let mut read = join_all([
            Box::pin(begin) as std::pin::Pin<Box<dyn Future<Output = _> + Send>>,
            Box::pin(lock),
            Box::pin(runs),
            Box::pin(rows),
            Box::pin(questions),
        ])
        .await
        .into_iter()
        .collect::<Result<Vec<Vec<Row>>, tokio_postgres::Error>>()?
        .into_iter()
        .skip(1);
        let mut next = || read.next().unwrap_or_default();
        Ok(GroupState::decode(&next(), &next(), &next(), &next())?)
    }

    /// The runs of a batch that are not cached.
    fn unknown_runs<'a>(&self, batch: &'a AppendBatch) -> Vec<&'a TaskId> {
        let cached = self.runs.get(&batch.thread).filter(|(epoch, _)| *epoch == batch.epoch).map(|(_, runs)| runs);
        let is_cached = |id: &TaskId| cached.is_some_and(|runs| runs.iter().any(|run| run.id == *id));
        let mut unknown: Vec<&TaskId> = validation::runs_in_batch(batch)
            .chain(batch.changes.iter().filter_map(validation::changed_run))
            .filter(|id| !is_cached(id))
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        unknown
    }

    /// Checks a batch against the locked rows. `before` is the number of appends before an attempt with an unknown outcome.
    fn check_batch<'a>(
        &self,
        state: &'a GroupState,
        (batch, invalid_reason): CheckedBatch<'a>,
        before: Option<i64>,
    ) -> Result<AcceptedBatch<'a>, AppendOutcome> {
        let thread = state.threads.get(batch.thread.as_str()).filter(|thread| thread.owner == batch.owner.as_str());
        let Some(thread) = thread else {
            return Err(AppendOutcome::Rejected(validation::THREAD_NOT_FOUND.to_owned()));
        };
        match before {
            Some(before) if thread.epoch == batch.epoch && thread.appends > before => {
                return Err(AppendOutcome::Durable);
            }
            // Another node has taken over, after the lost commit or without it.
            Some(before) if thread.epoch != batch.epoch && thread.appends > before => {
                return Err(AppendOutcome::Unknown("another node has taken the thread over".to_owned()));
            }
            _ => {}
        }
        validation::check_epoch(Some(thread.epoch), thread.head, batch)?;
        if let Some(reason) = invalid_reason {
            return Err(AppendOutcome::Rejected(reason.to_owned()));
        }
        let known = self.runs_before(state, thread, batch)?;
        let runs = runs_after(state, thread, batch, known)?;
        for id in validation::runs_in_batch(batch) {
            runs.iter().find(|run| run.id == *id).ok_or_else(|| validation::unknown_run(id))?;
        }
        check_approvals(state, thread, batch)?;
        Ok(AcceptedBatch { batch, thread, runs })
    }

    /// The runs of the thread that the batch concerns, cached or read.
    fn runs_before(
        &self,
        state: &GroupState,
        thread: &LockedThread,
        batch: &AppendBatch,
    ) -> Result<Vec<KnownRun>, AppendOutcome> {
        let cached = self.runs.get(&batch.thread).filter(|(epoch, _)| *epoch == batch.epoch);
        let mut runs = cached.map(|(_, runs)| runs.clone()).unwrap_or_default();
        for id in self.unknown_runs(batch) {
            match state.runs.get(&(batch.owner.to_string(), id.to_string())) {
                Some((of, run)) if *of == thread.num => runs.push(run.clone()),
                Some(_) => return Err(validation::unknown_run(id)),
                None => {}
            }
        }
        Ok(runs)
    }
}

/// The runs after the batch's changes.
fn runs_after(
    state: &GroupState,
    thread: &LockedThread,
    batch: &AppendBatch,
    mut runs: Vec<KnownRun>,
) -> Result<Vec<KnownRun>, AppendOutcome> {
    for change in batch.changes.iter() {
        if let DirectoryChange::ConsumeInboxRow { row } = change
            && !state.inbox.contains(&(row.cast_signed(), thread.num))
        {
            return Err(validation::unknown_inbox_row(*row));
        }
        let Some(id) = validation::changed_run(change) else { continue };
        let run = runs.iter_mut().find(|run| run.id == *id);
        let status = validation::next_run_status(run.as_deref().map(|run| run.status), id, change)?;
        match run {
            Some(run) => run.status = status,
            None => runs.push(KnownRun { id: id.clone(), num: None, status }),
        }
    }
    Ok(runs)
}

/// Checks that every question that the batch opens or closes belongs to the thread.
fn check_approvals(state: &GroupState, thread: &LockedThread, batch: &AppendBatch) -> Result<(), AppendOutcome> {
    let mut asked = Vec::new();
    for change in batch.changes.iter() {
        let (key, is_asked) = match change {
            DirectoryChange::ApprovalRequested(question) => (&question.key, true),
            DirectoryChange::ApprovalResolved { key, .. } => (key, false),
            _ => continue,
        };
        let stored = state.approvals.get(&(batch.owner.to_string(), key.to_string()));
        let fits = stored.map_or_else(|| is_asked || asked.contains(&key), |stored| stored.thread == thread.num);
        if !fits {
            return Err(validation::unknown_approval(key));
        }
        asked.push(key);
    }
    Ok(())
}

const LOCK_THREADS: &str = "SELECT num, id, owner, epoch, head, appends FROM headwater.threads WHERE id = ANY($1)
                            ORDER BY num FOR UPDATE";
const READ_RUNS: &str = "SELECT r.owner, r.id, r.num, r.thread, r.status FROM unnest($1, $2) AS u(owner, id)
                         JOIN headwater.runs r ON r.owner = u.owner AND r.id = u.id";
const READ_INBOX: &str = "SELECT id, thread FROM headwater.inbox WHERE id = ANY($1)";
const READ_APPROVALS: &str = "SELECT a.owner, a.key, a.thread, a.answer FROM unnest($1, $2) AS u(owner, key)
                              JOIN headwater.approvals a ON a.owner = u.owner AND a.key = u.key";

/// Parameters that own their list.
pub(super) type OwnedParams<'a> = Vec<(&'a (dyn ToSql + Sync), Type)>;

async fn select(client: &Client, sql: &str, params: OwnedParams<'_>) -> Result<Vec<Row>, tokio_postgres::Error> {
    client.query_typed(sql, &params).await
}

impl GroupState {
    fn decode(threads: &[Row], runs: &[Row], inbox: &[Row], approvals: &[Row]) -> Result<Self, tokio_postgres::Error> {
        let mut state = Self::default();
        for row in threads {
            let thread = LockedThread {
                num: row.try_get(0)?,
                owner: row.try_get(2)?,
                epoch: Epoch(row.try_get::<_, i64>(3)?.cast_unsigned()),
                head: Seq(row.try_get::<_, i64>(4)?.cast_unsigned()),
                appends: row.try_get(5)?,
            };
            state.threads.insert(row.try_get(1)?, thread);
        }
        for row in runs {
            let id: String = row.try_get(1)?;
            // A status of a newer version is that of no run that this version may change.
            let Some(status) = TaskStatus::parse(row.try_get(4)?) else { continue };
            let run = KnownRun { id: TaskId::from(id.as_str()), num: Some(row.try_get(2)?), status };
            state.runs.insert((row.try_get(0)?, id), (row.try_get(3)?, run));
        }
        for row in inbox {
            state.inbox.insert((row.try_get(0)?, row.try_get(1)?));
        }
        for row in approvals {
            let answer: Option<&str> = row.try_get(3)?;
            let answer = answer.and_then(|answer| serde_json::from_str(answer).ok());
            let stored = StoredApproval { thread: row.try_get(2)?, answer };
            state.approvals.insert((row.try_get(0)?, row.try_get(1)?), stored);
        }
        Ok(state)
    }
}

/// Sends statements in order without waiting in between.
pub(super) async fn pipeline(
    client: &Client,
    statements: Vec<(&str, OwnedParams<'_>)>,
    commit: &str,
) -> Result<(), tokio_postgres::Error> {
    let last = async { client.batch_execute(commit).await };
    let sent = join_all(statements.iter().map(|(sql, params)| client.execute_typed(sql, params)));
    let (done, committed) = join(sent, last).await;
    // After an error the commit is a rollback, and succeeds.
    done.into_iter().try_for_each(|changed| changed.map(drop))?;
    committed
}
