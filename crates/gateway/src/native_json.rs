//! Rows of the store as objects of the native protocol. Members are in alphabetical order on the wire.

use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator, Question};
use model::json::ExactValue;
use model::ports::{ApprovalRow, RunRow, ShareRow, ThreadRow};
use model::task::TaskStatus;
use model::usage::Usage;
use model::{ApprovalKey, CallId, Millis, Seq, TaskId, ThreadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A run in a listing. The task's full object is one request away.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedTask<'a> {
    agent: &'a str,
    created_at: Millis,
    ended_at: Option<Millis>,
    status: TaskStatus,
    task_id: &'a TaskId,
    thread_id: &'a ThreadId,
}

impl<'a> From<&'a RunRow> for ListedTask<'a> {
    fn from(row: &'a RunRow) -> Self {
        let RunRow { id: task_id, thread: thread_id, agent, status, created_at, ended_at, .. } = row;
        Self { agent, created_at: *created_at, ended_at: *ended_at, status: *status, task_id, thread_id }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ListedThread<'a> {
    created_at: Millis,
    thread_id: &'a ThreadId,
    /// When a run of the thread last started or ended.
    updated_at: Millis,
}

impl<'a> From<&'a ThreadRow> for ListedThread<'a> {
    fn from(row: &'a ThreadRow) -> Self {
        Self { created_at: row.created_at, thread_id: &row.id, updated_at: row.updated_at }
    }
}

/// Usage with its members in alphabetical order, as these objects have always had them.
#[must_use]
pub fn sorted_usage(usage: Usage) -> Value {
    serde_json::to_value(usage).unwrap_or_default()
}

/// A thread with the length of its log and its cost.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Thread")]
pub struct ThreadObject<'a> {
    created_at: Millis,
    /// The last record of the log.
    seq: Seq,
    thread_id: &'a ThreadId,
    updated_at: Millis,
    #[schemars(with = "Usage")]
    usage: Value,
}

impl<'a> ThreadObject<'a> {
    #[must_use]
    pub fn new(row: &'a ThreadRow, seq: Seq, usage: Usage) -> Self {
        Self {
            created_at: row.created_at,
            seq,
            thread_id: &row.id,
            updated_at: row.updated_at,
            usage: sorted_usage(usage),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareMode {
    /// Viewers see the thread as it grows.
    Live,
    /// Viewers see the thread as it is now.
    Frozen,
}

/// A share. Its token is shown once, when the share is created.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Share")]
pub struct ShareObject<'a> {
    created_at: Millis,
    expires_at: Millis,
    mode: ShareMode,
    revoked_at: Option<Millis>,
    share_id: &'a str,
    thread_id: &'a ThreadId,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    /// The last record that a `frozen` share shows.
    until: Option<Seq>,
}

impl<'a> ShareObject<'a> {
    #[must_use]
    pub fn new(row: &'a ShareRow, token: Option<&'a str>) -> Self {
        let ShareRow { created_at, expires_at, revoked_at, until_seq: until, .. } = *row;
        let mode = if until.is_some() { ShareMode::Frozen } else { ShareMode::Live };
        Self { created_at, expires_at, mode, revoked_at, share_id: &row.id, thread_id: &row.thread, token, until }
    }
}

/// An approval request, with the decision once there is one.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Approval")]
pub struct ApprovalObject<'a> {
    arguments: &'a ExactValue,
    call_id: &'a CallId,
    decided_at: Option<Millis>,
    decided_by: Option<Initiator>,
    decision: Option<&'a ApprovalDecision>,
    /// `false` if the decision cannot be `edit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    editable: Option<bool>,
    /// When the tool's default decision takes effect.
    expires_at: Millis,
    key: &'a ApprovalKey,
    /// The tool.
    name: &'a str,
    /// What people should know before they decide.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    /// What the tool asks. `approve` answers it, with `arguments` that fit its schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    question: Option<&'a Question>,
    requested_at: Millis,
    run_id: &'a TaskId,
    /// The MCP server that has the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_label: Option<&'a str>,
    status: ApprovalStatus,
    /// The task that made the call.
    task_id: &'a TaskId,
    thread_id: &'a ThreadId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    Pending,
    Approved,
    Edited,
    Rejected,
}

impl<'a> From<&'a ApprovalRow> for ApprovalObject<'a> {
    fn from(row: &'a ApprovalRow) -> Self {
        let answer = row.answer.as_ref();
        let status = match answer.map(|answer| answer.decision.kind) {
            None => ApprovalStatus::Pending,
            Some(ApprovalDecisionKind::Approve) => ApprovalStatus::Approved,
            Some(ApprovalDecisionKind::Edit) => ApprovalStatus::Edited,
            Some(ApprovalDecisionKind::Reject) => ApprovalStatus::Rejected,
        };
        Self {
            arguments: &row.action.args,
            call_id: &row.call_id,
            decided_at: answer.map(|answer| answer.at),
            decided_by: answer.map(|answer| answer.by),
            decision: answer.map(|answer| &answer.decision),
            editable: row.action.editable,
            expires_at: row.expires_at,
            key: &row.key,
            name: &row.action.name,
            note: row.action.note.as_deref(),
            question: row.question.as_ref(),
            requested_at: row.requested_at,
            run_id: &row.run_id,
            server_label: row.action.server_label.as_deref(),
            status,
            task_id: &row.task_id,
            thread_id: &row.thread_id,
        }
    }
}
