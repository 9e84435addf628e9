//! Starts runs and advances them: looks at the state alone, newest task first, until no task can go on.

use crate::calls::{self, CallAction};
use crate::effect::{Effect, TimerId};
use crate::file_processing::{self, FileReadStage};
use crate::output::RunWriter;
use crate::outstanding::is_busy;
use crate::state::RunState;
use crate::tool_result::{self, CitationGroups};
use crate::{budget, handoff, model_call, pending, questions, sub_agent, task_end, tool_execution};
use model::command::{StartCommand, SteerCommand, is_state_of_client};
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    Event, InputAdded, InputMessage, LimitReason, StateSnapshot, StopReason, TaskCreated, TaskSpec, TaskStarted,
};
use model::fold::TaskFold;
use model::item::Role;
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::{CallId, ItemId, TaskId};

pub(crate) fn start_run(writer: &mut RunWriter<'_>, start: StartCommand) {
    if !writer.run.fold.tasks.is_empty() {
        return; // the run has started already: the command was handled before
    }
    let model = writer.run.definitions.resolve_agent(&start.agent).and_then(|agent| agent.models.into_iter().next());
    let deadline = writer.out.now().saturating_add(writer.run.definitions.limits.run_deadline_ms);
    let input = initial_input(&start.task_id, start.input);
    let task = TaskSpec {
        thread_id: writer.run.thread.clone(),
        agent: start.agent,
        model: model.unwrap_or_default(),
        input,
        parent_task_id: None,
        previous: start.previous,
        tools: start.tools,
        metadata: start.metadata,
        display_mode: start.display_mode,
        origin: start.origin,
        client: start.client,
    };
    let (task_id, hook_error) = (start.task_id, start.hook_error);
    let created = Event::Created(TaskCreated { task_id: task_id.clone(), task: Box::new(task) });
    let private = PrivatePayload {
        definitions_digest: Some(writer.run.definitions.digest.clone()),
        deadline: Some(deadline),
        rewritten_history: start.rewritten_history,
        prior_history: start.prior_history,
        model_settings: start.model_settings,
        request_echo: start.request_echo,
        context: start.context,
        ..PrivatePayload::default()
    };
    writer.emit_with_private(created, Some(private));
    writer.out.push_effect(Effect::SetTimer { id: TimerId::Run(task_id.clone()), at: deadline });
    writer.emit(Event::Started(TaskStarted { task_id: task_id.clone() }));
    // A run is whole by itself: what folds its records alone needs the state that it starts from.
    let brought = start.state.filter(is_state_of_client);
    if let Some(state) = brought.or_else(|| writer.run.fold.state.clone()) {
        writer.emit(Event::StateSnapshot(StateSnapshot { task_id: task_id.clone(), state }));
    }
    if let Some(error) = hook_error {
        task_end::fail_task(writer, &task_id, error);
    }
}

fn initial_input(task_id: &TaskId, content: Vec<ContentPart>) -> Vec<InputMessage> {
    if content.is_empty() {
        return Vec::new();
    }
    vec![InputMessage { id: ItemId::numbered("msg", task_id.run_suffix(), 0), role: Role::User, content }]
}

/// Records more input of the user at once; the next turn reads it.
pub(crate) fn add_steering_input(writer: &mut RunWriter<'_>, steer: SteerCommand) {
    let going = writer.run.fold.root().filter(|root| root.status == TaskStatus::Running && root.cancelling.is_none());
    let Some(task_id) = going.map(|root| root.id.clone()) else { return };
    let message = InputMessage { id: writer.run.next_item_id("msg"), role: Role::User, content: steer.input };
    writer.emit(Event::InputAdded(InputAdded { task_id, input: vec![message] }));
}

/// Advances every task that can go on, then pauses the run if it waits for nothing but answers.
pub(crate) fn advance_run(writer: &mut RunWriter<'_>) {
    // Newest first: a child that ends lets its parent go on in the same pass.
    while let Some((id, action)) = next_task_action(writer.run) {
        let before = writer.run.head();
        perform_task_action(writer, &id, action);
        if writer.run.head() == before {
            break; // an action without a record would be the next one again, for ever
        }
    }
    if !writer.run.fold.has_ended() && !is_busy(writer.run) {
        pending::pause_run(writer);
    }
}

/// The first task that can go on, and its action. While the run is paused none can.
fn next_task_action(run: &RunState) -> Option<(TaskId, TaskAction)> {
    run.fold.root().filter(|root| root.status == TaskStatus::Running)?;
    let running = run.fold.tasks.iter().rev().filter(|task| task.status == TaskStatus::Running);
    running.filter_map(|task| Some((task.id.clone(), task_action(run, task)?))).next()
}

enum TaskAction {
    ReadFiles,
    FinishFiles,
    CallModel,
    HandleCall(CallId, CallAction),
    Complete,
    Cancel,
    StopAtLimit(LimitReason),
    Fail(ErrorInfo),
}

fn task_action(run: &RunState, task: &TaskFold) -> Option<TaskAction> {
    let Some(last) = task.steps.last() else { return call_model_or_stop(run, task) };
    match last.stop_reason? {
        StopReason::ToolCalls => match calls::next_call_action(run, task) {
            Some((call, action)) => Some(TaskAction::HandleCall(call, action)),
            None if calls::have_all_results(task) => call_model_or_stop(run, task),
            None => None,
        },
        StopReason::Stop => {
            let unread = task.inputs.iter().any(|input| input.after_steps >= task.steps.len());
            if unread { call_model_or_stop(run, task) } else { Some(TaskAction::Complete) }
        }
        StopReason::MaxTokens => Some(TaskAction::StopAtLimit(LimitReason::MaxTokens)),
        StopReason::ContentFilter => Some(TaskAction::StopAtLimit(LimitReason::ContentFilter)),
        StopReason::Lost => call_model_or_stop(run, task),
        // Whatever interrupted the step has ended the task.
        StopReason::Error | StopReason::Cancelled => None,
    }
}

/// `None` while files are read: the model call needs their content.
fn call_model_or_stop(run: &RunState, task: &TaskFold) -> Option<TaskAction> {
    let action = match file_processing::file_read_stage(task) {
        FileReadStage::Reading => return None,
        FileReadStage::Finished => return Some(TaskAction::FinishFiles),
        FileReadStage::Unread => TaskAction::ReadFiles,
        FileReadStage::Ready => TaskAction::CallModel,
    };
    let limits = &run.definitions.limits;
    let is_lost = task.steps.last().is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
    let steps_done = task.steps.last().map_or(0, |step| step.step) - u32::from(is_lost);
    Some(if run.is_cancelling(task) {
        TaskAction::Cancel
    } else if calls::consecutive_invalid_turns(task) > limits.invalid_calls_max {
        let message = format!(
            "The model asked for tools in a way that cannot be done, {} times in a row.",
            calls::consecutive_invalid_turns(task)
        );
        TaskAction::Fail(ErrorInfo::new(ErrorCode::InvalidToolCalls, message))
    } else if steps_done >= limits.steps_max {
        TaskAction::StopAtLimit(LimitReason::MaxSteps)
    } else if budget::is_budget_exhausted(run) {
        TaskAction::StopAtLimit(LimitReason::Budget)
    } else {
        action
    })
}

fn perform_task_action(writer: &mut RunWriter<'_>, id: &TaskId, action: TaskAction) {
    match action {
        TaskAction::ReadFiles => file_processing::start_file_reads(writer, id),
        TaskAction::FinishFiles => file_processing::finish_file_reads(writer, id),
        TaskAction::CallModel => model_call::begin_step(writer, id),
        TaskAction::HandleCall(call, action) => perform_call_action(writer, &call, action),
        TaskAction::Complete => task_end::complete_task(writer, id),
        TaskAction::Cancel => task_end::finish_cancelled_task(writer, id),
        TaskAction::StopAtLimit(reason) => task_end::stop_at_limit(writer, id, reason),
        TaskAction::Fail(error) => task_end::fail_task(writer, id, error),
    }
}

fn perform_call_action(writer: &mut RunWriter<'_>, call: &CallId, action: CallAction) {
    match action {
        CallAction::SetResult(status, output) => tool_result::write_result(writer, call, status, *output),
        CallAction::RequestApproval(tool, arguments) => pending::request_approval(writer, call, &tool, &arguments),
        CallAction::WithdrawApproval => pending::withdraw_approval(writer, call),
        CallAction::StartTool(tool, arguments) => tool_execution::start_tool(writer, call, &tool, arguments),
        CallAction::AskNextQuestion => questions::ask_next(writer, call),
        CallAction::ContinueTool(tool, arguments) => tool_execution::continue_tool(writer, call, &tool, arguments),
        CallAction::StartSubAgent(agent, arguments) => sub_agent::start_sub_agent(writer, call, &agent, arguments),
        CallAction::FinishSubAgent => sub_agent::finish_sub_agent(writer, call),
        CallAction::RepeatResult(status, output) => {
            tool_result::write_numbered_result(writer, call, status, *output, CitationGroups::Kept);
        }
        CallAction::HandOff(agent, arguments) => handoff::hand_off(writer, call, &agent, arguments),
    }
}
