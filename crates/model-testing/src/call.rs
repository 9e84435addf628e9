//! A task's calls: how they are started, asked for, answered.

use super::item_writer::ItemWriter;
use super::log_builder::LogBuilder;
use super::task::{EndedChild, GenPhase, GenTask};
use super::text::random_text;
use super::turn_plan;
use model::content::ContentPart;
use model::definition::OnCrash;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    ActionRequest, AgentUpdated, ApprovalDecision, ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Event,
    Initiator, ItemEvent, PendingKind, PendingRequest, ReviewConfig, ToolProgress, ToolStarted,
};
use model::id::CallId;
use model::item::{ApprovalGate, CallKind, IncompleteReason, Item, ResultStatus, ToolCall, ToolResult};
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::record::PrivatePayload;
use model::reference;
use model::task::TaskStatus;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// A complete call of the turn that ended last.
#[derive(Clone, Debug)]
pub(super) struct GenCall {
    pub(super) id: CallId,
    name: String,
    kind: CallKind,
    gate: ApprovalGate,
    arguments: String,
    pub(super) state: GenCallState,
    attempt: u32,
    idempotent: bool,
    on_crash: OnCrash,
}

/// Where a call is.
#[derive(Clone, Debug)]
pub(super) enum GenCallState {
    /// Its turn has not ended, or it has been allowed to start.
    Ready,
    /// A person is asked.
    AwaitingApproval,
    /// A person said no.
    Rejected(ErrorInfo),
    /// The client runs it.
    AwaitingClient,
    /// It runs.
    Running,
    /// A sub-agent works on it; its result is open.
    AwaitingChild(Box<ItemWriter>),
    /// It waits for the ordinary ones.
    AwaitingHandoff,
    /// It has its result.
    Answered,
}

impl GenCall {
    pub(super) fn new(world: &mut LogBuilder, call: &ToolCall) -> Self {
        Self {
            id: call.call_id.clone(),
            name: call.name.clone(),
            kind: call.kind.unwrap_or(CallKind::Tool),
            gate: call.gate.unwrap_or(ApprovalGate::Never),
            arguments: call.arguments.clone().unwrap_or_default(),
            state: GenCallState::Ready,
            attempt: 0,
            idempotent: world.rng.chance(40),
            on_crash: world.rng.choose(OnCrash::Unknown, &[OnCrash::Fail]),
        }
    }

    fn is_answered(&self) -> bool {
        matches!(self.state, GenCallState::Answered)
    }

    fn is_running(&self) -> bool {
        matches!(self.state, GenCallState::Running)
    }
}

impl GenTask {
    /// The turn is whole: every call begins, or somebody is asked.
    pub(super) fn start_calls(&mut self, world: &mut LogBuilder) {
        self.phase = GenPhase::Waiting;
        for place in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(place) else { break };
            let asked = call.gate == ApprovalGate::Always || (call.gate == ApprovalGate::Maybe && world.rng.chance(50));
            match call.kind {
                _ if asked => self.request_approval(world, place),
                CallKind::Tool | CallKind::Agent => self.start_call(world, place),
                CallKind::Client => call.state = GenCallState::AwaitingClient,
                CallKind::Handoff => call.state = GenCallState::AwaitingHandoff,
            }
        }
    }

    fn request_approval(&mut self, world: &mut LogBuilder, place: usize) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.state = GenCallState::AwaitingApproval;
        let args = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
        world.emit(Event::ApprovalRequested(ApprovalRequested {
            task_id: self.id.clone(),
            key: call.id.approval_key(),
            call_id: call.id.clone(),
            action_requests: vec![ActionRequest { name: call.name.clone(), args }],
            review_configs: vec![ReviewConfig { require_approval: true }],
            timeout_seconds: 300,
            expires_at: world.now.saturating_add(300_000),
        }));
    }

    fn start_call(&mut self, world: &mut LogBuilder, place: usize) {
        let Some(call) = self.calls.get_mut(place) else { return };
        call.attempt = call.attempt.saturating_add(1);
        call.state = GenCallState::Running;
        let started = ToolStarted {
            task_id: self.id.clone(),
            call_id: call.id.clone(),
            arguments: call.arguments.clone(),
            attempt: call.attempt,
        };
        let private = PrivatePayload {
            idempotent: Some(call.idempotent),
            on_crash: Some(call.on_crash),
            deadline: Some(world.now.saturating_add(60_000)),
            ..PrivatePayload::default()
        };
        world.emit_with_private(Event::ToolStarted(started), Some(private));
        if call.kind == CallKind::Agent {
            let id = call.id.clone();
            let open = self.open_result(world, &id, VecDeque::new());
            let child = Self::start_child(world, self, &id);
            world.new_children.push(child);
            if let Some(call) = self.calls.get_mut(place) {
                call.state = GenCallState::AwaitingChild(Box::new(open));
            }
        }
    }

    fn open_result(
        &mut self,
        world: &mut LogBuilder,
        call: &CallId,
        pieces: VecDeque<super::item_writer::ItemStep>,
    ) -> ItemWriter {
        let item = Item::ToolResult(ToolResult {
            id: call.item_id("fco"),
            call_id: call.clone(),
            block_list: Some(Vec::new()),
            status: Some(ResultStatus::InProgress),
            error: None,
            summary: None,
            artifact: None,
            ui_hints: None,
            reason: None,
            agent: Some(self.agent.clone()),
        });
        let index = self.next_output_index();
        ItemWriter::add(world, &self.id, index, item, pieces, None)
    }

    /// The call gets its result.
    fn finish_call(&mut self, world: &mut LogBuilder, place: usize, status: ResultStatus, error: Option<ErrorInfo>) {
        let Some(call) = self.calls.get_mut(place) else { return };
        let id = call.id.clone();
        let blocks =
            if status == ResultStatus::Completed { turn_plan::tool_result_steps(world) } else { VecDeque::new() };
        let mut open = match std::mem::replace(&mut call.state, GenCallState::Answered) {
            GenCallState::AwaitingChild(open) => *open,
            _ => self.open_result(world, &id, blocks),
        };
        while open.emit_next(world, &self.id, None) {}
        let mut content = reference::wrap_reference_groups(reference::blocks_to_parts(open.item.blocks()));
        if content.is_empty() {
            // Providers refuse empty results.
            content.push(ContentPart::text(error.as_ref().map_or("(nothing)", |error| error.code.as_str())));
        }
        let fits = serde_json::to_vec(&content).is_ok_and(|bytes| bytes.len() <= DONE_REPEAT_BYTES_MAX);
        if let Item::ToolResult(result) = &mut open.item {
            result.status = Some(status);
            result.reason = (status == ResultStatus::Incomplete).then_some(IncompleteReason::Cancelled);
            result.error = error;
            result.summary = world.rng.chance(10).then(|| random_text(&mut world.rng, 0, 4));
            result.artifact = world.rng.chance(10).then(|| world.random_value());
            result.ui_hints = world.rng.chance(10).then(|| [("tone".to_owned(), json!(1.25))].into_iter().collect());
        }
        open.emit_done(
            world,
            &self.id,
            fits.then(|| PrivatePayload { content: Some(content), ..PrivatePayload::default() }),
        );
        self.update_phase();
    }

    /// A sub-agent ended: what it gave is in the log already, so that its result says only how it ended.
    pub(super) fn finish_child_call(&mut self, world: &mut LogBuilder, ended: EndedChild) {
        self.total.add(ended.usage);
        let Some(call) = self.calls.iter_mut().find(|call| call.id.child_task_id() == ended.id) else { return };
        let GenCallState::AwaitingChild(open) = std::mem::replace(&mut call.state, GenCallState::Answered) else {
            return;
        };
        let status = match ended.status {
            TaskStatus::Completed => ResultStatus::Completed,
            TaskStatus::Failed => ResultStatus::Failed,
            _ => ResultStatus::Incomplete,
        };
        let item = Item::ToolResult(ToolResult {
            id: call.id.item_id("fco"),
            call_id: call.id.clone(),
            block_list: None,
            status: Some(status),
            error: ended.error,
            summary: None,
            artifact: None,
            ui_hints: None,
            reason: (status == ResultStatus::Incomplete).then_some(IncompleteReason::Cancelled),
            agent: None,
        });
        let content = Some(vec![ContentPart::text(ended.last_message)]);
        let event = ItemEvent { task_id: self.id.clone(), output_index: open.output_index, item };
        world.emit_with_private(Event::ItemDone(event), Some(PrivatePayload { content, ..PrivatePayload::default() }));
        self.update_phase();
    }

    /// When every call is answered, the next turn may begin.
    fn update_phase(&mut self) {
        if self.phase == GenPhase::Waiting && self.calls.iter().all(GenCall::is_answered) {
            self.phase = GenPhase::Ready;
        }
    }

    pub(super) fn has_running_tools(&self) -> bool {
        self.phase == GenPhase::Waiting && self.calls.iter().any(GenCall::is_running)
    }

    /// Can a call go on by itself?
    pub(super) fn can_advance_calls(&self) -> bool {
        self.has_running_tools() || self.is_handoff_due()
    }

    /// A hand-off runs after the ordinary calls of its turn.
    fn is_handoff_due(&self) -> bool {
        let last = |call: &GenCall| matches!(call.state, GenCallState::AwaitingHandoff);
        self.calls.iter().any(last) && self.calls.iter().all(|call| last(call) || call.is_answered())
    }

    /// A tool that runs says something, or ends.
    pub(super) fn advance_calls(&mut self, world: &mut LogBuilder) {
        if self.is_handoff_due() {
            self.run_handoffs(world);
            return;
        }
        let running: Vec<usize> = self.call_indexes(GenCall::is_running);
        let Some(place) = world.rng.pick(&running).copied() else { return };
        let chance = world.rng.between(1, 100);
        if chance <= 15 {
            let Some(call) = self.calls.get(place) else { return };
            let (task_id, call_id) = (self.id.clone(), call.id.clone());
            let message = world.rng.chance(50).then(|| random_text(&mut world.rng, 0, 4));
            let progress = Some(world.random_fraction());
            let total = world.rng.chance(50).then_some(10.0);
            world.emit(Event::ToolProgress(ToolProgress { task_id, call_id, message, progress, total }));
        } else if chance <= 30 {
            world.emit_side_event(&self.id);
        } else if chance <= 38 {
            let error = ErrorInfo::new(ErrorCode::ToolFailed, random_text(&mut world.rng, 0, 5));
            self.finish_call(world, place, ResultStatus::Failed, Some(error));
        } else {
            self.finish_call(world, place, ResultStatus::Completed, None);
        }
    }

    fn run_handoffs(&mut self, world: &mut LogBuilder) {
        for place in self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingHandoff)) {
            self.start_call(world, place);
            self.finish_call(world, place, ResultStatus::Completed, None);
        }
        let agent = if self.agent == "specialist" { "demo" } else { "specialist" };
        let from = std::mem::replace(&mut self.agent, agent.to_owned());
        let task_id = self.id.clone();
        world.emit(Event::AgentUpdated(AgentUpdated { task_id, agent: agent.to_owned(), from }));
    }

    /// What waits for people.
    pub(super) fn pending_calls(&self) -> impl Iterator<Item = PendingRequest> {
        self.calls.iter().filter_map(|call| {
            let (kind, key) = match call.state {
                GenCallState::AwaitingApproval => (PendingKind::Approval, Some(call.id.approval_key())),
                GenCallState::AwaitingClient => (PendingKind::ClientTool, None),
                _ => return None,
            };
            Some(PendingRequest { kind, key, call_id: call.id.clone(), task_id: self.id.clone() })
        })
    }

    /// A question is decided. What comes of it follows in [`Self::act`].
    pub(super) fn resolve_approval(&mut self, world: &mut LogBuilder, pending: &PendingRequest, by: Initiator) {
        let asked =
            |call: &&mut GenCall| call.id == pending.call_id && matches!(call.state, GenCallState::AwaitingApproval);
        let Some(call) = self.calls.iter_mut().find(asked) else { return };
        let mut decision =
            ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: None, args: None };
        if by == Initiator::User {
            use ApprovalDecisionKind::{Approve, Edit, Reject};
            decision.kind = world.rng.choose(Approve, &[Approve, Reject, Edit]);
            decision.always = decision.kind == Approve && world.rng.chance(20);
            decision.message = world.rng.chance(30).then(|| "too risky".to_owned());
        }
        call.state = match decision.kind {
            ApprovalDecisionKind::Approve => GenCallState::Ready,
            ApprovalDecisionKind::Edit => {
                let args = json!({"location": "Lyon", "n": world.random_value()});
                call.arguments = args.to_string();
                decision.args = Some(args);
                GenCallState::Ready
            }
            ApprovalDecisionKind::Reject => {
                let code = if by == Initiator::Timeout { ErrorCode::ApprovalTimeout } else { ErrorCode::Rejected };
                GenCallState::Rejected(ErrorInfo::new(code, decision.message.clone().unwrap_or_default()))
            }
        };
        let (task_id, key) = (self.id.clone(), call.id.approval_key());
        world.emit(Event::ApprovalResolved(ApprovalResolved { task_id, key, decisions: vec![decision], by }));
    }

    /// Results of what was refused, then of what the client ran, then what was allowed starts.
    pub(super) fn apply_answers(&mut self, world: &mut LogBuilder, answered: &[PendingRequest]) {
        for place in self.call_indexes(|call| matches!(call.state, GenCallState::Rejected(_))) {
            let Some(GenCallState::Rejected(error)) = self.calls.get(place).map(|call| &call.state) else { continue };
            let error = Some(error.clone());
            self.finish_call(world, place, ResultStatus::Rejected, error);
        }
        let is_answered = |call: &GenCall| answered.iter().any(|pending| pending.call_id == call.id);
        for place in self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingClient) && is_answered(call)) {
            self.finish_call(world, place, ResultStatus::Completed, None);
        }
        if self.phase == GenPhase::Waiting {
            for place in self.call_indexes(|call| matches!(call.state, GenCallState::Ready)) {
                self.start_call(world, place);
            }
        }
    }

    /// Every call that nobody will answer any more gets a result that says so.
    pub(super) fn abandon_calls(&mut self, world: &mut LogBuilder, code: ErrorCode) {
        for place in self.call_indexes(|call| !call.is_answered()) {
            let pending: Vec<PendingRequest> = self.pending_calls().collect();
            let id = self.calls.get(place).map(|call| call.id.clone());
            if let Some(pending) = pending.iter().find(|pending| Some(&pending.call_id) == id.as_ref()) {
                self.resolve_approval(world, pending, Initiator::System);
            }
            let error = ErrorInfo::new(code, "The call was given up.");
            self.finish_call(world, place, ResultStatus::Incomplete, Some(error));
        }
    }

    /// The run winds down: what waits is refused, what runs may end.
    pub(super) fn stop_after_turn(&mut self, world: &mut LogBuilder) {
        let pending: Vec<PendingRequest> = self.pending_calls().collect();
        for pending in &pending {
            self.resolve_approval(world, pending, Initiator::System);
        }
        self.apply_answers(world, &[]);
        for place in
            self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingClient | GenCallState::AwaitingHandoff))
        {
            let error = ErrorInfo::new(ErrorCode::Cancelled, "The run is about to end.");
            self.finish_call(world, place, ResultStatus::Incomplete, Some(error));
        }
    }

    /// The process died: what ran is started again if it may be, else nobody knows.
    pub(super) fn recover_calls(&mut self, world: &mut LogBuilder) {
        for place in self.call_indexes(GenCall::is_running) {
            let Some(call) = self.calls.get(place) else { continue };
            let status = match call.on_crash {
                OnCrash::Unknown | OnCrash::Ask => ResultStatus::Unknown,
                OnCrash::Fail => ResultStatus::Failed,
            };
            if call.idempotent {
                self.start_call(world, place);
            } else {
                let error = ErrorInfo::new(ErrorCode::OutcomeUnknown, "The server stopped while the tool ran.");
                self.finish_call(world, place, status, Some(error));
            }
        }
    }

    fn call_indexes(&self, wanted: impl Fn(&GenCall) -> bool) -> Vec<usize> {
        self.calls.iter().enumerate().filter(|(_, call)| wanted(call)).map(|(place, _)| place).collect()
    }
}
