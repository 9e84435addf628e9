//! A turn's calls: where each of them is, and what is to be done about it next.
//!
//! Everything is read from the state: a call has no memory of its own. So it does not matter what happened last, nor
//! whether it happened in this process.

use crate::state::RunState;
use crate::{arguments, task_tree, tool_lookup};
use model::content::ContentPart;
use model::definition::{ApprovalPolicy, Tool, ToolExecutor};
use model::error::ErrorInfo;
use model::event::{ApprovalDecisionKind, ApprovalResolved, StopReason};
use model::fold::{ItemFold, TaskFold};
use model::item::{CallKind, Item, ResultStatus, ToolCall};
use model::tool::ToolOutput;
use model::{CallId, reference};

/// Where a call is.
pub(crate) enum CallState<'a> {
    /// It has its result.
    Finished,
    /// A sub-agent is at it: its result is open.
    SubAgentRunning,
    /// A person has been asked.
    AwaitingApproval,
    /// Its tool runs.
    Running,
    /// A person has decided.
    Decided(&'a ApprovalResolved),
    /// Nothing has been done about it.
    New,
}

/// Where a call is, from the state alone.
pub(crate) fn call_state<'a>(task: &'a TaskFold, fold: &ItemFold, call: &ToolCall) -> CallState<'a> {
    if let Some((_, result)) = task.result(&call.call_id) {
        return if result.done { CallState::Finished } else { CallState::SubAgentRunning };
    }
    match task.last_approval(&call.call_id) {
        Some((_, None)) => CallState::AwaitingApproval,
        _ if fold.started.is_some() => CallState::Running,
        Some((_, Some(answer))) => CallState::Decided(answer),
        None => CallState::New,
    }
}

/// The calls of the last step that are to be answered.
pub(crate) fn due_calls(task: &TaskFold) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
    let last = task.steps.len().checked_sub(1);
    task.calls().filter(move |(fold, _)| fold.step_index == last && fold.arguments_complete)
}

pub(crate) fn has_result(task: &TaskFold, call: &CallId) -> bool {
    task.result(call).is_some_and(|(_, fold)| fold.done)
}

pub(crate) fn have_all_results(task: &TaskFold) -> bool {
    due_calls(task).all(|(_, call)| has_result(task, &call.call_id))
}

/// What is to be done about a call.
pub(crate) enum CallAction {
    /// It gets this result.
    SetResult(ResultStatus, Box<ToolOutput>),
    /// It gets the result that the same call had before.
    RepeatResult(ResultStatus, Box<ToolOutput>),
    /// A person is asked.
    RequestApproval(Box<Tool>, String),
    /// Nobody need decide any more.
    WithdrawApproval,
    /// A tool starts.
    StartTool(Box<Tool>, String),
    /// A sub-agent starts.
    StartSubAgent(String, String),
    /// The sub-agent has ended.
    FinishSubAgent,
    /// Another agent takes over.
    HandOff(String, String),
}

/// The next thing to be done about a task's calls. What was refused is answered before anything new starts; hand-overs
/// come after everything else.
pub(crate) fn next_call_action(run: &RunState, task: &TaskFold) -> Option<(CallId, CallAction)> {
    let look = |(fold, call): (&ItemFold, &ToolCall)| {
        call_action(run, task, fold, call).map(|act| (call.call_id.clone(), act))
    };
    let refused = due_calls(task).filter(|(fold, call)| is_rejected(task, fold, call)).find_map(look);
    let ordinary = || due_calls(task).filter(|(_, call)| call.kind != Some(CallKind::Handoff));
    let busy = ordinary().filter(|(fold, call)| is_running(task, fold, call)).count();
    let has_room = busy < run.definitions.limits.parallel_tools_max;
    let fits = |(_, act): &(CallId, CallAction)| {
        has_room || !matches!(act, CallAction::StartTool(..) | CallAction::StartSubAgent(..))
    };
    let next = refused.or_else(|| ordinary().filter_map(look).find(fits));
    if next.is_some() || ordinary().any(|(_, call)| !has_result(task, &call.call_id)) {
        return next;
    }
    // Only the first hand-over counts; it is answered last, because after it another agent goes on.
    let open = due_calls(task).filter(|(_, call)| !has_result(task, &call.call_id));
    let (place, (fold, call)) = open.enumerate().last()?;
    if place > 0 {
        let output = ToolOutput::failed("handoff_ignored", "Several hand-offs in one turn: only the first one counts.");
        return Some((call.call_id.clone(), CallAction::SetResult(ResultStatus::Failed, Box::new(output))));
    }
    look((fold, call))
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
        CallState::AwaitingApproval => cancelling.then_some(CallAction::WithdrawApproval),
        CallState::Decided(answer) => action_after_decision(run, task, call, answer),
        CallState::New => action_for_new_call(run, task, call),
    }
}

/// Somebody has decided on a call.
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
    let arguments = match edited.filter(|_| kind == ApprovalDecisionKind::Edit) {
        Some(args) => args.to_string(),
        None => approved_arguments(task, call),
    };
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
    arguments::validate_arguments(&tool.spec, arguments).map(|()| tool)
}

/// The arguments that somebody was asked about: the model's own, to the letter, unless others had run before a crash.
fn approved_arguments(task: &TaskFold, call: &ToolCall) -> String {
    let own = call.arguments.clone().unwrap_or_default();
    let question = task.last_approval(&call.call_id).and_then(|(asked, _)| asked.action_requests.first());
    let others = question.filter(|action| serde_json::from_str(&own).ok().as_ref() != Some(&action.args));
    others.map_or(own, |action| action.args.to_string())
}

fn first_decision(answer: &ApprovalResolved) -> (ApprovalDecisionKind, Option<&str>) {
    match answer.decisions.first() {
        Some(decision) => (decision.kind, decision.message.as_deref()),
        None => (ApprovalDecisionKind::Reject, None),
    }
}

fn rejection_action(task: &TaskFold, call: &ToolCall, answer: &ApprovalResolved, message: Option<&str>) -> CallAction {
    use model::event::Initiator;
    // Of a call that ran before a crash nobody can say that it did not.
    if task.call(&call.call_id).is_some_and(|(fold, _)| fold.attempts > 0) {
        let error = outcome_unknown_error(message);
        return CallAction::SetResult(ResultStatus::Unknown, Box::new(error_output(error)));
    }
    let seconds = task.last_approval(&call.call_id).map_or(0, |(asked, _)| asked.timeout_seconds);
    let error = match (answer.by, message) {
        (Initiator::Timeout, _) => ErrorInfo::new("approval_timeout", format!("No decision within {seconds} s")),
        (Initiator::System | Initiator::Cancel, _) => ErrorInfo::new("cancelled", "Cancelled before anybody decided."),
        (Initiator::User, Some(message)) => ErrorInfo::new("rejected", message),
        (Initiator::User, None) => ErrorInfo::new("rejected", "The call was not approved."),
    };
    CallAction::SetResult(ResultStatus::Rejected, Box::new(error_output(error)))
}

/// A call that nothing has been done about.
fn action_for_new_call(run: &RunState, task: &TaskFold, call: &ToolCall) -> Option<CallAction> {
    let arguments = call.arguments.clone().unwrap_or_default();
    let tool = match resolve_and_validate(run, task, call, &arguments) {
        Ok(tool) => tool,
        Err(output) => return Some(CallAction::SetResult(ResultStatus::Failed, output)),
    };
    if let Some(act) = action_for_duplicate(task, call) {
        return act;
    }
    let asks = match &tool.approval {
        ApprovalPolicy::Never => false,
        ApprovalPolicy::Always => true,
        ApprovalPolicy::When(rule) => rule.requires_approval(&serde_json::from_str(&arguments).unwrap_or_default()),
    };
    let standing = run.standing_decision(&call.name).filter(|_| asks);
    if let Some(answer) = standing.filter(|answer| first_decision(answer).0 == ApprovalDecisionKind::Reject) {
        return Some(rejection_action(task, call, answer, first_decision(answer).1));
    }
    let asks = asks && standing.is_none();
    match asks {
        true if run.is_cancelling(task) => Some(cancelled_action()),
        true => Some(CallAction::RequestApproval(Box::new(tool), arguments)),
        false => action_to_start(run, task, tool, arguments),
    }
}

/// The task stops after this turn: nobody is asked any more.
fn cancelled_action() -> CallAction {
    let output = ToolOutput::failed("cancelled", "Cancelled: the call was not run.");
    CallAction::SetResult(ResultStatus::Incomplete, Box::new(output))
}

/// A call that may run. `None` is the client's to answer.
fn action_to_start(run: &RunState, task: &TaskFold, tool: Tool, arguments: String) -> Option<CallAction> {
    Some(match &tool.executor {
        ToolExecutor::Client | ToolExecutor::Agent { .. } if run.is_cancelling(task) => cancelled_action(),
        ToolExecutor::Client => return None,
        ToolExecutor::Agent { agent } => match task_tree::sub_agent_refusal(run, task, agent) {
            Some(output) => CallAction::SetResult(ResultStatus::Failed, Box::new(output)),
            None => CallAction::StartSubAgent(agent.clone(), arguments),
        },
        ToolExecutor::Handoff { agent } => CallAction::HandOff(agent.clone(), arguments),
        ToolExecutor::Builtin | ToolExecutor::Http(_) | ToolExecutor::Command(_) => {
            CallAction::StartTool(Box::new(tool), arguments)
        }
    })
}

/// A provider that names a call twice means the same call: it is not run again, and not otherwise. What is to be done
/// about it, if it was named before: nothing while the first one has no result.
fn action_for_duplicate(task: &TaskFold, call: &ToolCall) -> Option<Option<CallAction>> {
    let own = task.call(&call.call_id)?.0.provider_call_id.as_ref().filter(|id| !id.is_empty())?;
    let before = task.calls().take_while(|(_, before)| before.call_id != call.call_id);
    let mut before =
        before.filter(|(fold, _)| fold.provider_call_id.as_ref() == Some(own) && !fold.superseded).peekable();
    before.peek()?;
    let Some((_, same)) = before.find(|(_, before)| before.name == call.name && before.arguments == call.arguments)
    else {
        let message = "Another call had this id. Nothing was run; call it again with an id of its own.";
        let output = ToolOutput::failed("duplicate_call_id", message);
        return Some(Some(CallAction::SetResult(ResultStatus::Failed, Box::new(output))));
    };
    Some(
        task.result(&same.call_id)
            .filter(|(_, result)| result.done)
            .and_then(|(_, result)| repeat_result_action(result)),
    )
}

/// A result once more, as it was shown and read.
fn repeat_result_action(result: &ItemFold) -> Option<CallAction> {
    let Item::ToolResult(shown) = &result.item else { return None };
    let output = ToolOutput {
        message_content: result
            .content
            .clone()
            .unwrap_or_else(|| reference::wrap_reference_groups(reference::blocks_to_parts(result.item.blocks()))),
        block_list: shown.block_list.clone().unwrap_or_default(),
        summary: shown.summary.clone(),
        artifact: shown.artifact.clone(),
        ui_hints: shown.ui_hints.clone(),
        error: shown.error.clone(),
    };
    Some(CallAction::RepeatResult(shown.status.unwrap_or(ResultStatus::Completed), Box::new(output)))
}

/// How many turns in a row asked only for what cannot be done.
pub(crate) fn consecutive_invalid_turns(task: &TaskFold) -> u32 {
    let invalid = |place: usize| {
        let mut calls =
            task.calls().filter(|(fold, _)| fold.step_index == Some(place) && fold.arguments_complete).peekable();
        calls.peek().is_some() && calls.all(|(_, call)| is_invalid_call(task, &call.call_id))
    };
    let lost = |place: &usize| task.steps.get(*place).is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
    let places = (0..task.steps.len()).rev().filter(|place| !lost(place)).take_while(|place| invalid(*place));
    u32::try_from(places.count()).unwrap_or(u32::MAX)
}

/// Error codes of a call that the model got wrong: there is no such tool, or the arguments do not fit.
const INVALID_CALL_CODES: [&str; 2] = ["invalid_arguments", "unknown_tool"];

fn is_invalid_call(task: &TaskFold, call: &CallId) -> bool {
    let Some((_, fold)) = task.result(call) else { return false };
    let Item::ToolResult(result) = &fold.item else { return false };
    result.error.as_ref().is_some_and(|error| INVALID_CALL_CODES.contains(&error.code.as_str()))
}

/// The error of a call that may or may not have run; `message` is what a person message about it.
pub(crate) fn outcome_unknown_error(message: Option<&str>) -> ErrorInfo {
    const UNKNOWN: &str =
        "The server stopped while the tool ran. It may or may not have done its work: find out before it is run again.";
    ErrorInfo::new("outcome_unknown", message.unwrap_or(UNKNOWN))
}

/// An output that tells the model what went wrong.
pub(crate) fn error_output(error: ErrorInfo) -> ToolOutput {
    let message_content = vec![ContentPart::text(&error.message)];
    ToolOutput { message_content, error: Some(error), ..ToolOutput::default() }
}
