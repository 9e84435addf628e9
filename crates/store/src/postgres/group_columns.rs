//! The columns of the rows that a group writes: a statement takes an array per column.

use super::append_group::OwnedParams;
use foldhash::HashMap;
use model::ports::validation;
use model::ports::{AppendBatch, ApprovalAnswer, ApprovalRow, Checkpoint, Day, DirectoryChange, Spend, StoredAction};
use model::record::Record;
use model::seq::Millis;
use model::usage::Usage;
use model::{ApprovalKey, TaskId, UserId};
use tokio_postgres::types::Type;

#[derive(Default)]
pub(super) struct ThreadColumns {
    pub(super) num: Vec<i64>,
    pub(super) head: Vec<i64>,
    pub(super) bytes: Vec<i64>,
    pub(super) updated_at: Vec<Option<i64>>,
    pub(super) sets_wakeup: Vec<bool>,
    pub(super) wake_at: Vec<Option<i64>>,
}

#[derive(Default)]
pub(super) struct RecordColumns<'a> {
    pub(super) thread: Vec<i64>,
    pub(super) seq: Vec<i64>,
    pub(super) run: Vec<i64>,
    pub(super) at: Vec<i64>,
    pub(super) epoch: Vec<i64>,
    pub(super) format: Vec<i16>,
    pub(super) checksum: Vec<i32>,
    pub(super) public: Vec<&'a [u8]>,
    pub(super) private: Vec<Option<&'a [u8]>>,
}

#[derive(Default)]
pub(super) struct RunColumns<'a> {
    pub(super) num: Vec<i64>,
    pub(super) status: Vec<&'static str>,
    pub(super) agent: Vec<Option<&'a str>>,
    pub(super) first_seq: Vec<Option<i64>>,
    pub(super) last_seq: Vec<Option<i64>>,
    pub(super) ended_at: Vec<Option<i64>>,
}

/// Runs that start without having been queued.
#[derive(Default)]
pub(super) struct NewRunColumns<'a> {
    pub(super) id: Vec<&'a str>,
    owner: Vec<&'a str>,
    thread: Vec<i64>,
    agent: Vec<&'a str>,
    at: Vec<i64>,
}

#[derive(Default)]
pub(super) struct CheckpointColumns<'a> {
    /// Thread, seq and body. A later one of the same batch replaces an earlier one.
    pub(super) bodies: Vec<(i64, i64, &'a str)>,
    /// Thread and index.
    pub(super) runs: HashMap<(i64, i64), &'a str>,
}

#[derive(Default)]
pub(super) struct ApprovalColumns<'a> {
    pub(super) owner: Vec<&'a str>,
    pub(super) key: Vec<&'a str>,
    pub(super) thread: Vec<i64>,
    pub(super) run: Vec<&'a str>,
    pub(super) task: Vec<&'a str>,
    pub(super) call: Vec<&'a str>,
    pub(super) action: Vec<String>,
    pub(super) requested_at: Vec<i64>,
    pub(super) expires_at: Vec<i64>,
    pub(super) answer: Vec<Option<String>>,
}

#[derive(Default)]
pub(super) struct AnswerColumns<'a> {
    pub(super) owner: Vec<&'a str>,
    pub(super) key: Vec<&'a str>,
    pub(super) answer: Vec<String>,
}

impl<'a> RecordColumns<'a> {
    pub(super) fn push(&mut self, thread: i64, run: i64, record: &'a Record) {
        self.thread.push(thread);
        self.seq.push(record.seq.0.cast_signed());
        self.run.push(run);
        self.at.push(record.at.cast_signed());
        self.epoch.push(record.epoch.0.cast_signed());
        self.format.push(record.format.cast_signed());
        self.checksum.push(record.checksum.cast_signed());
        self.public.push(&record.public);
        self.private.push((!record.private.is_empty()).then_some(&record.private[..]));
    }

    pub(super) fn params(&self) -> OwnedParams<'_> {
        vec![
            (&self.thread, Type::INT8_ARRAY),
            (&self.seq, Type::INT8_ARRAY),
            (&self.run, Type::INT8_ARRAY),
            (&self.at, Type::INT8_ARRAY),
            (&self.epoch, Type::INT8_ARRAY),
            (&self.format, Type::INT2_ARRAY),
            (&self.checksum, Type::INT4_ARRAY),
            (&self.public, Type::BYTEA_ARRAY),
            (&self.private, Type::BYTEA_ARRAY),
        ]
    }
}

impl<'a> NewRunColumns<'a> {
    pub(super) fn push(&mut self, batch: &'a AppendBatch, thread: i64, run: &'a TaskId) {
        let started = batch.changes.iter().find_map(|change| match change {
            DirectoryChange::RunStarted { run: id, agent, at, .. } if id == run => Some((agent.as_str(), *at)),
            _ => None,
        });
        let (agent, at) = started.unwrap_or_default();
        self.id.push(run.as_str());
        self.owner.push(batch.owner.as_str());
        self.thread.push(thread);
        self.agent.push(agent);
        self.at.push(at.cast_signed());
    }

    pub(super) fn params(&self) -> OwnedParams<'_> {
        vec![
            (&self.id, Type::TEXT_ARRAY),
            (&self.owner, Type::TEXT_ARRAY),
            (&self.thread, Type::INT8_ARRAY),
            (&self.agent, Type::TEXT_ARRAY),
            (&self.at, Type::INT8_ARRAY),
        ]
    }
}

impl<'a> RunColumns<'a> {
    /// Adds one row per run that changes, with its last state.
    pub(super) fn push_changes(&mut self, changes: &'a [DirectoryChange], run_num: &impl Fn(&TaskId) -> i64) {
        let begin = self.num.len();
        for change in changes {
            let Some(id) = validation::changed_run(change) else { continue };
            let num = run_num(id);
            let known = self.num.iter().skip(begin).position(|known| *known == num).map(|index| begin + index);
            let index = known.unwrap_or_else(|| self.push_row(num));
            self.set_row(index, change);
        }
    }

    fn push_row(&mut self, num: i64) -> usize {
        self.num.push(num);
        self.status.push("");
        self.agent.push(None);
        self.first_seq.push(None);
        self.last_seq.push(None);
        self.ended_at.push(None);
        self.num.len() - 1
    }

    fn set_row(&mut self, index: usize, change: &'a DirectoryChange) {
        let (status, agent, first, last, ended) = match change {
            DirectoryChange::RunStarted { agent, first, .. } => {
                ("running", Some(agent.as_str()), Some(*first), Some(*first), None)
            }
            DirectoryChange::RunStatus { status, last, at, .. } => {
                (status.as_str(), None, None, Some(*last), status.is_terminal().then_some(*at))
            }
            DirectoryChange::RunDropped { at, .. } => ("cancelled", None, None, None, Some(*at)),
            _ => return,
        };
        set(&mut self.status, index, status);
        set(&mut self.ended_at, index, ended.map(Millis::cast_signed));
        if agent.is_some() {
            set(&mut self.agent, index, agent);
        }
        if let Some(first) = first {
            set(&mut self.first_seq, index, Some(first.0.cast_signed()));
        }
        if let Some(last) = last {
            set(&mut self.last_seq, index, Some(last.0.cast_signed()));
        }
    }

    pub(super) fn params(&self) -> OwnedParams<'_> {
        vec![
            (&self.num, Type::INT8_ARRAY),
            (&self.status, Type::TEXT_ARRAY),
            (&self.agent, Type::TEXT_ARRAY),
            (&self.first_seq, Type::INT8_ARRAY),
            (&self.last_seq, Type::INT8_ARRAY),
            (&self.ended_at, Type::INT8_ARRAY),
        ]
    }
}

fn set<T>(column: &mut [T], index: usize, value: T) {
    if let Some(cell) = column.get_mut(index) {
        *cell = value;
    }
}

impl<'a> CheckpointColumns<'a> {
    pub(super) fn push(&mut self, thread: i64, checkpoint: &'a Checkpoint) {
        self.bodies.retain(|(known, ..)| *known != thread);
        self.bodies.push((thread, checkpoint.seq.0.cast_signed(), &checkpoint.body));
        for run in &checkpoint.runs {
            self.runs.insert((thread, run.index.cast_signed()), &run.body);
        }
    }

    pub(super) fn body_columns(&self) -> (Vec<i64>, Vec<i64>, Vec<&'a str>) {
        self.bodies.iter().copied().collect()
    }

    pub(super) fn run_columns(&self) -> (Vec<i64>, Vec<i64>, Vec<&'a str>) {
        self.runs.iter().map(|((thread, index), body)| (*thread, *index, *body)).collect()
    }
}

impl<'a> ApprovalColumns<'a> {
    pub(super) fn push(
        &mut self,
        owner: &'a UserId,
        thread: i64,
        question: &'a ApprovalRow,
        answer: Option<ApprovalAnswer>,
    ) {
        self.owner.push(owner.as_str());
        self.key.push(question.key.as_str());
        self.thread.push(thread);
        self.run.push(question.run_id.as_str());
        self.task.push(question.task_id.as_str());
        self.call.push(question.call_id.as_str());
        self.action.push(serde_json::to_string(&StoredAction::from_row(question)).unwrap_or_default());
        self.requested_at.push(question.requested_at.cast_signed());
        self.expires_at.push(question.expires_at.cast_signed());
        self.answer.push(answer.map(|answer| serde_json::to_string(&answer).unwrap_or_default()));
    }

    pub(super) fn params(&self) -> OwnedParams<'_> {
        vec![
            (&self.owner, Type::TEXT_ARRAY),
            (&self.key, Type::TEXT_ARRAY),
            (&self.thread, Type::INT8_ARRAY),
            (&self.run, Type::TEXT_ARRAY),
            (&self.task, Type::TEXT_ARRAY),
            (&self.call, Type::TEXT_ARRAY),
            (&self.action, Type::TEXT_ARRAY),
            (&self.requested_at, Type::INT8_ARRAY),
            (&self.expires_at, Type::INT8_ARRAY),
            (&self.answer, Type::TEXT_ARRAY),
        ]
    }
}

impl<'a> AnswerColumns<'a> {
    pub(super) fn push(&mut self, owner: &'a UserId, key: &'a ApprovalKey, answer: &ApprovalAnswer) {
        self.owner.push(owner.as_str());
        self.key.push(key.as_str());
        self.answer.push(serde_json::to_string(answer).unwrap_or_default());
    }
}

/// Numbers as text: they are unsigned, and SQL's are not.
pub(super) struct SpendColumns<'a> {
    pub(super) owner: Vec<&'a str>,
    pub(super) day: Vec<i32>,
    /// Input, cached, cache writes, output, reasoning and cost.
    pub(super) sums: [Vec<String>; 6],
}

impl<'a> SpendColumns<'a> {
    pub(super) fn new(spent: &HashMap<(&'a UserId, Day), Spend>) -> Self {
        let mut columns = Self { owner: Vec::new(), day: Vec::new(), sums: Default::default() };
        for ((owner, day), Spend { usage, cost }) in spent {
            columns.owner.push(owner.as_str());
            columns.day.push(day.0.cast_signed());
            let Usage { input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens } = usage;
            let sums = [input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, &cost.0];
            columns.sums.iter_mut().zip(sums).for_each(|(column, sum)| column.push(sum.to_string()));
        }
        columns
    }

    pub(super) fn params<'b>(&'b self, node: &'b &'b str) -> OwnedParams<'b> {
        let [input, cached, cache_write, output, reasoning, cost] = &self.sums;
        vec![
            (&self.owner, Type::TEXT_ARRAY),
            (&self.day, Type::INT4_ARRAY),
            (node, Type::TEXT),
            (input, Type::TEXT_ARRAY),
            (cached, Type::TEXT_ARRAY),
            (cache_write, Type::TEXT_ARRAY),
            (output, Type::TEXT_ARRAY),
            (reasoning, Type::TEXT_ARRAY),
            (cost, Type::TEXT_ARRAY),
        ]
    }
}
