//! What can go on? Looks at the state alone, newest task first, until nothing can.

use crate::calls::{self, Act};
use crate::effect::{Effect, EffectId, TimerId};
use crate::files::{self, Stage};
use crate::state::RunState;
use crate::{Ctx, Out, ask, budget, child, end, handover, outstanding, people, result, tools};
use model::block::ContentPart;
use model::command::{StartCommand, SteerCommand};
use model::event::{
    ErrorInfo, Event, InputAdded, InputMessage, LimitReason, StopReason, TaskCreated, TaskSpec, TaskStarted,
};
use model::fold::TaskFold;
use model::item::Role;
use model::record::PrivatePayload;
use model::task::TaskStatus;
use model::{CallId, ItemId, TaskId};

/// The run begins.
pub(crate) fn start(run: &mut RunState, start: StartCommand, ctx: Ctx, out: &mut Out) {
    if !run.fold.tasks.is_empty() {
        return; // the run is there already: the command was answered before
    }
    let model = run.definitions.resolve_agent(&start.agent).and_then(|agent| agent.models.into_iter().next());
    let deadline = ctx.now.saturating_add(run.definitions.limits.run_deadline_ms);
    let input = start_input(&start.task_id, start.input);
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
    let (task_id, refused) = (start.task_id, start.hook_error);
    let created = Event::Created(TaskCreated { task_id: task_id.clone(), task: Box::new(task) });
    let digest = Some(run.definitions.digest.clone());
    let private = PrivatePayload {
        definitions_digest: digest,
        deadline: Some(deadline),
        rewritten_history: start.rewritten_history,
        prior_history: start.prior_history,
        model_settings: start.model_settings,
        request_echo: start.request_echo,
        ..PrivatePayload::default()
    };
    out.emit_with(run, created, Some(private));
    out.effect(Effect::Arm { id: TimerId::Run(task_id.clone()), at: deadline });
    out.emit(run, Event::Started(TaskStarted { task_id: task_id.clone() }));
    if let Some(error) = refused {
        end::failed(run, &task_id, error, out);
    }
}

fn start_input(task_id: &TaskId, content: Vec<ContentPart>) -> Vec<InputMessage> {
    if content.is_empty() {
        return Vec::new();
    }
    vec![InputMessage { id: ItemId::numbered("msg", task_id.run_suffix(), 0), role: Role::User, content }]
}

/// The user said something more: recorded at once, read by the next turn.
pub(crate) fn steer(run: &mut RunState, steer: SteerCommand, out: &mut Out) {
    let going = run.fold.root().filter(|root| root.status == TaskStatus::Running && root.cancelling.is_none());
    let Some(task_id) = going.map(|root| root.id.clone()) else { return };
    let (suffix, number) = run.next_number();
    let id = ItemId::numbered("msg", &suffix, number);
    let message = InputMessage { id, role: Role::User, content: steer.input };
    out.emit(run, Event::InputAdded(InputAdded { task_id, input: vec![message] }));
}

/// Lets everything go on that can.
pub(crate) fn drive(run: &mut RunState, ctx: Ctx, out: &mut Out) {
    // Newest first: a child that ends lets its parent go on in the same pass.
    while let Some((id, next)) = next(run) {
        let before = run.head();
        advance(run, &id, next, ctx, out);
        if run.head() == before {
            break; // a move that no record tells of would be the next one again, for ever
        }
    }
    let busy = |id: &EffectId| !matches!(id, EffectId::Timer(_));
    if !run.fold.has_ended() && !outstanding(run).iter().any(busy) {
        people::pause(run, out);
    }
}

/// The first task that can go on, and with what. While the run is paused none can.
fn next(run: &RunState) -> Option<(TaskId, Move)> {
    run.fold.root().filter(|root| root.status == TaskStatus::Running)?;
    let going = run.fold.tasks.iter().rev().filter(|task| task.status == TaskStatus::Running);
    going.filter_map(|task| Some((task.id.clone(), next_move(run, task)?))).next()
}

/// What a task does next.
enum Move {
    ReadFiles,
    EndFiles,
    AskModel,
    Call(CallId, Act),
    Complete,
    Cancel,
    Stop(LimitReason),
    Fail(ErrorInfo),
}

fn next_move(run: &RunState, task: &TaskFold) -> Option<Move> {
    let Some(last) = task.steps.last() else { return ask_or_stop(run, task) };
    match last.stop_reason? {
        StopReason::ToolCalls => match calls::next_act(run, task) {
            Some((call, act)) => Some(Move::Call(call, act)),
            None if calls::all_answered(task) => ask_or_stop(run, task),
            None => None,
        },
        StopReason::Stop => {
            let unread = task.inputs.iter().any(|input| input.after_steps >= task.steps.len());
            if unread { ask_or_stop(run, task) } else { Some(Move::Complete) }
        }
        StopReason::MaxTokens => Some(Move::Stop(LimitReason::MaxTokens)),
        StopReason::ContentFilter => Some(Move::Stop(LimitReason::ContentFilter)),
        // What was lost is done again.
        StopReason::Lost => ask_or_stop(run, task),
        // A cut step's task was ended by whatever cut it.
        StopReason::Error | StopReason::Cancelled => None,
    }
}

/// `None` while files are read: the model is asked when it can be told what is in them.
fn ask_or_stop(run: &RunState, task: &TaskFold) -> Option<Move> {
    let ask = match files::stage(task) {
        Stage::Reading => return None,
        Stage::Ended => return Some(Move::EndFiles),
        Stage::Unread => Move::ReadFiles,
        Stage::Ready => Move::AskModel,
    };
    let limits = &run.definitions.limits;
    let lost = task.steps.last().is_some_and(|step| step.stop_reason == Some(StopReason::Lost));
    let taken = task.steps.last().map_or(0, |step| step.step) - u32::from(lost);
    Some(if run.is_cancelling(task) {
        Move::Cancel
    } else if calls::invalid_in_a_row(task) > limits.invalid_calls_max {
        let message = format!(
            "The model asked for tools in a way that cannot be done, {} times in a row.",
            calls::invalid_in_a_row(task)
        );
        Move::Fail(ErrorInfo::new("invalid_tool_calls", message))
    } else if taken >= limits.steps_max {
        Move::Stop(LimitReason::MaxSteps)
    } else if budget::is_used_up(run) {
        Move::Stop(LimitReason::Budget)
    } else {
        ask
    })
}

fn advance(run: &mut RunState, id: &TaskId, next: Move, ctx: Ctx, out: &mut Out) {
    match next {
        Move::ReadFiles => files::begin(run, id, out),
        Move::EndFiles => files::end(run, id, out),
        Move::AskModel => ask::begin(run, id, out),
        Move::Call(call, act) => carry_out(run, &call, act, ctx, out),
        Move::Complete => end::complete(run, id, out),
        Move::Cancel => end::cancelled(run, id, out),
        Move::Stop(reason) => end::limited(run, id, reason, out),
        Move::Fail(error) => end::failed(run, id, error, out),
    }
}

fn carry_out(run: &mut RunState, call: &CallId, act: Act, ctx: Ctx, out: &mut Out) {
    match act {
        Act::Answer(status, output) => result::answer(run, call, status, *output, out),
        Act::Ask(tool, arguments) => people::ask(run, call, &tool, &arguments, ctx, out),
        Act::Withdraw => people::withdraw(run, call, out),
        Act::Start(tool, arguments) => tools::start(run, call, &tool, arguments, ctx, out),
        Act::StartChild(agent, arguments) => child::start(run, call, &agent, arguments, out),
        Act::EndChild => child::end(run, call, out),
        Act::Repeat(status, output) => result::repeat(run, call, status, *output, out),
        Act::HandOver(agent, arguments) => handover::hand_over(run, call, &agent, arguments, out),
    }
}
