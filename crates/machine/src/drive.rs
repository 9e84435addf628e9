//! What can go on? Looks at the state alone, newest task first, until nothing can.

use crate::effect::{Effect, EffectId, TimerId};
use crate::state::RunState;
use crate::{Ctx, Out, end, tools, turn};
use model::block::Part;
use model::command::{Start, Steer};
use model::delta::ModelRequest;
use model::event::{
    Created, Event, InputAdded, InputMessage, LimitReason, StepStarted, StopReason, TaskOnly, TaskSpec,
};
use model::fold::TaskFold;
use model::item::Role;
use model::object::TaskStatus;
use model::record::Private;
use model::thread::entries;
use model::{ItemId, TaskId};

/// The run begins.
pub(crate) fn start(run: &mut RunState, start: Start, ctx: Ctx, out: &mut Out) {
    if !run.fold.tasks.is_empty() {
        return; // the run is there already: the command was answered before
    }
    let model = run.definitions.resolve(&start.agent).and_then(|agent| agent.models.into_iter().next());
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
        origin: None,
        client: start.client,
    };
    let task_id = start.task_id;
    let created = Event::Created(Created { task_id: task_id.clone(), task: Box::new(task) });
    let digest = Some(run.definitions.digest.clone());
    let private = Private { digest, deadline: Some(deadline), ..Private::default() };
    out.emit_with(run, created, Some(private));
    out.effect(Effect::Arm { id: TimerId::Run(task_id.clone()), at: deadline });
    out.emit(run, Event::Started(TaskOnly { task_id }));
}

fn start_input(task_id: &TaskId, content: Vec<Part>) -> Vec<InputMessage> {
    if content.is_empty() {
        return Vec::new();
    }
    vec![InputMessage { id: ItemId::numbered("msg", task_id.suffix(), 0), role: Role::User, content }]
}

/// The user said something more: recorded at once, read by the next turn.
pub(crate) fn steer(run: &mut RunState, steer: Steer, out: &mut Out) {
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
    while let Some(id) = run.fold.tasks.iter().rev().find(|task| can_move(run, task)).map(|task| task.id.clone()) {
        advance(run, &id, ctx, out);
    }
}

fn can_move(run: &RunState, task: &TaskFold) -> bool {
    !run.fold.is_over() && next_move(run, task) != Move::Wait
}

/// What a task does next.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    Wait,
    AskModel,
    StartTools,
    Complete,
    Stop(LimitReason),
}

fn next_move(run: &RunState, task: &TaskFold) -> Move {
    if task.status != TaskStatus::Running || task.open_step().is_some() {
        return Move::Wait;
    }
    let Some(last) = task.steps.last() else { return Move::AskModel };
    match last.end {
        Some(StopReason::ToolCalls) => {
            if tools::can_start(run, task) {
                Move::StartTools
            } else if tools::all_answered(task) {
                ask_or_stop(run, task)
            } else {
                Move::Wait
            }
        }
        Some(StopReason::Stop) => {
            let unread = task.inputs.iter().any(|input| input.after_steps >= task.steps.len());
            if unread { ask_or_stop(run, task) } else { Move::Complete }
        }
        Some(StopReason::MaxTokens) => Move::Stop(LimitReason::MaxTokens),
        Some(StopReason::ContentFilter) => Move::Stop(LimitReason::ContentFilter),
        // A cut step's task was ended by whatever cut it.
        Some(StopReason::Error | StopReason::Cancelled | StopReason::Lost) | None => Move::Wait,
    }
}

fn ask_or_stop(run: &RunState, task: &TaskFold) -> Move {
    let taken = task.steps.last().map_or(0, |step| step.step);
    if taken >= run.definitions.limits.steps_max { Move::Stop(LimitReason::MaxSteps) } else { Move::AskModel }
}

fn advance(run: &mut RunState, id: &TaskId, ctx: Ctx, out: &mut Out) {
    let Some(task) = run.fold.task(id) else { return };
    match next_move(run, task) {
        Move::Wait => {}
        Move::AskModel => ask_model(run, id, out),
        Move::StartTools => tools::start(run, id, ctx, out),
        Move::Complete => end::complete(run, id, out),
        Move::Stop(reason) => end::limited(run, id, reason, out),
    }
}

fn ask_model(run: &mut RunState, id: &TaskId, out: &mut Out) {
    let Some(task) = run.fold.task(id) else { return };
    let step = task.steps.last().map_or(0, |step| step.step) + 1;
    let attempt = 1;
    let agent = run.agent(task);
    let mut history = run.past.history(task.spec.previous.as_ref());
    history.extend(entries(task));
    let request = ModelRequest {
        user: run.user.clone(),
        thread: run.thread.clone(),
        task: id.clone(),
        step,
        attempt,
        model: agent.models.first().cloned().unwrap_or_default(),
        instructions: agent.instructions.clone(),
        history: history.into(),
        tools: run.definitions.specs(&agent).into(),
    };
    out.emit(run, Event::StepStarted(StepStarted { task_id: id.clone(), step, attempt }));
    turn::begin(run, id, &request.model);
    let id = EffectId::model(id, step, attempt);
    out.effect(Effect::CallModel { id, request: Box::new(request), not_before: None });
}
