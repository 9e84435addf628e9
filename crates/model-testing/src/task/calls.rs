//! A task's calls: start, approval, result.

use super::{EndedChild, GenPhase, GenTask, RunContext};
use crate::item_writer::{ItemStep, ItemWriter};
use crate::text::random_text;
use crate::turn_plan;
use model::content::{ContentPart, TextBlock};
use model::definition::OnCrash;
use model::error::{ErrorCode, ErrorInfo};
use model::event::{
    ActionRequest, AgentUpdated, ApprovalDecision, ApprovalDecisionKind, ApprovalRequested, ApprovalResolved, Event,
    Initiator, ItemEvent, PendingKind, PendingRequest, Question, ReviewConfig, ToolProgress, ToolStarted,
};
use model::id::CallId;
use model::item::{ApprovalGate, CallKind, IncompleteReason, Item, ResultStatus, ToolCall, ToolResult};
use model::json::ExactValue;
use model::limits::DONE_REPEAT_BYTES_MAX;
use model::question::{QuestionContext, ToolQuestion};
use model::record::PrivatePayload;
use model::reference;
use model::task::TaskStatus;
use serde_json::json;
use std::collections::VecDeque;

/// A complete call of the last turn.
#[derive(Clone, Debug)]
pub(crate) struct GenCall {
    pub(crate) id: CallId,
    name: String,
    kind: CallKind,
    gate: ApprovalGate,
    arguments: String,
    pub(crate) state: GenCallState,
    attempt: u32,
    /// Questions that its tool has asked.
    questions: usize,
    /// The next start is the same attempt: the tool gets its answers.
    continues: bool,
    idempotent: bool,
    on_crash: OnCrash,
}

#[derive(Clone, Debug)]
pub(crate) enum GenCallState {
    /// Not started yet, or approved.
    Ready,
    AwaitingApproval,
    /// Its tool has asked, and has ended or waits for the answer.
    AwaitingAnswer {
        live: bool,
    },
    Rejected(ErrorInfo),
    AwaitingClient,
    Running,
    /// The tool runs and has shown pieces of its result, which is open.
    Streaming(Box<ItemWriter>),
    /// A sub-agent works on it; its result is open.
    AwaitingChild(Box<ItemWriter>),
    /// Waits for the other calls.
    AwaitingHandoff,
    Answered,
}

impl GenCall {
    pub(crate) fn new(ctx: &mut RunContext<'_>, call: &ToolCall) -> Self {
        Self {
            id: call.call_id.clone(),
            name: call.name.clone(),
            kind: call.kind.unwrap_or(CallKind::Tool),
            gate: call.gate.unwrap_or(ApprovalGate::Never),
            arguments: call.arguments.clone().unwrap_or_default(),
            state: GenCallState::Ready,
            attempt: 0,
            questions: 0,
            continues: false,
            idempotent: ctx.rng.chance(40),
            on_crash: ctx.rng.choose(OnCrash::Unknown, &[OnCrash::Fail]),
        }
    }

    fn is_answered(&self) -> bool {
        matches!(self.state, GenCallState::Answered)
    }

    fn is_running(&self) -> bool {
        matches!(self.state, GenCallState::Running | GenCallState::Streaming(_))
    }
}

impl GenTask {
    /// Starts every call or requests its approval.
    pub(crate) fn start_calls(&mut self, ctx: &mut RunContext<'_>) {
        self.phase = GenPhase::Waiting;
        for index in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(index) else { break };
            let needs_approval =
                call.gate == ApprovalGate::Always || (call.gate == ApprovalGate::Maybe && ctx.rng.chance(50));
            match call.kind {
                _ if needs_approval => self.request_approval(ctx, index),
                CallKind::Tool | CallKind::Agent => self.start_call(ctx, index),
                CallKind::Client => call.state = GenCallState::AwaitingClient,
                CallKind::Handoff => call.state = GenCallState::AwaitingHandoff,
                CallKind::Hosted => self.request_approval(ctx, index),
                CallKind::ToolSearch => self.finish_search(ctx, index),
            }
        }
    }

    fn request_approval(&mut self, ctx: &mut RunContext<'_>, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.state = GenCallState::AwaitingApproval;
        let args = ExactValue::parse(&call.arguments).unwrap_or_default();
        let expires_at = ctx.now.saturating_add(300_000);
        ctx.emit(Event::ApprovalRequested(Box::new(ApprovalRequested {
            task_id: self.id.clone(),
            key: call.id.approval_key(),
            call_id: call.id.clone(),
            action_requests: vec![ActionRequest {
                name: call.name.clone(),
                args,
                server_label: turn_plan::server_label(call.kind),
                editable: (call.kind == CallKind::Hosted).then_some(false),
                note: None,
            }],
            review_configs: vec![ReviewConfig { require_approval: true }],
            timeout_seconds: 300,
            expires_at,
            question: None,
        })));
    }

    /// The tool of a call asks people.
    fn ask_question(&mut self, ctx: &mut RunContext<'_>, index: usize) {
        let (live, asks_more) = (ctx.rng.chance(30), ctx.rng.chance(30));
        let message = random_text(&mut ctx.rng, 1, 8);
        let schema = ctx.rng.chance(70).then(|| json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
        let Some(call) = self.calls.get_mut(index) else { return };
        call.questions += 1;
        call.continues = !live;
        call.state = GenCallState::AwaitingAnswer { live };
        let round = u32::try_from(call.questions).unwrap_or(u32::MAX);
        let next = ToolQuestion { id: "more".to_owned(), question: Question::default() };
        let context = QuestionContext {
            id: format!("q{round}"),
            round,
            live,
            state: (!live).then(|| "opaque".to_owned()),
            next: if asks_more && !live { vec![next] } else { Vec::new() },
            ..QuestionContext::default()
        };
        let request = ApprovalRequested {
            task_id: self.id.clone(),
            key: call.id.question_key(call.questions),
            call_id: call.id.clone(),
            action_requests: vec![ActionRequest {
                name: call.name.clone(),
                args: ExactValue::parse(&call.arguments).unwrap_or_default(),
                server_label: None,
                editable: Some(false),
                note: None,
            }],
            review_configs: vec![ReviewConfig { require_approval: true }],
            timeout_seconds: 300,
            expires_at: ctx.now.saturating_add(300_000),
            question: Some(Question { message, schema, url: None }),
        };
        let private = PrivatePayload { question: Some(Box::new(context)), ..PrivatePayload::default() };
        ctx.emit_with_private(Event::ApprovalRequested(Box::new(request)), Some(private));
    }

    fn start_call(&mut self, ctx: &mut RunContext<'_>, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.attempt = call.attempt.saturating_add(u32::from(!std::mem::take(&mut call.continues)));
        call.state = GenCallState::Running;
        let started = ToolStarted {
            task_id: self.id.clone(),
            call_id: call.id.clone(),
            arguments: call.arguments.clone(),
            original_arguments: None,
            attempt: call.attempt,
        };
        let private = PrivatePayload {
            idempotent: Some(call.idempotent),
            on_crash: Some(call.on_crash),
            deadline: Some(ctx.now.saturating_add(60_000)),
            ..PrivatePayload::default()
        };
        ctx.emit_with_private(Event::ToolStarted(started), Some(private));
        if call.kind == CallKind::Agent {
            let id = call.id.clone();
            let open = self.open_result(ctx, &id, VecDeque::new());
            let child = Self::start_child(ctx, self, &id);
            ctx.new_children.push(child);
            if let Some(call) = self.calls.get_mut(index) {
                call.state = GenCallState::AwaitingChild(Box::new(open));
            }
        }
    }

    fn open_result(&mut self, ctx: &mut RunContext<'_>, call: &CallId, pieces: VecDeque<ItemStep>) -> ItemWriter {
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
        ItemWriter::add(ctx, &self.id, index, item, pieces, None)
    }

    /// A search is answered at once, and nothing of it can be cited.
    fn finish_search(&mut self, ctx: &mut RunContext<'_>, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        call.state = GenCallState::Answered;
        let id = call.id.clone();
        let found = TextBlock::new(random_text(&mut ctx.rng, 0, 4));
        let mut open = self.open_result(ctx, &id, VecDeque::from([ItemStep::TextWhole(found)]));
        while open.emit_next(ctx, &self.id, None) {}
        if let Item::ToolResult(result) = &mut open.item {
            let tool = json!({"name": "get_weather", "description": "", "parameters": {"type": "object"}});
            let grouped = json!({"name": "read", "namespace": "files", "description": "Reads."});
            result.status = Some(ResultStatus::Completed);
            let tools = [json!([]), json!([tool.clone()]), json!([grouped, tool])];
            result.artifact = ctx.rng.pick(&tools).map(|tools| json!({ "tools": tools }));
        }
        let content = Some(vec![ContentPart::text(r#"{"tools":[]}"#)]);
        open.emit_done(ctx, &self.id, Some(PrivatePayload { content, ..PrivatePayload::default() }));
        self.update_phase();
    }

    /// Writes the result of a call.
    fn finish_call(&mut self, ctx: &mut RunContext<'_>, index: usize, status: ResultStatus, error: Option<ErrorInfo>) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let id = call.id.clone();
        let blocks =
            if status == ResultStatus::Completed { turn_plan::tool_result_steps(ctx) } else { VecDeque::new() };
        let mut open = match std::mem::replace(&mut call.state, GenCallState::Answered) {
            GenCallState::AwaitingChild(open) => *open,
            GenCallState::Streaming(mut open) => {
                if status != ResultStatus::Completed {
                    open.close_part(ctx, &self.id);
                }
                *open
            }
            _ => self.open_result(ctx, &id, blocks),
        };
        while open.emit_next(ctx, &self.id, None) {}
        let mut content = reference::wrap_reference_groups(reference::blocks_to_parts(open.item.blocks()));
        if content.is_empty() {
            // Providers reject empty results.
            content.push(ContentPart::text(error.as_ref().map_or("(nothing)", |error| error.code.as_str())));
        }
        let fits = serde_json::to_vec(&content).is_ok_and(|bytes| bytes.len() <= DONE_REPEAT_BYTES_MAX);
        if let Item::ToolResult(result) = &mut open.item {
            result.status = Some(status);
            result.reason = (status == ResultStatus::Incomplete).then_some(IncompleteReason::Cancelled);
            result.error = error;
            result.summary = ctx.rng.chance(10).then(|| random_text(&mut ctx.rng, 0, 4));
            result.artifact = ctx.rng.chance(10).then(|| ctx.random_value());
            result.ui_hints = ctx.rng.chance(10).then(|| [("tone".to_owned(), json!(1.25))].into_iter().collect());
        }
        open.emit_done(
            ctx,
            &self.id,
            fits.then(|| PrivatePayload { content: Some(content), ..PrivatePayload::default() }),
        );
        self.update_phase();
    }

    /// The sub-agent's output is in the log already, so the `done` of the result carries only its status.
    pub(crate) fn finish_child_call(&mut self, ctx: &mut RunContext<'_>, ended: EndedChild) {
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
        ctx.emit_with_private(
            Event::ItemDone(Box::new(event)),
            Some(PrivatePayload { content, ..PrivatePayload::default() }),
        );
        self.update_phase();
    }

    fn update_phase(&mut self) {
        if self.phase == GenPhase::Waiting && self.calls.iter().all(GenCall::is_answered) {
            self.phase = GenPhase::Ready;
        }
    }

    pub(crate) fn has_running_tools(&self) -> bool {
        self.phase == GenPhase::Waiting && self.calls.iter().any(GenCall::is_running)
    }

    /// Whether a call can proceed without external input.
    pub(crate) fn can_advance_calls(&self) -> bool {
        self.has_running_tools() || self.is_handoff_due()
    }

    /// A handoff runs after the other calls of its turn.
    fn is_handoff_due(&self) -> bool {
        let last = |call: &GenCall| matches!(call.state, GenCallState::AwaitingHandoff);
        self.calls.iter().any(last) && self.calls.iter().all(|call| last(call) || call.is_answered())
    }

    /// Lets a running tool report progress or end.
    pub(crate) fn advance_calls(&mut self, ctx: &mut RunContext<'_>) {
        if self.is_handoff_due() {
            self.run_handoffs(ctx);
            return;
        }
        let running: Vec<usize> = self.call_indexes(GenCall::is_running);
        let Some(index) = ctx.rng.pick(&running).copied() else { return };
        if ctx.options.streamed_results && self.stream_result(ctx, index) {
            return;
        }
        let is_streaming = self.calls.get(index).is_some_and(|call| matches!(call.state, GenCallState::Streaming(_)));
        let failures_max = if ctx.options.questions { 44 } else { 38 };
        let chance = ctx.rng.between(1, 100);
        if chance <= 15 {
            let Some(call) = self.calls.get(index) else { return };
            let (task_id, call_id) = (self.id.clone(), call.id.clone());
            let message = ctx.rng.chance(50).then(|| random_text(&mut ctx.rng, 0, 4));
            let progress = Some(ctx.random_fraction());
            let total = ctx.rng.chance(50).then_some(10.0);
            ctx.emit(Event::ToolProgress(ToolProgress { task_id, call_id, message, progress, total }));
        } else if chance <= 30 {
            ctx.emit_side_event(&self.id);
        } else if chance <= 36 && ctx.options.questions && !is_streaming {
            self.ask_question(ctx, index);
        } else if chance <= failures_max {
            let error = ErrorInfo::new(ErrorCode::ToolFailed, random_text(&mut ctx.rng, 0, 5));
            self.finish_call(ctx, index, ResultStatus::Failed, Some(error));
        } else {
            self.finish_call(ctx, index, ResultStatus::Completed, None);
        }
    }

    /// Shows a piece of a result. Returns false if the call has none.
    fn stream_result(&mut self, ctx: &mut RunContext<'_>, index: usize) -> bool {
        let Some(call) = self.calls.get_mut(index) else { return false };
        if let GenCallState::Streaming(open) = &mut call.state {
            return ctx.rng.chance(80) && open.emit_next(ctx, &self.id, None);
        }
        if !ctx.rng.chance(20) {
            return false;
        }
        let (id, steps) = (call.id.clone(), turn_plan::tool_result_steps(ctx));
        let open = self.open_result(ctx, &id, steps);
        if let Some(call) = self.calls.get_mut(index) {
            call.state = GenCallState::Streaming(Box::new(open));
        }
        true
    }

    fn run_handoffs(&mut self, ctx: &mut RunContext<'_>) {
        for index in self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingHandoff)) {
            self.start_call(ctx, index);
            self.finish_call(ctx, index, ResultStatus::Completed, None);
        }
        let agent = if self.agent == "specialist" { "demo" } else { "specialist" };
        let from = std::mem::replace(&mut self.agent, agent.to_owned());
        let task_id = self.id.clone();
        ctx.emit(Event::AgentUpdated(AgentUpdated { task_id, agent: agent.to_owned(), from }));
    }

    pub(crate) fn pending_calls(&self) -> impl Iterator<Item = PendingRequest> {
        self.calls.iter().filter_map(|call| {
            let (kind, key) = match call.state {
                GenCallState::AwaitingApproval => (PendingKind::Approval, Some(call.id.approval_key())),
                GenCallState::AwaitingAnswer { .. } => {
                    (PendingKind::Question, Some(call.id.question_key(call.questions)))
                }
                GenCallState::AwaitingClient => (PendingKind::ClientTool, None),
                _ => return None,
            };
            Some(PendingRequest { kind, key, call_id: call.id.clone(), task_id: self.id.clone() })
        })
    }

    /// Decides a request. The effects follow in [`Self::apply_answers`].
    pub(crate) fn resolve_approval(&mut self, ctx: &mut RunContext<'_>, pending: &PendingRequest, by: Initiator) {
        if pending.kind == PendingKind::Question {
            return self.answer_question(ctx, pending, by);
        }
        let needs_approval =
            |call: &&mut GenCall| call.id == pending.call_id && matches!(call.state, GenCallState::AwaitingApproval);
        let Some(call) = self.calls.iter_mut().find(needs_approval) else { return };
        let mut decision =
            ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: None, args: None };
        if by == Initiator::User {
            use ApprovalDecisionKind::{Approve, Edit, Reject};
            let allowed: &[_] =
                if call.kind == CallKind::Hosted { &[Approve, Reject] } else { &[Approve, Reject, Edit] };
            decision.kind = ctx.rng.choose(Approve, allowed);
            decision.always = decision.kind == Approve && ctx.rng.chance(20);
            decision.message = ctx.rng.chance(30).then(|| "too risky".to_owned());
        }
        call.state = match decision.kind {
            ApprovalDecisionKind::Approve => GenCallState::Ready,
            ApprovalDecisionKind::Edit => {
                let args = json!({"location": "Lyon", "n": ctx.random_value()});
                call.arguments = args.to_string();
                decision.args = Some(args.into());
                GenCallState::Ready
            }
            ApprovalDecisionKind::Reject => {
                let code = if by == Initiator::Timeout { ErrorCode::ApprovalTimeout } else { ErrorCode::Rejected };
                GenCallState::Rejected(ErrorInfo::new(code, decision.message.clone().unwrap_or_default()))
            }
        };
        let (task_id, key) = (self.id.clone(), call.id.approval_key());
        ctx.emit(Event::ApprovalResolved(ApprovalResolved { task_id, key, decisions: vec![decision], by }));
    }

    /// Answers a question, or declines it. The tool goes on with either.
    fn answer_question(&mut self, ctx: &mut RunContext<'_>, pending: &PendingRequest, by: Initiator) {
        let Some(call) = self.calls.iter_mut().find(|call| call.id == pending.call_id) else { return };
        let GenCallState::AwaitingAnswer { live } = call.state else { return };
        let accepts = by == Initiator::User && ctx.rng.chance(70);
        let kind = if accepts { ApprovalDecisionKind::Approve } else { ApprovalDecisionKind::Reject };
        let args = accepts.then(|| json!({"n": 7, "more": ctx.random_value()}).into());
        let decision = ApprovalDecision { kind, always: false, message: None, args };
        call.state = match live {
            true => GenCallState::Running,
            false if by == Initiator::System => {
                GenCallState::Rejected(ErrorInfo::new(ErrorCode::Cancelled, "The question was withdrawn."))
            }
            false => GenCallState::Ready,
        };
        let (task_id, key) = (self.id.clone(), call.id.question_key(call.questions));
        ctx.emit(Event::ApprovalResolved(ApprovalResolved { task_id, key, decisions: vec![decision], by }));
    }

    /// Writes the results of rejected calls, then of client tools, and then starts approved calls.
    pub(crate) fn apply_answers(&mut self, ctx: &mut RunContext<'_>, answered: &[PendingRequest]) {
        for index in self.call_indexes(|call| matches!(call.state, GenCallState::Rejected(_))) {
            let Some(GenCallState::Rejected(error)) = self.calls.get(index).map(|call| &call.state) else { continue };
            let error = Some(error.clone());
            self.finish_call(ctx, index, ResultStatus::Rejected, error);
        }
        let is_answered = |call: &GenCall| answered.iter().any(|pending| pending.call_id == call.id);
        for index in self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingClient) && is_answered(call)) {
            self.finish_call(ctx, index, ResultStatus::Completed, None);
        }
        if self.phase == GenPhase::Waiting {
            for index in self.call_indexes(|call| matches!(call.state, GenCallState::Ready)) {
                // The provider runs what was approved.
                match self.calls.get(index).map(|call| call.kind) {
                    Some(CallKind::Hosted) => self.finish_call(ctx, index, ResultStatus::Completed, None),
                    _ => self.start_call(ctx, index),
                }
            }
        }
    }

    /// Writes a result for every call that will not be answered.
    pub(crate) fn abandon_calls(&mut self, ctx: &mut RunContext<'_>, code: ErrorCode) {
        for index in self.call_indexes(|call| !call.is_answered()) {
            let pending: Vec<PendingRequest> = self.pending_calls().collect();
            let id = self.calls.get(index).map(|call| call.id.clone());
            if let Some(pending) = pending.iter().find(|pending| Some(&pending.call_id) == id.as_ref()) {
                self.resolve_approval(ctx, pending, Initiator::System);
            }
            let error = ErrorInfo::new(code, "The call was given up.");
            self.finish_call(ctx, index, ResultStatus::Incomplete, Some(error));
        }
    }

    /// Rejects pending approvals; running tools may finish.
    pub(crate) fn stop_after_turn(&mut self, ctx: &mut RunContext<'_>) {
        let pending: Vec<PendingRequest> = self.pending_calls().collect();
        for pending in &pending {
            self.resolve_approval(ctx, pending, Initiator::System);
        }
        self.apply_answers(ctx, &[]);
        for index in
            self.call_indexes(|call| matches!(call.state, GenCallState::AwaitingClient | GenCallState::AwaitingHandoff))
        {
            let error = ErrorInfo::new(ErrorCode::Cancelled, "The run is about to end.");
            self.finish_call(ctx, index, ResultStatus::Incomplete, Some(error));
        }
    }

    /// After a crash, restarts idempotent tools and writes an unknown outcome for the others.
    pub(crate) fn recover_calls(&mut self, ctx: &mut RunContext<'_>) {
        for index in self.call_indexes(GenCall::is_running) {
            let Some(call) = self.calls.get(index) else { continue };
            let status = match call.on_crash {
                OnCrash::Unknown | OnCrash::Ask => ResultStatus::Unknown,
                OnCrash::Fail => ResultStatus::Failed,
            };
            if call.idempotent {
                self.restart_call(ctx, index);
            } else {
                let error = ErrorInfo::new(ErrorCode::OutcomeUnknown, "The server stopped while the tool ran.");
                self.finish_call(ctx, index, status, Some(error));
            }
        }
    }

    /// Starts a tool again. A result that is open gets further blocks.
    fn restart_call(&mut self, ctx: &mut RunContext<'_>, index: usize) {
        let Some(call) = self.calls.get_mut(index) else { return };
        let before = std::mem::replace(&mut call.state, GenCallState::Running);
        let mut open = match before {
            GenCallState::Streaming(open) => Some(open),
            _ => None,
        };
        if let Some(open) = &mut open {
            open.close_part(ctx, &self.id);
            open.add_steps(turn_plan::tool_result_steps(ctx));
        }
        self.start_call(ctx, index);
        if let (Some(open), Some(call)) = (open, self.calls.get_mut(index)) {
            call.state = GenCallState::Streaming(open);
        }
    }

    fn call_indexes(&self, filter: impl Fn(&GenCall) -> bool) -> Vec<usize> {
        self.calls.iter().enumerate().filter(|(_, call)| filter(call)).map(|(index, _)| index).collect()
    }
}
