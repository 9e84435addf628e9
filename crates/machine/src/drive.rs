//! Starts runs and advances them: looks at the state alone, newest task first, until no task can go on.

use crate::calls::{self, CallAction};
use crate::effect::{Effect, EffectId, TimerId};
use crate::file_processing::{self, FileReadStage};
use crate::output::MachineOutput;
use crate::outstanding::outstanding_effects;
use crate::state::RunState;
use crate::{budget, handoff, model_call, pending, sub_agent, task_end, tool_execution, tool_result};
use model::command::{StartCommand, SteerCommand};
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

pub(crate) fn start_run(run: &mut RunState, start: StartCommand, out: &mut MachineOutput) {
    if !run.fold.tasks.is_empty() {
        return; // the run has started already: the command was handled before
    }
    let model = run.definitions.resolve_agent(&start.agent).and_then(|agent| agent.models.into_iter().next());
    let deadline = out.now().saturating_add(run.definitions.limits.run_deadline_ms);
    let input = initial_input(&start.task_id, start.input);
    let task = TaskSpec {
        thread_id: run.thread.clone(),
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
        definitions_digest: Some(run.definitions.digest.clone()),
        deadline: Some(deadline),
        rewritten_history: start.rewritten_history,
        prior_history: start.prior_history,
        model_settings: start.model_settings,
        request_echo: start.request_echo,
        ..PrivatePayload::default()
    };
    out.emit_with_private(run, created, Some(private));
    out.push_effect(Effect::SetTimer { id: TimerId::Run(task_id.clone()), at: deadline });
    out.emit(run, Event::Started(TaskStarted { task_id: task_id.clone() }));
    // A run is whole by itself: what folds its records alone needs the state that it starts from.
    if let Some(state) = run.fold.state.clone() {
        out.emit(run, Event::StateSnapshot(StateSnapshot { task_id: task_id.clone(), state }));
    }
    if let Some(error) = hook_error {
        task_end::fail_task(run, &task_id, error, out);
    }
}

fn initial_input(task_id: &TaskId, content: Vec<ContentPart>) -> Vec<InputMessage> {
    if content.is_empty() {
        return Vec::new();
    }
    vec![InputMessage { id: ItemId::numbered("msg", task_id.run_suffix(), 0), role: Role::User, content }]
}

/// Records more input of the user at once; the next turn reads it.
pub(crate) fn add_steering_input(run: &mut RunState, steer: SteerCommand, out: &mut MachineOutput) {
    let going = run.fold.root().filter(|root| root.status == TaskStatus::Running && root.cancelling.is_none());
    let Some(task_id) = going.map(|root| root.id.clone()) else { return };
    let message = InputMessage { id: run.next_item_id("msg"), role: Role::User, content: steer.input };
    out.emit(run, Event::InputAdded(InputAdded { task_id, input: vec![message] }));
}

/// Advances every task that can go on, then pauses the run if it waits for nothing but answers.
pub(crate) fn advance_run(run: &mut RunState, out: &mut MachineOutput) {
    // Newest first: a child that ends lets its parent go on in the same pass.
    while let Some((id, action)) = next_task_action(run) {
        let before = run.head();
        perform_task_action(run, &id, action, out);
        if run.head() == before {
            break; // an action without a record would be the next one again, for ever
        }
    }
    let busy = |id: &EffectId| !matches!(id, EffectId::Timer(_));
    if !run.fold.has_ended() && !outstanding_effects(run).iter().any(busy) {
        pending::pause_run(run, out);
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

fn perform_task_action(run: &mut RunState, id: &TaskId, action: TaskAction, out: &mut MachineOutput) {
    match action {
        TaskAction::ReadFiles => file_processing::start_file_reads(run, id, out),
        TaskAction::FinishFiles => file_processing::finish_file_reads(run, id, out),
        TaskAction::CallModel => model_call::begin_step(run, id, out),
        TaskAction::HandleCall(call, action) => perform_call_action(run, &call, action, out),
        TaskAction::Complete => task_end::complete_task(run, id, out),
        TaskAction::Cancel => task_end::finish_cancelled_task(run, id, out),
        TaskAction::StopAtLimit(reason) => task_end::stop_at_limit(run, id, reason, out),
        TaskAction::Fail(error) => task_end::fail_task(run, id, error, out),
    }
}

fn perform_call_action(run: &mut RunState, call: &CallId, action: CallAction, out: &mut MachineOutput) {
    match action {
        CallAction::SetResult(status, output) => tool_result::write_result(run, call, status, *output, out),
        CallAction::RequestApproval(tool, arguments) => pending::request_approval(run, call, &tool, &arguments, out),
        CallAction::WithdrawApproval => pending::withdraw_approval(run, call, out),
        CallAction::StartTool(tool, arguments) => tool_execution::start_tool(run, call, &tool, arguments, out),
        CallAction::StartSubAgent(agent, arguments) => sub_agent::start_sub_agent(run, call, &agent, arguments, out),
        CallAction::FinishSubAgent => sub_agent::finish_sub_agent(run, call, out),
        CallAction::RepeatResult(status, output) => tool_result::write_repeated_result(run, call, status, *output, out),
        CallAction::HandOff(agent, arguments) => handoff::hand_off(run, call, &agent, arguments, out),
    }
}
