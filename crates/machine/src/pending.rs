//! What a run waits for from outside: approvals and answers of people, and results of client tools.
//!
//! The run pauses when nothing but such an answer can advance it ([`pause_run`]). Answers, a cancel and the run's deadline
//! resume it ([`on_answers`], [`resume_run`]).

use crate::calls::{self, CallState};
use crate::effect::{Effect, EffectId, TimerId};
use crate::output::RunWriter;
use crate::state::RunState;
use crate::task_tree::{ancestors_and_self, open_tasks};
use crate::{outstanding, tool_lookup, tool_result};
use model::command::{AnswerBody, AnswerCommand, ClientToolResult, RequestUpdate, is_state_of_client};
use model::definition::{ApprovalOnTimeout, Tool, ToolExecutor};
use model::event::{
    ActionRequest, AgentUpdated, ApprovalDecision, ApprovalDecisionKind, ApprovalRequested, ApprovalResolved,
    ClientIds, Event, Initiator, PendingKind, PendingRequest, Question, ReviewConfig, StateSnapshot, TaskPaused,
    TaskResumed,
};
use model::fold::{RunFold, TaskFold};
use model::item::CallKind;
use model::json::ExactValue;
use model::question::{QuestionAnswer, QuestionContext};
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::tool::ToolOutput;
use model::{ApprovalKey, CallId, TaskId};
use serde_json::Value;

/// Asks people whether a call may run.
pub(crate) fn request_approval(writer: &mut RunWriter<'_>, call: &CallId, tool: &Tool, arguments: &str) {
    emit_request(writer, call, tool, arguments, None);
}

/// Asks people what the tool of a call wants to know.
pub(crate) fn request_answer(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    tool: &Tool,
    arguments: &str,
    asked: (Question, QuestionContext),
) {
    emit_request(writer, call, tool, arguments, Some(asked));
}

fn emit_request(
    writer: &mut RunWriter<'_>,
    call: &CallId,
    tool: &Tool,
    arguments: &str,
    asked: Option<(Question, QuestionContext)>,
) {
    let Some(task) = writer.run.task_of_call(call) else { return };
    let (task_id, item) = (task.id.clone(), task.call(call).map(|(_, item)| item));
    let server_label = item.and_then(|item| item.server_label.clone());
    let is_fixed = asked.is_some() || item.is_some_and(|item| item.kind == Some(CallKind::Hosted));
    let editable = is_fixed.then_some(false);
    // Every question has a key of its own: a late answer to one must not answer the next.
    let key = if asked.is_some() { call.question_key(count_questions(task, call) + 1) } else { call.approval_key() };
    let (question, context) = asked.unzip();
    let note = match &tool.executor {
        ToolExecutor::Mcp(changed) if changed.is_changed && question.is_none() => {
            Some(changed_tool_note(&changed.server))
        }
        _ => None,
    };
    let args = ExactValue::parse(arguments).unwrap_or_default();
    let expires_at = writer.out.now().saturating_add(tool.approval_timeout_seconds.saturating_mul(1_000));
    let request = ApprovalRequested {
        task_id,
        key: key.clone(),
        call_id: call.clone(),
        action_requests: vec![ActionRequest { name: tool.spec.name.clone(), args, server_label, editable, note }],
        review_configs: vec![ReviewConfig { require_approval: true }],
        timeout_seconds: tool.approval_timeout_seconds,
        expires_at,
        question,
    };
    let private =
        context.map(|context| PrivatePayload { question: Some(Box::new(context)), ..PrivatePayload::default() });
    writer.emit_with_private(Event::ApprovalRequested(Box::new(request)), private);
    writer.out.push_effect(Effect::SetTimer { id: TimerId::Approval(key), at: expires_at });
}

fn changed_tool_note(server: &str) -> String {
    format!(
        "The MCP server `{server}` describes this tool in another way than before. To approve the call accepts the change."
    )
}

fn count_questions(task: &TaskFold, call: &CallId) -> usize {
    task.approvals.iter().filter(|(asked, _)| asked.call_id == *call && asked.question.is_some()).count()
}

/// Decides whether answers let a paused run go on, applies them, and returns the decision. An answer to nothing open is
/// ignored.
pub(crate) fn on_answers(writer: &mut RunWriter<'_>, answers: Vec<AnswerCommand>) -> bool {
    let (mut decisions, mut results) = (Vec::new(), Vec::new());
    let mut request = AnsweringRequestParts::default();
    for answer in answers {
        request.echo = answer.request_echo.or(request.echo);
        request.update = answer.update.or(request.update);
        request.client = answer.client.or(request.client);
        match answer.body {
            AnswerBody::Approval { key, decision, by } => decisions.push((key, decision, by)),
            AnswerBody::ClientTools { results: more } => results.extend(more),
        }
    }
    decisions.retain(|(key, ..)| find_open_approval(writer.run, key).is_some());
    results.retain(|result| is_waiting_for_client(writer.run, &result.call_id));
    if decisions.is_empty() && results.is_empty() {
        return false;
    }
    let only_timeouts = results.is_empty() && decisions.iter().all(|(.., by)| *by == Initiator::Timeout);
    let requested = request.update.as_ref().map(|update| update.agent.clone());
    let before = writer.run.fold.root().map(|root| root.requested_agent.clone());
    resume_run_with_request(writer, if only_timeouts { Initiator::Timeout } else { Initiator::User }, request);
    for (key, decision, by) in decisions {
        resolve_approval(writer, &key, decision, by);
    }
    for ClientToolResult { call_id, content, error, acknowledged_checks } in results {
        // Sent twice in one batch: the first one counts.
        if is_waiting_for_client(writer.run, &call_id) {
            let output = ToolOutput { message_content: content, error, ..ToolOutput::default() };
            tool_result::finish_client_call(writer, &call_id, output, acknowledged_checks);
        }
    }
    if let Some(agent) = requested.filter(|agent| before.as_ref() != Some(agent)) {
        switch_agent(writer, agent);
    }
    true
}

/// What the requests that brought answers say besides; the last one counts.
#[derive(Default)]
struct AnsweringRequestParts {
    echo: Option<Value>,
    update: Option<Box<RequestUpdate>>,
    client: Option<Box<ClientIds>>,
}

/// The client continues with another agent or model than before.
fn switch_agent(writer: &mut RunWriter<'_>, agent: String) {
    let Some(root) = writer.run.fold.root().filter(|root| root.agent != agent) else { return };
    let (task_id, from) = (root.id.clone(), root.agent.clone());
    if writer.run.definitions.resolve_agent(&agent).is_some() {
        writer.emit(Event::AgentUpdated(AgentUpdated { task_id, agent, from }));
    }
}

/// The answer to an approval that timed out, by the rule of its tool. It takes effect when it comes back as an
/// answer, so that one place alone decides who was first.
pub fn timeout_answer(run: &RunState, key: &ApprovalKey) -> Option<AnswerCommand> {
    let (task, call) = find_open_approval(run, key)?;
    // A tool of the provider may have the name of one of ours.
    let call = task.call(&call).map(|(_, call)| call).filter(|call| call.kind != Some(CallKind::Hosted));
    let tool = call.and_then(|call| tool_lookup::tool_of_call(run, task, call));
    // Nobody else can answer a question.
    let is_question = task.approvals.iter().any(|(asked, _)| asked.key == *key && asked.question.is_some());
    let kind = match tool.filter(|_| !is_question).map(|tool| tool.approval_on_timeout) {
        Some(ApprovalOnTimeout::Approve) => ApprovalDecisionKind::Approve,
        Some(ApprovalOnTimeout::Reject) | None => ApprovalDecisionKind::Reject,
    };
    let decision = new_decision(kind);
    let body = AnswerBody::Approval { key: key.clone(), decision, by: Initiator::Timeout };
    Some(AnswerCommand { task_id: run.root_id(), body, request_echo: None, update: None, client: None })
}

const fn new_decision(kind: ApprovalDecisionKind) -> ApprovalDecision {
    ApprovalDecision { kind, always: false, message: None, args: None }
}

/// Closes the approval request or the question of a call, which needs no decision any more.
pub(crate) fn withdraw_approval(writer: &mut RunWriter<'_>, call: &CallId) {
    let request = writer.run.task_of_call(call).and_then(|task| task.last_approval(call));
    let Some(key) = request.map(|(request, _)| request.key.clone()) else { return };
    resolve_approval(writer, &key, new_decision(ApprovalDecisionKind::Reject), Initiator::System);
}

fn resolve_approval(writer: &mut RunWriter<'_>, key: &ApprovalKey, decision: ApprovalDecision, by: Initiator) {
    let Some((task, call)) = find_open_approval(writer.run, key) else { return };
    let resolved = ApprovalResolved { task_id: task.id.clone(), key: key.clone(), decisions: vec![decision], by };
    writer.emit(Event::ApprovalResolved(resolved.clone()));
    writer.out.push_effect(Effect::Abort(EffectId::Timer(TimerId::Approval(key.clone()))));
    // A tool that waits for the answer while it runs is told; any other is called again.
    if let Some((id, question)) = outstanding::started_tool(writer.run, &call).zip(last_question(writer.run, &call)) {
        let answer = QuestionAnswer::from_decision(&resolved);
        writer.out.push_effect(Effect::AnswerTool { id, question, answer });
    }
}

/// The tool's name of its last question.
fn last_question(run: &RunState, call: &CallId) -> Option<String> {
    let (fold, _) = run.task_of_call(call)?.call(call)?;
    fold.question.as_ref()?.asked.last().map(|(id, _)| id.clone())
}

fn find_open_approval<'a>(run: &'a RunState, key: &ApprovalKey) -> Option<(&'a TaskFold, CallId)> {
    open_tasks(&run.fold).find_map(|task| {
        let open = task.approvals.iter().find(|(asked, answer)| asked.key == *key && answer.is_none());
        open.map(|(asked, _)| (task, asked.call_id.clone()))
    })
}

fn is_waiting_for_client(run: &RunState, call: &CallId) -> bool {
    let waits = |pending: PendingRequest| pending.kind == PendingKind::ClientTool && pending.call_id == *call;
    run.task_of_call(call).is_some_and(|task| pending_requests_of_task(task).any(waits)) && !run.fold.has_ended()
}

/// Resumes the run if it is paused.
pub(crate) fn resume_run(writer: &mut RunWriter<'_>, by: Initiator) {
    resume_run_with_request(writer, by, AnsweringRequestParts::default());
}

fn resume_run_with_request(writer: &mut RunWriter<'_>, by: Initiator, request: AnsweringRequestParts) {
    let AnsweringRequestParts { echo, mut update, client } = request;
    let paused = writer.run.fold.root().filter(|root| root.status == TaskStatus::Paused);
    let Some(task_id) = paused.map(|root| root.id.clone()) else { return };
    // The state has a record of its own.
    let state = update.as_mut().and_then(|update| update.state.take()).filter(is_state_of_client);
    let private = PrivatePayload { request_echo: echo, update, ..PrivatePayload::default() };
    let private = Some(private).filter(|private| private.request_echo.is_some() || private.update.is_some());
    writer.emit_with_private(
        Event::Resumed(Box::new(TaskResumed { task_id: task_id.clone(), by, client: client.map(|client| *client) })),
        private,
    );
    if let Some(state) = state.filter(|state| writer.run.fold.state.as_ref() != Some(state)) {
        writer.emit(Event::StateSnapshot(StateSnapshot { task_id, state }));
    }
}

/// Pauses the run, which nothing but an answer can advance, and records what it waits for.
pub(crate) fn pause_run(writer: &mut RunWriter<'_>) {
    let running = writer.run.fold.root().filter(|root| root.status == TaskStatus::Running);
    let Some(task_id) = running.map(|root| root.id.clone()) else { return };
    let pending = pending_requests(&writer.run.fold);
    if !pending.is_empty() {
        writer.emit(Event::Paused(TaskPaused { task_id, pending }));
    }
}

/// The tasks whose questions this answers, and those above them.
pub fn answered_tasks(run: &RunFold, answer: &AnswerBody) -> Vec<TaskId> {
    let asks = |task: &TaskFold| match answer {
        AnswerBody::Approval { key, .. } => task.approvals.iter().any(|(asked, _)| asked.key == *key),
        AnswerBody::ClientTools { results } => results.iter().any(|result| task.call(&result.call_id).is_some()),
    };
    let paths = run.tasks.iter().filter(|task| asks(task)).flat_map(|task| ancestors_and_self(run, Some(task)));
    paths.map(|task| task.id.clone()).collect()
}

/// What a run waits for from outside, whether it has paused or other tasks still run.
pub fn pending_requests(run: &RunFold) -> Vec<PendingRequest> {
    open_tasks(run).flat_map(pending_requests_of_task).collect()
}

fn pending_requests_of_task(task: &TaskFold) -> impl Iterator<Item = PendingRequest> {
    let is_complete =
        task.steps.last().and_then(|step| step.stop_reason).is_some_and(model::event::StopReason::is_complete);
    calls::due_calls(task).filter(move |_| is_complete).filter_map(|(fold, call)| {
        let (call_id, task_id) = (call.call_id.clone(), TaskId::clone(&task.id));
        match calls::call_state(task, fold, call) {
            CallState::AwaitingApproval => Some(PendingRequest {
                kind: PendingKind::Approval,
                key: Some(call_id.approval_key()),
                call_id,
                task_id,
            }),
            CallState::AwaitingAnswer(request) => {
                Some(PendingRequest { kind: PendingKind::Question, key: Some(request.key.clone()), call_id, task_id })
            }
            CallState::New | CallState::Decided(_) if call.kind == Some(CallKind::Client) => {
                Some(PendingRequest { kind: PendingKind::ClientTool, key: None, call_id, task_id })
            }
            _ => None,
        }
    })
}
