//! After a crash, turns are repeated and tools are not run again unannounced.

use crate::fixtures::{
    agent, agent_tool, approval_key, approve, build_definitions, call_id, demo_definitions, edit, idempotent,
    model_call, needs_approval, tool_text,
};
use crate::fixtures::{model_text, reject, tool};
use crate::sim::Sim;
use machine::TimerId;
use model::definition::OnCrash;
use model::definition::{Price, Tool};
use model::event::{CancelMode, Event};
use model::model_turn::ModelDelta;
use model::usage::Usage;
use serde_json::json;

fn definitions_with_crash_approval(tool: Tool) -> Tool {
    Tool { on_crash: OnCrash::Ask, ..tool }
}

/// A run whose tool was running when the process died.
fn run_with_lost_tool(tool: Tool) -> Sim {
    let name = tool.spec.name.clone();
    let mut sim = Sim::started(demo_definitions([tool]));
    sim.model_turn([model_call(&name, r#"{"n":1}"#)]);
    sim.skip_trace();
    sim.crash();
    sim
}

/// A turn lost in a crash is retried with the same request: the user's input is in it once.
#[test]
fn recover() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.text(0, &["Once upon ", "a ti"]);
    sim.crash();
    sim.model_turn([model_text("Once upon a time")]);
    assert_eq!(
        sim.trace()[7..],
        [
            "text.done \"Once upon a ti\"",
            "item- msg_R1{incomplete,recovered}",
            "step.done{1,lost}",
            "recovered{1,2,msg_R1}",
            "step.started{1,2}",
            "item+ msg_R2",
            "text.added",
            "text.delta \"Once upon a time\"",
            "text.done \"Once upon a time\"",
            "item- msg_R2",
            "step.done{1,stop}",
            "completed"
        ]
    );
    assert_eq!(sim.model_requests[0].history, sim.model_requests[1].history, "the lost attempt was never said");
}

#[test]
fn a_lost_attempt_is_repeated_including_its_complete_items() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.skip_trace();
    sim.model_outputs([model_text("Let me"), model_call("t", "{}"), model_call("t", r#"{"n":"#)]);
    sim.crash();
    sim.expect_trace("msg_R1 fc_R2 fc_R3 step.done{1,lost} recovered{1,2,msg_R1,fc_R2,fc_R3} step.started{1,2}");
    let object = sim.run.fold.task_object(&crate::fixtures::run_id()).unwrap();
    let shown = serde_json::to_value(&object.output).unwrap();
    let statuses: Vec<&str> = shown.as_array().unwrap().iter().filter_map(|item| item["status"].as_str()).collect();
    assert_eq!(statuses, ["completed"; 3], "as their `done` events said: {shown}");
    assert!(sim.tool_requests.is_empty(), "calls of an attempt that was cut never run");
    assert_eq!(sim.request_summary(), "user:go");
}

#[test]
fn losing_a_turn_three_times_fails_the_task() {
    let mut sim = Sim::started(demo_definitions([]));
    for _ in 0..2 {
        sim.model_outputs([model_text("boom")]);
        sim.crash();
    }
    sim.skip_trace();
    sim.model_outputs([model_text("boom")]);
    sim.crash();
    sim.expect_trace("msg_R3{incomplete,recovered} step.done{1,lost} failed{interrupted}");
}

#[test]
fn crashes_are_counted_per_turn() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    for turn in 1..5 {
        sim.model_outputs([model_text("hm")]);
        sim.crash();
        sim.model_turn([model_call("t", "{}")]);
        let running = sim.tool_requests.last().map(|request| request.call_id.clone()).expect("a tool runs");
        let id = sim.running_tool(&running);
        sim.input(machine::MachineInput::Tool { id, event: model::tool::ToolEvent::End(tool_text("ok")) });
        assert!(!sim.run.fold.has_ended(), "turn {turn}");
    }
}

#[test]
fn losing_a_sub_agents_turn_three_times_gives_a_failed_result() {
    let mut sim =
        Sim::started(build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.crash();
    sim.crash();
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "call_R1/step.done{1,lost} call_R1/failed{interrupted} fco_R1{failed,interrupted} step.started{2}",
    );
}

#[test]
fn recovery_starts_with_the_newest_task() {
    let tools = [agent_tool("ask", "helper"), tool("look")];
    let mut sim = Sim::started(build_definitions([agent("demo", &["ask", "look"]), agent("helper", &[])], tools));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#), model_call("look", "{}")]);
    sim.model_outputs([model_text("I am")]);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "call_R1/msg_R3{incomplete,recovered} call_R1/step.done{1,lost} call_R1/recovered{1,2,msg_R3}
         recovered{1,1} fco_R2{unknown,outcome_unknown} call_R1/step.started{1,2}",
    );
}

#[test]
fn an_idempotent_tool_is_started_again() {
    let mut sim = run_with_lost_tool(idempotent(tool("t")));
    sim.expect_trace("recovered{1,1} tool.started{call_R1,2}");
    assert_eq!(sim.tool_requests[0].call_id, sim.tool_requests[1].call_id, "under the same key");
    sim.crash();
    sim.expect_trace("recovered{1,1} tool.started{call_R1,3}");
    sim.crash();
    sim.expect_trace("recovered{1,1} fco_R1{unknown,outcome_unknown} step.started{2}");
}

#[test]
fn late_events_of_a_lost_attempt_are_ignored() {
    let mut sim = Sim::started(demo_definitions([idempotent(tool("t"))]));
    sim.model_turn([model_call("t", "{}")]);
    let lost = sim.running_tool(&call_id("call_R1"));
    sim.crash();
    sim.skip_trace();
    sim.input(machine::MachineInput::Tool { id: lost, event: model::tool::ToolEvent::End(tool_text("late")) });
    sim.expect_trace("");
    sim.finish_tool("call_R1", tool_text("now"));
    assert!(sim.request_summary().ends_with("result:now"));
}

#[test]
fn a_tool_that_is_not_idempotent_gets_an_unknown_result() {
    let mut sim = run_with_lost_tool(tool("t"));
    sim.expect_trace("recovered{1,1} fco_R1{unknown,outcome_unknown} step.started{2}");
    assert_eq!(sim.tool_requests.len(), 1);
    assert!(sim.request_summary().contains("may or may not have done its work"), "{}", sim.request_summary());
}

#[test]
fn a_tool_can_be_configured_to_fail_after_a_crash() {
    let mut sim = run_with_lost_tool(Tool { on_crash: OnCrash::Fail, ..tool("t") });
    sim.expect_trace("recovered{1,1} fco_R1{failed,outcome_unknown} step.started{2}");
}

#[test]
fn a_person_can_approve_a_rerun_of_a_lost_tool() {
    let mut sim = run_with_lost_tool(definitions_with_crash_approval(tool("t")));
    sim.expect_trace("recovered{1,1} approval.requested{apr_R1} paused{apr_R1}");
    sim.decide("apr_R1", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1,2}");
    sim.crash();
    sim.expect_trace("recovered{1,1} approval.requested{apr_R1} paused{apr_R1}");
}

#[test]
fn a_person_can_supply_the_result_of_a_lost_tool() {
    let mut sim = run_with_lost_tool(definitions_with_crash_approval(tool("t")));
    sim.skip_trace();
    sim.decide("apr_R1", reject("It went through, I looked."));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,reject,user} fco_R1{unknown,outcome_unknown} step.started{2}",
    );
    assert!(sim.request_summary().ends_with("result:It went through, I looked."), "{}", sim.request_summary());
}

#[test]
fn a_lost_tool_without_a_decision_gets_an_unknown_result() {
    let mut sim = run_with_lost_tool(definitions_with_crash_approval(tool("t")));
    sim.skip_trace();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R1")));
    sim.expect_trace(
        "resumed{timeout} approval.resolved{apr_R1,reject,timeout} fco_R1{unknown,outcome_unknown} step.started{2}",
    );
    let mut sim = run_with_lost_tool(definitions_with_crash_approval(tool("t")));
    sim.skip_trace();
    sim.cancel(CancelMode::AfterTurn);
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{unknown,outcome_unknown}
         cancelled{after_turn,user}",
    );
}

#[test]
fn edited_arguments_are_used_for_the_rerun() {
    let mut sim = Sim::started(demo_definitions([definitions_with_crash_approval(needs_approval(tool("t")))]));
    sim.model_turn([model_call("t", r#"{"n":100}"#)]);
    sim.decide("apr_R1", edit(json!({"n": 1})));
    sim.crash();
    let asked = sim.drafts.iter().rev().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some(e.action_requests[0].args.clone()),
        _ => None,
    });
    assert_eq!(asked, Some(json!({"n": 1}).into()), "they are asked about what ran");
    sim.decide("apr_R1", approve());
    assert_eq!(sim.tool_requests[1].arguments, r#"{"n":1}"#);
}

#[test]
fn a_crash_does_not_affect_a_paused_run() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("");
    assert_eq!(sim.armed_timers().len(), 2, "the question's and the run's are armed again");
    sim.decide("apr_R1", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1}");
}

#[test]
fn a_pending_approval_is_not_requested_again_after_a_crash() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t")), tool("look")]));
    sim.model_turn([model_call("t", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("recovered{1,1} fco_R2{unknown,outcome_unknown} paused{apr_R1}");
}

#[test]
fn queued_calls_start_after_the_crash() {
    let mut definitions = demo_definitions([tool("t")]);
    definitions.limits.parallel_tools_max = 1;
    let mut sim = Sim::started(definitions);
    sim.model_turn([model_call("t", "{}"), model_call("t", "{}")]);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("recovered{1,1} fco_R1{unknown,outcome_unknown} tool.started{call_R2}");
}

#[test]
fn a_steer_in_a_lost_turn_is_read_by_the_next_attempt() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.model_outputs([model_text("hm")]);
    sim.steer("quickly");
    sim.crash();
    assert_eq!(sim.request_summary(), "user:go | user:quickly");
    sim.skip_trace();
    sim.model_turn([model_text("yes")]);
    sim.expect_trace("msg_R3 step.done{1,stop} completed");
}

/// A retried turn counts what its lost attempt had used. (Where the provider had reported no tokens, the log has the
/// attempt without a number.)
#[test]
fn tokens_of_a_lost_turn_are_counted() {
    let mut definitions = demo_definitions([]);
    definitions.prices.insert("scripted/demo".to_owned(), Price { input: 1_000_000.0, ..Price::default() });
    let mut sim = Sim::started(definitions);
    let usage = Usage { input_tokens: 7, ..Usage::default() };
    sim.delta(ModelDelta::Usage(usage));
    sim.model_outputs([model_text("hm")]);
    sim.crash();
    let done = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::StepDone(e) => Some((e.model.clone(), e.usage)),
        _ => None,
    });
    assert_eq!(done, Some(("scripted/demo".to_owned(), usage)));
    sim.model_turn([model_text("yes")]);
    let Some(Event::Completed(end)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it completed") };
    assert_eq!((end.usage.input_tokens, end.cost), (16, Some(16.0)));
}
