//! One task: its turns, and how it ends.

use super::call::GenCall;
use super::input_files::{self, InputFiles};
use super::item_writer::ItemWriter;
use super::log_builder::LogBuilder;
use super::request;
use super::text::random_text;
use super::turn_plan::{self, ItemPlan, PlannedItem, TurnGoal};
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    CancelMode, ClientIds, ClientTool, DisplayMode, Event, Initiator, InputMessage, LimitReason, StepDone,
    StepRetrying, StepStarted, StopReason, TaskCancelled, TaskCompleted, TaskCreated, TaskFailed, TaskIncomplete,
    TaskRecovered, TaskSpec, TaskStarted,
};
use model::id::{CallId, ItemId, TaskId};
use model::item::{HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, Role, ToolCall};
use model::json::JsonObject;
use model::record::PrivatePayload;
use model::seq::Millis;
use model::task::TaskStatus;
use model::usage::Usage;
use serde_json::json;
use std::collections::VecDeque;

/// A task that is going on.
pub(super) struct GenTask {
    pub(super) id: TaskId,
    pub(super) parent: Option<TaskId>,
    pub(super) agent: String,
    pub(super) phase: GenPhase,
    /// Complete calls of the last turn.
    pub(super) calls: Vec<GenCall>,
    /// What it and everybody below it cost.
    pub(super) total: Usage,
    /// Was something said that no turn has read?
    pub(super) has_unread_input: bool,
    depth: u32,
    created_at: Millis,
    outputs_len: u32,
    step: u32,
    attempt: u32,
    /// How many turns it wants.
    turns_planned: u32,
    planned_outcome: PlannedOutcome,
    plan: VecDeque<ItemPlan>,
    pub(super) open_items: Vec<ItemWriter>,
    pub(super) files: InputFiles,
    /// Items of this attempt.
    attempt_items: Vec<ItemId>,
    /// How many events a turn that will be broken off still gives.
    events_left: u32,
    /// Tokens of this turn.
    turn_usage: Usage,
    last_message: String,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GenPhase {
    /// The next turn may begin.
    Ready,
    /// Files are read before it does.
    ReadingFiles,
    /// The model speaks.
    Turn,
    /// Calls are not answered yet.
    Waiting,
    /// It ended.
    Ended,
}

/// How a task is to end, if nobody interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedOutcome {
    Answer,
    StopInTurn(StopReason),
    Failure,
    /// Between two turns.
    StopBetweenTurns(LimitReason),
}

/// A sub-agent that ended.
pub(super) struct EndedChild {
    pub(super) id: TaskId,
    pub(super) parent: TaskId,
    pub(super) status: TaskStatus,
    pub(super) error: Option<ErrorInfo>,
    pub(super) usage: Usage,
    /// The last thing that it said.
    pub(super) last_message: String,
}

/// How a task ends.
#[derive(Clone, Debug)]
pub(super) enum GenOutcome {
    Completed,
    Incomplete(LimitReason),
    Failed(ErrorInfo),
    Cancelled(CancelMode, Initiator),
}

impl GenTask {
    /// The run's root.
    pub(super) fn start_root(world: &mut LogBuilder, previous: Option<TaskId>) -> Self {
        let id = world.run.clone();
        Self::create(world, id, None, 0, previous)
    }

    /// A sub-agent that `parent` asked for.
    pub(super) fn start_child(world: &mut LogBuilder, parent: &Self, call: &CallId) -> Self {
        world.children_left = world.children_left.saturating_sub(1);
        Self::create(world, call.child_task_id(), Some(parent.id.clone()), parent.depth.saturating_add(1), None)
    }

    fn create(
        world: &mut LogBuilder,
        id: TaskId,
        parent: Option<TaskId>,
        depth: u32,
        previous: Option<TaskId>,
    ) -> Self {
        let agent = if parent.is_some() { "WeatherAgent" } else { "demo" }.to_owned();
        let spec = task_spec(world, &id, &agent, parent.clone(), previous);
        let files = InputFiles::from_input(&spec.input);
        let deadline = Some(world.now.saturating_add(3_600_000));
        let brought = if parent.is_none() { request::start_private(world) } else { PrivatePayload::default() };
        let private = PrivatePayload { definitions_digest: Some("d1".to_owned()), deadline, ..brought };
        world.emit_with_private(
            Event::Created(TaskCreated { task_id: id.clone(), task: Box::new(spec) }),
            Some(private),
        );
        world.emit(Event::Started(TaskStarted { task_id: id.clone() }));
        let end = match world.rng.below(20) {
            0 => PlannedOutcome::StopInTurn(StopReason::MaxTokens),
            1 => PlannedOutcome::StopInTurn(StopReason::ContentFilter),
            2 | 3 => PlannedOutcome::Failure,
            4 => {
                use LimitReason::{Budget, Deadline, MaxSteps};
                PlannedOutcome::StopBetweenTurns(world.rng.choose(MaxSteps, &[Budget, Deadline]))
            }
            _ => PlannedOutcome::Answer,
        };
        Self {
            id,
            parent,
            agent,
            phase: GenPhase::Ready,
            calls: Vec::new(),
            total: Usage::default(),
            has_unread_input: false,
            depth,
            created_at: world.now,
            outputs_len: 0,
            step: 0,
            attempt: 0,
            turns_planned: world.rng.between(1, world.options.steps_max.max(1)),
            planned_outcome: end,
            plan: VecDeque::new(),
            open_items: Vec::new(),
            files,
            attempt_items: Vec::new(),
            events_left: 0,
            turn_usage: Usage::default(),
            last_message: String::new(),
        }
    }

    /// The place of the next item.
    pub(super) fn next_output_index(&mut self) -> u32 {
        let index = self.outputs_len;
        self.outputs_len = self.outputs_len.saturating_add(1);
        index
    }

    /// Can it go on by itself?
    pub(super) fn can_advance(&self) -> bool {
        match self.phase {
            GenPhase::Ready | GenPhase::ReadingFiles | GenPhase::Turn => true,
            GenPhase::Waiting => self.can_advance_calls(),
            GenPhase::Ended => false,
        }
    }

    /// Goes on a little.
    pub(super) fn advance(&mut self, world: &mut LogBuilder) {
        match self.phase {
            GenPhase::Ready => self.next_turn(world),
            GenPhase::ReadingFiles => self.finish_one_file(world),
            GenPhase::Turn => self.advance_turn(world),
            GenPhase::Waiting => self.advance_calls(world),
            GenPhase::Ended => {}
        }
    }

    fn next_turn(&mut self, world: &mut LogBuilder) {
        if world.is_cancelling {
            return self.finish(world, GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        if let PlannedOutcome::StopBetweenTurns(reason) = self.planned_outcome
            && self.step >= self.turns_planned
        {
            return self.finish(world, GenOutcome::Incomplete(reason));
        }
        self.step = self.step.saturating_add(1);
        self.attempt = 1;
        self.start_turn(world);
    }

    /// A turn begins, when the files are read that it needs.
    pub(super) fn start_turn(&mut self, world: &mut LogBuilder) {
        if self.files.has_unread() {
            return self.start_reading_files(world);
        }
        self.start_step(world);
        while world.rng.chance(6) {
            self.attempt = self.attempt.saturating_add(1);
            let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
            let error = ErrorInfo::new(ErrorCode::Overloaded, random_text(&mut world.rng, 0, 4));
            let not_before = world.now.saturating_add(800);
            world.emit(Event::Retrying(StepRetrying { task_id, step, attempt, not_before, error }));
        }
    }

    fn start_step(&mut self, world: &mut LogBuilder) {
        self.phase = GenPhase::Turn;
        self.calls = Vec::new();
        self.attempt_items = Vec::new();
        self.turn_usage = Usage::default();
        self.has_unread_input = false;
        self.events_left = world.rng.between(0, 14);
        let wish = match self.planned_outcome {
            _ if self.step < self.turns_planned => TurnGoal::CallTools,
            PlannedOutcome::Answer => TurnGoal::Answer,
            PlannedOutcome::StopInTurn(_) | PlannedOutcome::Failure => TurnGoal::Any,
            PlannedOutcome::StopBetweenTurns(_) => TurnGoal::CallTools,
        };
        let may_ask_agents = self.depth < world.options.depth_max && world.children_left > 0;
        self.plan = turn_plan::plan_turn(world, wish, may_ask_agents);
        let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
        world.emit(Event::StepStarted(StepStarted { task_id, step, attempt }));
    }

    /// One more event of the turn. Items of one turn may interleave.
    fn advance_turn(&mut self, world: &mut LogBuilder) {
        let breaks = self.step >= self.turns_planned
            && matches!(self.planned_outcome, PlannedOutcome::StopInTurn(_) | PlannedOutcome::Failure);
        self.events_left = self.events_left.saturating_sub(1);
        if breaks && self.events_left == 0 {
            return self.abort_turn(world);
        }
        if world.rng.chance(2) {
            return world.emit_side_event(&self.id);
        }
        let next = if self.open_items.is_empty() || world.rng.chance(8) { self.plan.pop_front() } else { None };
        if let Some(plan) = next {
            return self.open_item(world, plan);
        }
        let place = world.rng.below(self.open_items.len());
        let Some(open) = self.open_items.get_mut(place) else {
            return if breaks { self.abort_turn(world) } else { self.end_turn(world) };
        };
        let counted = world.rng.chance(15);
        if counted {
            self.turn_usage.output_tokens = self.turn_usage.output_tokens.saturating_add(1);
        }
        let private = counted.then(|| PrivatePayload { usage: Some(self.turn_usage), ..PrivatePayload::default() });
        if !open.emit_next(world, &self.id, private) {
            let item = self.open_items.remove(place).complete(world, &self.id);
            self.record_item(world, &item);
        }
    }

    /// Keeps what later events depend on.
    fn record_item(&mut self, world: &mut LogBuilder, item: &Item) {
        match item {
            Item::ToolCall(call) => {
                let place = self.calls.partition_point(|known| call_order(&known.id) < call_order(&call.call_id));
                let call = GenCall::new(world, call);
                self.calls.insert(place, call);
            }
            Item::Message(message) => self.last_message = message.text(),
            _ => {}
        }
    }

    fn open_item(&mut self, world: &mut LogBuilder, plan: ItemPlan) {
        let (status, reason, agent) = (Some(ItemStatus::InProgress), None, Some(self.agent.clone()));
        let mut private = None;
        let item = match plan.item {
            PlannedItem::Reasoning => {
                Item::Reasoning(Reasoning { id: world.next_id("rs"), summary: Some(Vec::new()), status, reason, agent })
            }
            PlannedItem::Message { phase } => {
                let (id, block_list) = (world.next_id("msg"), Some(Vec::new()));
                Item::Message(Message { id, role: Role::Assistant, block_list, phase, status, reason, agent })
            }
            PlannedItem::Hosted { name } => {
                let (id, name, block_list) = (world.next_id("hc"), name.to_owned(), Some(Vec::new()));
                let (state, action) = (None, None);
                Item::HostedCall(HostedCall { id, name, block_list, state, action, status, reason, agent })
            }
            PlannedItem::Call { name, kind, gate } => {
                let number = world.next_number();
                let call_id = CallId::numbered(world.run.run_suffix(), number);
                let provider_call_id = world.rng.chance(70).then(|| format!("toolu_{:x}", world.rng.next_u64()));
                private = Some(PrivatePayload { provider_call_id, ..PrivatePayload::default() });
                Item::ToolCall(ToolCall {
                    id: call_id.item_id("fc"),
                    call_id,
                    name: name.to_owned(),
                    arguments: Some(String::new()),
                    kind: Some(kind),
                    display_name: world.rng.chance(50).then(|| "Weather".to_owned()),
                    gate: Some(gate),
                    status,
                    reason,
                    agent,
                })
            }
        };
        self.attempt_items.push(item.id().clone());
        let index = self.next_output_index();
        let open = ItemWriter::add(world, &self.id, index, item, plan.steps, private);
        self.open_items.push(open);
    }

    pub(super) fn cut_open_items(&mut self, world: &mut LogBuilder, why: IncompleteReason) {
        self.plan = VecDeque::new();
        for open in std::mem::take(&mut self.open_items) {
            let item = open.cut_short(world, &self.id, why);
            if let Item::Message(message) = item {
                self.last_message = message.text();
            }
        }
    }

    fn emit_step_done(&mut self, world: &mut LogBuilder, stop_reason: StopReason) {
        let usage = Usage {
            input_tokens: u64::from(world.rng.between(1, 900)),
            cached_tokens: u64::from(world.rng.between(0, 1)),
            cache_write_tokens: 0,
            output_tokens: self.turn_usage.output_tokens.saturating_add(9),
            reasoning_tokens: u64::from(world.rng.between(0, 5)),
        };
        self.total.add(usage);
        let service_tier = world.rng.chance(20).then(|| "default".to_owned());
        let (task_id, step, model) = (self.id.clone(), self.step, "scripted/demo".to_owned());
        world.emit(Event::StepDone(StepDone { task_id, step, model, stop_reason, usage, service_tier }));
    }

    /// The turn is whole.
    fn end_turn(&mut self, world: &mut LogBuilder) {
        if self.calls.is_empty() {
            self.emit_step_done(world, StopReason::Stop);
            if self.has_unread_input && !world.is_cancelling {
                self.turns_planned = self.turns_planned.max(self.step.saturating_add(1));
                self.phase = GenPhase::Ready;
            } else {
                self.finish(world, GenOutcome::Completed);
            }
            return;
        }
        self.emit_step_done(world, StopReason::ToolCalls);
        if world.is_cancelling {
            self.abandon_calls(world, ErrorCode::Cancelled);
            self.finish(world, GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        } else {
            self.start_calls(world);
        }
    }

    /// A limit or a failure ends the turn, and the task with it.
    fn abort_turn(&mut self, world: &mut LogBuilder) {
        match self.planned_outcome {
            PlannedOutcome::StopInTurn(stop) => {
                self.cut_open_items(world, IncompleteReason::Limit);
                self.emit_step_done(world, stop);
                self.abandon_calls(world, ErrorCode::Limit);
                let filter = stop == StopReason::ContentFilter;
                let reason = if filter { LimitReason::ContentFilter } else { LimitReason::MaxTokens };
                self.finish(world, GenOutcome::Incomplete(reason));
            }
            _ => {
                self.cut_open_items(world, IncompleteReason::Failed);
                self.emit_step_done(world, StopReason::Error);
                let (retryable, details) = (Some(world.rng.chance(50)), Some(json!({"status": 529})));
                let message = random_text(&mut world.rng, 0, 6);
                let error = ErrorInfo { retryable, details, ..ErrorInfo::new(ErrorCode::ProviderError, message) };
                self.finish(world, GenOutcome::Failed(error));
            }
        }
    }

    /// Cuts whatever is open and ends.
    pub(super) fn stop(&mut self, world: &mut LogBuilder, why: IncompleteReason, end: GenOutcome) {
        if self.phase == GenPhase::Ended {
            return;
        }
        self.cut_open_items(world, why);
        if self.phase == GenPhase::Turn {
            self.emit_step_done(world, StopReason::Cancelled);
        } else {
            self.abandon_calls(world, ErrorCode::Cancelled);
        }
        self.finish(world, end);
    }

    /// The process died and another one goes on.
    pub(super) fn recover(&mut self, world: &mut LogBuilder) {
        match self.phase {
            GenPhase::Turn => {
                self.cut_open_items(world, IncompleteReason::Recovered);
                self.emit_step_done(world, StopReason::Lost);
                self.attempt = self.attempt.saturating_add(1);
                let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
                let cut = std::mem::take(&mut self.attempt_items);
                world.emit(Event::Recovered(TaskRecovered { task_id, step, attempt, cut }));
                self.start_turn(world);
            }
            GenPhase::ReadingFiles => self.recover_files(world),
            GenPhase::Waiting => self.recover_calls(world),
            GenPhase::Ready | GenPhase::Ended => {}
        }
    }

    fn finish(&mut self, world: &mut LogBuilder, end: GenOutcome) {
        self.phase = GenPhase::Ended;
        let (task_id, usage) = (self.id.clone(), self.total);
        let duration_ms = world.now.saturating_sub(self.created_at);
        let mut ended = (TaskStatus::Cancelled, None);
        world.emit(match end {
            GenOutcome::Completed => {
                ended.0 = TaskStatus::Completed;
                let cost = None;
                Event::Completed(TaskCompleted { task_id, usage, cost, duration_ms })
            }
            GenOutcome::Incomplete(reason) => {
                ended.0 = TaskStatus::Incomplete;
                Event::Incomplete(TaskIncomplete { task_id, reason, usage, duration_ms })
            }
            GenOutcome::Failed(error) => {
                ended = (TaskStatus::Failed, Some(error.clone()));
                Event::Failed(TaskFailed { task_id, error, usage, duration_ms })
            }
            GenOutcome::Cancelled(mode, by) => {
                Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms })
            }
        });
        if let Some(parent) = self.parent.clone() {
            let (id, words) = (self.id.clone(), std::mem::take(&mut self.last_message));
            let (status, error) = ended;
            world.ended_children.push(EndedChild { id, parent, status, error, usage, last_message: words });
        }
    }
}

/// Numbers in names are not padded, so that a longer name is a later one.
fn call_order(id: &CallId) -> (usize, &str) {
    (id.as_str().len(), id.as_str())
}

fn task_spec(
    world: &mut LogBuilder,
    id: &TaskId,
    agent: &str,
    parent: Option<TaskId>,
    previous: Option<TaskId>,
) -> TaskSpec {
    let own = parent.is_none();
    let mut content = vec![ContentPart::text(random_text(&mut world.rng, 0, 10))];
    if own && world.rng.chance(15) {
        content.extend(input_files::random_file_parts(world));
    }
    let input_id = format!("msg_{}", id.as_str().split_once('_').map_or("", |(_, rest)| rest));
    let pick =
        || ClientTool { name: "pick".to_owned(), description: String::new(), parameters: json!({"type": "object"}) };
    let mut metadata = JsonObject::new();
    if world.rng.chance(40) {
        metadata.insert("note".to_owned(), world.random_value());
    }
    let names = || ClientIds { protocol: "ag-ui".to_owned(), thread_id: Some("t".to_owned()), run_id: None };
    TaskSpec {
        thread_id: world.thread.clone(),
        agent: agent.to_owned(),
        model: "scripted/demo".to_owned(),
        input: vec![InputMessage { id: format!("{input_id}0").into(), role: Role::User, content }],
        parent_task_id: parent,
        previous,
        tools: if own && world.rng.chance(50) { vec![pick()] } else { Vec::new() },
        metadata,
        display_mode: world.rng.choose(DisplayMode::Agent, &[DisplayMode::Chat]),
        origin: world.rng.chance(10).then(|| json!({"relay": true})),
        client: (own && world.rng.chance(20)).then(names),
    }
}
