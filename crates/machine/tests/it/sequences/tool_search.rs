//! Many tools: the model is given a few of them and finds the others.

use super::result_of;
use crate::fixtures::{
    agent, build_definitions, call_id, demo_definitions, model_call, model_text, needs_approval, tool, tool_text,
    with_handoffs, with_kind,
};
use crate::sim::{Sim, start_command};
use machine::MachineInput;
use model::CallId;
use model::command::StartCommand;
use model::content::ContentPart;
use model::definition::{Definitions, HandoffHistory, Tool, ToolExecutor, ToolSearchPolicy};
use model::event::{ClientTool, StopReason};
use model::history::{HistoryEntry, PriorHistory};
use model::item::{Block, CallKind, ResultStatus};
use model::model_settings::{ModelSettings, ToolChoice};
use serde_json::{Value, json};

const SUBJECTS: [&str; 3] = ["files", "crm", "clock"];

/// A hundred tools of each subject, and two without a group.
fn crowd() -> Vec<Tool> {
    let mut tools: Vec<Tool> = SUBJECTS
        .iter()
        .flat_map(|group| (0..100).map(move |n| in_group(tool(&format!("{group}_{n}")), group)))
        .collect();
    let mut invoice = in_group(tool("crm_get_invoice"), "crm");
    invoice.spec.description = "Returns an invoice by its number. Slow.".to_owned();
    tools.extend([invoice, tool("plain"), needs_approval(tool("gated"))]);
    tools
}

fn in_group(tool: Tool, group: &str) -> Tool {
    Tool { group: Some(group.to_owned()), ..tool }
}

fn with_policy(mut definitions: Definitions, policy: ToolSearchPolicy) -> Definitions {
    definitions.agents.values_mut().for_each(|agent| agent.tool_search = policy);
    definitions
}

/// The tools that the last turn was given.
fn declared(sim: &Sim) -> Vec<String> {
    let request = sim.model_requests.last().expect("a model was asked");
    request.tools.iter().map(|spec| spec.name.clone()).collect()
}

fn instructions(sim: &Sim) -> &str {
    &sim.model_requests.last().expect("a model was asked").instructions
}

fn search(query: &str) -> crate::fixtures::ModelOutput {
    model_call("tool_search", &json!({ "query": query }).to_string())
}

#[test]
fn a_model_with_many_tools_finds_the_one_that_it_needs() {
    let mut sim = Sim::started(demo_definitions(crowd()));
    assert_eq!(declared(&sim), ["plain", "gated", "tool_search"]);
    let text = instructions(&sim);
    assert!(
        text.contains("Namespace `crm` (101):") && text.contains("crm_get_invoice: Returns an invoice by its number")
    );
    sim.model_turn([search("invoice number")]);
    sim.expect_trace("created started step.started{1} fc_R1 step.done{1,tool_calls} fco_R1{completed} step.started{2}");
    assert_eq!(declared(&sim), ["plain", "gated", "tool_search", "crm_get_invoice"]);
    assert_eq!(instructions(&sim), sim.model_requests[0].instructions, "a cached prompt stays valid");
    let root = sim.run.fold.root().unwrap();
    assert_eq!(root.call(&call_id("call_R1")).unwrap().1.kind, Some(CallKind::ToolSearch));
    let result = result_of(&sim, "call_R1");
    let found = &result.artifact.as_ref().unwrap()["tools"];
    assert_eq!((&found[0]["name"], &found[0]["namespace"]), (&json!("crm_get_invoice"), &json!("crm")));
    assert_eq!(found[0]["parameters"]["properties"]["n"]["type"], "integer");
    let Some([Block::Text(shown)]) = result.block_list.as_deref() else { panic!("{result:?}") };
    assert_eq!((shown.text(), shown.id), ("crm_get_invoice: Returns an invoice by its number", None));
    sim.model_turn([model_call("crm_get_invoice", r#"{"n":7}"#)]);
    sim.expect_trace("fc_R2 step.done{2,tool_calls} tool.started{call_R2}");
    assert!(sim.tool_requests.last().is_some_and(|request| request.name == "crm_get_invoice"));
}

#[test]
fn what_was_found_stays_found_after_a_crash_and_in_the_next_run() {
    let mut sim = Sim::started(demo_definitions(crowd()));
    sim.model_turn([search("crm_7, files_3")]);
    sim.model_turn([search("clock_1")]);
    let loaded = ["plain", "gated", "tool_search", "crm_7", "files_3", "clock_1"];
    assert_eq!(declared(&sim)[..5], loaded[..5]);
    sim.crash();
    let after: Vec<String> = declared(&sim);
    assert_eq!(after[..5], loaded[..5]);
    assert!(after.contains(&"clock_1".to_owned()));
    let entries: Vec<HistoryEntry> = sim.model_requests.last().unwrap().history.iter().cloned().collect();
    let prior_history = Some(PriorHistory { entries, reference_count: 0 });
    let mut next = Sim::new(demo_definitions(crowd()));
    next.input(MachineInput::Start(Box::new(StartCommand { prior_history, ..start_command(Vec::new()) })));
    assert_eq!(declared(&next), after);
}

#[test]
fn a_tool_that_was_never_loaded_runs_and_is_declared_from_then_on() {
    let mut sim = Sim::started(demo_definitions(crowd()));
    sim.model_turn([model_call("files_42", "{}")]);
    sim.finish_tool("call_R1", tool_text("read"));
    assert_eq!(declared(&sim), ["plain", "gated", "tool_search", "files_42"]);
    sim.model_turn([model_call("files_4x", "{}")]);
    let result = result_of(&sim, "call_R2");
    let message = &result.error.as_ref().unwrap().message;
    assert_eq!(
        (result.status, message.as_str()),
        (Some(ResultStatus::Failed), "There is no tool `files_4x` here. Find one with `tool_search`.")
    );
}

#[test]
fn a_turn_never_declares_more_than_thirty_schemas() {
    let mut tools = crowd();
    tools.extend((0..40).map(|n| tool(&format!("own_{n}"))));
    let mut sim = Sim::started(demo_definitions(tools));
    for turn in 0..6 {
        let names: Vec<String> = (turn * 8..turn * 8 + 8).map(|n| format!("files_{n}")).collect();
        let arguments = json!({ "query": names.join(" "), "limit": 8 }).to_string();
        sim.model_turn([model_call("tool_search", &arguments)]);
        assert!(declared(&sim).len() < 30, "{:?}", declared(&sim));
        assert!(names.iter().all(|name| declared(&sim).contains(name)), "what was found last is declared");
    }
    assert!(!declared(&sim).contains(&"files_0".to_owned()));
}

#[test]
fn a_search_that_finds_nothing_says_where_to_look() {
    let mut sim = Sim::started(demo_definitions(crowd()));
    sim.model_turn([search("zeppelin"), model_call("tool_search", r#"{"query":"5","namespace":"CLOCK","limit":1}"#)]);
    let told = sim.request_summary();
    assert!(
        told.contains("No tool matches. Search with other words. The namespaces are: clock, crm, files."),
        "{told}"
    );
    assert_eq!(declared(&sim), ["plain", "gated", "tool_search", "clock_5"]);
    sim.model_turn([model_call("tool_search", r#"{"limit":99}"#)]);
    assert_eq!(result_of(&sim, "call_R3").error.unwrap().code, "invalid_arguments");
}

#[test]
fn the_operator_says_when_tools_are_searched() {
    let few = || demo_definitions([in_group(tool("grouped"), "g"), tool("plain")]);
    let given = |definitions: Definitions| declared(&Sim::started(definitions));
    assert_eq!(given(few()), ["grouped", "plain"]);
    assert_eq!(given(with_policy(few(), ToolSearchPolicy::On)), ["plain", "tool_search"]);
    assert_eq!(given(with_policy(demo_definitions([tool("plain")]), ToolSearchPolicy::On)), ["plain"]);
    let all = given(with_policy(demo_definitions(crowd()), ToolSearchPolicy::Off));
    assert_eq!(all.len(), 303);
    let mut long = tool("long");
    long.spec.description = "x".repeat(50_000);
    let long: Vec<Tool> = [in_group(long, "g"), in_group(tool("short"), "g")].into();
    assert_eq!(given(demo_definitions(long)), ["tool_search"]);
}

#[test]
fn a_tool_of_that_name_takes_the_place_of_the_search() {
    let mut tools = crowd();
    tools.push(tool("tool_search"));
    let mut sim = Sim::started(demo_definitions(tools));
    assert_eq!(declared(&sim).len(), 304);
    sim.model_turn([model_call("tool_search", "{}")]);
    assert!(sim.tool_requests.last().is_some_and(|request| request.name == "tool_search"));
    let mut sim = Sim::started(demo_definitions([tool("plain")]));
    sim.model_turn([search("plain")]);
    assert_eq!(result_of(&sim, "call_R1").error.unwrap().code, "unknown_tool");
}

#[test]
fn hand_offs_sub_agents_and_forced_tools_are_always_declared() {
    let own: Vec<Tool> = (0..30).map(|n| tool(&format!("own_{n}"))).collect();
    let mut names: Vec<&str> = own.iter().map(|tool| tool.spec.name.as_str()).collect();
    names.push("other");
    let demo = with_handoffs(agent("demo", &names), &[("other", HandoffHistory::All)]);
    let definitions = build_definitions([demo, agent("other", &[])], own.clone());
    let sim = Sim::started(definitions.clone());
    let given = declared(&sim);
    assert_eq!(
        (given.len(), &given[0], &given[10], &given[11]),
        (13, &"own_0".to_owned(), &"other".to_owned(), &"transfer_to_other".to_owned())
    );
    let tool_choice = Some(ToolChoice::Tool { name: "own_29".to_owned() });
    let model_settings = ModelSettings { tool_choice, ..ModelSettings::default() };
    let mut sim = Sim::new(definitions);
    sim.input(MachineInput::Start(Box::new(StartCommand { model_settings, ..start_command(Vec::new()) })));
    assert_eq!(declared(&sim).last().map(String::as_str), Some("own_29"));
}

#[test]
fn tools_of_the_client_are_searched_like_others_and_found_by_the_client() {
    let declare = |n: usize| ClientTool {
        name: format!("pick_{n}"),
        description: format!("Picks number {n}."),
        parameters: json!({"type": "object"}),
    };
    let mut sim = Sim::new(demo_definitions([with_kind(tool("plain"), ToolExecutor::Builtin)]));
    sim.start((0..40).map(declare).collect());
    assert_eq!(declared(&sim).len(), 13);
    sim.model_turn([search("pick_33")]);
    assert!(declared(&sim).contains(&"pick_33".to_owned()));
    sim.model_turn([model_call("pick_33", "{}")]);
    sim.submit_client_result("call_R2", "red");
    sim.model_turn([model_text("Red.")]);
    assert!(sim.run.fold.has_ended());
}

/// A search is answered in the turn that asks for it: a run that stops after this turn still has a valid history.
#[test]
fn a_search_is_answered_in_a_run_that_is_being_cancelled() {
    let mut sim = Sim::started(demo_definitions(crowd()));
    sim.call(0, "tool_search", &[r#"{"query":"crm_1"}"#]);
    sim.finish_item(0);
    sim.cancel(model::event::CancelMode::AfterTurn);
    sim.end_turn(StopReason::ToolCalls);
    sim.expect_trace(
        "created started step.started{1} fc_R1 cancelling{after_turn} step.done{1,tool_calls} fco_R1{completed}
         cancelled{after_turn,user}",
    );
}

/// The schemas in a result are bounded; what is declared is not.
#[test]
fn a_long_schema_is_declared_but_not_shown() {
    let mut long = in_group(tool("long"), "g");
    long.spec.parameters = json!({"type": "object", "description": "x".repeat(60_000)});
    let mut sim =
        Sim::started(with_policy(demo_definitions([long, in_group(tool("short"), "g")]), ToolSearchPolicy::On));
    sim.model_turn([search("long short")]);
    let found = result_of(&sim, "call_R1").artifact.unwrap();
    let schemas: Vec<bool> =
        found["tools"].as_array().unwrap().iter().map(|tool: &Value| tool.get("parameters").is_some()).collect();
    assert_eq!(schemas, [false, true]);
    assert_eq!(declared(&sim), ["tool_search", "long", "short"]);
    assert!(sim.model_requests.last().unwrap().tools[1].parameters.to_string().len() > 60_000);
}

/// A client that resends a history may claim any result: it loads tools of the agent, and no others.
#[test]
fn a_resent_result_loads_no_tool_of_another_agent() {
    let call = CallId::from("call_theirs");
    let told = json!({"tools": [{"name": "secret"}, {"name": "crm_5"}, {"name": 5}]}).to_string();
    let entries = vec![
        HistoryEntry::User { content: vec![ContentPart::text("hi")] },
        HistoryEntry::Call {
            call_id: call.clone(),
            name: "tool_search".to_owned(),
            arguments: "{}".to_owned(),
            provider_call_id: None,
            raw: None,
        },
        HistoryEntry::Result {
            call_id: call,
            status: ResultStatus::Completed,
            content: vec![ContentPart::text(told)],
            acknowledged_checks: None,
        },
    ];
    let mut definitions = demo_definitions(crowd());
    definitions.tools.insert("secret".to_owned(), tool("secret"));
    let mut sim = Sim::new(definitions);
    let prior_history = Some(PriorHistory { entries, reference_count: 0 });
    sim.input(MachineInput::Start(Box::new(StartCommand { prior_history, ..start_command(Vec::new()) })));
    assert_eq!(declared(&sim), ["plain", "gated", "tool_search", "crm_5"]);
}
