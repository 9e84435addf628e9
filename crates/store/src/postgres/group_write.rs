//! The second round trip of a group: the rows of all accepted batches, column by column, and the commit.

use super::append_group::{AcceptedBatch, OwnedParams, StoredApproval, pipeline};
use super::group_columns::{
    AnswerColumns, ApprovalColumns, CheckpointColumns, NewRunColumns, RecordColumns, RunColumns, SpendColumns,
    ThreadColumns,
};
use foldhash::HashMap;
use model::ports::validation;
use model::ports::{ApprovalAnswer, ApprovalRow, Day, DirectoryChange, Spend};
use model::seq::Millis;
use model::{ApprovalKey, NodeId, TaskId, UserId};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

#[derive(Default)]
pub(super) struct GroupWrite<'a> {
    threads: ThreadColumns,
    records: RecordColumns<'a>,
    runs: RunColumns<'a>,
    consumed: Vec<i64>,
    checkpoints: CheckpointColumns<'a>,
    approvals: ApprovalColumns<'a>,
    answers: AnswerColumns<'a>,
    closed_calls: (Vec<i64>, Vec<&'a str>),
    spent: HashMap<(&'a UserId, Day), Spend>,
    bytes: u64,
}

const INSERT_RUNS: &str = "
    INSERT INTO headwater.runs (id, owner, thread, agent, status, created_at)
    SELECT u.id, u.owner, u.thread, u.agent, 'queued', u.at FROM unnest($1, $2, $3, $4, $5) AS u(id, owner, thread, agent, at)
    RETURNING thread, id, num";

/// Inserts the runs that start without having been queued: their numbers are needed for the records. Rare, hence a round trip
/// of its own.
pub(super) async fn insert_new_runs(client: &Client, batches: &mut [&mut AcceptedBatch<'_>]) -> Result<(), Error> {
    let mut new = NewRunColumns::default();
    for accepted in &*batches {
        for run in accepted.runs.iter().filter(|run| run.num.is_none()) {
            new.push(accepted.batch, accepted.thread.num, &run.id);
        }
    }
    if new.id.is_empty() {
        return Ok(());
    }
    let mut nums: HashMap<(i64, String), i64> = HashMap::default();
    for row in client.query_typed(INSERT_RUNS, &new.params()).await? {
        nums.insert((row.try_get(0)?, row.try_get(1)?), row.try_get(2)?);
    }
    for accepted in batches {
        for run in accepted.runs.iter_mut().filter(|run| run.num.is_none()) {
            run.num = nums.get(&(accepted.thread.num, run.id.to_string())).copied();
        }
    }
    Ok(())
}

impl<'a> GroupWrite<'a> {
    pub(super) fn records(&self) -> u64 {
        self.records.seq.len() as u64
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the rows of a batch. `stored` finds an approval as it was read.
    pub(super) fn add_batch(
        &mut self,
        accepted: &AcceptedBatch<'a>,
        stored: impl Fn(&ApprovalKey) -> Option<&'a StoredApproval>,
    ) {
        let AcceptedBatch { batch, thread, runs } = accepted;
        let run_num = |id: &TaskId| runs.iter().find(|run| run.id == *id).and_then(|run| run.num).unwrap_or_default();
        let mut bytes = 0_u64;
        for record in batch.records.iter() {
            bytes += record.size_bytes() as u64;
            self.records.push(thread.num, run_num(&record.run), record);
        }
        self.bytes += bytes;
        let head = thread.head.plus(batch.records.len() as u64);
        let (mut updated_at, mut wakeup) = (None, None);
        let mut answers: Vec<(&'a ApprovalKey, PendingApproval<'a>)> = Vec::new();
        for change in batch.changes.iter() {
            match change {
                DirectoryChange::RunStarted { at, .. } | DirectoryChange::RunDropped { at, .. } => {
                    updated_at = Some(at.cast_signed());
                }
                DirectoryChange::RunStatus { status, at, .. } if status.is_terminal() => {
                    updated_at = Some(at.cast_signed());
                }
                DirectoryChange::RunStatus { .. } => {}
                DirectoryChange::ConsumeInboxRow { row } => self.consumed.push(row.cast_signed()),
                DirectoryChange::Checkpoint(checkpoint) => self.checkpoints.push(thread.num, checkpoint),
                DirectoryChange::ApprovalRequested(question) => {
                    answers.retain(|(key, _)| **key != question.key);
                    answers.push((&question.key, PendingApproval::Requested(question, None)));
                }
                DirectoryChange::ApprovalResolved { key, decision, by, at } => {
                    let answer = ApprovalAnswer { decision: decision.clone(), by: *by, at: *at };
                    resolve(&mut answers, key, answer, stored(key));
                }
                DirectoryChange::ClientCallClosed { call } => {
                    self.closed_calls.0.push(thread.num);
                    self.closed_calls.1.push(call.as_str());
                }
                DirectoryChange::AddSpend { day, spent } => {
                    let sum = self.spent.entry((&batch.owner, *day)).or_default();
                    *sum = sum.saturating_add(*spent);
                }
                DirectoryChange::ScheduleWakeup { at } => wakeup = Some(at.map(Millis::cast_signed)),
            }
        }
        self.runs.push_changes(&batch.changes, &run_num);
        for (_, question) in answers {
            match question {
                PendingApproval::Requested(question, answer) => {
                    self.approvals.push(&batch.owner, thread.num, question, answer);
                }
                PendingApproval::Answered(key, answer) => self.answers.push(&batch.owner, key, &answer),
            }
        }
        self.threads.num.push(thread.num);
        self.threads.head.push(head.0.cast_signed());
        self.threads.bytes.push(bytes.cast_signed());
        self.threads.updated_at.push(updated_at);
        self.threads.sets_wakeup.push(wakeup.is_some());
        self.threads.wake_at.push(wakeup.flatten());
    }

    /// Sends all statements and the commit.
    pub(super) async fn run(&self, client: &Client, node: &NodeId) -> Result<(), Error> {
        let (threads, records, runs) = (&self.threads, &self.records, &self.runs);
        let (approvals, answers) = (&self.approvals, &self.answers);
        let bodies = self.checkpoints.body_columns();
        let checkpoint_runs = self.checkpoints.run_columns();
        let spent = SpendColumns::new(&self.spent);
        let node = node.as_str();
        let mut statements: Vec<(&str, OwnedParams<'_>)> = vec![(
            UPDATE_THREADS,
            vec![
                (&threads.num, Type::INT8_ARRAY),
                (&threads.head, Type::INT8_ARRAY),
                (&threads.bytes, Type::INT8_ARRAY),
                (&threads.updated_at, Type::INT8_ARRAY),
                (&threads.sets_wakeup, Type::BOOL_ARRAY),
                (&threads.wake_at, Type::INT8_ARRAY),
            ],
        )];
        if !records.seq.is_empty() {
            statements.push((INSERT_RECORDS, records.params()));
        }
        if !runs.num.is_empty() {
            statements.push((UPDATE_RUNS, runs.params()));
        }
        if !self.consumed.is_empty() {
            statements
                .push(("DELETE FROM headwater.inbox WHERE id = ANY($1)", vec![(&self.consumed, Type::INT8_ARRAY)]));
        }
        if !bodies.0.is_empty() {
            let params: OwnedParams<'_> =
                vec![(&bodies.0, Type::INT8_ARRAY), (&bodies.1, Type::INT8_ARRAY), (&bodies.2, Type::TEXT_ARRAY)];
            statements.push((PUT_CHECKPOINTS, params));
        }
        if !checkpoint_runs.0.is_empty() {
            let (threads, indexes, bodies) = &checkpoint_runs;
            let params: OwnedParams<'_> =
                vec![(threads, Type::INT8_ARRAY), (indexes, Type::INT8_ARRAY), (bodies, Type::TEXT_ARRAY)];
            statements.push((PUT_CHECKPOINT_RUNS, params));
        }
        if !approvals.key.is_empty() {
            statements.push((PUT_APPROVALS, approvals.params()));
        }
        if !answers.key.is_empty() {
            let params: OwnedParams<'_> = vec![
                (&answers.owner, Type::TEXT_ARRAY),
                (&answers.key, Type::TEXT_ARRAY),
                (&answers.answer, Type::TEXT_ARRAY),
            ];
            statements.push((PUT_ANSWERS, params));
        }
        if !self.closed_calls.0.is_empty() {
            let params: OwnedParams<'_> =
                vec![(&self.closed_calls.0, Type::INT8_ARRAY), (&self.closed_calls.1, Type::TEXT_ARRAY)];
            statements.push((CLOSE_CALLS, params));
        }
        if !self.spent.is_empty() {
            statements.push((ADD_SPEND, spent.params(&node)));
        }
        pipeline(client, statements, "COMMIT").await
    }
}

const UPDATE_THREADS: &str = "
    UPDATE headwater.threads t SET head = u.head, appends = t.appends + 1, log_bytes = t.log_bytes + u.bytes,
        updated_at = coalesce(u.updated_at, t.updated_at),
        wake_at = CASE WHEN u.sets_wakeup THEN u.wake_at ELSE t.wake_at END
    FROM unnest($1, $2, $3, $4, $5, $6) AS u(num, head, bytes, updated_at, sets_wakeup, wake_at) WHERE t.num = u.num";

pub(super) const INSERT_RECORDS: &str = "
    INSERT INTO headwater.records (thread, seq, run, at, epoch, format, checksum, public, private)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const UPDATE_RUNS: &str = "
    UPDATE headwater.runs r SET status = u.status, agent = coalesce(u.agent, r.agent),
        first_seq = coalesce(u.first_seq, r.first_seq), last_seq = coalesce(u.last_seq, r.last_seq), ended_at = u.ended_at
    FROM unnest($1, $2, $3, $4, $5, $6) AS u(num, status, agent, first_seq, last_seq, ended_at) WHERE r.num = u.num";

const PUT_CHECKPOINTS: &str = "
    INSERT INTO headwater.checkpoints SELECT * FROM unnest($1, $2, $3)
    ON CONFLICT (thread) DO UPDATE SET seq = excluded.seq, body = excluded.body";

const PUT_CHECKPOINT_RUNS: &str = "
    INSERT INTO headwater.checkpoint_runs SELECT * FROM unnest($1, $2, $3)
    ON CONFLICT (thread, idx) DO UPDATE SET body = excluded.body";

const PUT_APPROVALS: &str = "
    INSERT INTO headwater.approvals (owner, key, thread, run, task, call, action, requested_at, expires_at, answer)
    SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
    ON CONFLICT (owner, key) DO UPDATE SET run = excluded.run, task = excluded.task, call = excluded.call,
        action = excluded.action, requested_at = excluded.requested_at, expires_at = excluded.expires_at,
        answer = excluded.answer";

const PUT_ANSWERS: &str = "
    UPDATE headwater.approvals a SET answer = u.answer FROM unnest($1, $2, $3) AS u(owner, key, answer)
    WHERE a.owner = u.owner AND a.key = u.key";

const CLOSE_CALLS: &str = "
    INSERT INTO headwater.client_results SELECT u.thread, u.call, '' FROM unnest($1, $2) AS u(thread, call)
    ON CONFLICT DO NOTHING";

/// The sums saturate where those of the model do.
const ADD_SPEND: &str = "
    INSERT INTO headwater.spent AS s SELECT u.owner, u.day, $3, u.input::numeric, u.cached::numeric,
        u.cache_write::numeric, u.output::numeric, u.reasoning::numeric, u.cost::numeric
    FROM unnest($1, $2, $4, $5, $6, $7, $8, $9) AS u(owner, day, input, cached, cache_write, output, reasoning, cost)
    ON CONFLICT (owner, day, node) DO UPDATE SET
        input = least(s.input + excluded.input, 18446744073709551615),
        cached = least(s.cached + excluded.cached, 18446744073709551615),
        cache_write = least(s.cache_write + excluded.cache_write, 18446744073709551615),
        output = least(s.output + excluded.output, 18446744073709551615),
        reasoning = least(s.reasoning + excluded.reasoning, 18446744073709551615),
        cost = least(s.cost + excluded.cost, 18446744073709551615)";

/// An approval as the batch leaves it.
enum PendingApproval<'a> {
    Requested(&'a ApprovalRow, Option<ApprovalAnswer>),
    /// Answered without having been requested in the batch.
    Answered(&'a ApprovalKey, ApprovalAnswer),
}

/// Answers a question. An answer that repeats the stored one leaves it unchanged.
fn resolve<'a>(
    answers: &mut Vec<(&'a ApprovalKey, PendingApproval<'a>)>,
    key: &'a ApprovalKey,
    answer: ApprovalAnswer,
    stored: Option<&StoredApproval>,
) {
    match answers.iter_mut().find(|(known, _)| *known == key) {
        Some((_, PendingApproval::Requested(_, known))) => {
            known.take_if(|known| !validation::is_same_answer(known, &answer));
            known.get_or_insert(answer);
        }
        Some((_, PendingApproval::Answered(_, known))) => {
            if !validation::is_same_answer(known, &answer) {
                *known = answer;
            }
        }
        None => {
            let known = stored.and_then(|stored| stored.answer.as_ref());
            if !known.is_some_and(|known| validation::is_same_answer(known, &answer)) {
                answers.push((key, PendingApproval::Answered(key, answer)));
            }
        }
    }
}
