//! The order of records, scenario by scenario. The short ones are here; each submodule has its own subject.

mod agents;
mod approvals;
mod arguments;
mod cancels;
mod child_cancels;
mod client_requests;
mod clients;
mod crashes;
mod files;
mod handoffs;
mod hosted;
mod limits;
mod live_questions;
mod mcp;
mod questions;
mod results;
mod retries;
mod streams;
mod tool_search;
mod turns;

use crate::fixtures::{demo_definitions, model_call, model_text, tool, tool_text, weather_output};
use crate::sim::Sim;
use model::definition::{Definitions, Tool};
use model::event::{CancelMode, Event, StopReason};
use model::history::HistoryEntry;
use model::item::{Item, ResultStatus};
use model::thread::history_entries;

/// One agent with one tool; another tool belongs to another agent.
fn weather_definitions() -> Definitions {
    let weather = Tool { display_name: Some("Weather".to_owned()), ..tool("get_weather") };
    let mut definitions = demo_definitions([weather]);
    definitions.tools.insert("other".to_owned(), tool("other"));
    definitions
}

#[test]
fn hello() {
    let mut sim = Sim::started(weather_definitions());
    sim.text(0, &["Hi ", "there"]);
    sim.end_turn(StopReason::Stop);
    assert_eq!(
        sim.trace(),
        [
            "created",
            "started",
            "step.started{1}",
            "item+ msg_R1",
            "text.added",
            "text.delta \"Hi \"",
            "text.delta \"there\"",
            "text.done \"Hi there\"",
            "item- msg_R1",
            "step.done{1,stop}",
            "completed"
        ]
    );
}

#[test]
fn weather() {
    let mut sim = Sim::started(weather_definitions());
    sim.reasoning(0, 0, &["Thinking about the weather ", "in Paris."]);
    sim.reasoning(0, 1, &["Decided to call ", "get_weather function."]);
    sim.finish_item(0);
    sim.call(1, "get_weather", &["{\"location\":", "\"Paris, France\"}"]);
    sim.finish_item(1);
    sim.end_turn(StopReason::Stop); // whatever the provider says: complete calls make it `tool_calls`
    sim.finish_tool("call_R2", weather_output());
    sim.text(0, &["The weather in Paris is sunny ", "with a temperature of 15C.[^", "1]"]);
    sim.end_turn(StopReason::Stop);
    assert_eq!(
        sim.trace(),
        [
            "created",
            "started",
            "step.started{1}",
            "item+ rs_R1",
            "reasoning_summary_item.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_item.done",
            "reasoning_summary_item.added",
            "reasoning_summary_text.delta",
            "reasoning_summary_text.delta",
            "reasoning_summary_item.done",
            "item- rs_R1",
            "item+ fc_R2",
            "tool_call_arguments.delta",
            "tool_call_arguments.delta",
            "tool_call_arguments.done",
            "item- fc_R2",
            "step.done{1,tool_calls}",
            "tool.started{call_R2}",
            "item+ fco_R2",
            "text.done \"{\\\"temperature\\\":\\\"15C\\\",\\\"condition\\\":\\\"Sunny\\\"}\"",
            "image.added",
            "image.done",
            "item- fco_R2{completed}",
            "step.started{2}",
            "item+ msg_R3",
            "text.added",
            "text.delta \"The weather in Paris is sunny \"",
            "text.delta \"with a temperature of 15C.[^\"",
            "text.delta \"1]\"",
            "annotation {\"type\":\"reference_to_block\",\"reference_id\":1,\"start_index\":56,\"end_index\":60}",
            "text.done \"The weather in Paris is sunny with a temperature of 15C.[^1]\"",
            "item- msg_R3",
            "step.done{2,stop}",
            "completed"
        ]
    );
    assert_eq!(sim.drafts.len(), 36);
    let call = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ItemAdded(e) => Some(serde_json::to_value(&e.item).unwrap()).filter(|item| item["type"] == "tool_call"),
        _ => None,
    });
    let call = call.expect("there is a call");
    assert_eq!((&call["kind"], &call["gate"]), (&"tool".into(), &"never".into()));
    assert_eq!((&call["name"], &call["display_name"]), (&"get_weather".into(), &"Weather".into()));
}

#[test]
fn the_models_view_of_a_result_is_wrapped_and_private() {
    let mut sim = Sim::started(weather_definitions());
    sim.model_turn([model_call("get_weather", "{}")]);
    sim.finish_tool("call_R1", weather_output());
    let root = sim.run.fold.root().expect("the run began");
    let Some(HistoryEntry::Result { content, status, .. }) = history_entries(root).pop() else {
        panic!("the last entry is the result")
    };
    assert_eq!(status, ResultStatus::Completed);
    let texts = serde_json::to_value(&content).expect("content has a JSON text");
    assert_eq!(texts[0]["text"], "<referencable-item>\nID: 1");
    assert_eq!(texts[0]["tags"][0], "added_by_reference_manager");
    assert_eq!(texts[2]["type"], "image_url");
    assert_eq!(texts[3]["text"], "</referencable-item>");
    assert!(sim.records().iter().all(|record| !String::from_utf8_lossy(&record.public).contains("referencable")));
}

#[test]
fn parallel() {
    let mut sim = Sim::started(demo_definitions([tool("tool_a"), tool("tool_b"), tool("tool_c")]));
    sim.model_turn([model_call("tool_a", "{}"), model_call("tool_b", "{}"), model_call("tool_c", "{}")]);
    sim.finish_tool("call_R2", tool_text("b"));
    sim.finish_tool("call_R3", tool_text("c"));
    sim.finish_tool("call_R1", tool_text("a"));
    assert_eq!(
        sim.request_summary(),
        "user:go | call:tool_a | call:tool_b | call:tool_c | result:a | result:b | result:c",
        "as they end for people, in call order for the model"
    );
    sim.model_turn([model_text("all done")]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 fc_R2 fc_R3 step.done{1,tool_calls}
         tool.started{call_R1} tool.started{call_R2} tool.started{call_R3}
         fco_R2{completed} fco_R3{completed} fco_R1{completed}
         step.started{2} msg_R4 step.done{2,stop} completed",
    );
}

/// A failed turn ends the run with its error, and the partial text is kept.
#[test]
fn fail() {
    let mut sim = Sim::started(weather_definitions());
    sim.text(0, &["Let me ", "see"]);
    sim.fail_turn();
    assert_eq!(
        sim.trace()[7..],
        ["text.done \"Let me see\"", "item- msg_R1{incomplete,failed}", "step.done{1,error}", "failed{provider_error}"]
    );
    let Some(Event::Failed(failed)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it failed") };
    assert_eq!(failed.error.retryable, Some(true));
}

/// Cancelling twice, in whichever mode, is harmless: the first effective cancel ends the run.
#[test]
fn cancel() {
    let mut sim = Sim::started(weather_definitions());
    sim.text(0, &["Once upon ", "a time"]);
    sim.cancel(CancelMode::Immediate);
    assert_eq!(
        sim.trace()[7..],
        [
            "text.done \"Once upon a time\"",
            "item- msg_R1{incomplete,cancelled}",
            "step.done{1,cancelled}",
            "cancelled{immediate,user}"
        ]
    );
    for mode in [CancelMode::Immediate, CancelMode::AfterTurn] {
        sim.cancel(mode);
    }
    assert_eq!(sim.drafts.len(), 11, "a second cancel changes nothing");
}

#[test]
fn limit() {
    let mut sim = Sim::started(weather_definitions());
    sim.text(0, &["Once"]);
    sim.call(1, "get_weather", &["{}"]);
    sim.finish_item(1);
    sim.call(2, "get_weather", &["{\"cut"]);
    sim.end_turn(StopReason::MaxTokens);
    assert_eq!(
        sim.trace()[6..],
        [
            "item+ fc_R2",
            "tool_call_arguments.delta",
            "tool_call_arguments.done",
            "item- fc_R2",
            "item+ fc_R3",
            "tool_call_arguments.delta",
            "text.done \"Once\"",
            "item- msg_R1{incomplete,limit}",
            "item- fc_R3{incomplete,limit}",
            "step.done{1,max_tokens}",
            "item+ fco_R2",
            "text.done \"The turn ran into a limit: the call was not run.\"",
            "item- fco_R2{incomplete,limit}",
            "incomplete{max_tokens}"
        ]
    );
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn unknown_tools_tools_of_other_agents_and_invalid_arguments_never_run() {
    for (name, arguments, code) in [
        ("nonsense", "{}", "unknown_tool"),
        ("other", "{}", "unknown_tool"),
        ("get_weather", "{\"a\":", "invalid_arguments"),
        ("get_weather", "[]", "invalid_arguments"),
        ("get_weather", "", "invalid_arguments"),
        ("get_weather", "{\"n\":\"many\"}", "invalid_arguments"),
    ] {
        let mut sim = Sim::started(weather_definitions());
        sim.skip_trace();
        sim.model_turn([model_call(name, arguments)]);
        sim.expect_trace(&format!("fc_R1 step.done{{1,tool_calls}} fco_R1{{failed,{code}}} step.started{{2}}"));
        assert!(sim.tool_requests.is_empty(), "{name} {arguments}");
    }
}

/// The results of a run, by their calls.
fn result_of(sim: &Sim, label: &str) -> model::item::ToolResult {
    let id = crate::fixtures::call_id(label);
    let found = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ItemDone(e) => match &e.item {
            Item::ToolResult(result) if result.call_id == id => Some(result.clone()),
            _ => None,
        },
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{label} has a result"))
}
