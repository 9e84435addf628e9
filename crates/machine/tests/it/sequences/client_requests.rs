//! What requests of protocols with their own ids, state and context bring, at the start of a run and with answers.

use crate::fixtures::{agent, agent_tool, build_definitions, call_id, demo_definitions, model_call, model_text};
use crate::sim::{Sim, client_result_answer, start_command};
use machine::{MachineInput, RunState};
use model::TaskId;
use model::command::{AnswerCommand, RequestUpdate, StartCommand};
use model::context::ContextEntry;
use model::definition::{Agent, ClientInstructions};
use model::event::{ClientIds, ClientTool, Event};
use model::model_settings::ModelSettings;
use model::thread::ThreadFold;
use serde_json::{Value, json};
use std::sync::Arc;

fn pick() -> Vec<ClientTool> {
    vec![ClientTool { name: "pick".to_owned(), description: String::new(), parameters: json!({}) }]
}

fn context(value: &str) -> Vec<ContextEntry> {
    vec![ContextEntry { description: "Page".to_owned(), value: value.to_owned() }]
}

fn client_ids(run_id: &str) -> ClientIds {
    ClientIds {
        protocol: "ag-ui".to_owned(),
        thread_id: Some("t-1".to_owned()),
        run_id: Some(run_id.to_owned()),
        message_ids: vec!["m-1".to_owned()],
    }
}

fn started_with(start: StartCommand) -> Sim {
    let mut sim = Sim::new(demo_definitions([]));
    sim.input(MachineInput::Start(Box::new(start)));
    sim
}

/// A run in a thread that had this state before.
fn started_in_thread(state: Value, start: StartCommand) -> Sim {
    let mut sim = Sim::new(demo_definitions([]));
    let (user, name) = (sim.run.user.clone(), sim.run.thread.clone());
    let thread = ThreadFold { state, ..ThreadFold::default() };
    sim.run = RunState::new(user, name, sim.run.definitions.clone(), Arc::new(thread), None);
    sim.input(MachineInput::Start(Box::new(start)));
    sim
}

/// The types of the events, and the states that they set.
fn states_in_order(sim: &Sim) -> Vec<String> {
    let records = sim.records();
    let name = |event: &Event| match event {
        Event::StateSnapshot(e) => Some(e.state.to_string()),
        Event::Created(_) => Some("created".to_owned()),
        Event::Started(_) => Some("started".to_owned()),
        Event::StepStarted(_) => Some("step".to_owned()),
        Event::Resumed(_) => Some("resumed".to_owned()),
        Event::ItemAdded(_) => Some("item".to_owned()),
        _ => None,
    };
    records.iter().filter_map(|record| name(record.event())).collect()
}

#[test]
fn a_run_starts_with_the_state_of_the_client() {
    let start = |state| StartCommand { state, ..start_command(Vec::new()) };
    let first = started_in_thread(Value::Null, start(Some(json!({"a": 1}))));
    assert_eq!(states_in_order(&first), ["created", "started", r#"{"a":1}"#, "step"]);
    let replaced = started_in_thread(json!({"b": 2}), start(Some(json!([1]))));
    assert_eq!(states_in_order(&replaced), ["created", "started", "[1]", "step"]);
}

/// A client that has just been opened has no state, and must not delete the thread's.
#[test]
fn an_empty_state_leaves_that_of_the_thread() {
    for state in [None, Some(Value::Null), Some(json!({}))] {
        let start = StartCommand { state: state.clone(), ..start_command(Vec::new()) };
        let sim = started_in_thread(json!({"b": 2}), start.clone());
        assert_eq!(states_in_order(&sim), ["created", "started", r#"{"b":2}"#, "step"], "{state:?}");
        assert_eq!(states_in_order(&started_with(start)), ["created", "started", "step"], "{state:?}");
    }
}

/// A run that waits for `pick`, with a state and a context.
fn waiting_run() -> Sim {
    let mut sim = started_with(StartCommand {
        state: Some(json!({"a": 1})),
        context: context("cart"),
        client: Some(client_ids("run-a")),
        ..start_command(pick())
    });
    sim.model_turn([model_call("pick", "{}")]);
    sim
}

fn update(state: Option<Value>, context: Option<Vec<ContextEntry>>) -> RequestUpdate {
    let (agent, model_settings) = ("demo".to_owned(), ModelSettings::default());
    RequestUpdate { agent, tools: None, model_settings, state, context }
}

fn answer(sim: &mut Sim, client: Option<ClientIds>, update: RequestUpdate) {
    let answer = client_result_answer(call_id("call_R1"), "red");
    let answer = AnswerCommand { client: client.map(Box::new), update: Some(Box::new(update)), ..answer };
    sim.input(MachineInput::Answers { answers: vec![answer], inputs: Vec::new() });
}

#[test]
fn an_answer_brings_a_state_before_its_effects() {
    for (state, expected) in [
        (Some(json!({"a": 2})), vec!["resumed", r#"{"a":2}"#, "item", "step"]),
        (Some(json!({"a": 1})), vec!["resumed", "item", "step"]),
        (Some(json!({})), vec!["resumed", "item", "step"]),
        (None, vec!["resumed", "item", "step"]),
    ] {
        let mut sim = waiting_run();
        let before = states_in_order(&sim).len();
        answer(&mut sim, None, update(state.clone(), None));
        assert_eq!(states_in_order(&sim)[before..], expected, "{state:?}");
        let resumed = sim.records().into_iter().find(|record| matches!(record.event(), Event::Resumed(_)));
        let private = resumed.and_then(|record| record.private()).expect("the update is kept");
        assert_eq!(private.update.expect("an update").state, None, "it has a record of its own");
    }
}

#[test]
fn the_log_has_the_ids_of_the_client_that_resumed_a_run() {
    let mut sim = waiting_run();
    answer(&mut sim, Some(client_ids("run-b")), update(None, None));
    let ids = |event: &Event| match event {
        Event::Created(e) => e.task.client.clone(),
        Event::Resumed(e) => e.client.clone(),
        _ => None,
    };
    let ids: Vec<ClientIds> = sim.records().iter().filter_map(|record| ids(record.event())).collect();
    assert_eq!(ids, [client_ids("run-a"), client_ids("run-b")]);
}

#[test]
fn the_context_stands_before_the_input_until_another_one_comes() {
    const CART: &str = "user:<context>\n## Page\ncart\n</context> | user:go";
    let mut sim = waiting_run();
    assert_eq!(sim.model_requests.len(), 1);
    assert_eq!(sim.request_summary(), CART);
    sim.crash();
    answer(&mut sim, None, update(None, None));
    assert_eq!(sim.request_summary(), format!("{CART} | call:pick | result:red"), "the log has it");
    for (new, expected) in
        [(context("checkout"), "user:<context>\n## Page\ncheckout\n</context> | user:go"), (Vec::new(), "user:go")]
    {
        let mut sim = waiting_run();
        answer(&mut sim, None, update(None, Some(new)));
        assert_eq!(sim.request_summary(), format!("{expected} | call:pick | result:red"));
    }
}

/// It describes the moment of a request: the next run has its own.
#[test]
fn later_runs_and_sub_agents_do_not_read_the_context() {
    let mut sim = started_with(StartCommand { context: context("cart"), ..start_command(Vec::new()) });
    sim.model_turn([model_text("Hello.")]);
    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    let words: Vec<Value> = thread.history(None, Default::default()).iter().map(|entry| json!(**entry)).collect();
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(!json!(words).to_string().contains("cart"), "{words:?}");

    let definitions = build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]);
    let mut sim = Sim::new(definitions);
    sim.input(MachineInput::Start(Box::new(StartCommand { context: context("cart"), ..start_command(Vec::new()) })));
    sim.model_turn([model_call("ask", r#"{"prompt":"hm?"}"#)]);
    assert_eq!(sim.request_summary(), "user:hm?");
}

/// It is data, and no instruction.
#[test]
fn an_agent_without_instructions_of_clients_reads_the_context() {
    let demo = Agent { client_instructions: ClientInstructions::Forbidden, ..agent("demo", &[]) };
    let mut sim = Sim::new(build_definitions([demo], []));
    sim.input(MachineInput::Start(Box::new(StartCommand { context: context("cart"), ..start_command(Vec::new()) })));
    assert!(sim.request_summary().contains("cart"), "{}", sim.request_summary());
}

#[test]
fn a_run_that_continues_none_reads_nothing_of_the_thread() {
    let mut sim = started_with(start_command(Vec::new()));
    sim.model_turn([model_text("Hello.")]);
    let mut thread = ThreadFold::default();
    thread.add_finished_run(&sim.run.fold);
    let thread = Arc::new(thread);
    for (previous, expected) in [(None, "user:go | said:Hello. | user:go"), (Some(TaskId::no_run()), "user:go")] {
        let mut next = Sim::new(demo_definitions([]));
        let (user, name) = (next.run.user.clone(), next.run.thread.clone());
        next.run = RunState::new(user, name, next.run.definitions.clone(), Arc::clone(&thread), None);
        next.input(MachineInput::Start(Box::new(StartCommand { previous, ..start_command(Vec::new()) })));
        assert_eq!(next.request_summary(), expected);
    }
}
