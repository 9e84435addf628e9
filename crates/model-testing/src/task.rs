//! One task: its turns and its outcome. `calls` has its tool calls, `files` the files of its input; the three are one
//! type in three files.

mod calls;
mod context;
mod files;

pub(crate) use context::RunContext;
pub(crate) use files::random_file_parts;

use calls::GenCall;
use files::InputFiles;

use crate::item_writer::ItemWriter;
use crate::request;
use crate::text::random_text;
use crate::turn_plan::{self, CHILD_CALL_KINDS, ItemPlan, LEAF_CALL_KINDS, PlannedItem, TurnGoal};
use model::content::ContentPart;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    CancelMode, ClientTool, DisplayMode, Event, Initiator, InputMessage, LimitReason, StepDone, StepRetrying,
    StepStarted, StopReason, TaskCancelled, TaskCompleted, TaskCreated, TaskFailed, TaskIncomplete, TaskRecovered,
    TaskSpec, TaskStarted,
};
use model::id::{CallId, ItemId, TaskId};
use model::item::{HostedCall, IncompleteReason, Item, ItemStatus, Message, Reasoning, Role, ToolCall};
use model::json::ExactObject;
use model::record::PrivatePayload;
use model::seq::Millis;
use model::task::TaskStatus;
use model::usage::Usage;
use serde_json::json;
use std::collections::VecDeque;

pub(crate) struct GenTask {
    pub(crate) id: TaskId,
    pub(crate) parent: Option<TaskId>,
    pub(crate) agent: String,
    pub(crate) phase: GenPhase,
    /// Complete calls of the last turn.
    pub(crate) calls: Vec<GenCall>,
    /// Tokens of the task and its descendants.
    pub(crate) total: Usage,
    /// Whether input arrived that no turn has read.
    pub(crate) has_unread_input: bool,
    depth: u32,
    created_at: Millis,
    outputs_len: u32,
    step: u32,
    attempt: u32,
    turns_planned: u32,
    planned_outcome: PlannedOutcome,
    plan: VecDeque<ItemPlan>,
    pub(crate) open_items: Vec<ItemWriter>,
    pub(crate) files: InputFiles,
    attempt_items: Vec<ItemId>,
    /// Events left before a turn that is planned to fail is aborted.
    events_left: u32,
    turn_usage: Usage,
    last_message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GenPhase {
    /// The next turn may start.
    Ready,
    /// Files are read before the next turn.
    ReadingFiles,
    /// The model produces output.
    Turn,
    /// Some calls have no result.
    Waiting,
    Ended,
}

/// The outcome of a task unless something interferes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedOutcome {
    Answer,
    StopInTurn(StopReason),
    Failure,
    StopBetweenTurns(LimitReason),
}

pub(crate) struct EndedChild {
    pub(crate) id: TaskId,
    pub(crate) parent: TaskId,
    pub(crate) status: TaskStatus,
    pub(crate) error: Option<ErrorInfo>,
    pub(crate) usage: Usage,
    pub(crate) last_message: String,
}

#[derive(Clone, Debug)]
pub(crate) enum GenOutcome {
    Completed,
    Incomplete(LimitReason),
    Failed(ErrorInfo),
    Cancelled(CancelMode, Initiator),
}

impl GenTask {
    pub(crate) fn start_root(ctx: &mut RunContext<'_>, previous: Option<TaskId>) -> Self {
        let id = ctx.run.clone();
        Self::create(ctx, id, None, 0, previous)
    }

    pub(crate) fn start_child(ctx: &mut RunContext<'_>, parent: &Self, call: &CallId) -> Self {
        ctx.children_left = ctx.children_left.saturating_sub(1);
        Self::create(ctx, call.child_task_id(), Some(parent.id.clone()), parent.depth.saturating_add(1), None)
    }

    fn create(
        ctx: &mut RunContext<'_>,
        id: TaskId,
        parent: Option<TaskId>,
        depth: u32,
        previous: Option<TaskId>,
    ) -> Self {
        let agent = if parent.is_some() { "WeatherAgent" } else { "demo" }.to_owned();
        let spec = task_spec(ctx, &id, &agent, parent.clone(), previous);
        let files = InputFiles::from_input(&spec.input);
        let deadline = Some(ctx.now.saturating_add(3_600_000));
        let request = if parent.is_none() { request::start_private(ctx) } else { PrivatePayload::default() };
        let private = PrivatePayload { definitions_digest: Some("d1".to_owned()), deadline, ..request };
        ctx.emit_with_private(Event::Created(TaskCreated { task_id: id.clone(), task: Box::new(spec) }), Some(private));
        ctx.emit(Event::Started(TaskStarted { task_id: id.clone() }));
        let steps_max = ctx.options.steps_max.max(1);
        let planned_outcome = match ctx.rng.below(20) {
            0 => PlannedOutcome::StopInTurn(StopReason::MaxTokens),
            1 => PlannedOutcome::StopInTurn(StopReason::ContentFilter),
            2 | 3 => PlannedOutcome::Failure,
            4 => {
                use LimitReason::{Budget, Deadline, MaxSteps};
                PlannedOutcome::StopBetweenTurns(ctx.rng.choose(MaxSteps, &[Budget, Deadline]))
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
            created_at: ctx.now,
            outputs_len: 0,
            step: 0,
            attempt: 0,
            turns_planned: ctx.rng.between(1, steps_max),
            planned_outcome,
            plan: VecDeque::new(),
            open_items: Vec::new(),
            files,
            attempt_items: Vec::new(),
            events_left: 0,
            turn_usage: Usage::default(),
            last_message: String::new(),
        }
    }

    pub(crate) fn next_output_index(&mut self) -> u32 {
        let index = self.outputs_len;
        self.outputs_len = self.outputs_len.saturating_add(1);
        index
    }

    /// Whether the task can proceed without external input.
    pub(crate) fn can_advance(&self) -> bool {
        match self.phase {
            GenPhase::Ready | GenPhase::ReadingFiles | GenPhase::Turn => true,
            GenPhase::Waiting => self.can_advance_calls(),
            GenPhase::Ended => false,
        }
    }

    pub(crate) fn advance(&mut self, ctx: &mut RunContext<'_>) {
        match self.phase {
            GenPhase::Ready => self.next_turn(ctx),
            GenPhase::ReadingFiles => self.finish_one_file(ctx),
            GenPhase::Turn => self.advance_turn(ctx),
            GenPhase::Waiting => self.advance_calls(ctx),
            GenPhase::Ended => {}
        }
    }

    fn next_turn(&mut self, ctx: &mut RunContext<'_>) {
        if ctx.is_cancelling {
            return self.finish(ctx, GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        }
        if let PlannedOutcome::StopBetweenTurns(reason) = self.planned_outcome
            && self.step >= self.turns_planned
        {
            return self.finish(ctx, GenOutcome::Incomplete(reason));
        }
        self.step = self.step.saturating_add(1);
        self.attempt = 1;
        self.start_turn(ctx);
    }

    /// Starts a turn once the files that it needs are read.
    pub(crate) fn start_turn(&mut self, ctx: &mut RunContext<'_>) {
        if self.files.has_unread() {
            return self.start_reading_files(ctx);
        }
        self.start_step(ctx);
        while ctx.rng.chance(6) {
            self.attempt = self.attempt.saturating_add(1);
            let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
            let error = ErrorInfo::new(ErrorCode::Overloaded, random_text(&mut ctx.rng, 0, 4));
            let not_before = ctx.now.saturating_add(800);
            ctx.emit(Event::Retrying(Box::new(StepRetrying { task_id, step, attempt, not_before, error })));
        }
    }

    fn start_step(&mut self, ctx: &mut RunContext<'_>) {
        self.phase = GenPhase::Turn;
        self.calls = Vec::new();
        self.attempt_items = Vec::new();
        self.turn_usage = Usage::default();
        self.has_unread_input = false;
        self.events_left = ctx.rng.between(0, 14);
        let goal = match self.planned_outcome {
            _ if self.step < self.turns_planned => TurnGoal::CallTools,
            PlannedOutcome::Answer => TurnGoal::Answer,
            PlannedOutcome::StopInTurn(_) | PlannedOutcome::Failure => TurnGoal::Any,
            PlannedOutcome::StopBetweenTurns(_) => TurnGoal::CallTools,
        };
        let may_start_child = self.depth < ctx.options.depth_max && ctx.children_left > 0;
        let call_kinds = if may_start_child { CHILD_CALL_KINDS } else { LEAF_CALL_KINDS };
        self.plan = turn_plan::plan_turn(ctx, goal, call_kinds);
        let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
        ctx.emit(Event::StepStarted(StepStarted { task_id, step, attempt }));
    }

    /// Emits the next event of the turn. Items of one turn may interleave.
    fn advance_turn(&mut self, ctx: &mut RunContext<'_>) {
        let breaks = self.step >= self.turns_planned
            && matches!(self.planned_outcome, PlannedOutcome::StopInTurn(_) | PlannedOutcome::Failure);
        self.events_left = self.events_left.saturating_sub(1);
        if breaks && self.events_left == 0 {
            return self.abort_turn(ctx);
        }
        if ctx.rng.chance(2) {
            return ctx.emit_side_event(&self.id);
        }
        let next = if self.open_items.is_empty() || ctx.rng.chance(8) { self.plan.pop_front() } else { None };
        if let Some(plan) = next {
            return self.open_item(ctx, plan);
        }
        let index = ctx.rng.below(self.open_items.len());
        let Some(open) = self.open_items.get_mut(index) else {
            return if breaks { self.abort_turn(ctx) } else { self.end_turn(ctx) };
        };
        let counted = ctx.rng.chance(15);
        if counted {
            self.turn_usage.output_tokens = self.turn_usage.output_tokens.saturating_add(1);
        }
        let private = counted.then(|| PrivatePayload { usage: Some(self.turn_usage), ..PrivatePayload::default() });
        if !open.emit_next(ctx, &self.id, private) {
            let item = self.open_items.remove(index).complete(ctx, &self.id);
            self.record_item(ctx, &item);
        }
    }

    /// Records state that later events depend on.
    fn record_item(&mut self, ctx: &mut RunContext<'_>, item: &Item) {
        match item {
            Item::ToolCall(call) => {
                let index = self.calls.partition_point(|known| call_order(&known.id) < call_order(&call.call_id));
                let call = GenCall::new(ctx, call);
                self.calls.insert(index, call);
            }
            Item::Message(message) => self.last_message = message.text(),
            _ => {}
        }
    }

    fn open_item(&mut self, ctx: &mut RunContext<'_>, plan: ItemPlan) {
        let (status, reason, agent) = (Some(ItemStatus::InProgress), None, Some(self.agent.clone()));
        let mut private = None;
        let item = match plan.item {
            PlannedItem::Reasoning => {
                Item::Reasoning(Reasoning { id: ctx.next_id("rs"), summary: Some(Vec::new()), status, reason, agent })
            }
            PlannedItem::Message { phase } => {
                let (id, block_list) = (ctx.next_id("msg"), Some(Vec::new()));
                Item::Message(Message { id, role: Role::Assistant, block_list, phase, status, reason, agent })
            }
            PlannedItem::Hosted { name } => {
                let (id, name, block_list) = (ctx.next_id("hc"), name.to_owned(), Some(Vec::new()));
                let (state, action) = (None, None);
                Item::HostedCall(HostedCall { id, name, block_list, state, action, status, reason, agent })
            }
            PlannedItem::Call { name, kind, gate } => {
                let number = ctx.next_number();
                let call_id = CallId::numbered(ctx.run.run_suffix(), number);
                let provider_call_id = ctx.rng.chance(70).then(|| format!("toolu_{:x}", ctx.rng.next_u64()));
                private = Some(PrivatePayload { provider_call_id, ..PrivatePayload::default() });
                Item::ToolCall(ToolCall {
                    id: call_id.item_id("fc"),
                    call_id,
                    name: name.to_owned(),
                    arguments: Some(String::new()),
                    kind: Some(kind),
                    display_name: ctx.rng.chance(50).then(|| "Weather".to_owned()),
                    original_arguments: None,
                    gate: Some(gate),
                    status,
                    reason,
                    agent,
                    server_label: turn_plan::server_label(kind),
                    server_tool: None,
                })
            }
        };
        self.attempt_items.push(item.id().clone());
        let index = self.next_output_index();
        let open = ItemWriter::add(ctx, &self.id, index, item, plan.steps, private);
        self.open_items.push(open);
    }

    pub(crate) fn cut_open_items(&mut self, ctx: &mut RunContext<'_>, reason: IncompleteReason) {
        self.plan = VecDeque::new();
        for open in std::mem::take(&mut self.open_items) {
            let item = open.cut_short(ctx, &self.id, reason);
            if let Item::Message(message) = item {
                self.last_message = message.text();
            }
        }
    }

    fn emit_step_done(&mut self, ctx: &mut RunContext<'_>, stop_reason: StopReason) {
        let usage = Usage {
            input_tokens: u64::from(ctx.rng.between(1, 900)),
            cached_tokens: u64::from(ctx.rng.between(0, 1)),
            cache_write_tokens: 0,
            output_tokens: self.turn_usage.output_tokens.saturating_add(9),
            reasoning_tokens: u64::from(ctx.rng.between(0, 5)),
        };
        self.total.add(usage);
        let service_tier = ctx.rng.chance(20).then(|| "default".to_owned());
        let (task_id, step, model) = (self.id.clone(), self.step, "scripted/demo".to_owned());
        ctx.emit(Event::StepDone(Box::new(StepDone { task_id, step, model, stop_reason, usage, service_tier })));
    }

    /// Ends a complete turn.
    fn end_turn(&mut self, ctx: &mut RunContext<'_>) {
        if self.calls.is_empty() {
            self.emit_step_done(ctx, StopReason::Stop);
            if self.has_unread_input && !ctx.is_cancelling {
                self.turns_planned = self.turns_planned.max(self.step.saturating_add(1));
                self.phase = GenPhase::Ready;
            } else {
                self.finish(ctx, GenOutcome::Completed);
            }
            return;
        }
        self.emit_step_done(ctx, StopReason::ToolCalls);
        if ctx.is_cancelling {
            self.abandon_calls(ctx, ErrorCode::Cancelled);
            self.finish(ctx, GenOutcome::Cancelled(CancelMode::AfterTurn, Initiator::User));
        } else {
            self.start_calls(ctx);
        }
    }

    /// Ends the turn, and the task with it, by a limit or a failure.
    fn abort_turn(&mut self, ctx: &mut RunContext<'_>) {
        match self.planned_outcome {
            PlannedOutcome::StopInTurn(stop) => {
                self.cut_open_items(ctx, IncompleteReason::Limit);
                self.emit_step_done(ctx, stop);
                self.abandon_calls(ctx, ErrorCode::Limit);
                let filter = stop == StopReason::ContentFilter;
                let reason = if filter { LimitReason::ContentFilter } else { LimitReason::MaxTokens };
                self.finish(ctx, GenOutcome::Incomplete(reason));
            }
            _ => {
                self.cut_open_items(ctx, IncompleteReason::Failed);
                self.emit_step_done(ctx, StopReason::Error);
                let (retryable, details) = (Some(ctx.rng.chance(50)), Some(json!({"status": 529})));
                let message = random_text(&mut ctx.rng, 0, 6);
                let error = ErrorInfo { code: "provider_error".to_owned(), message, retryable, details };
                self.finish(ctx, GenOutcome::Failed(error));
            }
        }
    }

    pub(crate) fn stop(&mut self, ctx: &mut RunContext<'_>, reason: IncompleteReason, end: GenOutcome) {
        if self.phase == GenPhase::Ended {
            return;
        }
        self.cut_open_items(ctx, reason);
        if self.phase == GenPhase::Turn {
            self.emit_step_done(ctx, StopReason::Cancelled);
        } else {
            self.abandon_calls(ctx, ErrorCode::Cancelled);
        }
        self.finish(ctx, end);
    }

    /// Continues after a crash.
    pub(crate) fn recover(&mut self, ctx: &mut RunContext<'_>) {
        match self.phase {
            GenPhase::Turn => {
                self.cut_open_items(ctx, IncompleteReason::Recovered);
                self.emit_step_done(ctx, StopReason::Lost);
                self.attempt = self.attempt.saturating_add(1);
                let (task_id, step, attempt) = (self.id.clone(), self.step, self.attempt);
                let cut = std::mem::take(&mut self.attempt_items);
                ctx.emit(Event::Recovered(TaskRecovered { task_id, step, attempt, cut }));
                self.start_turn(ctx);
            }
            GenPhase::ReadingFiles => self.recover_files(ctx),
            GenPhase::Waiting => self.recover_calls(ctx),
            GenPhase::Ready | GenPhase::Ended => {}
        }
    }

    fn finish(&mut self, ctx: &mut RunContext<'_>, end: GenOutcome) {
        self.phase = GenPhase::Ended;
        let (task_id, usage) = (self.id.clone(), self.total);
        let duration_ms = ctx.now.saturating_sub(self.created_at);
        let mut ended = (TaskStatus::Cancelled, None);
        ctx.emit(match end {
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
                Event::Failed(Box::new(TaskFailed { task_id, error, usage, duration_ms }))
            }
            GenOutcome::Cancelled(mode, by) => {
                Event::Cancelled(TaskCancelled { task_id, mode, by, usage, duration_ms })
            }
        });
        if let Some(parent) = self.parent.clone() {
            let (id, words) = (self.id.clone(), std::mem::take(&mut self.last_message));
            let (status, error) = ended;
            ctx.ended_children.push(EndedChild { id, parent, status, error, usage, last_message: words });
        }
    }
}

/// Numbers in ids are not padded, so that longer ids are later.
fn call_order(id: &CallId) -> (usize, &str) {
    (id.as_str().len(), id.as_str())
}

fn task_spec(
    ctx: &mut RunContext<'_>,
    id: &TaskId,
    agent: &str,
    parent: Option<TaskId>,
    previous: Option<TaskId>,
) -> TaskSpec {
    let own = parent.is_none();
    let mut content = vec![ContentPart::text(random_text(&mut ctx.rng, 0, 10))];
    if own && ctx.rng.chance(15) {
        content.extend(random_file_parts(ctx));
    }
    let input_id = format!("msg_{}", id.as_str().split_once('_').map_or("", |(_, rest)| rest));
    let pick =
        || ClientTool { name: "pick".to_owned(), description: String::new(), parameters: json!({"type": "object"}) };
    let mut metadata = ExactObject::new();
    if ctx.rng.chance(40) {
        metadata.insert("note".to_owned(), ctx.random_value().into());
    }
    let names = request::client_ids(ctx);
    TaskSpec {
        thread_id: ctx.thread.clone(),
        agent: agent.to_owned(),
        model: "scripted/demo".to_owned(),
        input: vec![InputMessage { id: format!("{input_id}0").into(), role: Role::User, content }],
        parent_task_id: parent,
        previous,
        tools: if own && ctx.rng.chance(50) { vec![pick()] } else { Vec::new() },
        metadata,
        display_mode: ctx.rng.choose(DisplayMode::Agent, &[DisplayMode::Chat]),
        origin: ctx.rng.chance(10).then(|| json!({"relay": true})),
        client: (own && ctx.rng.chance(20)).then_some(names),
    }
}
