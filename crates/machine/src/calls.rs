//! A turn's calls: where each of them is, and what is to be done about it next.
//!
//! Everything is read from the state: a call has no memory of its own. So it does not matter what happened last, nor
//! whether it happened in this process.

use crate::state::RunState;
use crate::{args, child, recover};
use model::definition::{ApprovalPolicy, Tool, ToolExecutor};
use model::event::{ApprovalDecisionKind, ApprovalResolved, ErrorInfo, StopReason};
use model::fold::{ItemFold, TaskFold};
use model::item::{CallKind, Item, ResultStatus, ToolCall};
use model::tool::{ToolOutput, ToolSpec};
use model::{CallId, reference};

/// Where a call is.
pub(crate) enum CallState<'a> {
    /// It has its result.
    Answered,
    /// A sub-agent is at it: its result is open.
    Child,
    /// A person has been asked.
    Asked,
    /// Its tool runs.
    Running,
    /// A person has decided.
    Decided(&'a ApprovalResolved),
    /// Nothing has been done about it.
    Fresh,
}

/// Where a call is, from the state alone.
pub(crate) fn state<'a>(task: &'a TaskFold, fold: &ItemFold, call: &ToolCall) -> CallState<'a> {
    if let Some((_, result)) = task.result(&call.call_id) {
        return if result.done { CallState::Answered } else { CallState::Child };
    }
    match task.last_approval(&call.call_id) {
        Some((_, None)) => CallState::Asked,
        _ if fold.started.is_some() => CallState::Running,
        Some((_, Some(answer))) => CallState::Decided(answer),
        None => CallState::Fresh,
    }
}

/// The calls of the last step that are to be answered.
pub(crate) fn due(task: &TaskFold) -> impl Iterator<Item = (&ItemFold, &ToolCall)> {
    let last = task.steps.len().checked_sub(1);
    task.calls().filter(move |(fold, _)| fold.step_index == last && fold.arguments_complete)
}

pub(crate) fn is_answered(task: &TaskFold, call: &CallId) -> bool {
    task.result(call).is_some_and(|(_, fold)| fold.done)
}

pub(crate) fn all_answered(task: &TaskFold) -> bool {
    due(task).all(|(_, call)| is_answered(task, &call.call_id))
}

/// What is to be done about a call.
pub(crate) enum Act {
    /// It gets this result.
    Answer(ResultStatus, Box<ToolOutput>),
    /// It gets the result that the same call had before.
    Repeat(ResultStatus, Box<ToolOutput>),
    /// A person is asked.
    Ask(Box<Tool>, String),
    /// Nobody need decide any more.
    Withdraw,
    /// A tool starts.
    Start(Box<Tool>, String),
    /// A sub-agent starts.
    StartChild(String, String),
    /// The sub-agent has ended.
    EndChild,
    /// Another agent takes over.
    HandOver(String, String),
}

/// The next thing to be done about a task's calls. What was refused is answered before anything new starts; hand-overs
/// come after everything else.
pub(crate) fn next_act(run: &RunState, task: &TaskFold) -> Option<(CallId, Act)> {
    let look = |(fold, call): (&ItemFold, &ToolCall)| act(run, task, fold, call).map(|act| (call.call_id.clone(), act));
    let refused = due(task).filter(|(fold, call)| is_refused(task, fold, call)).find_map(look);
    let ordinary = || due(task).filter(|(_, call)| call.kind != Some(CallKind::Handoff));
    let busy = ordinary().filter(|(fold, call)| is_busy(task, fold, call)).count();
    let has_room = busy < run.definitions.limits.parallel_tools_max;
    let fits = |(_, act): &(CallId, Act)| has_room || !matches!(act, Act::Start(..) | Act::StartChild(..));
    let next = refused.or_else(|| ordinary().filter_map(look).find(fits));
    if next.is_some() || ordinary().any(|(_, call)| !is_answered(task, &call.call_id)) {
        return next;
    }
    // Only the first hand-over counts; it is answered last, because after it another agent goes on.
    let open = due(task).filter(|(_, call)| !is_answered(task, &call.call_id));
    let (place, (fold, call)) = open.enumerate().last()?;
    if place > 0 {
        let output = ToolOutput::failed("handoff_ignored", "Several hand-offs in one turn: only the first one counts.");
        return Some((call.call_id.clone(), Act::Answer(ResultStatus::Failed, Box::new(output))));
    }
    look((fold, call))
}

fn is_refused(task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> bool {
    match state(task, fold, call) {
        CallState::Decided(answer) => decision(answer).0 == ApprovalDecisionKind::Reject,
        _ => false,
    }
}

fn is_busy(task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> bool {
    matches!(state(task, fold, call), CallState::Running | CallState::Child)
}

fn act(run: &RunState, task: &TaskFold, fold: &ItemFold, call: &ToolCall) -> Option<Act> {
    let cancelling = run.is_cancelling(task);
    match state(task, fold, call) {
        CallState::Answered | CallState::Running => None,
        CallState::Child => child::has_ended(run, call).then_some(Act::EndChild),
        CallState::Asked => cancelling.then_some(Act::Withdraw),
        CallState::Decided(answer) => decided(run, task, call, answer),
        CallState::Fresh => fresh(run, task, call),
    }
}

/// Somebody has decided on a call.
fn decided(run: &RunState, task: &TaskFold, call: &ToolCall, answer: &ApprovalResolved) -> Option<Act> {
    let (kind, message) = decision(answer);
    if kind == ApprovalDecisionKind::Reject {
        return Some(refuse(task, call, answer, message));
    }
    let edited = answer.decisions.first().and_then(|decision| decision.args.as_ref());
    let arguments = match edited.filter(|_| kind == ApprovalDecisionKind::Edit) {
        Some(args) => args.to_string(),
        None => asked_for(task, call),
    };
    match resolve(run, task, call).and_then(|tool| args::check(&tool.spec, &arguments).map(|()| tool)) {
        Ok(tool) => begin(run, task, tool, arguments),
        Err(output) => Some(Act::Answer(ResultStatus::Failed, output)),
    }
}

/// The arguments that somebody was asked about: the model's own, to the letter, unless others had run before a crash.
fn asked_for(task: &TaskFold, call: &ToolCall) -> String {
    let own = call.arguments.clone().unwrap_or_default();
    let question = task.last_approval(&call.call_id).and_then(|(asked, _)| asked.action_requests.first());
    let others = question.filter(|action| serde_json::from_str(&own).ok().as_ref() != Some(&action.args));
    others.map_or(own, |action| action.args.to_string())
}

fn decision(answer: &ApprovalResolved) -> (ApprovalDecisionKind, Option<&str>) {
    match answer.decisions.first() {
        Some(decision) => (decision.kind, decision.message.as_deref()),
        None => (ApprovalDecisionKind::Reject, None),
    }
}

fn refuse(task: &TaskFold, call: &ToolCall, answer: &ApprovalResolved, message: Option<&str>) -> Act {
    use model::event::Initiator;
    // Of a call that ran before a crash nobody can say that it did not.
    if task.call(&call.call_id).is_some_and(|(fold, _)| fold.attempts > 0) {
        let error = recover::outcome_unknown(message);
        return Act::Answer(ResultStatus::Unknown, Box::new(ToolOutput::failed(&error.code, error.message)));
    }
    let seconds = task.last_approval(&call.call_id).map_or(0, |(asked, _)| asked.timeout_seconds);
    let error = match (answer.by, message) {
        (Initiator::Timeout, _) => ErrorInfo::new("approval_timeout", format!("No decision within {seconds} s")),
        (Initiator::System | Initiator::Cancel, _) => ErrorInfo::new("cancelled", "Cancelled before anybody decided."),
        (Initiator::User, Some(message)) => ErrorInfo::new("rejected", message),
        (Initiator::User, None) => ErrorInfo::new("rejected", "The call was not approved."),
    };
    Act::Answer(ResultStatus::Rejected, Box::new(ToolOutput::failed(&error.code, error.message)))
}

/// A call that nothing has been done about.
fn fresh(run: &RunState, task: &TaskFold, call: &ToolCall) -> Option<Act> {
    let arguments = call.arguments.clone().unwrap_or_default();
    let checked = resolve(run, task, call).and_then(|tool| args::check(&tool.spec, &arguments).map(|()| tool));
    let tool = match checked {
        Ok(tool) => tool,
        Err(output) => return Some(Act::Answer(ResultStatus::Failed, output)),
    };
    if let Some(act) = said_before(task, call) {
        return act;
    }
    let asks = match &tool.approval {
        ApprovalPolicy::Never => false,
        ApprovalPolicy::Always => true,
        ApprovalPolicy::When(rule) => rule.requires_approval(&serde_json::from_str(&arguments).unwrap_or_default()),
    };
    let standing = run.standing_decision(&call.name).filter(|_| asks);
    if let Some(answer) = standing.filter(|answer| decision(answer).0 == ApprovalDecisionKind::Reject) {
        return Some(refuse(task, call, answer, decision(answer).1));
    }
    let asks = asks && standing.is_none();
    match asks {
        true if run.is_cancelling(task) => Some(not_run()),
        true => Some(Act::Ask(Box::new(tool), arguments)),
        false => begin(run, task, tool, arguments),
    }
}

/// The task stops after this turn: nobody is asked any more.
fn not_run() -> Act {
    let output = ToolOutput::failed("cancelled", "Cancelled: the call was not run.");
    Act::Answer(ResultStatus::Incomplete, Box::new(output))
}

/// A call that may run. `None` is the client's to answer.
fn begin(run: &RunState, task: &TaskFold, tool: Tool, arguments: String) -> Option<Act> {
    Some(match &tool.executor {
        ToolExecutor::Client | ToolExecutor::Agent { .. } if run.is_cancelling(task) => not_run(),
        ToolExecutor::Client => return None,
        ToolExecutor::Agent { agent } => match child::refusal(run, task, agent) {
            Some(output) => Act::Answer(ResultStatus::Failed, Box::new(output)),
            None => Act::StartChild(agent.clone(), arguments),
        },
        ToolExecutor::Handoff { agent } => Act::HandOver(agent.clone(), arguments),
        ToolExecutor::Builtin | ToolExecutor::Http(_) | ToolExecutor::Command(_) => {
            Act::Start(Box::new(tool), arguments)
        }
    })
}

/// A provider that names a call twice means the same call: it is not run again, and not otherwise. What is to be done
/// about it, if it was named before: nothing while the first one has no result.
fn said_before(task: &TaskFold, call: &ToolCall) -> Option<Option<Act>> {
    let own = task.call(&call.call_id)?.0.provider_call_id.as_ref().filter(|id| !id.is_empty())?;
    let before = task.calls().take_while(|(_, before)| before.call_id != call.call_id);
    let mut before =
        before.filter(|(fold, _)| fold.provider_call_id.as_ref() == Some(own) && !fold.superseded).peekable();
    before.peek()?;
    let Some((_, same)) = before.find(|(_, before)| before.name == call.name && before.arguments == call.arguments)
    else {
        let message = "Another call had this id. Nothing was run; call it again with an id of its own.";
        let output = ToolOutput::failed("duplicate_call_id", message);
        return Some(Some(Act::Answer(ResultStatus::Failed, Box::new(output))));
    };
    Some(task.result(&same.call_id).filter(|(_, result)| result.done).and_then(|(_, result)| repeated(result)))
}

/// A result once more, as it was shown and read.
fn repeated(result: &ItemFold) -> Option<Act> {
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
    Some(Act::Repeat(shown.status.unwrap_or(ResultStatus::Completed), Box::new(output)))
}

/// The tool that a call means, or what the model is told.
pub(crate) fn resolve(run: &RunState, task: &TaskFold, call: &ToolCall) -> Result<Tool, Box<ToolOutput>> {
    named(run, task, &call.name).ok_or_else(|| {
        let agent = run.agent(task);
        let names: Vec<String> = specs(run, task).into_iter().map(|spec| spec.name).collect();
        let message = match names.as_slice() {
            [] => format!("There is no tool `{}`: {} has none.", call.name, agent.name),
            names => format!("There is no tool `{}` here. There are: {}.", call.name, names.join(", ")),
        };
        Box::new(ToolOutput::failed("unknown_tool", message))
    })
}

/// The tool of this name, as the task's agent knows it. Those that the caller declared are the root's.
pub(crate) fn named(run: &RunState, task: &TaskFold, name: &str) -> Option<Tool> {
    run.definitions.resolve_tool(&run.agent(task), name).or_else(|| {
        let declared = task.spec.tools.iter().find(|tool| tool.name == name)?;
        let (name, description) = (declared.name.clone(), declared.description.clone());
        let spec = ToolSpec { name, description, parameters: declared.parameters.clone() };
        Some(Tool::new(spec, ToolExecutor::Client))
    })
}

/// What the model is told that it may ask for.
pub(crate) fn specs(run: &RunState, task: &TaskFold) -> Vec<ToolSpec> {
    let mut specs = run.definitions.tool_specs(&run.agent(task));
    for tool in &task.spec.tools {
        if !specs.iter().any(|spec| spec.name == tool.name) {
            specs.extend(named(run, task, &tool.name).map(|tool| tool.spec));
        }
    }
    specs
}

/// How much the tool of a call may give.
pub(crate) fn output_bytes_max(run: &RunState, call: &CallId) -> usize {
    let task = run.task_of_call(call);
    let tool = task.and_then(|task| task.call(call).and_then(|(_, call)| named(run, task, &call.name)));
    tool.and_then(|tool| tool.output_bytes_max).unwrap_or(run.definitions.limits.tool_output_bytes_max)
}

/// How many turns in a row asked only for what cannot be done.
pub(crate) fn invalid_in_a_row(task: &TaskFold) -> u32 {
    let invalid = |place: usize| {
        let mut calls =
            task.calls().filter(|(fold, _)| fold.step_index == Some(place) && fold.arguments_complete).peekable();
        calls.peek().is_some() && calls.all(|(_, call)| was_invalid(task, &call.call_id))
    };
    let lost = |place: &usize| task.steps.get(*place).is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
    let places = (0..task.steps.len()).rev().filter(|place| !lost(place)).take_while(|place| invalid(*place));
    u32::try_from(places.count()).unwrap_or(u32::MAX)
}

fn was_invalid(task: &TaskFold, call: &CallId) -> bool {
    let Some((_, fold)) = task.result(call) else { return false };
    let Item::ToolResult(result) = &fold.item else { return false };
    result.error.as_ref().is_some_and(|error| matches!(error.code.as_str(), "invalid_arguments" | "unknown_tool"))
}
