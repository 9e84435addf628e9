//! Crashes at every input of some scenarios, once, twice or three times: the run ends, complete items stay unchanged,
//! and no tool runs again unannounced.

use crate::fixtures::{
    ModelOutput, agent, agent_tool, approve, build_definitions, edit, idempotent, model_call, needs_approval, reject,
    tool_text, with_handoffs, with_kind,
};
use crate::fixtures::{model_text, tool};
use crate::sim::{
    Sim, approval_answer, client_result_answer, input_with_files, model_end, model_failure, output_deltas,
    start_command,
};
use machine::{EffectId, MachineInput};
use model::command::StartCommand;
use model::content::ContentPart;
use model::definition::OnCrash;
use model::definition::{Definitions, HandoffHistory, Tool, ToolExecutor};
use model::event::{ApprovalDecision, CancelMode, PendingKind, Question, StopReason};
use model::model_turn::{ModelDelta, ModelEvent, ModelRequest};
use model::ports::FileReadOutcome;
use model::question::{InputRequired, ToolQuestion};
use model::tool::ToolEvent;
use model_testing::invariants;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// How the outside answers a run.
struct Scenario {
    name: &'static str,
    /// What the model of a task sends in a turn, by agent and turn.
    turn: fn(&str, u32) -> Vec<ModelOutput>,
    people: fn() -> ApprovalDecision,
    /// The run is cancelled before this input.
    cancel: Option<(usize, CancelMode)>,
    /// Every turn ends at a limit.
    stop: StopReason,
    /// The number of attempts of each turn that fail.
    fails: u32,
    /// The files in the user's input.
    files: &'static [&'static str],
}

const PLAIN: Scenario = Scenario {
    name: "hello",
    turn: |_, _| vec![model_text("Hi")],
    people: approve,
    cancel: None,
    stop: StopReason::Stop,
    fails: 0,
    files: &[],
};

#[expect(clippy::too_many_lines, reason = "one list of cases")]
fn scenarios() -> Vec<Scenario> {
    vec![
        PLAIN,
        Scenario { name: "weather", turn: |_, step| first_turn_calls(step, &[("look", "{}")]), ..PLAIN },
        Scenario {
            name: "parallel",
            turn: |_, step| first_turn_calls(step, &[("look", "{}"), ("again", "{}"), ("look", "{}")]),
            ..PLAIN
        },
        Scenario {
            name: "help",
            turn: |agent, step| match agent {
                "scripted/demo" => first_turn_calls(step, &[("ask", r#"{"prompt":"?"}"#), ("look", "{}")]),
                _ => first_turn_calls(step, &[("again", "{}"), ("look", "{}")]),
            },
            ..PLAIN
        },
        Scenario { name: "handoff", turn: |agent, _| handing_over(agent), ..PLAIN },
        Scenario {
            name: "trade approved",
            turn: |_, step| first_turn_calls(step, &[("trade", "{}"), ("look", "{}")]),
            ..PLAIN
        },
        Scenario {
            name: "trade rejected",
            turn: |_, step| first_turn_calls(step, &[("trade", "{}")]),
            people: || reject("too risky"),
            ..PLAIN
        },
        Scenario {
            name: "trade edited",
            turn: |_, step| first_turn_calls(step, &[("trade", r#"{"n":100}"#)]),
            people: || edit(json!({"n": 1})),
            ..PLAIN
        },
        Scenario {
            name: "nested approval",
            turn: |agent, step| match agent {
                "scripted/demo" => first_turn_calls(step, &[("ask", r#"{"prompt":"?"}"#)]),
                _ => first_turn_calls(step, &[("trade", "{}"), ("pick", "{}")]),
            },
            ..PLAIN
        },
        Scenario { name: "client", turn: |_, step| first_turn_calls(step, &[("pick", "{}"), ("look", "{}")]), ..PLAIN },
        Scenario { name: "asked after a crash", turn: |_, step| first_turn_calls(step, &[("risky", "{}")]), ..PLAIN },
        Scenario {
            name: "failed after a crash",
            turn: |_, step| first_turn_calls(step, &[("fragile", "{}")]),
            ..PLAIN
        },
        Scenario {
            name: "questions",
            turn: |_, step| first_turn_calls(step, &[("survey", "{}"), ("look", "{}")]),
            ..PLAIN
        },
        Scenario {
            name: "declined questions",
            turn: |_, step| first_turn_calls(step, &[("survey", "{}")]),
            people: || reject("no"),
            ..PLAIN
        },
        Scenario {
            name: "a question in mid-call",
            turn: |_, step| first_turn_calls(step, &[("live", "{}"), ("trade", "{}")]),
            ..PLAIN
        },
        Scenario {
            name: "nested questions",
            turn: |agent, step| match agent {
                "scripted/demo" => first_turn_calls(step, &[("ask", r#"{"prompt":"?"}"#)]),
                _ => first_turn_calls(step, &[("survey", "{}"), ("live", "{}")]),
            },
            ..PLAIN
        },
        Scenario {
            name: "nonsense",
            turn: |_, _| vec![model_call("nonsense", "{}"), model_call("look", "{")],
            ..PLAIN
        },
        Scenario {
            name: "limit",
            turn: |_, _| vec![model_text("Once"), model_call("look", "{}")],
            stop: StopReason::MaxTokens,
            ..PLAIN
        },
        Scenario { name: "tried again", turn: |_, step| first_turn_calls(step, &[("look", "{}")]), fails: 1, ..PLAIN },
        Scenario {
            name: "the next model",
            turn: |_, step| first_turn_calls(step, &[("look", "{}")]),
            fails: 4,
            ..PLAIN
        },
        Scenario {
            name: "files",
            turn: |_, step| first_turn_calls(step, &[("look", "{}")]),
            files: &["a", "broken", "c"],
            ..PLAIN
        },
        Scenario {
            name: "cancel while files are read",
            files: &["a"],
            cancel: Some((0, CancelMode::AfterTurn)),
            ..PLAIN
        },
        Scenario { name: "every model is down", fails: u32::MAX, ..PLAIN },
        Scenario {
            name: "cancel between two tries",
            fails: u32::MAX,
            cancel: Some((2, CancelMode::AfterTurn)),
            ..PLAIN
        },
        Scenario {
            name: "cancel",
            turn: |_, step| first_turn_calls(step, &[("look", "{}"), ("trade", "{}")]),
            cancel: Some((7, CancelMode::Immediate)),
            ..PLAIN
        },
        Scenario {
            name: "cancel after the turn",
            turn: |_, step| first_turn_calls(step, &[("look", "{}"), ("ask", r#"{"prompt":"?"}"#)]),
            cancel: Some((6, CancelMode::AfterTurn)),
            ..PLAIN
        },
    ]
}

/// Calls in the first turn, an answer in the next.
fn first_turn_calls(step: u32, calls: &[(&str, &str)]) -> Vec<ModelOutput> {
    let mut bits = vec![ModelOutput::Reasoning("hm".to_owned()), model_text("Let me see. ")];
    if step == 1 {
        bits.extend(calls.iter().map(|(name, arguments)| model_call(name, arguments)));
    }
    bits
}

fn handing_over(agent: &str) -> Vec<ModelOutput> {
    match agent {
        "scripted/demo" => {
            vec![model_text("One moment."), model_call("look", "{}"), model_call("transfer_to_specialist", "{}")]
        }
        _ => vec![model_text("specialist here")],
    }
}

fn crash_definitions() -> Definitions {
    let names = ["look", "again", "trade", "pick", "risky", "fragile", "ask", "survey", "live"];
    let mut demo = with_handoffs(agent("demo", &names), &[("specialist", HandoffHistory::Messages)]);
    demo.models.push("scripted/demo".to_owned());
    let tools = [
        tool("look"),
        idempotent(tool("again")),
        needs_approval(tool("trade")),
        with_kind(tool("pick"), ToolExecutor::Client),
        Tool { on_crash: OnCrash::Ask, ..tool("risky") },
        Tool { on_crash: OnCrash::Fail, ..tool("fragile") },
        agent_tool("ask", "helper"),
        tool("survey"),
        Tool { on_crash: OnCrash::Ask, ..tool("live") },
    ];
    let helper = agent("helper", &["look", "again", "trade", "pick", "survey", "live"]);
    build_definitions([demo, helper, agent("specialist", &[])], tools)
}

/// Answers every effect of a run.
struct ScriptedWorld<'a> {
    scenario: &'a Scenario,
    sim: Sim,
    /// The model deltas still to be sent.
    remaining_deltas: BTreeMap<EffectId, VecDeque<ModelDelta>>,
}

impl<'a> ScriptedWorld<'a> {
    fn new(scenario: &'a Scenario, name: String) -> Self {
        let mut sim = Sim::new(crash_definitions());
        sim.label = name;
        let input = input_with_files(scenario.files);
        sim.input(MachineInput::Start(Box::new(StartCommand { input, ..start_command(Vec::new()) })));
        Self { scenario, sim, remaining_deltas: BTreeMap::new() }
    }

    /// Plays the scenario with `times` crashes before input `at`, and returns the number of inputs.
    fn play(&mut self, at: usize, times: u32) -> usize {
        let mut kept = BTreeMap::new();
        for count in 0.. {
            assert!(count < 500, "{} does not end", self.sim.label);
            if count == at {
                kept = completed_items(&self.sim);
                for _ in 0..times {
                    // A cancel in between, or the third crash, may end it.
                    if !self.sim.run.fold.has_ended() {
                        self.sim.crash();
                    }
                }
            }
            if self.sim.run.fold.has_ended() {
                self.check(&kept);
                return count;
            }
            let input = self.next_input(count);
            self.sim.input(input);
        }
        unreachable!("the loop ends by itself")
    }

    fn next_input(&mut self, count: usize) -> MachineInput {
        if let Some((_, mode)) = self.scenario.cancel.filter(|(at, _)| *at == count) {
            let task_id = crate::fixtures::run_id();
            return MachineInput::Cancel(machine::CancelTask { task_id, mode, by: model::event::Initiator::User });
        }
        if let Some(id) = self.sim.models.last().cloned() {
            return self.next_model_input(id);
        }
        if let Some((id, event)) = self.sim.tools.iter().find_map(|id| Some((id.clone(), self.tool_event(id)?))) {
            return MachineInput::Tool { id, event };
        }
        if let Some(id) = self.sim.files.first().cloned() {
            return MachineInput::File { answer: reads(&id), id };
        }
        let root = self.sim.run.fold.root().expect("the run began");
        let answer = |pending: &model::event::PendingRequest| match (pending.kind, &pending.key) {
            (PendingKind::Approval | PendingKind::Question, Some(key)) => {
                approval_answer(key.clone(), (self.scenario.people)())
            }
            _ => client_result_answer(pending.call_id.clone(), "red"),
        };
        MachineInput::Answers { answers: root.pending.iter().map(answer).collect(), inputs: Vec::new() }
    }

    /// What a tool that runs sends next; `None` while it waits for an answer.
    fn tool_event(&self, id: &EffectId) -> Option<ToolEvent> {
        let EffectId::Tool { call, attempt } = id else { return None };
        let request = self.sim.tool_requests.iter().rev().find(|request| request.call_id == *call)?;
        let pending = machine::pending_requests(&self.sim.run.fold);
        if pending.iter().any(|pending| pending.call_id == *call) {
            return None;
        }
        let question = |id: &str| ToolQuestion { id: id.to_owned(), question: Question::default() };
        let is_answered = self.sim.tool_answers.iter().any(|(told, _)| told == id);
        Some(match (request.name.as_str(), &request.answers) {
            ("survey", None) => {
                let questions = vec![question("first"), question("second")];
                ToolEvent::InputRequired(InputRequired { questions, ..InputRequired::default() })
            }
            ("live", _) if !is_answered && *attempt == 1 => ToolEvent::Question(question("one")),
            _ => ToolEvent::End(tool_text("ok")),
        })
    }

    fn next_model_input(&mut self, id: EffectId) -> MachineInput {
        let turn = self.remaining_deltas.entry(id.clone()).or_insert_with(|| {
            let request = self.sim.model_requests.iter().rev().find(|request| is_of(request, &id));
            let request = request.expect("the model was asked");
            let bits = (self.scenario.turn)(&request.model, request.step);
            (0..).zip(&bits).flat_map(|(slot, bit)| output_deltas(slot, bit)).collect()
        });
        let is_down = matches!(id, EffectId::Model { attempt, .. } if attempt <= self.scenario.fails);
        match turn.pop_front() {
            _ if is_down => model_failure(id),
            Some(delta) => MachineInput::Model { id, event: ModelEvent::Delta(delta) },
            None => model_end(id, self.scenario.stop),
        }
    }

    fn check(&self, kept: &BTreeMap<String, Value>) {
        let name = &self.sim.label;
        let records = self.sim.records();
        invariants::check_one_terminal_event(&records).unwrap_or_else(|why| panic!("{name}: {why}"));
        invariants::check_done_matches_deltas(&records).unwrap_or_else(|why| panic!("{name}: {why}"));
        let after = completed_items(&self.sim);
        for (id, item) in kept {
            assert_eq!(after.get(id).map(as_written), Some(as_written(item)), "{name}: {id} stays as it was");
        }
        for request in &self.sim.tool_requests {
            let runs = self.sim.invariants.starts.get(&request.call_id).copied().unwrap_or_default();
            let may_again = matches!(request.name.as_str(), "again" | "risky" | "live");
            assert!(runs == 1 || may_again, "{name}: {} ran {runs} times", request.name);
        }
    }
}

/// A call with the arguments of the model. Its tool may have started with others since.
fn as_written(item: &Value) -> Value {
    let mut item = item.clone();
    if let Some(written) = item.as_object_mut().and_then(|item| item.remove("original_arguments")) {
        item["arguments"] = written;
    }
    item
}

fn reads(id: &EffectId) -> FileReadOutcome {
    match id {
        EffectId::File { url, .. } if url != "broken" => {
            FileReadOutcome::Read { content: vec![ContentPart::text(format!("{url} is here"))], message: None }
        }
        _ => FileReadOutcome::Failed { message: "gone".to_owned() },
    }
}

fn is_of(request: &ModelRequest, id: &EffectId) -> bool {
    matches!(id, EffectId::Model { task, step, attempt }
        if request.task == *task && request.step == *step && request.attempt == *attempt)
}

/// Every complete item of a complete turn, as clients see it.
fn completed_items(sim: &Sim) -> BTreeMap<String, Value> {
    let mut items = BTreeMap::new();
    for task in &sim.run.fold.tasks {
        let object = sim.run.fold.task_object(&task.id).expect("the task is there");
        let ended = |step: usize| task.steps[step].stop_reason.is_some_and(StopReason::is_complete);
        for fold in task.items.iter().filter(|fold| fold.done && fold.step_index.is_none_or(ended)) {
            let shown = object.output.iter().find(|item| item.id() == fold.item.id());
            items.insert(fold.item.id().to_string(), serde_json::to_value(shown).expect("an item has a JSON text"));
        }
    }
    items
}

#[test]
fn a_run_that_crashes_at_any_input_ends_and_keeps_complete_items() {
    for scenario in scenarios() {
        let inputs = ScriptedWorld::new(&scenario, scenario.name.to_owned()).play(usize::MAX, 0);
        assert!(inputs > 0, "{}", scenario.name);
        for times in 1..=3 {
            for at in 0..inputs {
                let name = format!("{}: dies {times} times before input {at}", scenario.name);
                ScriptedWorld::new(&scenario, name).play(at, times);
            }
        }
    }
}
