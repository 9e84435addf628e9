//! The calls of a turn: the state of each, and its next action.
//!
//! Both are read from the fold alone, so it does not matter what happened last, nor whether it happened in this process.

use crate::state::RunState;
use crate::{arguments, task_tree, tool_lookup, tool_search};
use model::content::ContentPart;
use model::definition::{ApprovalPolicy, Tool, ToolExecutor};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Initiator, StopReason};
use model::fold::{ItemFold, TaskFold};
use model::item::{CallKind, Item, ResultStatus, ToolCall};
use model::json::ExactValue;
use model::question::{OnDecline, QuestionAnswer, ToolAnswers};
use model::tool::ToolOutput;
use model::{ApprovalKey, CallId};

pub(crate) enum CallState<'a> {
    Finished,
    /// A sub-agent runs; the result is open.
    SubAgentRunning,
    AwaitingApproval,
    /// The tool has asked people. If the call has started, it runs and waits for the answer.
    AwaitingAnswer(&'a ApprovalRequested),
    Running,
    /// The approval request has its decision.
    Decided(&'a ApprovalResolved),
    /// The question of the tool, which has ended, has its answer.
    Answered(&'a ApprovalRequested, &'a ApprovalResolved),
    New,
}

pub(crate) fn call_state<'a>(task: &'a TaskFold, fold: &ItemFold, call: &ToolCall) -> CallState<'a> {
    match task.result(&call.call_id) {
        Some((_, result)) if result.done => return CallState::Finished,
        // Only a tool has a deadline: its result is open because it streams, and says nothing about the call.
        Some(_) if fold.started.as_ref().is_some_and(|started| started.deadline.is_none()) => {
            return CallState::SubAgentRunning;
        }
        Some(_) | None => {}
    }
    match task.last_approval(&call.call_id) {
        Some((request, None)) if request.question.is_some() => CallState::AwaitingAnswer(request),
        Some((_, None)) => CallState::AwaitingApproval,
        _ if fold.started.is_some() => CallState::Running,
        Some((request, Some(answer))) if request.question.is_some() => CallState::Answered(request, answer),
        Some((_, Some(answer))) => CallState::Decided(answer),
        None => CallState::New,
    }
}

/// The calls of the last step that need a result.
pub(crate) fn due_calls(task: &TaskFold) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
    let last = task.steps.len().checked_sub(1);
    task.calls().filter(move |(fold, _)| fold.step_index == last && fold.arguments_complete)
}

/// Whether calls wait whose arguments the next input may make the machine validate.
pub fn has_open_calls(run: &RunState) -> bool {
    let is_open = |task: &TaskFold| due_calls(task).any(|(_, call)| !has_result(task, &call.call_id));
    task_tree::open_tasks(&run.fold).any(is_open)
}

pub(crate) fn has_result(task: &TaskFold, call: &CallId) -> bool {
    task.result(call).is_some_and(|(_, fold)| fold.done)
}

pub(crate) fn have_all_results(task: &TaskFold) -> bool {
    due_calls(task).all(|(_, call)| has_result(task, &call.call_id))
}

/// The next action for a call. A `String` after a tool or an agent is the arguments.
pub(crate) enum CallAction {
    SetResult(ResultStatus, Box<ToolOutput>),
    /// The result that the same call had before.
    RepeatResult(ResultStatus, Box<ToolOutput>),
    RequestApproval(Box<Tool>, String),
    WithdrawApproval,
    StartTool(Box<Tool>, String),
    AskNextQuestion,
    /// The same attempt goes on with the answers of people.
    ContinueTool(Box<Tool>, String),
    StartSubAgent(String, String),
    FinishSubAgent,
    HandOff(String, String),
}

/// The next action for the calls of a task. Rejected calls are answered before anything starts; hand-offs come last.
pub(crate) fn next_call_action(run: &RunState, task: &TaskFold) -> Option<(CallId, CallAction)> {
    let next_of = |(fold, call): (&ItemFold, &ToolCall)| {
        call_action(run, task, fold, call).map(|action| (call.call_id.clone(), action))
    };
    let rejected = due_calls(task).filter(|(fold, call)| is_rejected(task, fold, call)).find_map(next_of);
    let ordinary = || due_calls(task).filter(|(_, call)| call.kind != Some(CallKind::Handoff));
    let busy = ordinary().filter(|(fold, call)| is_running(task, fold, call)).count();
    let has_room = busy < run.definitions.limits.parallel_tools_max;
    let fits = |(_, action): &(CallId, CallAction)| {
        use CallAction::{ContinueTool, StartSubAgent, StartTool};
        has_room || !matches!(action, StartTool(..) | ContinueTool(..) | StartSubAgent(..))
    };
    let next = rejected.or_else(|| ordinary().filter_map(next_of).find(fits));
    if next.is_some() || ordinary().any(|(_, call)| !has_result(task, &call.call_id)) {
        return next;
    }
    // Only the first hand-off counts; it is answered last, because after it another agent continues.
    let open = due_calls(task).filter(|(_, call)| !has_result(task, &call.call_id));
    let (index, (fold, call)) = open.enumerate().last()?;
    if index > 0 {
        let output =
            ToolOutput::failed(ErrorCode::HandoffIgnored, "Several hand-offs in one turn: only the first one counts.");
        return Some((call.call_id.clone(), CallAction::SetResult(ResultStatus::Failed, Box::new(output))));
    }
    next_of((fold, call))
}

fn is_rejected(task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> bool {
    match call_state(task, fold, call) {
        CallState::Decided(answer) => first_decision(answer).0 == ApprovalDecisionKind::Reject,
        _ => false,
    }
}

fn is_running(task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> bool {
    matches!(call_state(task, fold, call), CallState::Running | CallState::SubAgentRunning)
}

fn call_action(run: &RunState, task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> Option<CallAction> {
    let cancelling = run.is_cancelling(task);
    match call_state(task, fold, call) {
        CallState::Finished | CallState::Running => None,
        CallState::SubAgentRunning => task_tree::has_sub_agent_ended(run, call).then_some(CallAction::FinishSubAgent),
        CallState::AwaitingApproval | CallState::AwaitingAnswer(_) => {
            cancelling.then_some(CallAction::WithdrawApproval)
        }
        CallState::Answered(request, answer) => Some(action_after_answer(run, task, (fold, call), request, answer)),
        CallState::Decided(answer) if is_hosted(call) => Some(hosted_decision_action(task, call, answer)),
        CallState::Decided(answer) => action_after_decision(run, task, call, answer),
        CallState::New if is_hosted(call) => action_for_hosted_call(run, task, call),
        CallState::New => action_for_new_call(run, task, call),
    }
}

fn is_hosted(call: &ToolCall) -> bool {
    call.kind == Some(CallKind::Hosted)
}

/// The provider asks whether it may call a tool of its own. The arguments are for that tool: they are not validated here.
fn action_for_hosted_call(run: &RunState, task: &TaskFold, call: &ToolCall) -> Option<CallAction> {
    if let Some(action) = action_for_duplicate(task, call) {
        return action;
    }
    Some(match run.standing_decision(task, call) {
        Some(answer) => hosted_decision_action(task, call, answer),
        None if run.is_cancelling(task) => cancelled_action(),
        None => {
            let tool = Box::new(tool_lookup::hosted_tool(call));
            CallAction::RequestApproval(tool, call.arguments.clone().unwrap_or_default())
        }
    })
}

/// Nothing runs here: the decision is the result, and the next model turn tells it to the provider.
fn hosted_decision_action(task: &TaskFold, call: &ToolCall, answer: &ApprovalResolved) -> CallAction {
    match first_decision(answer) {
        (ApprovalDecisionKind::Approve, _) => {
            let message_content = vec![ContentPart::text("Approved.")];
            let output = ToolOutput { message_content, ..ToolOutput::default() };
            CallAction::SetResult(ResultStatus::Completed, Box::new(output))
        }
        (ApprovalDecisionKind::Reject, message) => rejection_action(task, call, answer, message),
        // Requests with an edit are refused; one that came in another way must not run what nobody approved.
        (ApprovalDecisionKind::Edit, _) => {
            let error = ErrorInfo::new(ErrorCode::Rejected, "The arguments of this call cannot be changed.");
            CallAction::SetResult(ResultStatus::Rejected, Box::new(error_output(error)))
        }
    }
}

/// A question has its answer: the tool is called again when all of its questions have one, or nobody answers.
fn action_after_answer(
    run: &RunState,
    task: &TaskFold,
    (fold, call): (&ItemFold, &ToolCall),
    request: &ApprovalRequested,
    answer: &ApprovalResolved,
) -> CallAction {
    let is_declined = first_decision(answer).0 == ApprovalDecisionKind::Reject;
    if is_declined && matches!(answer.by, Initiator::System | Initiator::Cancel) {
        return cancelled_action();
    }
    if is_declined && fold.question.as_ref().is_some_and(|question| question.on_decline == OnDecline::Reject) {
        let error = match (answer.by, first_decision(answer).1) {
            (Initiator::Timeout, _) => {
                let message = format!("No answer within {} s", request.timeout_seconds);
                ErrorInfo::new(ErrorCode::ApprovalTimeout, message)
            }
            (_, message) => ErrorInfo::new(ErrorCode::Rejected, message.unwrap_or("The question was declined.")),
        };
        return CallAction::SetResult(ResultStatus::Rejected, Box::new(error_output(error)));
    }
    if !is_declined && fold.question.as_ref().is_some_and(|question| !question.next.is_empty()) {
        return CallAction::AskNextQuestion;
    }
    match tool_lookup::resolve_tool(run, task, call) {
        Ok(tool) => CallAction::ContinueTool(Box::new(tool), call.arguments.clone().unwrap_or_default()),
        Err(output) => CallAction::SetResult(ResultStatus::Failed, output),
    }
}

/// What the tool of a call is told when it is called again: the answers to all questions of its last round. Those that were
/// not asked, because another one was declined, nobody has answered.
pub(crate) fn tool_answers(task: &TaskFold, fold: &ItemFold) -> Option<ToolAnswers> {
    let question = fold.question.as_ref().filter(|question| !question.live)?;
    let answer = |key: &ApprovalKey| {
        let resolved = task.approvals.iter().find(|(request, _)| request.key == *key)?.1.as_ref();
        resolved.map(QuestionAnswer::from_decision)
    };
    let asked = question.asked.iter().map(|(id, key)| (id.clone(), answer(key).unwrap_or(QuestionAnswer::Cancelled)));
    let not_asked = question.next.iter().map(|next| (next.id.clone(), QuestionAnswer::Cancelled));
    Some(ToolAnswers { state: question.state.clone(), answers: asked.chain(not_asked).collect() })
}

fn action_after_decision(
    run: &RunState,
    task: &TaskFold,
    call: &ToolCall,
    answer: &ApprovalResolved,
) -> Option<CallAction> {
    let (kind, message) = first_decision(answer);
    if kind == ApprovalDecisionKind::Reject {
        return Some(rejection_action(task, call, answer, message));
    }
    let edited = answer.decisions.first().and_then(|decision| decision.args.as_ref());
    let edited = edited.filter(|args| kind == ApprovalDecisionKind::Edit && !call.has_same_arguments(args));
    let arguments = edited.map_or_else(|| approved_arguments(task, call), ToString::to_string);
    match resolve_and_validate(run, task, call, &arguments) {
        Ok(tool) => action_to_start(run, task, tool, arguments),
        Err(output) => Some(CallAction::SetResult(ResultStatus::Failed, output)),
    }
}

/// The tool of a call whose arguments it accepts, or the error result for the model.
fn resolve_and_validate(
    run: &RunState,
    task: &TaskFold,
    call: &ToolCall,
    arguments: &str,
) -> Result<Tool, Box<ToolOutput>> {
    let tool = tool_lookup::resolve_tool(run, task, call)?;
    arguments::validate_arguments(&run.schemas, &tool.spec, arguments).map(|()| tool)
}

/// The arguments that were approved: the call's own, verbatim, unless the request shows others.
fn approved_arguments(task: &TaskFold, call: &ToolCall) -> String {
    let request = task.last_approval(&call.call_id).and_then(|(request, _)| request.action_requests.first());
    let others = request.filter(|action| !call.has_same_arguments(&action.args));
    others.map_or_else(|| call.arguments.clone().unwrap_or_default(), |action| action.args.to_string())
}

fn first_decision(answer: &ApprovalResolved) -> (ApprovalDecisionKind, Option<&str>) {
    match answer.decisions.first() {
        Some(decision) => (decision.kind, decision.message.as_deref()),
        None => (ApprovalDecisionKind::Reject, None),
    }
}

fn rejection_action(task: &TaskFold, call: &ToolCall, answer: &ApprovalResolved, message: Option<&str>) -> CallAction {
    // A call that ran before a crash may have had its effect.
    if task.call(&call.call_id).is_some_and(|(fold, _)| fold.attempts > 0) {
        let error = outcome_unknown_error(message);
        return CallAction::SetResult(ResultStatus::Unknown, Box::new(error_output(error)));
    }
    let seconds = task.last_approval(&call.call_id).map_or(0, |(request, _)| request.timeout_seconds);
    let error = match (answer.by, message) {
        (Initiator::Timeout, _) => {
            ErrorInfo::new(ErrorCode::ApprovalTimeout, format!("No decision within {seconds} s"))
        }
        (Initiator::System | Initiator::Cancel, _) => {
            ErrorInfo::new(ErrorCode::Cancelled, "Cancelled before anybody decided.")
        }
        (Initiator::User, Some(message)) => ErrorInfo::new(ErrorCode::Rejected, message),
        (Initiator::User, None) => ErrorInfo::new(ErrorCode::Rejected, "The call was not approved."),
    };
    CallAction::SetResult(ResultStatus::Rejected, Box::new(error_output(error)))
}

fn action_for_new_call(run: &RunState, task: &TaskFold, call: &ToolCall) -> Option<CallAction> {
    let arguments = call.arguments.clone().unwrap_or_default();
    let tool = match resolve_and_validate(run, task, call, &arguments) {
        Ok(tool) => tool,
        Err(output) => return Some(CallAction::SetResult(ResultStatus::Failed, output)),
    };
    if let Some(action) = action_for_duplicate(task, call) {
        return action;
    }
    let needs_approval = match &tool.approval {
        ApprovalPolicy::Never => false,
        ApprovalPolicy::Always => true,
        ApprovalPolicy::When(rule) => rule.requires_approval(&ExactValue::parse(&arguments).unwrap_or_default()),
    };
    let standing = run.standing_decision(task, call).filter(|_| needs_approval);
    if let Some(answer) = standing.filter(|answer| first_decision(answer).0 == ApprovalDecisionKind::Reject) {
        return Some(rejection_action(task, call, answer, first_decision(answer).1));
    }
    match needs_approval && standing.is_none() {
        true if run.is_cancelling(task) => Some(cancelled_action()),
        true => Some(CallAction::RequestApproval(Box::new(tool), arguments)),
        false => action_to_start(run, task, tool, arguments),
    }
}

/// The task stops after this turn: nothing new is started or asked.
fn cancelled_action() -> CallAction {
    let output = ToolOutput::failed(ErrorCode::Cancelled, "Cancelled: the call was not run.");
    CallAction::SetResult(ResultStatus::Incomplete, Box::new(output))
}

/// Starts a call that may run. `None` for a tool of the client, which answers it.
fn action_to_start(run: &RunState, task: &TaskFold, tool: Tool, arguments: String) -> Option<CallAction> {
    Some(match &tool.executor {
        ToolExecutor::Client | ToolExecutor::Agent { .. } if run.is_cancelling(task) => cancelled_action(),
        ToolExecutor::Client => return None,
        ToolExecutor::Agent { agent, others } => {
            let chosen = chosen_sub_agent(agent, others, &arguments).and_then(|agent| {
                let refusal = task_tree::sub_agent_refusal(run, task, &agent);
                refusal.map_or(Ok(agent), |output| Err(Box::new(output)))
            });
            match chosen {
                Ok(agent) => CallAction::StartSubAgent(agent, arguments),
                Err(output) => CallAction::SetResult(ResultStatus::Failed, output),
            }
        }
        ToolExecutor::Handoff { agent } => CallAction::HandOff(agent.clone(), arguments),
        ToolExecutor::ToolSearch => {
            let output = tool_search::search_tools(run, task, &arguments);
            CallAction::SetResult(ResultStatus::Completed, Box::new(output))
        }
        ToolExecutor::Builtin | ToolExecutor::Http(_) | ToolExecutor::Command(_) | ToolExecutor::Mcp(_) => {
            CallAction::StartTool(Box::new(tool), arguments)
        }
    })
}

/// The agent that a call means: the only one, or the one that its argument `name` picks.
fn chosen_sub_agent(agent: &str, others: &[String], arguments: &str) -> Result<String, Box<ToolOutput>> {
    if others.is_empty() {
        return Ok(agent.to_owned());
    }
    let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap_or_default();
    let wanted = arguments.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
    let mut agents = std::iter::once(agent).chain(others.iter().map(String::as_str));
    if agents.clone().any(|name| name == wanted) {
        return Ok(wanted.to_owned());
    }
    let first = agents.next().unwrap_or_default().to_owned();
    let names = agents.fold(first, |names, name| names + ", " + name);
    let message = format!("There is no agent `{wanted}` here. `name` is one of: {names}.");
    Err(Box::new(ToolOutput::failed(ErrorCode::UnknownAgent, message)))
}

/// The action for a call whose id the provider has used before: the same call gets the same result, once that is there;
/// another call with the same id is an error. The outer `None` means that the id is new.
fn action_for_duplicate(task: &TaskFold, call: &ToolCall) -> Option<Option<CallAction>> {
    let own = task.call(&call.call_id)?.0.provider_call_id.as_ref().filter(|id| !id.is_empty())?;
    let before = task.calls().take_while(|(_, before)| before.call_id != call.call_id);
    let mut before =
        before.filter(|(fold, _)| fold.provider_call_id.as_ref() == Some(own) && !fold.superseded).peekable();
    before.peek()?;
    let Some((_, same)) =
        before.find(|(_, before)| before.name == call.name && before.written_arguments() == call.written_arguments())
    else {
        let message = "Another call had this id. Nothing was run; call it again with an id of its own.";
        let output = ToolOutput::failed(ErrorCode::DuplicateCallId, message);
        return Some(Some(CallAction::SetResult(ResultStatus::Failed, Box::new(output))));
    };
    Some(
        task.result(&same.call_id)
            .filter(|(_, result)| result.done)
            .and_then(|(_, result)| repeat_result_action(result)),
    )
}

/// The result of an earlier call, as people saw it and the model read it.
fn repeat_result_action(result: &ItemFold) -> Option<CallAction> {
    let Item::ToolResult(item) = &result.item else { return None };
    let output = ToolOutput {
        message_content: result.result_content(),
        block_list: item.block_list.clone().unwrap_or_default(),
        summary: item.summary.clone(),
        artifact: item.artifact.clone(),
        ui_hints: item.ui_hints.clone(),
        error: item.error.clone(),
    };
    Some(CallAction::RepeatResult(item.status.unwrap_or(ResultStatus::Completed), Box::new(output)))
}

/// The number of last turns in a row that had invalid calls only.
pub(crate) fn consecutive_invalid_turns(task: &TaskFold) -> u32 {
    let invalid = |index: usize| {
        let mut calls =
            task.calls().filter(|(fold, _)| fold.step_index == Some(index) && fold.arguments_complete).peekable();
        calls.peek().is_some() && calls.all(|(_, call)| is_invalid_call(task, &call.call_id))
    };
    let is_lost = |index: &usize| task.steps.get(*index).is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
    let turns = (0..task.steps.len()).rev().filter(|index| !is_lost(index)).take_while(|index| invalid(*index));
    u32::try_from(turns.count()).unwrap_or(u32::MAX)
}

/// Error codes of a call that the model got wrong: there is no such tool, or the arguments do not fit.
const INVALID_CALL_CODES: [ErrorCode; 2] = [ErrorCode::InvalidArguments, ErrorCode::UnknownTool];

fn is_invalid_call(task: &TaskFold, call: &CallId) -> bool {
    let Some((_, fold)) = task.result(call) else { return false };
    let Item::ToolResult(result) = &fold.item else { return false };
    result.error.as_ref().and_then(ErrorInfo::known_code).is_some_and(|code| INVALID_CALL_CODES.contains(&code))
}

/// The error of a call that may or may not have run; `message` is what a person message about it.
pub(crate) fn outcome_unknown_error(message: Option<&str>) -> ErrorInfo {
    const UNKNOWN: &str =
        "The server stopped while the tool ran. It may or may not have done its work: find out before it is run again.";
    ErrorInfo::new(ErrorCode::OutcomeUnknown, message.unwrap_or(UNKNOWN))
}

/// An output that tells the model what went wrong.
pub(crate) fn error_output(error: ErrorInfo) -> ToolOutput {
    let message_content = vec![ContentPart::text(&error.message)];
    ToolOutput { message_content, error: Some(error), ..ToolOutput::default() }
}
