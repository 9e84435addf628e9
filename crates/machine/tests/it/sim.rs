//! A simulated run: inputs in, the trace of its records out. The invariants are checked after every input.

use crate::event_trace;
use crate::fixtures::{ModelOutput, approval_key, call_id, run_id};
use crate::invariants::InvariantChecker;
use machine::{CancelTask, Effect, EffectId, MachineInput, MachineOutput, RunState, TimerId};
use machine::{apply_input, outstanding_effects, timeout_answer, timer_deadline};
use model::command::{AnswerBody, AnswerCommand, ClientToolResult, StartCommand, SteerCommand};
use model::content::{ContentPart, FileRef};
use model::definition::Definitions;
use model::error::ErrorInfo;
use model::event::{ApprovalDecision, CancelMode, ClientTool, DisplayMode, Initiator, StopReason};
use model::history::{HistoryEntry, RawItem};
use model::json::ExactObject;
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelItemKind, ModelRequest, ModelTurnEnd};
use model::ports::{FileReadOutcome, FileReadRequest};
use model::question::QuestionAnswer;
use model::record::{RecordDraft, RecordHeader};
use model::thread::{ThreadFold, ThreadReplay};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use model::usage::Usage;
use model::{CallId, Epoch, Millis, Record, TaskId, ThreadId, UserId};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) struct Sim {
    pub(crate) run: RunState,
    pub(crate) drafts: Vec<RecordDraft>,
    pub(crate) invariants: InvariantChecker,
    /// Active model calls, in the order of their start.
    pub(crate) models: Vec<EffectId>,
    /// Active tool calls, in the order of their start.
    pub(crate) tools: Vec<EffectId>,
    /// Files being read, in the order of their start.
    pub(crate) files: Vec<EffectId>,
    pub(crate) model_requests: Vec<ModelRequest>,
    pub(crate) tool_requests: Vec<ToolRequest>,
    /// What tools that wait for an answer were told.
    pub(crate) tool_answers: Vec<(EffectId, QuestionAnswer)>,
    pub(crate) file_requests: Vec<FileReadRequest>,
    /// The start times of delayed model calls.
    pub(crate) model_due: BTreeMap<EffectId, Millis>,
    pub(crate) now: u64,
    /// The error code of a failure.
    pub(crate) label: String,
    next_slot: u32,
    traced: usize,
    /// The number of records after each input, and the trace so far.
    input_marks: Vec<(usize, InvariantChecker)>,
}

impl Sim {
    pub(crate) fn new(definitions: Definitions) -> Self {
        let (user, thread) = (UserId::from("local"), ThreadId::from("thr_1"));
        Self {
            run: RunState::new(user, thread, Arc::new(definitions), Arc::new(ThreadFold::default()), None),
            drafts: Vec::new(),
            invariants: InvariantChecker::default(),
            models: Vec::new(),
            tools: Vec::new(),
            files: Vec::new(),
            model_requests: Vec::new(),
            tool_requests: Vec::new(),
            tool_answers: Vec::new(),
            file_requests: Vec::new(),
            model_due: BTreeMap::new(),
            now: 1_000,
            label: String::new(),
            next_slot: 0,
            traced: 0,
            input_marks: Vec::new(),
        }
    }

    /// A started run of the agent `demo`.
    pub(crate) fn started(definitions: Definitions) -> Self {
        let mut sim = Self::new(definitions);
        sim.start(Vec::new());
        sim
    }

    /// A started run with tools that the client declared.
    pub(crate) fn start(&mut self, tools: Vec<ClientTool>) {
        self.input(MachineInput::Start(Box::new(start_command(tools))));
    }

    pub(crate) fn input(&mut self, input: MachineInput) {
        self.now += 1;
        // Only a started effect can be answered.
        if let MachineInput::Model { id, .. } = &input {
            self.now = self.model_due.get(id).map_or(self.now, |due| self.now.max(*due));
        }
        self.invariants.before_input(&input);
        let mut out = MachineOutput::new(self.now);
        apply_input(&mut self.run, input, &mut out);
        self.invariants.after_step(&self.run, &out).unwrap_or_else(|why| {
            panic!("{}: {why}\n{}\n{}", self.label, self.full_trace(), event_trace::trace_words(&out.drafts).join(" "))
        });
        for effect in out.effects {
            match effect {
                Effect::CallModel { id, request, not_before } => {
                    self.model_due.extend(not_before.map(|at| (id.clone(), at)));
                    self.models.push(id);
                    self.model_requests.push(*request);
                    self.next_slot = 0;
                }
                Effect::CallTool { id, request } => {
                    self.tools.push(id);
                    self.tool_requests.push(*request);
                }
                Effect::ReadFile { id, request } => {
                    self.files.push(id);
                    self.file_requests.push(request);
                }
                Effect::AnswerTool { id, answer, .. } => self.tool_answers.push((id, answer)),
                Effect::SetTimer { .. } | Effect::Abort(_) => {}
            }
        }
        self.models.retain(|id| self.invariants.outstanding.contains(id));
        self.tools.retain(|id| self.invariants.outstanding.contains(id));
        self.files.retain(|id| self.invariants.outstanding.contains(id));
        self.drafts.extend(out.drafts);
        self.input_marks.push((self.drafts.len(), self.invariants.clone()));
    }

    /// The model that was called last.
    pub(crate) fn last_model(&self) -> EffectId {
        self.models
            .last()
            .cloned()
            .unwrap_or_else(|| panic!("{}: no model is asked\n{}", self.label, self.full_trace()))
    }

    pub(crate) fn delta(&mut self, delta: ModelDelta) {
        let id = self.last_model();
        self.input(MachineInput::Model { id, event: ModelEvent::Delta(delta) });
    }

    pub(crate) fn text(&mut self, slot: u32, pieces: &[&str]) {
        for piece in pieces {
            self.delta(ModelDelta::Text { slot, part: 0, text: (*piece).to_owned(), logprobs: None });
        }
    }

    pub(crate) fn reasoning(&mut self, slot: u32, part: u32, pieces: &[&str]) {
        for piece in pieces {
            self.delta(ModelDelta::Reasoning { slot, part, text: (*piece).to_owned() });
        }
    }

    pub(crate) fn call(&mut self, slot: u32, name: &str, pieces: &[&str]) {
        let item = ModelItemKind::ToolCall { name: name.to_owned(), provider_call_id: None };
        self.delta(ModelDelta::Started { slot, item });
        for piece in pieces {
            self.delta(ModelDelta::Arguments { slot, text: (*piece).to_owned() });
        }
    }

    pub(crate) fn finish_item(&mut self, slot: u32) {
        self.delta(ModelDelta::Done { slot, raw: None });
    }

    /// The model that was called last sends these items, each in a slot of its own.
    pub(crate) fn model_outputs(&mut self, bits: impl IntoIterator<Item = ModelOutput>) {
        for bit in bits {
            if let Some(before) = self.next_slot.checked_sub(1) {
                self.finish_item(before);
            }
            for delta in output_deltas(self.next_slot, &bit) {
                self.delta(delta);
            }
            self.next_slot += 1;
        }
    }

    /// The same, as its complete turn.
    pub(crate) fn model_turn(&mut self, bits: impl IntoIterator<Item = ModelOutput>) {
        self.model_outputs(bits);
        self.end_turn(StopReason::Stop);
    }

    pub(crate) fn end_turn(&mut self, stop: StopReason) {
        let id = self.last_model();
        self.input(model_end(id, stop));
    }

    pub(crate) fn fail_turn(&mut self) {
        let id = self.last_model();
        self.input(model_failure(id));
    }

    /// The model fails with this error.
    pub(crate) fn fail_turn_with(&mut self, code: &str, retryable: bool, retry_after_ms: Option<u64>) {
        let id = self.last_model();
        self.input(model_failure_with(id, code, retryable, retry_after_ms));
    }

    pub(crate) fn finish_tool(&mut self, call: &str, output: ToolOutput) {
        let id = self.running_tool(&call_id(call));
        self.input(MachineInput::Tool { id, event: ToolEvent::End(output) });
    }

    pub(crate) fn tool_event(&mut self, call: &str, event: ToolEvent) {
        let id = self.running_tool(&call_id(call));
        self.input(MachineInput::Tool { id, event });
    }

    pub(crate) fn running_tool(&self, call: &CallId) -> EffectId {
        let running = self.tools.iter().find(|id| matches!(id, EffectId::Tool { call: held, .. } if held == call));
        running.cloned().unwrap_or_else(|| panic!("{}: {call} does not run\n{}", self.label, self.full_trace()))
    }

    pub(crate) fn started_with_files(definitions: Definitions, urls: &[&str]) -> Self {
        let mut sim = Self::new(definitions);
        sim.input(MachineInput::Start(Box::new(StartCommand {
            input: input_with_files(urls),
            ..start_command(Vec::new())
        })));
        sim
    }

    pub(crate) fn finish_file(&mut self, url: &str, words: &str) {
        self.answer_file(url, FileReadOutcome::Read { content: vec![ContentPart::text(words)], message: None });
    }

    pub(crate) fn fail_file(&mut self, url: &str, why: &str) {
        self.answer_file(url, FileReadOutcome::Failed { message: why.to_owned() });
    }

    pub(crate) fn answer_file(&mut self, url: &str, answer: FileReadOutcome) {
        let going = self.files.iter().find(|id| matches!(id, EffectId::File { url: held, .. } if held == url));
        let id = going.cloned().unwrap_or_else(|| panic!("{}: {url} is not read\n{}", self.label, self.full_trace()));
        self.input(MachineInput::File { id, answer });
    }

    pub(crate) fn cancel(&mut self, mode: CancelMode) {
        self.cancel_task(run_id(), mode);
    }

    /// Cancels one task with all its descendants.
    pub(crate) fn cancel_task(&mut self, task_id: TaskId, mode: CancelMode) {
        self.input(MachineInput::Cancel(CancelTask { task_id, mode, by: Initiator::User }));
    }

    pub(crate) fn steer(&mut self, words: &str) {
        self.steer_with(vec![ContentPart::text(words)]);
    }

    pub(crate) fn steer_with(&mut self, input: Vec<ContentPart>) {
        let (task_id, otherwise) = (run_id(), run_id());
        self.input(MachineInput::Steer(SteerCommand { task_id, input, fallback_task_id: otherwise }));
    }

    pub(crate) fn decide(&mut self, key: &str, decision: ApprovalDecision) {
        self.decide_all([(key, decision)]);
    }

    /// Decisions that waited in the inbox, as one input.
    pub(crate) fn decide_all<'a>(&mut self, all: impl IntoIterator<Item = (&'a str, ApprovalDecision)>) {
        let answer = |(label, decision)| approval_answer(approval_key(label), decision);
        self.input(MachineInput::Answers { answers: all.into_iter().map(answer).collect(), inputs: Vec::new() });
    }

    pub(crate) fn submit_client_result(&mut self, call: &str, words: &str) {
        self.input(MachineInput::Answers {
            answers: vec![client_result_answer(call_id(call), words)],
            inputs: Vec::new(),
        });
    }

    /// Advances the clock until this timer fires.
    pub(crate) fn fire_timer(&mut self, timer: TimerId) {
        self.now = timer_deadline(&self.run, &timer).unwrap_or(self.now).max(self.now);
        // The time-out of an approval is an answer like a person's: for an approval that is not pending it is none.
        match &timer {
            TimerId::Approval(key) => {
                self.input(MachineInput::Answers {
                    answers: timeout_answer(&self.run, key).into_iter().collect(),
                    inputs: Vec::new(),
                });
            }
            TimerId::Run(_) => self.input(MachineInput::Timer(timer)),
        }
    }

    pub(crate) fn fire_run_deadline(&mut self) {
        self.fire_timer(TimerId::Run(run_id()));
    }

    /// The process crashes and another one folds the log.
    pub(crate) fn crash(&mut self) {
        let fold = self.run.fold.clone();
        self.restart_from_log();
        assert!(fold == self.run.fold, "{}: the log says what the machine thought\n{}", self.label, self.full_trace());
        self.input(MachineInput::Recovered);
    }

    /// The same, before the records of the last inputs were durable: no client saw them, and none of their tools has
    /// run.
    pub(crate) fn crash_losing_inputs(&mut self, inputs: usize) {
        let keep = self.input_marks.len().saturating_sub(inputs).max(1);
        self.input_marks.truncate(keep);
        let Some((drafts, watch)) = self.input_marks.last().cloned() else { return };
        self.drafts.truncate(drafts);
        self.traced = self.traced.min(drafts);
        self.invariants = watch;
        self.restart_from_log();
        self.input(MachineInput::Recovered);
    }

    /// Continues in a new process that has folded the log from its bytes.
    fn restart_from_log(&mut self) {
        let mut replay = ThreadReplay::default();
        for record in self.records() {
            let Record { seq, at, run, epoch, format: v, checksum: check, public, private, .. } = record;
            replay.push(&Record::from_stored(
                RecordHeader { seq, at, run, epoch, format: v, checksum: check },
                public,
                private,
            ));
        }
        let fold = replay.run.unwrap_or_else(|| panic!("{}: the run is over", self.label));
        let definitions = Arc::clone(&self.run.definitions);
        let (user, thread) = (self.run.user.clone(), self.run.thread.clone());
        let spent = self.run.prior_spend;
        self.run = RunState::new(user, thread, definitions, Arc::new(replay.thread), Some(fold));
        self.run.prior_spend = spent;
        self.invariants.on_crash(&self.run);
        self.tools.clear();
        self.files.clear();
        self.models.clear();
        self.next_slot = 0;
    }

    /// The number of inputs, without those lost in a crash.
    pub(crate) fn input_count(&self) -> usize {
        self.input_marks.len()
    }

    /// Armed timers, the next one first.
    pub(crate) fn armed_timers(&self) -> Vec<TimerId> {
        let mut timers: Vec<TimerId> = outstanding_effects(&self.run)
            .into_iter()
            .filter_map(|id| match id {
                EffectId::Timer(timer) => Some(timer),
                _ => None,
            })
            .collect();
        timers.sort_by_key(|timer| timer_deadline(&self.run, timer));
        timers
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let seal = |draft: &RecordDraft| Record::seal(&self.run.thread, &run_id(), Epoch(1), draft.clone());
        self.drafts.iter().map(seal).collect()
    }

    /// The request of the model that was called last, in short: `user`, `says`, `call_R1`, `fco_R1`.
    pub(crate) fn request_summary(&self) -> String {
        let request = self.model_requests.last().unwrap_or_else(|| panic!("{}: no model was asked", self.label));
        let word = |entry: &HistoryEntry| match entry {
            HistoryEntry::Summary { .. } => "summary".to_owned(),
            HistoryEntry::System { text } => format!("system:{text}"),
            HistoryEntry::User { content } => format!("user:{}", plain_text(content)),
            HistoryEntry::Reasoning { .. } => "thought".to_owned(),
            HistoryEntry::Assistant { text, .. } => format!("said:{text}"),
            HistoryEntry::Call { name, .. } => format!("call:{name}"),
            HistoryEntry::Hosted { name, .. } => format!("hosted:{name}"),
            HistoryEntry::GeneratedImages { content } => format!("drawn:{}", plain_text(content)),
            HistoryEntry::Result { content, .. } => format!("result:{}", plain_text(content)),
        };
        request.history.iter().map(word).collect::<Vec<_>>().join(" | ")
    }

    pub(crate) fn trace(&self) -> Vec<String> {
        event_trace::trace_lines(&self.drafts)
    }

    fn full_trace(&self) -> String {
        event_trace::trace_words(&self.drafts).join(" ")
    }

    /// Asserts the exact trace since the last call, ignoring white space.
    #[track_caller]
    pub(crate) fn expect_trace(&mut self, expected: &str) {
        let told = event_trace::trace_words(&self.drafts[self.traced..]);
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert!(told == expected, "{}\n  told: {}\nwanted: {}", self.label, told.join(" "), expected.join(" "));
        self.traced = self.drafts.len();
    }

    /// Skips the trace so far.
    pub(crate) fn skip_trace(&mut self) {
        self.traced = self.drafts.len();
    }
}

/// The text of some parts, without the reference markers.
fn plain_text(content: &[ContentPart]) -> String {
    let word = |part: &ContentPart| match part {
        ContentPart::Text { text, tags, .. } if tags.is_empty() => Some(text.clone()),
        ContentPart::ImageUrl { .. } => Some("[image]".to_owned()),
        _ => None,
    };
    content.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

/// An output item as the events that a provider sends for it.
pub(crate) fn output_deltas(slot: u32, bit: &ModelOutput) -> Vec<ModelDelta> {
    match bit.clone() {
        ModelOutput::Text(text) => vec![ModelDelta::Text { slot, part: 0, text, logprobs: None }],
        ModelOutput::Reasoning(text) => vec![ModelDelta::Reasoning { slot, part: 0, text }],
        ModelOutput::Call { name, arguments, provider: provider_call_id } => {
            let item = ModelItemKind::ToolCall { name, provider_call_id };
            let (first, second) = arguments.split_at(arguments.floor_char_boundary(arguments.len() / 2));
            let piece = |text: &str| ModelDelta::Arguments { slot, text: text.to_owned() };
            let started = ModelDelta::Started { slot, item };
            vec![started, piece(first), piece(second), ModelDelta::Done { slot, raw: None }]
        }
        ModelOutput::Approval { name, server: server_label, provider: provider_call_id } => {
            let item = json!({"type": "mcp_approval_request", "id": provider_call_id, "name": name});
            let raw = Some(RawItem { origin: "here".to_owned(), item });
            let item = ModelItemKind::HostedApproval { name, server_label, provider_call_id };
            let text = r#"{"q":1}"#.to_owned();
            let started = ModelDelta::Started { slot, item };
            vec![started, ModelDelta::Arguments { slot, text }, ModelDelta::Done { slot, raw }]
        }
        ModelOutput::Computer(text) => {
            let item = ModelItemKind::ComputerCall { provider_call_id: None };
            let started = ModelDelta::Started { slot, item };
            vec![started, ModelDelta::Arguments { slot, text }, ModelDelta::Done { slot, raw: None }]
        }
    }
}

/// The request that starts the runs of these tests.
pub(crate) fn start_command(tools: Vec<ClientTool>) -> StartCommand {
    StartCommand {
        task_id: run_id(),
        agent: "demo".to_owned(),
        input: vec![ContentPart::text("go")],
        previous: None,
        tools,
        metadata: ExactObject::new(),
        display_mode: DisplayMode::Agent,
        client: None,
        origin: None,
        prior_history: None,
        model_settings: model::model_settings::ModelSettings::default(),
        request_echo: None,
        mcp_credentials: Vec::new(),
        state: None,
        context: Vec::new(),
        rewritten_history: None,
        hook_error: None,
    }
}

/// User input that links these files.
pub(crate) fn input_with_files(urls: &[&str]) -> Vec<ContentPart> {
    let file = |url: &&str| ContentPart::File { file: FileRef { url: Some((*url).to_owned()), ..FileRef::default() } };
    std::iter::once(ContentPart::text("go")).chain(urls.iter().map(file)).collect()
}

pub(crate) fn model_end(id: EffectId, stop: StopReason) -> MachineInput {
    let usage = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
    MachineInput::Model {
        id,
        event: ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage, model: None, service_tier: None }),
    }
}

pub(crate) fn model_failure(id: EffectId) -> MachineInput {
    model_failure_with(id, "provider_error", true, None)
}

pub(crate) fn model_failure_with(
    id: EffectId,
    code: &str,
    retryable: bool,
    retry_after_ms: Option<u64>,
) -> MachineInput {
    let error = ErrorInfo { retryable: Some(retryable), ..ErrorInfo::external(code, "down") };
    MachineInput::Model { id, event: ModelEvent::Failed(ModelFailure { error, retry_after_ms }) }
}

pub(crate) fn approval_answer(key: model::ApprovalKey, decision: ApprovalDecision) -> AnswerCommand {
    AnswerCommand {
        task_id: run_id(),
        body: AnswerBody::Approval { key, decision, by: Initiator::User },
        request_echo: None,
        update: None,
        client: None,
    }
}

pub(crate) fn client_result_answer(call_id: CallId, words: &str) -> AnswerCommand {
    let (content, error, acknowledged_checks) = (vec![ContentPart::text(words)], None, Vec::new());
    client_results_answer(vec![ClientToolResult { call_id, content, error, acknowledged_checks }])
}

/// Everything that one request of the client carries.
pub(crate) fn client_results_answer(results: Vec<ClientToolResult>) -> AnswerCommand {
    AnswerCommand {
        task_id: run_id(),
        body: AnswerBody::ClientTools { results },
        request_echo: None,
        update: None,
        client: None,
    }
}
