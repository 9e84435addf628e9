//! One task: its turns, and how it ends.

use super::call::Call;
use super::files::{self, Files};
use super::item::Open;
use super::plan::{self, Plan, What, Wish};
use super::request;
use super::text::prose;
use super::world::World;
use model::block::{ContentPart, JsonObject};
use model::event::{
    CancelMode, ClientIds, ClientTool, DisplayMode, ErrorInfo, Event, Initiator, InputMessage, LimitReason, StepDone,
    StepRetrying, StepStarted, StopReason, TaskCancelled, TaskCompleted, TaskCreated, TaskFailed, TaskIncomplete,
    TaskRecovered, TaskSpec, TaskStarted,
};
use model::id::{CallId, ItemId, TaskId};
use model::item::{HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, Role, ToolCall};
use model::record::PrivatePayload;
use model::seq::Millis;
use model::task::TaskStatus;
use model::usage::Usage;
use serde_json::json;
use std::collections::VecDeque;

/// A task that is going on.
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) parent: Option<TaskId>,
    pub(super) agent: String,
    pub(super) phase: Phase,
    /// Complete calls of the last turn.
    pub(super) calls: Vec<Call>,
    /// What it and everybody below it cost.
    pub(super) total: Usage,
    /// Was something said that no turn has read?
    pub(super) unread: bool,
    depth: u32,
    created_at: Millis,
    outputs: u32,
    step: u32,
    attempt: u32,
    /// How many turns it wants.
    turns: u32,
    end: Wanted,
    plan: VecDeque<Plan>,
    pub(super) open: Vec<Open>,
    pub(super) files: Files,
    /// Items of this attempt.
    shown: Vec<ItemId>,
    /// How many events a turn that will be broken off still gives.
    patience: u32,
    /// Tokens of this turn.
    tokens: Usage,
    words: String,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The next turn may begin.
    Ready,
    /// Files are read before it does.
    Reading,
    /// The model speaks.
    Turn,
    /// Calls are not answered yet.
    Waiting,
    /// It ended.
    Over,
}

/// How a task is to end, if nobody interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Answer,
    Limited(StopReason),
    Failure,
    /// Between two turns.
    Limit(LimitReason),
}

/// A sub-agent that ended.
pub(super) struct Ended {
    pub(super) id: TaskId,
    pub(super) parent: TaskId,
    pub(super) status: TaskStatus,
    pub(super) error: Option<ErrorInfo>,
    pub(super) usage: Usage,
    /// The last thing that it said.
    pub(super) words: String,
}

/// How a task ends.
#[derive(Clone, Debug)]
pub(super) enum End {
    Completed,
    Incomplete(LimitReason),
    Failed(ErrorInfo),
    Cancelled(CancelMode, Initiator),
}

impl Task {
    /// The run's root.
    pub(super) fn root(world: &mut World, previous: Option<TaskId>) -> Self {
        let id = world.run.clone();
        Self::begin(world, id, None, 0, previous)
    }

    /// A sub-agent that `parent` asked for.
    pub(super) fn child(world: &mut World, parent: &Self, call: &CallId) -> Self {
        world.children_left = world.children_left.saturating_sub(1);
        Self::begin(world, call.child_task_id(), Some(parent.id.clone()), parent.depth.saturating_add(1), None)
    }

    fn begin(world: &mut World, id: TaskId, parent: Option<TaskId>, depth: u32, previous: Option<TaskId>) -> Self {
        let agent = if parent.is_some() { "WeatherAgent" } else { "demo" }.to_owned();
        let spec = spec(world, &id, &agent, parent.clone(), previous);
        let files = Files::named_in(&spec.input);
        let deadline = Some(world.at.saturating_add(3_600_000));
        let brought = if parent.is_none() { request::first(world) } else { PrivatePayload::default() };
        let private = PrivatePayload { definitions_digest: Some("d1".to_owned()), deadline, ..brought };
        world.emit_with(Event::Created(TaskCreated { task_id: id.clone(), task: Box::new(spec) }), Some(private));
        world.emit(Event::Started(TaskStarted { task_id: id.clone() }));
        let end = match world.rng.below(20) {
            0 => Wanted::Limited(StopReason::MaxTokens),
            1 => Wanted::Limited(StopReason::ContentFilter),
            2 | 3 => Wanted::Failure,
            4 => {
                use LimitReason::{Budget, Deadline, MaxSteps};
                Wanted::Limit(world.rng.choose(MaxSteps, &[Budget, Deadline]))
            }
            _ => Wanted::Answer,
        };
        Self {
            id,
            parent,
            agent,
            phase: Phase::Ready,
            calls: Vec::new(),
            total: Usage::default(),
            unread: false,
            depth,
            created_at: world.at,
            outputs: 0,
            step: 0,
            attempt: 0,
            turns: world.rng.between(1, world.options.steps_max.max(1)),
            end,
            plan: VecDeque::new(),
            open: Vec::new(),
            files,
            shown: Vec::new(),
            patience: 0,
            tokens: Usage::default(),
            words: String::new(),
        }
    }

    /// The place of the next item.
    pub(super) fn next_output(&mut self) -> u32 {
        let index = self.outputs;
        self.outputs = self.outputs.saturating_add(1);
        index
    }

    /// Can it go on by itself?
    pub(super) fn can_move(&self) -> bool {
        match self.phase {
            Phase::Ready | Phase::Reading | Phase::Turn => true,
            Phase::Waiting => self.calls_can_move(),
            Phase::Over => false,
        }
    }

    /// Goes on a little.
    pub(super) fn advance(&mut self, world: &mut World) {
        match self.phase {
            Phase::Ready => self.next_turn(world),
            Phase::Reading => self.read(world),
            Phase::Turn => self.speak(world),
            Phase::Waiting => self.work(world),
            Phase::Over => {}
        }
    }

    fn next_turn(&mut self, world: &mut World) {
        if world.cancelling {
            return self.finish(world, End::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        if let Wanted::Limit(reason) = self.end
            && self.step >= self.turns
        {
            return self.finish(world, End::Incomplete(reason));
        }
        self.step = self.step.saturating_add(1);
        self.attempt = 1;
        self.begin_turn(world);
    }

    /// A turn begins, when the files are read that it needs.
    pub(super) fn begin_turn(&mut self, world: &mut World) {
        if self.files.has_unread() {
            return self.read_files(world);
        }
        self.ask_model(world);
        while world.rng.chance(6) {
            self.attempt = self.attempt.saturating_add(1);
            let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
            let error = ErrorInfo::new("overloaded", prose(&mut world.rng, 0, 4));
            let not_before = world.at.saturating_add(800);
            world.emit(Event::Retrying(StepRetrying { task_id, step, attempt, not_before, error }));
        }
    }

    fn ask_model(&mut self, world: &mut World) {
        self.phase = Phase::Turn;
        self.calls = Vec::new();
        self.shown = Vec::new();
        self.tokens = Usage::default();
        self.unread = false;
        self.patience = world.rng.between(0, 14);
        let wish = match self.end {
            _ if self.step < self.turns => Wish::Tools,
            Wanted::Answer => Wish::Answer,
            Wanted::Limited(_) | Wanted::Failure => Wish::Any,
            Wanted::Limit(_) => Wish::Tools,
        };
        let may_ask_agents = self.depth < world.options.depth_max && world.children_left > 0;
        self.plan = plan::turn(world, wish, may_ask_agents);
        let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
        world.emit(Event::StepStarted(StepStarted { task_id, step, attempt }));
    }

    /// One more event of the turn. Items of one turn may interleave.
    fn speak(&mut self, world: &mut World) {
        let breaks = self.step >= self.turns && matches!(self.end, Wanted::Limited(_) | Wanted::Failure);
        self.patience = self.patience.saturating_sub(1);
        if breaks && self.patience == 0 {
            return self.break_off(world);
        }
        if world.rng.chance(2) {
            return world.aside(&self.id);
        }
        let next = if self.open.is_empty() || world.rng.chance(8) { self.plan.pop_front() } else { None };
        if let Some(plan) = next {
            return self.open_item(world, plan);
        }
        let place = world.rng.below(self.open.len());
        let Some(open) = self.open.get_mut(place) else {
            return if breaks { self.break_off(world) } else { self.end_turn(world) };
        };
        let counted = world.rng.chance(15);
        if counted {
            self.tokens.output_tokens = self.tokens.output_tokens.saturating_add(1);
        }
        let private = counted.then(|| PrivatePayload { usage: Some(self.tokens), ..PrivatePayload::default() });
        if !open.say(world, &self.id, private) {
            let item = self.open.remove(place).close(world, &self.id);
            self.note(world, &item);
        }
    }

    /// Keeps what later events depend on.
    fn note(&mut self, world: &mut World, item: &Item) {
        match item {
            Item::ToolCall(call) => {
                let place = self.calls.partition_point(|known| shorter_first(&known.id) < shorter_first(&call.call_id));
                let call = Call::new(world, call);
                self.calls.insert(place, call);
            }
            Item::Message(message) => self.words = message.text(),
            _ => {}
        }
    }

    fn open_item(&mut self, world: &mut World, plan: Plan) {
        let (status, reason, agent) = (Some(ItemStatus::InProgress), None, Some(self.agent.clone()));
        let mut private = None;
        let item = match plan.what {
            What::Reasoning => {
                Item::Reasoning(Reasoning { id: world.next_id("rs"), summary: Some(Vec::new()), status, reason, agent })
            }
            What::Message { phase } => {
                let (id, block_list) = (world.next_id("msg"), Some(Vec::new()));
                Item::Message(Message { id, role: Role::Assistant, block_list, phase, status, reason, agent })
            }
            What::Hosted { name } => {
                let (id, name, block_list) = (world.next_id("hc"), name.to_owned(), Some(Vec::new()));
                let (state, action) = (None, None);
                Item::HostedCall(HostedCall { id, name, block_list, state, action, status, reason, agent })
            }
            What::Call { name, kind, gate } => {
                let number = world.next_number();
                let call_id = CallId::numbered(world.run.run_suffix(), number);
                let provider_call_id = world.rng.chance(70).then(|| format!("toolu_{:x}", world.rng.bits()));
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
        self.shown.push(item.id().clone());
        let index = self.next_output();
        let open = Open::begin(world, &self.id, index, item, plan.pieces, private);
        self.open.push(open);
    }

    pub(super) fn close_open(&mut self, world: &mut World, why: IncompleteReason) {
        self.plan = VecDeque::new();
        for open in std::mem::take(&mut self.open) {
            let item = open.cut(world, &self.id, why);
            if let Item::Message(message) = item {
                self.words = message.text();
            }
        }
    }

    fn step_done(&mut self, world: &mut World, stop_reason: StopReason) {
        let usage = Usage {
            input_tokens: u64::from(world.rng.between(1, 900)),
            cached_tokens: u64::from(world.rng.between(0, 1)),
            cache_write_tokens: 0,
            output_tokens: self.tokens.output_tokens.saturating_add(9),
            reasoning_tokens: u64::from(world.rng.between(0, 5)),
        };
        self.total.add(usage);
        let service_tier = world.rng.chance(20).then(|| "default".to_owned());
        let (task_id, step, model) = (self.id.clone(), self.step, "scripted/demo".to_owned());
        world.emit(Event::StepDone(StepDone { task_id, step, model, stop_reason, usage, service_tier }));
    }

    /// The turn is whole.
    fn end_turn(&mut self, world: &mut World) {
        if self.calls.is_empty() {
            self.step_done(world, StopReason::Stop);
            if self.unread && !world.cancelling {
                self.turns = self.turns.max(self.step.saturating_add(1));
                self.phase = Phase::Ready;
            } else {
                self.finish(world, End::Completed);
            }
            return;
        }
        self.step_done(world, StopReason::ToolCalls);
        if world.cancelling {
            self.give_up(world, "cancelled");
            self.finish(world, End::Cancelled(CancelMode::AfterTurn, Initiator::User));
        } else {
            self.begin_calls(world);
        }
    }

    /// A limit or a failure ends the turn, and the task with it.
    fn break_off(&mut self, world: &mut World) {
        match self.end {
            Wanted::Limited(stop) => {
                self.close_open(world, IncompleteReason::Limit);
                self.step_done(world, stop);
                self.give_up(world, "limit");
                let filter = stop == StopReason::ContentFilter;
                let reason = if filter { LimitReason::ContentFilter } else { LimitReason::MaxTokens };
                self.finish(world, End::Incomplete(reason));
            }
            _ => {
                self.close_open(world, IncompleteReason::Failed);
                self.step_done(world, StopReason::Error);
                let (retryable, details) = (Some(world.rng.chance(50)), Some(json!({"status": 529})));
                let message = prose(&mut world.rng, 0, 6);
                let error = ErrorInfo { code: "provider_error".to_owned(), message, retryable, details };
                self.finish(world, End::Failed(error));
            }
        }
    }

    /// Cuts whatever is open and ends.
    pub(super) fn cut(&mut self, world: &mut World, why: IncompleteReason, end: End) {
        if self.phase == Phase::Over {
            return;
        }
        self.close_open(world, why);
        if self.phase == Phase::Turn {
            self.step_done(world, StopReason::Cancelled);
        } else {
            self.give_up(world, "cancelled");
        }
        self.finish(world, end);
    }

    /// The process died and another one goes on.
    pub(super) fn recover(&mut self, world: &mut World) {
        match self.phase {
            Phase::Turn => {
                self.close_open(world, IncompleteReason::Recovered);
                self.step_done(world, StopReason::Lost);
                self.attempt = self.attempt.saturating_add(1);
                let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
                let cut = std::mem::take(&mut self.shown);
                world.emit(Event::Recovered(TaskRecovered { task_id, step, attempt, cut }));
                self.begin_turn(world);
            }
            Phase::Reading => self.read_again(world),
            Phase::Waiting => self.recover_calls(world),
            Phase::Ready | Phase::Over => {}
        }
    }

    fn finish(&mut self, world: &mut World, end: End) {
        self.phase = Phase::Over;
        let (task_id, usage) = (self.id.clone(), self.total);
        let duration_ms = world.at.saturating_sub(self.created_at);
        let mut ended = (TaskStatus::Cancelled, None);
        world.emit(match end {
            End::Completed => {
                ended.0 = TaskStatus::Completed;
                let cost = None;
                Event::Completed(TaskCompleted { task_id, usage, cost, duration_ms })
            }
            End::Incomplete(reason) => {
                ended.0 = TaskStatus::Incomplete;
                Event::Incomplete(TaskIncomplete { task_id, reason, usage, duration_ms })
            }
            End::Failed(error) => {
                ended = (TaskStatus::Failed, Some(error.clone()));
                Event::Failed(TaskFailed { task_id, error, usage, duration_ms })
            }
            End::Cancelled(mode, by) => Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms }),
        });
        if let Some(parent) = self.parent.clone() {
            let (id, words) = (self.id.clone(), std::mem::take(&mut self.words));
            let (status, error) = ended;
            world.ended.push(Ended { id, parent, status, error, usage, words });
        }
    }
}

/// Numbers in names are not padded, so that a longer name is a later one.
fn shorter_first(id: &CallId) -> (usize, &str) {
    (id.as_str().len(), id.as_str())
}

fn spec(world: &mut World, id: &TaskId, agent: &str, parent: Option<TaskId>, previous: Option<TaskId>) -> TaskSpec {
    let own = parent.is_none();
    let mut content = vec![ContentPart::text(prose(&mut world.rng, 0, 10))];
    if own && world.rng.chance(15) {
        content.extend(files::some(world));
    }
    let input_id = format!("msg_{}", id.as_str().split_once('_').map_or("", |(_, rest)| rest));
    let pick =
        || ClientTool { name: "pick".to_owned(), description: String::new(), parameters: json!({"type": "object"}) };
    let mut metadata = JsonObject::new();
    if world.rng.chance(40) {
        metadata.insert("note".to_owned(), world.value());
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
