//! Rows of the store as JSON of the native protocol.

use model::event::ApprovalDecisionKind;
use model::ports::{ApprovalRow, RunRow, ShareRow, ThreadRow};
use serde_json::{Value, json};

/// A run in a listing. The task's full object is one request away.
pub fn run_json(row: &RunRow) -> Value {
    json!({
        "task_id": row.id,
        "thread_id": row.thread,
        "agent": row.agent,
        "status": row.status,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    })
}

pub fn thread_json(row: &ThreadRow) -> Value {
    json!({ "thread_id": row.id, "created_at": row.created_at, "updated_at": row.updated_at })
}

/// A share without its token.
pub fn share_json(row: &ShareRow) -> Value {
    json!({
        "share_id": row.id,
        "thread_id": row.thread,
        "mode": if row.until_seq.is_some() { "frozen" } else { "live" },
        "until": row.until_seq,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    })
}

/// An approval request, with the decision once there is one.
pub fn approval_json(row: &ApprovalRow) -> Value {
    let answer = row.answer.as_ref();
    let status = match answer.map(|answer| answer.decision.kind) {
        None => "pending",
        Some(ApprovalDecisionKind::Approve) => "approved",
        Some(ApprovalDecisionKind::Edit) => "edited",
        Some(ApprovalDecisionKind::Reject) => "rejected",
    };
    json!({
        "key": row.key,
        "thread_id": row.thread_id,
        "run_id": row.run_id,
        "task_id": row.task_id,
        "call_id": row.call_id,
        "name": row.action.name,
        "arguments": row.action.args,
        "requested_at": row.requested_at,
        "expires_at": row.expires_at,
        "status": status,
        "decision": answer.map(|answer| &answer.decision),
        "decided_by": answer.map(|answer| answer.by),
        "decided_at": answer.map(|answer| answer.at),
    })
}
