//! Sub-agents: a call becomes a task, and its end the call's result.

use super::result_of;
use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, task_id, tool, tool_text,
    weather_output,
};
use crate::sim::Sim;
use machine::EffectId;
use model::content::ContentPart;
use model::definition::Definitions;
use model::event::{Event, StopReason};
use model::history::HistoryEntry;
use model::item::{Item, ResultStatus};
use model::limits::RECORD_BYTES_MAX;

/// `demo` calls `helper` through `ask`; `helper` has a tool.
fn sub_agent_definitions() -> Definitions {
    build_definitions(
        [agent("demo", &["ask"]), agent("helper", &["look"])],
        [agent_tool("ask", "helper"), tool("look")],
    )
}

/// Every agent may call every other.
fn circular_agents() -> Definitions {
    build_definitions(
        [agent("demo", &["to_other"]), agent("other", &["to_demo"])],
        [agent_tool("to_other", "other"), agent_tool("to_demo", "demo")],
    )
}

#[test]
fn help() {
    let mut sim = Sim::started(sub_agent_definitions());
    sim.model_turn([
        crate::fixtures::ModelOutput::Reasoning("who knows?".to_owned()),
        model_call("ask", r#"{"prompt":"weather?"}"#),
    ]);
    assert_eq!(sim.request_summary(), "user:weather?", "a sub-agent knows only what it was asked");
    sim.model_turn([crate::fixtures::ModelOutput::Reasoning("look".to_owned()), model_call("look", "{}")]);
    sim.finish_tool("call_R4", weather_output());
    sim.model_turn([model_text("The weather in Paris is sunny with a temperature of 15C.[^1]")]);
    let Some(HistoryEntry::Result { content, .. }) = sim.model_requests.last().unwrap().history.iter().next_back()
    else {
        panic!("the parent reads the child's result")
    };
    let texts: Vec<String> = content
        .iter()
        .map(|part| match part {
            ContentPart::Text { text, .. } => text.clone(),
            _ => "[image]".to_owned(),
        })
        .collect();
    assert_eq!(
        texts,
        [
            "<referencable-item>\nID: 1",
            r#"{"temperature":"15C","condition":"Sunny"}"#,
            "[image]",
            "</referencable-item>",
            "The weather in Paris is sunny with a temperature of 15C.[^1]"
        ],
        "the group that the child cites, and what it said"
    );
    sim.model_turn([model_text("helper says: sunny, 15C.[^1]")]);
    sim.expect_trace(
        "created started step.started{1} rs_R1 fc_R2 step.done{1,tool_calls} tool.started{call_R2} fco_R2+
         call_R2/created call_R2/started call_R2/step.started{1} call_R2/rs_R3 call_R2/fc_R4
         call_R2/step.done{1,tool_calls} call_R2/tool.started{call_R4} call_R2/fco_R4{completed}
         call_R2/step.started{2} call_R2/msg_R5 call_R2/step.done{2,stop} call_R2/completed
         fco_R2{completed} step.started{2} msg_R6 step.done{2,stop} completed",
    );
    assert_eq!(result_of(&sim, "call_R2").block_list, None, "the child's own events have filled it");
    let created = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::Created(e) if e.task_id == task_id("call_R2") => Some(&e.task),
        _ => None,
    });
    let created = created.expect("the child is created");
    assert_eq!((created.agent.as_str(), &created.parent_task_id), ("helper", &Some(crate::fixtures::run_id())));
    let object = sim.run.fold.task_object(&crate::fixtures::run_id()).unwrap();
    let cited = serde_json::to_value(&object.output).unwrap();
    let annotation = &cited.as_array().unwrap().last().unwrap()["block_list"][0]["annotations"][0];
    assert_eq!((&annotation["start_index"], &annotation["end_index"]), (&24.into(), &28.into()));
    assert!(matches!(&object.output[2], Item::ToolResult(result) if result.block_list.as_ref().unwrap().len() == 4));
}

#[test]
fn a_sub_agent_that_fails_or_reaches_a_limit_gives_a_result_and_the_parent_continues() {
    let mut sim = Sim::started(sub_agent_definitions());
    sim.model_turn([model_call("ask", r#"{"prompt":"weather?"}"#)]);
    sim.skip_trace();
    sim.model_outputs([model_text("Let me")]);
    sim.fail_turn();
    sim.expect_trace(
        "call_R1/msg_R2{incomplete,failed} call_R1/step.done{1,error} call_R1/failed{provider_error}
         fco_R1{failed,provider_error} step.started{2}",
    );
    assert!(
        sim.request_summary().ends_with("result:Let me down"),
        "what it said and why it stopped: {}",
        sim.request_summary()
    );
    sim.model_turn([model_call("ask", r#"{"prompt":"again"}"#)]);
    sim.skip_trace();
    sim.model_outputs([model_text("Once")]);
    sim.end_turn(StopReason::MaxTokens);
    sim.expect_trace(
        "call_R3/msg_R4{incomplete,limit} call_R3/step.done{1,max_tokens} call_R3/incomplete{max_tokens}
         fco_R3{incomplete,max_tokens} step.started{3}",
    );
}

#[test]
fn a_sub_agent_without_output_still_gives_a_result() {
    let mut sim = Sim::started(sub_agent_definitions());
    sim.model_turn([model_call("ask", r#"{"prompt":""}"#)]);
    sim.model_turn([]);
    assert_eq!(result_of(&sim, "call_R1").status, Some(ResultStatus::Completed));
}

#[test]
fn agents_that_call_each_other_stop_at_the_depth_limit() {
    let mut definitions = circular_agents();
    definitions.limits.depth_max = 2;
    let mut sim = Sim::started(definitions);
    sim.model_turn([model_call("to_other", r#"{"prompt":"a"}"#)]);
    sim.model_turn([model_call("to_demo", r#"{"prompt":"b"}"#)]);
    sim.skip_trace();
    sim.model_turn([model_call("to_other", r#"{"prompt":"c"}"#)]);
    sim.expect_trace(
        "call_R2/fc_R3 call_R2/step.done{1,tool_calls} call_R2/fco_R3{failed,depth_limit} call_R2/step.started{2}",
    );
    sim.model_turn([model_text("myself, then")]);
    sim.model_turn([model_text("from demo")]);
    sim.model_turn([model_text("from other")]);
    sim.expect_trace(
        "call_R2/msg_R4 call_R2/step.done{2,stop} call_R2/completed call_R1/fco_R2{completed} call_R1/step.started{2}
         call_R1/msg_R5 call_R1/step.done{2,stop} call_R1/completed fco_R1{completed} step.started{2}
         msg_R6 step.done{2,stop} completed",
    );
}

#[test]
fn a_run_has_a_limit_on_sub_agents() {
    let mut definitions = sub_agent_definitions();
    definitions.limits.descendants_max = 2;
    let mut sim = Sim::started(definitions);
    sim.skip_trace();
    sim.model_turn([
        model_call("ask", r#"{"prompt":"1"}"#),
        model_call("ask", r#"{"prompt":"2"}"#),
        model_call("ask", r#"{"prompt":"3"}"#),
    ]);
    sim.expect_trace(
        "fc_R1 fc_R2 fc_R3 step.done{1,tool_calls}
         tool.started{call_R1} fco_R1+ call_R1/created call_R1/started call_R1/step.started{1}
         tool.started{call_R2} fco_R2+ call_R2/created call_R2/started call_R2/step.started{1}
         fco_R3{failed,descendants_limit}",
    );
    assert_eq!(sim.models.len(), 2);
}

#[test]
fn a_hundred_parallel_sub_agents() {
    let mut definitions = sub_agent_definitions();
    definitions.limits.descendants_max = 100;
    definitions.limits.parallel_tools_max = 100;
    let mut sim = Sim::started(definitions);
    sim.model_turn((0..100).map(|_| model_call("ask", r#"{"prompt":"go"}"#)));
    assert_eq!(sim.models.len(), 100);
    // The oldest last, so that each ends while others still run.
    while sim.models.len() > 1 {
        sim.model_turn([model_text("done")]);
    }
    assert!(matches!(sim.last_model(), EffectId::Model { task, .. } if task == task_id("call_R1")));
    sim.model_turn([model_text("done")]);
    assert_eq!(sim.request_summary().matches("result:done").count(), 100);
    sim.model_turn([model_text("all of them")]);
    assert!(sim.run.fold.has_ended());
}

#[test]
fn parallel_calls_stay_within_their_limit() {
    let mut definitions = demo_definitions([tool("t"), agent_tool("ask", "demo")]);
    definitions.limits.parallel_tools_max = 2;
    let mut sim = Sim::started(definitions);
    sim.model_turn([
        model_call("t", "{}"),
        model_call("ask", r#"{"prompt":"go"}"#),
        model_call("t", "{}"),
        model_call("ask", r#"{"prompt":"go"}"#),
    ]);
    sim.skip_trace();
    assert_eq!((sim.tools.len(), sim.models.len()), (1, 1));
    sim.finish_tool("call_R1", tool_text("1"));
    sim.expect_trace("fco_R1{completed} tool.started{call_R3}");
    sim.model_turn([model_text("2")]);
    sim.expect_trace(
        "call_R2/msg_R5 call_R2/step.done{1,stop} call_R2/completed fco_R2{completed}
         tool.started{call_R4} fco_R4+ call_R4/created call_R4/started call_R4/step.started{1}",
    );
}

#[test]
fn an_unknown_agent_gives_a_failed_result() {
    let mut sim = Sim::started(demo_definitions([agent_tool("ask", "nobody")]));
    sim.skip_trace();
    sim.model_turn([model_call("ask", "{}")]);
    sim.expect_trace("fc_R1 step.done{1,tool_calls} fco_R1{failed,unknown_agent} step.started{2}");
}

#[test]
fn a_citation_of_a_nested_agent_reaches_the_root_once() {
    let tools = [agent_tool("ask", "helper"), agent_tool("deeper", "expert"), tool("look")];
    let agents = [agent("demo", &["ask"]), agent("helper", &["deeper"]), agent("expert", &["look"])];
    let mut sim = Sim::started(build_definitions(agents, tools));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("look", "{}")]);
    sim.finish_tool("call_R3", tool_text("seen"));
    sim.model_turn([model_text("It is so.[^1]")]);
    sim.model_turn([model_text("Expert: so.[^1]")]);
    assert_eq!(sim.request_summary(), "user:go | call:ask | result:seen Expert: so.[^1]");
}

#[test]
fn a_long_answer_is_truncated_to_the_record_limit() {
    let mut sim = Sim::started(sub_agent_definitions());
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("look", "{}")]);
    sim.finish_tool("call_R2", tool_text(&"\u{1}".repeat(40 * 1024)));
    sim.model_turn([model_text(&format!("{}[^1]", "é".repeat(150 * 1024)))]);
    assert!(sim.request_summary().ends_with("é […]"), "the parent reads its beginning");
    assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
}
