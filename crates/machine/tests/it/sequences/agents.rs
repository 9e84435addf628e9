//! Sub-agents: a call becomes a task, and its end the call's result.

use super::result_of;
use crate::sim::Sim;
use crate::words::{agent, asking, call, demo, gives, house, task_id, text, tool, weather};
use machine::EffectId;
use model::block::ContentPart;
use model::definition::Definitions;
use model::event::{Event, StopReason};
use model::history::HistoryEntry;
use model::item::{Item, ResultStatus};
use model::limits::RECORD_BYTES_MAX;

/// `demo` asks `helper` through `ask`, which has a tool.
fn asking_house() -> Definitions {
    house([agent("demo", &["ask"]), agent("helper", &["look"])], [asking("ask", "helper"), tool("look")])
}

/// Everybody may ask everybody.
fn ring() -> Definitions {
    house(
        [agent("demo", &["to_other"]), agent("other", &["to_demo"])],
        [asking("to_other", "other"), asking("to_demo", "demo")],
    )
}

#[test]
fn help() {
    let mut sim = Sim::of(asking_house());
    sim.turn([crate::words::Bit::Think("who knows?".to_owned()), call("ask", r#"{"prompt":"weather?"}"#)]);
    assert_eq!(sim.given(), "user:weather?", "a sub-agent knows only what it was asked");
    sim.turn([crate::words::Bit::Think("look".to_owned()), call("look", "{}")]);
    sim.ends("call_R4", weather());
    sim.turn([text("The weather in Paris is sunny with a temperature of 15C.[^1]")]);
    let Some(HistoryEntry::Result { content, .. }) = sim.requests.last().unwrap().history.last() else {
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
    sim.turn([text("helper says: sunny, 15C.[^1]")]);
    sim.tells(
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
    assert_eq!((created.agent.as_str(), &created.parent_task_id), ("helper", &Some(crate::words::run_id())));
    let object = sim.run.fold.task_object(&crate::words::run_id()).unwrap();
    let cited = serde_json::to_value(&object.output).unwrap();
    let annotation = &cited.as_array().unwrap().last().unwrap()["block_list"][0]["annotations"][0];
    assert_eq!((&annotation["start_index"], &annotation["end_index"]), (&24.into(), &28.into()));
    assert!(matches!(&object.output[2], Item::ToolResult(result) if result.block_list.as_ref().unwrap().len() == 4));
}

#[test]
fn a_sub_agent_that_fails_or_runs_into_a_limit_is_a_result_and_the_parent_goes_on() {
    let mut sim = Sim::of(asking_house());
    sim.turn([call("ask", r#"{"prompt":"weather?"}"#)]);
    sim.skip();
    sim.speak([text("Let me")]);
    sim.fail();
    sim.tells(
        "call_R1/msg_R2{incomplete,failed} call_R1/step.done{1,error} call_R1/failed{provider_error}
         fco_R1{failed,provider_error} step.started{2}",
    );
    assert!(sim.given().ends_with("result:Let me down"), "what it said and why it stopped: {}", sim.given());
    sim.turn([call("ask", r#"{"prompt":"again"}"#)]);
    sim.skip();
    sim.speak([text("Once")]);
    sim.end(StopReason::MaxTokens);
    sim.tells(
        "call_R3/msg_R4{incomplete,limit} call_R3/step.done{1,max_tokens} call_R3/incomplete{max_tokens}
         fco_R3{incomplete,max_tokens} step.started{3}",
    );
}

#[test]
fn a_sub_agent_that_says_nothing_gives_a_result_all_the_same() {
    let mut sim = Sim::of(asking_house());
    sim.turn([call("ask", r#"{"prompt":""}"#)]);
    sim.turn([]);
    assert_eq!(result_of(&sim, "call_R1").status, Some(ResultStatus::Completed));
}

#[test]
fn agents_that_ask_each_other_are_stopped_at_the_depth_that_is_allowed() {
    let mut house = ring();
    house.limits.depth_max = 2;
    let mut sim = Sim::of(house);
    sim.turn([call("to_other", r#"{"prompt":"a"}"#)]);
    sim.turn([call("to_demo", r#"{"prompt":"b"}"#)]);
    sim.skip();
    sim.turn([call("to_other", r#"{"prompt":"c"}"#)]);
    sim.tells(
        "call_R2/fc_R3 call_R2/step.done{1,tool_calls} call_R2/fco_R3{failed,depth_limit} call_R2/step.started{2}",
    );
    sim.turn([text("myself, then")]);
    sim.turn([text("from demo")]);
    sim.turn([text("from other")]);
    sim.tells(
        "call_R2/msg_R4 call_R2/step.done{2,stop} call_R2/completed call_R1/fco_R2{completed} call_R1/step.started{2}
         call_R1/msg_R5 call_R1/step.done{2,stop} call_R1/completed fco_R1{completed} step.started{2}
         msg_R6 step.done{2,stop} completed",
    );
}

#[test]
fn a_run_asks_only_so_many_agents() {
    let mut house = asking_house();
    house.limits.descendants_max = 2;
    let mut sim = Sim::of(house);
    sim.skip();
    sim.turn([call("ask", r#"{"prompt":"1"}"#), call("ask", r#"{"prompt":"2"}"#), call("ask", r#"{"prompt":"3"}"#)]);
    sim.tells(
        "fc_R1 fc_R2 fc_R3 step.done{1,tool_calls}
         tool.started{call_R1} fco_R1+ call_R1/created call_R1/started call_R1/step.started{1}
         tool.started{call_R2} fco_R2+ call_R2/created call_R2/started call_R2/step.started{1}
         fco_R3{failed,descendants_limit}",
    );
    assert_eq!(sim.models.len(), 2);
}

#[test]
fn a_hundred_agents_at_once() {
    let mut house = asking_house();
    house.limits.descendants_max = 100;
    house.limits.parallel_tools_max = 100;
    let mut sim = Sim::of(house);
    sim.turn((0..100).map(|_| call("ask", r#"{"prompt":"go"}"#)));
    assert_eq!(sim.models.len(), 100);
    // The oldest last, so that everybody ends while others go on.
    while sim.models.len() > 1 {
        sim.turn([text("done")]);
    }
    assert!(matches!(sim.model(), EffectId::Model { task, .. } if task == task_id("call_R1")));
    sim.turn([text("done")]);
    assert_eq!(sim.given().matches("result:done").count(), 100);
    sim.turn([text("all of them")]);
    assert!(sim.run.fold.has_ended());
}

#[test]
fn no_more_calls_go_on_at_once_than_allowed() {
    let mut house = demo([tool("t"), asking("ask", "demo")]);
    house.limits.parallel_tools_max = 2;
    let mut sim = Sim::of(house);
    sim.turn([call("t", "{}"), call("ask", r#"{"prompt":"go"}"#), call("t", "{}"), call("ask", r#"{"prompt":"go"}"#)]);
    sim.skip();
    assert_eq!((sim.tools.len(), sim.models.len()), (1, 1));
    sim.ends("call_R1", gives("1"));
    sim.tells("fco_R1{completed} tool.started{call_R3}");
    sim.turn([text("2")]);
    sim.tells(
        "call_R2/msg_R5 call_R2/step.done{1,stop} call_R2/completed fco_R2{completed}
         tool.started{call_R4} fco_R4+ call_R4/created call_R4/started call_R4/step.started{1}",
    );
}

#[test]
fn an_agent_that_is_not_there_is_a_failed_result() {
    let mut sim = Sim::of(demo([asking("ask", "nobody")]));
    sim.skip();
    sim.turn([call("ask", "{}")]);
    sim.tells("fc_R1 step.done{1,tool_calls} fco_R1{failed,unknown_agent} step.started{2}");
}

#[test]
fn what_a_deeper_agent_cites_reaches_the_top_once() {
    let tools = [asking("ask", "helper"), asking("deeper", "expert"), tool("look")];
    let agents = [agent("demo", &["ask"]), agent("helper", &["deeper"]), agent("expert", &["look"])];
    let mut sim = Sim::of(house(agents, tools));
    sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
    sim.turn([call("deeper", r#"{"prompt":"?"}"#)]);
    sim.turn([call("look", "{}")]);
    sim.ends("call_R3", gives("seen"));
    sim.turn([text("It is so.[^1]")]);
    sim.turn([text("Expert: so.[^1]")]);
    assert_eq!(sim.given(), "user:go | call:ask | result:seen Expert: so.[^1]");
}

#[test]
fn a_long_answer_is_read_as_far_as_a_record_goes() {
    let mut sim = Sim::of(asking_house());
    sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
    sim.turn([call("look", "{}")]);
    sim.ends("call_R2", gives(&"\u{1}".repeat(40 * 1024)));
    sim.turn([text(&format!("{}[^1]", "é".repeat(150 * 1024)))]);
    assert!(sim.given().ends_with("é […]"), "the parent reads its beginning");
    assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
}
