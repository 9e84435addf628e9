//! Thousands of random schedules: models, tools, people, clocks, cancels and crashes in any order. The invariants are
//! checked after every input, and every run ends once everything has been answered. `SEED=n` repeats one.

use crate::fixtures::{
    ModelOutput, agent, agent_tool, always, approve, build_definitions, edit, idempotent, needs_approval, reject,
    tool_text, with_handoffs, with_kind,
};
use crate::fixtures::{tool, weather_output};
use crate::sim::{
    Sim, approval_answer, client_result_answer, input_with_files, model_end, model_failure_with, output_deltas,
    start_command,
};
use crate::{event_trace, provider_rules};
use machine::{EffectId, MachineInput, TimerId};
use model::command::{AnswerCommand, StartCommand};
use model::content::ContentPart;
use model::definition::OnCrash;
use model::definition::{ApprovalOnTimeout, Definitions, HandoffHistory, Tool, ToolExecutor, ToolSearchPolicy};
use model::error::ErrorInfo;
use model::event::{ApprovalDecision, CancelMode, Event, Question, StopReason};
use model::item::CallKind;
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::ports::FileReadOutcome;
use model::question::{InputRequired, OnDecline, ToolQuestion};
use model::thread::history_entries;
use model::tool::{PiecePlace, ProgressUpdate, ResultPiece, StateChange, ToolEvent, ToolOutput};
use model::usage::Usage;
use model::{ApprovalKey, CallId, TaskId};
use model_testing::{Rng, invariants, test_seeds};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Schedules per seed: 48 seeds make two thousand.
const SCHEDULES: u64 = 42;
/// The most inputs that a fully answered run may need.
const INPUTS_MAX: usize = 2_000;

/// Three agents that call each other and hand off in circles, with every kind of tool.
fn definitions(rng: &mut Rng) -> Definitions {
    let heirs = [("other", HandoffHistory::Messages), ("third", HandoffHistory::Input)];
    let demo = with_handoffs(agent("demo", &["plain", "gated", "pick", "again", "risky", "ask", "gated_ask"]), &heirs);
    let other = with_handoffs(agent("other", &["plain", "gated", "again", "deeper"]), &[("demo", HandoffHistory::All)]);
    let third = with_handoffs(agent("third", &["fragile", "ask", "gated_pick"]), &[("demo", HandoffHistory::Messages)]);
    let tools = [
        tool("plain"),
        needs_approval(tool("gated")),
        with_kind(tool("pick"), ToolExecutor::Client),
        needs_approval(with_kind(tool("gated_pick"), ToolExecutor::Client)),
        Tool { group: Some("retries".to_owned()), ..idempotent(tool("again")) },
        Tool { on_crash: OnCrash::Ask, approval_on_timeout: ApprovalOnTimeout::Approve, ..tool("risky") },
        Tool { on_crash: OnCrash::Fail, ..tool("fragile") },
        agent_tool("ask", "other"),
        agent_tool("deeper", "third"),
        needs_approval(agent_tool("gated_ask", "third")),
    ];
    let mut definitions = build_definitions([demo, other, third], tools);
    for agent in definitions.agents.values_mut() {
        agent.models.push("scripted/spare".to_owned());
        agent.tool_search = ToolSearchPolicy::On;
    }
    definitions.limits.steps_max = 8;
    definitions.limits.depth_max = 2;
    definitions.limits.descendants_max = 3;
    definitions.limits.parallel_tools_max = rng.choose(16, &[1, 2]);
    definitions.limits.run_tokens_max = rng.choose(None, &[None, None, Some(60)]);
    definitions
}

/// The model deltas still to be sent, and how the turn will end.
struct TurnPlan {
    deltas: VecDeque<ModelDelta>,
    end: TurnEnd,
}

#[derive(Clone, Copy)]
enum TurnEnd {
    Whole,
    Limited,
    Failed,
}

struct RandomWorld {
    sim: Sim,
    rng: Rng,
    plans: BTreeMap<EffectId, TurnPlan>,
    /// Every effect so far, for answers that come too late.
    past_effects: Vec<EffectId>,
    /// The models call tools that do not exist.
    calls_unknown_tools: bool,
    /// No more failures are injected.
    no_faults: bool,
}

impl RandomWorld {
    fn new(seed: u64, number: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(SCHEDULES).wrapping_add(number));
        let mut sim = Sim::new(definitions(&mut rng));
        sim.label = format!("SEED={seed}, schedule {number}");
        let input = if rng.chance(25) { files(&mut rng) } else { start_command(Vec::new()).input };
        sim.input(MachineInput::Start(Box::new(StartCommand { input, ..start_command(Vec::new()) })));
        let stubborn = rng.chance(5);
        Self {
            sim,
            rng,
            plans: BTreeMap::new(),
            past_effects: Vec::new(),
            calls_unknown_tools: stubborn,
            no_faults: false,
        }
    }

    fn is_over(&self) -> bool {
        self.sim.run.fold.has_ended()
    }

    fn run_random_inputs(&mut self) {
        for _ in 0..self.rng.between(20, 160) {
            if self.is_over() {
                return;
            }
            let sim = &self.sim;
            let busy: Vec<EffectId> = sim.models.iter().chain(&sim.tools).chain(&sim.files).cloned().collect();
            self.past_effects.extend(busy.iter().cloned());
            match self.rng.below(1_000) {
                0..880 => match self.rng.pick(&busy).cloned() {
                    Some(id) => self.advance_effect(id),
                    None => self.answer_pending(50),
                },
                880..930 => self.answer_pending(40),
                930..938 => self.sim.steer("and then?"),
                938..945 => {
                    let input = files(&mut self.rng);
                    self.sim.steer_with(input);
                }
                945..947 => self.sim.cancel(CancelMode::Immediate),
                947..952 => self.sim.cancel(CancelMode::AfterTurn),
                952..960 => self.cancel_random_task(),
                960..968 => self.fire_next_timer(),
                968..978 => self.crash(),
                _ => self.send_late_input(),
            }
        }
    }

    /// Cancels one task: a sub-agent if there is one, sometimes an ended or unknown one.
    fn cancel_random_task(&mut self) {
        let below: Vec<TaskId> = self.sim.run.fold.tasks.iter().skip(1).map(|task| task.id.clone()).collect();
        let nobody = TaskId::from("call_nobody");
        let task = self.rng.pick(&below).cloned().unwrap_or(nobody);
        let ended = self.sim.run.fold.task(&task).is_none_or(|task| task.status.is_terminal());
        let before = self.sim.drafts.len();
        let mode = self.rng.choose(CancelMode::Immediate, &[CancelMode::AfterTurn]);
        self.sim.cancel_task(task.clone(), mode);
        let name = &self.sim.label;
        assert!(!ended || self.sim.drafts.len() == before, "{name}: nothing is left to stop of {task}");
        let stands = |id: &TaskId| self.sim.run.fold.task(id).is_some_and(|task| !task.status.is_terminal());
        assert!(mode == CancelMode::AfterTurn || !stands(&task), "{name}: {task} goes on");
    }

    /// Crashes, sometimes repeatedly, sometimes before the last records were durable.
    fn crash(&mut self) {
        // The new process has another clock, which may be behind.
        self.sim.now = self.sim.now.saturating_sub(u64::from(self.rng.between(0, 50)));
        self.plans.clear();
        for _ in 0..self.rng.choose(1, &[1, 1, 3]) {
            match self.rng.below(3) {
                _ if self.is_over() => return,
                0 => self.sim.crash(),
                unwritten => self.sim.crash_losing_inputs(unwritten),
            }
        }
    }

    /// Answers everything without further failures.
    fn settle(&mut self) {
        self.no_faults = true;
        for _ in 0..INPUTS_MAX {
            if self.is_over() {
                return;
            }
            let sim = &self.sim;
            match sim.models.first().or(sim.tools.first()).or(sim.files.first()).cloned() {
                Some(id) => self.advance_effect(id),
                None => self.answer_pending(100),
            }
        }
        panic!("{} does not end: {:#?}", self.sim.label, self.sim.trace());
    }

    fn advance_effect(&mut self, id: EffectId) {
        let input = match &id {
            EffectId::Model { .. } => self.next_model_input(id),
            EffectId::File { .. } => MachineInput::File { id, answer: self.file_answer() },
            _ => {
                let event = self.tool_event();
                MachineInput::Tool { id, event }
            }
        };
        self.sim.input(input);
    }

    fn next_model_input(&mut self, id: EffectId) -> MachineInput {
        if !self.plans.contains_key(&id) {
            let plan = self.plan(&id);
            self.plans.insert(id.clone(), plan);
        }
        let plan = self.plans.get_mut(&id).expect("it was just made");
        match (plan.deltas.pop_front(), plan.end) {
            (Some(delta), _) => MachineInput::Model { id, event: ModelEvent::Delta(delta) },
            (None, TurnEnd::Failed) => self.fail_model(id),
            (None, TurnEnd::Limited) => {
                model_end(id, self.rng.choose(StopReason::MaxTokens, &[StopReason::ContentFilter]))
            }
            (None, TurnEnd::Whole) => model_end(id, self.rng.choose(StopReason::Stop, &[StopReason::ToolCalls])),
        }
    }

    /// A short outage, a long one, a permanent one, or a refusal.
    fn fail_model(&mut self, id: EffectId) -> MachineInput {
        let (code, retryable) = self.rng.choose(
            ("provider_error", true),
            &[("provider_error", true), ("overloaded", true), ("provider_auth", false), ("provider_refused", false)],
        );
        let retry_after_ms = self.rng.choose(None, &[None, Some(5_000), Some(3_600_000)]);
        model_failure_with(id, code, retryable, retry_after_ms)
    }

    fn plan(&mut self, id: &EffectId) -> TurnPlan {
        if self.no_faults {
            let deltas = output_deltas(0, &crate::fixtures::model_text("That is all.")).into();
            return TurnPlan { deltas, end: TurnEnd::Whole };
        }
        let request = self.sim.model_requests.iter().rev().find(|request| {
            matches!(id, EffectId::Model { task, step, attempt }
                if request.task == *task && request.step == *step && request.attempt == *attempt)
        });
        let names = match self.calls_unknown_tools {
            true => vec!["nonsense".to_owned()],
            false => names(request.expect("the model was asked")),
        };
        let bits: Vec<ModelOutput> = (0..self.rng.between(0, 5)).map(|_| self.random_output(&names)).collect();
        let mut said: VecDeque<ModelDelta> =
            (0..).zip(&bits).flat_map(|(slot, random_output)| output_deltas(slot, random_output)).collect();
        if self.rng.chance(30) {
            said.push_front(ModelDelta::Usage(Usage { input_tokens: 5, ..Usage::default() }));
        }
        let end = if self.rng.chance(6) {
            self.rng.choose(TurnEnd::Limited, &[TurnEnd::Failed, TurnEnd::Failed])
        } else {
            TurnEnd::Whole
        };
        if !matches!(end, TurnEnd::Whole) {
            said.truncate(self.rng.below(said.len() + 1));
        }
        // Before anything is shown, the turn can be retried.
        if matches!(end, TurnEnd::Failed) && self.rng.chance(60) {
            said.retain(|delta| matches!(delta, ModelDelta::Usage(_)));
        }
        TurnPlan { deltas: said, end }
    }

    fn random_output(&mut self, names: &[String]) -> ModelOutput {
        match self.rng.below(10) {
            0..2 => ModelOutput::Text(self.rng.choose("So it is.[^1] ", &["é🦀", "[^", "2] and [^2]"]).to_owned()),
            2 => ModelOutput::Reasoning("hm".to_owned()),
            3 if self.rng.chance(30) => {
                let provider = self.rng.choose(None, &[Some("q1"), Some("q2"), Some("q3")]).map(str::to_owned);
                // One has the name of a tool that needs no approval.
                let name = self.rng.choose("search", &["plain"]).to_owned();
                ModelOutput::Approval { name, server: self.rng.choose("docs", &["wiki"]).to_owned(), provider }
            }
            3 if self.rng.chance(20) => ModelOutput::Computer(r#"{"actions":[]}"#.to_owned()),
            _ => {
                let good = [r#"{"n":2}"#, r#"{"prompt":"go"}"#, r#"{"prompt":""}"#, r#"{"query":"again"}"#, "{}"];
                let bad = [r#"{"n":"x"}"#, "{", "[]"];
                let name = self.rng.pick(names).cloned().unwrap_or_default();
                let arguments =
                    if self.rng.chance(10) { self.rng.choose("", &bad) } else { self.rng.choose("{}", &good) };
                let provider = self.rng.choose(None, &[None, None, Some("p1"), Some("p2"), Some("")]);
                let (arguments, provider) = (arguments.to_owned(), provider.map(str::to_owned));
                ModelOutput::Call { name, arguments, provider }
            }
        }
    }

    fn file_answer(&mut self) -> FileReadOutcome {
        let read = |words: &str| FileReadOutcome::Read { content: vec![ContentPart::text(words)], message: None };
        match self.rng.below(4) {
            0 => FileReadOutcome::Failed { message: "gone".to_owned() },
            1 => read(" "),
            _ => read("</referencable-item> and so on"),
        }
    }

    fn tool_event(&mut self) -> ToolEvent {
        let part = |words: &str, id| ContentPart::Text { text: words.to_owned(), id, tags: Vec::new() };
        match self.rng.below(if self.no_faults { 6 } else { 14 }) {
            0 => ToolEvent::End(ToolOutput::from_error(ErrorInfo::external("broken", "It broke."))),
            1 => ToolEvent::End(ToolOutput::default()),
            2 => ToolEvent::End(weather_output()),
            3 => {
                let message_content = vec![part("a", Some(1)), part("", None), part("b", Some(2))];
                ToolEvent::End(ToolOutput { message_content, ..ToolOutput::default() })
            }
            4 | 5 => ToolEvent::End(tool_text("ok")),
            6 => ToolEvent::State(StateChange::Snapshot(json!({"n": 1}))),
            7 => ToolEvent::State(StateChange::Delta(vec![json!({"op": "add", "path": "/m", "value": 1})])),
            8 if self.rng.chance(50) => self.result_piece(),
            8 => ToolEvent::Custom { name: "x".to_owned(), value: json!(1) },
            9 => {
                let questions = (0..self.rng.between(0, 3)).map(|n| random_question(&mut self.rng, n)).collect();
                let on_decline = self.rng.choose(OnDecline::CallAgain, &[OnDecline::Reject]);
                let state = self.rng.chance(50).then(|| "opaque".to_owned());
                ToolEvent::InputRequired(InputRequired { questions, state, on_decline })
            }
            10 => ToolEvent::Question(random_question(&mut self.rng, 0)),
            11 => ToolEvent::QuestionWithdrawn,
            12 => ToolEvent::Lost(ErrorInfo::external("gone", "It is gone.")),
            _ => ToolEvent::Progress(ProgressUpdate::default()),
        }
    }

    /// A piece of a result, in the open block or in a new one.
    fn result_piece(&mut self) -> ToolEvent {
        let url = || "data:image/png;base64,iV".to_owned();
        let piece = match self.rng.below(4) {
            0 => ResultPiece::Image { url: url(), partial: Some(1) },
            1 => ResultPiece::Image { url: url(), partial: None },
            _ => ResultPiece::Text(self.rng.choose("a piece", &["", "</referencable-item>"]).to_owned()),
        };
        ToolEvent::Piece { piece, place: self.rng.choose(PiecePlace::OpenBlock, &[PiecePlace::NewBlock]) }
    }

    /// Answers some of the pending requests in one input; some answers are invalid.
    fn answer_pending(&mut self, percent: u32) {
        let mut answers: Vec<AnswerCommand> = Vec::new();
        for key in open_questions(&self.sim) {
            if self.rng.chance(percent) {
                answers.push(approval_answer(key, self.decision()));
            }
        }
        for call in client_calls(&self.sim) {
            if self.rng.chance(percent) {
                let words = self.rng.choose("red", &[""]);
                answers.push(client_result_answer(call, words));
            }
        }
        if !self.no_faults && self.rng.chance(20) {
            answers.push(approval_answer(ApprovalKey::from("apr_nobody"), approve()));
            let calls = self.sim.run.fold.tasks.iter().flat_map(|task| task.calls());
            let calls: Vec<CallId> = calls.map(|(_, call)| call.call_id.clone()).collect();
            if let Some(call) = self.rng.pick(&calls) {
                answers.push(approval_answer(call.approval_key(), always(approve())));
                answers.push(client_result_answer(call.clone(), "mine"));
            }
        }
        self.sim.input(MachineInput::Answers { answers, inputs: Vec::new() });
    }

    fn decision(&mut self) -> ApprovalDecision {
        let decision = match self.rng.below(4) {
            0 | 1 => approve(),
            2 => reject("no"),
            _ => edit(self.rng.pick(&[json!({"n": 3}), json!({"n": "x"}), json!(null)]).cloned().unwrap_or_default()),
        };
        if self.rng.chance(15) { always(decision) } else { decision }
    }

    /// Fires the next timer. The run's own deadline is far away: it fires less often.
    fn fire_next_timer(&mut self) {
        let Some(timer) = self.sim.armed_timers().into_iter().next() else { return };
        if matches!(timer, TimerId::Approval(_)) || self.rng.chance(5) {
            self.sim.fire_timer(timer);
        }
    }

    /// Repeats an earlier answer, or answers a request that never existed.
    fn send_late_input(&mut self) {
        let running = |id: &EffectId| self.sim.invariants.outstanding.contains(id);
        let late: Vec<EffectId> = self.past_effects.iter().filter(|id| !running(id)).cloned().collect();
        let input = match self.rng.pick(&late).cloned() {
            Some(id @ EffectId::Model { .. }) => model_end(id, StopReason::Stop),
            Some(id @ EffectId::File { .. }) => {
                MachineInput::File { id, answer: FileReadOutcome::Failed { message: String::new() } }
            }
            Some(id) => MachineInput::Tool { id, event: ToolEvent::End(tool_text("late")) },
            None => MachineInput::Timer(TimerId::Run(TaskId::from("task_before"))),
        };
        let before = self.sim.drafts.len();
        self.sim.input(input);
        assert_eq!(self.sim.drafts.len(), before, "{}: what answers nothing is ignored", self.sim.label);
    }

    fn check(&self) {
        let name = &self.sim.label;
        let records = self.sim.records();
        invariants::check_one_terminal_event(&records).unwrap_or_else(|why| panic!("{name}: {why}"));
        invariants::check_done_matches_deltas(&records).unwrap_or_else(|why| panic!("{name}: {why}"));
        let root = self.sim.run.fold.root().expect("the run began");
        provider_rules::check_history(&history_entries(root))
            .unwrap_or_else(|why| panic!("{name}: the next run: {why}"));
    }
}

/// A question with a usable schema, or with none, or sometimes with one that nobody can answer.
fn random_question(rng: &mut Rng, number: u32) -> ToolQuestion {
    let kind = rng.choose(None, &[Some("object"), Some("object"), Some("string")]);
    let schema = kind.map(|kind| json!({"type": kind}));
    ToolQuestion {
        id: format!("q{number}"),
        question: Question { message: "Which one?".to_owned(), schema, url: None },
    }
}

/// Files in the input: perhaps one twice, or one that was read before.
fn files(rng: &mut Rng) -> Vec<ContentPart> {
    let urls: Vec<&str> = (0..rng.between(1, 3)).map(|_| rng.choose("a", &["b", "c"])).collect();
    input_with_files(&urls)
}

/// What a model may call, and what it may not.
fn names(request: &ModelRequest) -> Vec<String> {
    let names = request.tools.iter().map(|tool| tool.name.clone());
    names.chain(["fragile".to_owned(), "nonsense".to_owned()]).collect()
}

fn open_questions(sim: &Sim) -> Vec<ApprovalKey> {
    let asked = sim.run.fold.tasks.iter().flat_map(|task| &task.approvals);
    asked.filter(|(_, answer)| answer.is_none()).map(|(asked, _)| asked.key.clone()).collect()
}

fn client_calls(sim: &Sim) -> Vec<CallId> {
    let calls = sim.run.fold.tasks.iter().flat_map(|task| task.calls().map(move |(_, call)| (task, call)));
    let open = calls.filter(|(task, call)| {
        call.kind == Some(CallKind::Client) && task.result(&call.call_id).is_none() && !task.status.is_terminal()
    });
    open.map(|(_, call)| call.call_id.clone()).collect()
}

/// Among all invariants (see `invariants`): no tool that needs approval ever starts without one.
#[test]
fn every_random_schedule_ends_with_a_valid_log() {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let (mut count, mut inputs) = (0_u64, 0);
    for seed in test_seeds() {
        for number in 0..SCHEDULES {
            let mut world = RandomWorld::new(seed, number);
            world.run_random_inputs();
            world.settle();
            world.check();
            seen.extend(
                event_trace::trace_words(&world.sim.drafts)
                    .iter()
                    .flat_map(|word| [word_without_ids(word), with_scope(word)]),
            );
            // Only pieces of results have them here.
            let previews = world.sim.drafts.iter().filter(|draft| matches!(draft.event, Event::ImageDelta(_)));
            seen.extend(previews.map(|_| "image.delta".to_owned()));
            let calls = world.sim.run.fold.tasks.iter().flat_map(|task| task.calls());
            seen.extend(calls.filter(|(_, call)| call.kind == Some(CallKind::ToolSearch)).map(|_| "search".to_owned()));
            count += 1;
            inputs += world.sim.input_count();
        }
    }
    if count > SCHEDULES {
        let missing: Vec<&str> = EVERYTHING.split_whitespace().filter(|word| !seen.contains(*word)).collect();
        assert!(missing.is_empty(), "{missing:?} never happened in {count} schedules of {inputs} inputs: {seen:?}");
    }
}

/// What must have happened somewhere, or these schedules prove little.
const EVERYTHING: &str = "
    completed cancelled{immediate,user} cancelled{after_turn,user} failed{provider_error} failed{interrupted}
    failed{provider_refused} failed{invalid_tool_calls} retrying below/retrying{1,2,overloaded}
    below/retrying{1,2,provider_auth} incomplete{max_steps} incomplete{max_tokens} incomplete{content_filter}
    incomplete{budget} incomplete{deadline} paused resumed{user} resumed{timeout} resumed{cancel} resumed{system}
    cancelling question answered fco{failed,invalid_question}
    recovered input.added agent.updated search image.delta tool.progress state.snapshot state.delta custom
    fco{completed} fco{failed,broken} fco{failed,interrupted} fco{failed,unknown_tool} fco{failed,invalid_arguments}
    fco{failed,outcome_unknown} fco{failed,duplicate_call_id} fco{failed,handoff_ignored} fco{failed,depth_limit}
    fco{failed,descendants_limit} fco{failed,provider_error} fco{rejected,rejected} fco{rejected,approval_timeout}
    fco{rejected,cancelled} fco{incomplete,cancelled} fco{incomplete,deadline} fco{incomplete,limit}
    fco{incomplete,max_tokens} fco{unknown,outcome_unknown}
    fp{} fp{incomplete,cancelled} fp{incomplete,limit} file_processing.updated{a,completed}
    file_processing.updated{a,failed} file_processing.updated{a,processing}
    below/cancelling{after_turn} below/cancelled{immediate,user} below/cancelled{after_turn,user}";

/// The same for events of some tasks only: whether the run's own task or a sub-agent had it.
fn with_scope(word: &str) -> String {
    word.rsplit_once('/').map_or_else(|| word.to_owned(), |(_, word)| format!("below/{word}"))
}

/// A word of a trace without the ids and numbers of this run.
fn word_without_ids(word: &str) -> String {
    let word = word.rsplit('/').next().unwrap_or(word);
    let (name, details) =
        word.split_once('{').map_or((word, ""), |(name, details)| (name, details.trim_end_matches('}')));
    let is_question = details.split(',').next().is_some_and(|key| key.matches('_').count() == 2);
    match name.split_once('_') {
        _ if name == "approval.requested" && is_question => "question".to_owned(),
        _ if name == "approval.resolved" && is_question && details.contains("approve") => "answered".to_owned(),
        Some(("fco", _)) => format!("fco{{{details}}}"),
        Some(("fp", _)) => format!("fp{{{details}}}"),
        Some(("fc" | "msg" | "rs", _)) => "item".to_owned(),
        _ if matches!(name, "cancelled" | "failed" | "incomplete" | "resumed") => word.to_owned(),
        _ => name.to_owned(),
    }
}
