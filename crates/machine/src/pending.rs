//! Questions to people and their answers, and results that clients send.

use crate::calls::{self, CallState};
use crate::effect::{Effect, EffectId, TimerId};
use crate::state::RunState;
use crate::{MachineOutput, tool_result};
use model::command::{AnswerBody, AnswerCommand, ClientToolResult};
use model::definition::{ApprovalOnTimeout, Tool};
use model::event::{
    ActionRequest, ApprovalDecision, ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Event, Initiator,
    PendingKind, PendingRequest, ReviewConfig, TaskPaused, TaskResumed,
};
use model::fold::{RunFold, TaskFold};
use model::item::{CallKind, ResultStatus};
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::tool::ToolOutput;
use model::{ApprovalKey, CallId, TaskId};

/// Asks a person whether a call may run.
pub(crate) fn request_approval(
    run: &mut RunState,
    call: &CallId,
    tool: &Tool,
    arguments: &str,
    out: &mut MachineOutput,
) {
    let Some(task_id) = run.task_of_call(call).map(|task| task.id.clone()) else { return };
    let key = call.approval_key();
    let args = serde_json::from_str(arguments).unwrap_or_default();
    let expires_at = out.now().saturating_add(tool.approval_timeout_seconds.saturating_mul(1_000));
    let asked = ApprovalRequested {
        task_id,
        key: key.clone(),
        call_id: call.clone(),
        action_requests: vec![ActionRequest { name: tool.spec.name.clone(), args }],
        review_configs: vec![ReviewConfig { require_approval: true }],
        timeout_seconds: tool.approval_timeout_seconds,
        expires_at,
    };
    out.emit(run, Event::ApprovalRequested(asked));
    out.push_effect(Effect::SetTimer { id: TimerId::Approval(key), at: expires_at });
}

/// People and clients answered. What answers nothing that is open is ignored.
pub(crate) fn on_answers(run: &mut RunState, answers: Vec<AnswerCommand>, out: &mut MachineOutput) {
    let (mut decisions, mut results) = (Vec::new(), Vec::new());
    let mut echo = None;
    for answer in answers {
        echo = answer.request_echo.or(echo);
        match answer.body {
            AnswerBody::Approval { key, decision, by } => decisions.push((key, decision, by)),
            AnswerBody::ClientTools { results: given } => results.extend(given),
        }
    }
    decisions.retain(|(key, ..)| find_open_approval(run, key).is_some());
    results.retain(|result| is_waiting_for_client(run, &result.call_id));
    if decisions.is_empty() && results.is_empty() {
        return;
    }
    let only_the_clock = results.is_empty() && decisions.iter().all(|(.., by)| *by == Initiator::Timeout);
    let private = echo.map(|echo| PrivatePayload { request_echo: Some(echo), ..PrivatePayload::default() });
    resume_run_with_private(run, if only_the_clock { Initiator::Timeout } else { Initiator::User }, private, out);
    for (key, decision, by) in decisions {
        resolve_approval(run, &key, decision, by, out);
    }
    for ClientToolResult { call_id, content, error } in results {
        // Sent twice in one breath: the first one counts.
        if is_waiting_for_client(run, &call_id) {
            tool_result::finish_call(
                run,
                &call_id,
                ToolOutput { message_content: content, error, ..ToolOutput::default() },
                out,
            );
        }
    }
}

/// What the clock answers when nobody did in time: what the tool's own rule says. It counts when it comes back as an
/// answer, so that only one place says who was first.
#[must_use]
pub fn timeout_answer(run: &RunState, key: &ApprovalKey) -> Option<AnswerCommand> {
    let (task, call) = find_open_approval(run, key)?;
    let tool = task.call(&call).and_then(|(_, call)| calls::find_tool(run, task, &call.name));
    let kind = match tool.map(|tool| tool.approval_on_timeout) {
        Some(ApprovalOnTimeout::Approve) => ApprovalDecisionKind::Approve,
        Some(ApprovalOnTimeout::Reject) | None => ApprovalDecisionKind::Reject,
    };
    let decision = ApprovalDecision { kind, always: false, message: None, args: None };
    let to = AnswerBody::Approval { key: key.clone(), decision, by: Initiator::Timeout };
    Some(AnswerCommand { task_id: run.root_id(), body: to, request_echo: None })
}

/// Nobody need decide any more.
pub(crate) fn withdraw_approval(run: &mut RunState, call: &CallId, out: &mut MachineOutput) {
    let decision = ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: None, args: None };
    resolve_approval(run, &call.approval_key(), decision, Initiator::System, out);
}

fn resolve_approval(
    run: &mut RunState,
    key: &ApprovalKey,
    decision: ApprovalDecision,
    by: Initiator,
    out: &mut MachineOutput,
) {
    let Some(task_id) = find_open_approval(run, key).map(|(task, _)| task.id.clone()) else { return };
    let resolved = ApprovalResolved { task_id, key: key.clone(), decisions: vec![decision], by };
    out.emit(run, Event::ApprovalResolved(resolved));
    out.push_effect(Effect::Abort(EffectId::Timer(TimerId::Approval(key.clone()))));
}

/// An open question: whose it is, and about which call.
fn find_open_approval<'a>(run: &'a RunState, key: &ApprovalKey) -> Option<(&'a TaskFold, CallId)> {
    run.fold.tasks.iter().filter(|task| !task.status.is_terminal()).find_map(|task| {
        let open = task.approvals.iter().find(|(asked, answer)| asked.key == *key && answer.is_none());
        open.map(|(asked, _)| (task, asked.call_id.clone()))
    })
}

fn is_waiting_for_client(run: &RunState, call: &CallId) -> bool {
    let waits = |pending: PendingRequest| pending.kind == PendingKind::ClientTool && pending.call_id == *call;
    run.task_of_call(call).is_some_and(|task| pending_requests_of_task(task).any(waits)) && !run.fold.has_ended()
}

/// The run goes on, if it was paused.
pub(crate) fn resume_run(run: &mut RunState, by: Initiator, out: &mut MachineOutput) {
    resume_run_with_private(run, by, None, out);
}

fn resume_run_with_private(
    run: &mut RunState,
    by: Initiator,
    private: Option<PrivatePayload>,
    out: &mut MachineOutput,
) {
    let paused = run.fold.root().filter(|root| root.status == TaskStatus::Paused);
    if let Some(task_id) = paused.map(|root| root.id.clone()) {
        out.emit_with_private(run, Event::Resumed(TaskResumed { task_id, by, client: None }), private);
    }
}

/// Nothing can go on but by an answer: the run pauses and says what it waits for.
pub(crate) fn pause_run(run: &mut RunState, out: &mut MachineOutput) {
    let going = run.fold.root().filter(|root| root.status == TaskStatus::Running);
    let Some(task_id) = going.map(|root| root.id.clone()) else { return };
    let pending = pending_requests(&run.fold);
    if !pending.is_empty() {
        out.emit(run, Event::Paused(TaskPaused { task_id, pending }));
    }
}

/// What a run waits for from outside, whether it has paused for that or something else of it still goes on.
#[must_use]
pub fn pending_requests(run: &RunFold) -> Vec<PendingRequest> {
    let open = run.tasks.iter().filter(|task| !task.status.is_terminal());
    open.flat_map(pending_requests_of_task).collect()
}

fn pending_requests_of_task(task: &TaskFold) -> impl Iterator<Item = PendingRequest> {
    let is_whole =
        task.steps.last().and_then(|step| step.stop_reason).is_some_and(model::event::StopReason::is_complete);
    calls::due_calls(task).filter(move |_| is_whole).filter_map(|(fold, call)| {
        let (call_id, task_id) = (call.call_id.clone(), TaskId::clone(&task.id));
        match calls::call_state(task, fold, call) {
            CallState::AwaitingApproval => Some(PendingRequest {
                kind: PendingKind::Approval,
                key: Some(call_id.approval_key()),
                call_id,
                task_id,
            }),
            CallState::New | CallState::Decided(_) if call.kind == Some(CallKind::Client) => {
                Some(PendingRequest { kind: PendingKind::ClientTool, key: None, call_id, task_id })
            }
            _ => None,
        }
    })
}

/// What becomes of a call whose question is still open when everything ends.
pub(crate) fn close_call(
    run: &mut RunState,
    call: &CallId,
    status: ResultStatus,
    error: model::error::ErrorInfo,
    out: &mut MachineOutput,
) {
    let open =
        run.task_of_call(call).and_then(|task| task.last_approval(call)).is_some_and(|(_, answer)| answer.is_none());
    if open {
        withdraw_approval(run, call, out);
    }
    tool_result::write_error_result(run, call, status, error, out);
}
