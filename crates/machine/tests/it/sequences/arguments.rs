//! Calls that cannot run, and calls that a provider repeats.

use super::result_of;
use crate::fixtures::{
    agent, agent_tool, approve, build_definitions, demo_definitions, model_call, model_call_with_id, model_text,
    needs_approval, tool, tool_text,
};
use crate::sim::Sim;
use model::event::{CancelMode, StopReason};
use model::item::ResultStatus;
use model::limits::RECORD_BYTES_MAX;

#[test]
fn three_invalid_turns_get_an_error_result_and_the_fourth_fails_the_task() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    for _ in 0..3 {
        sim.model_turn([model_call("t", r#"{"n":"x"}"#), model_call("nonsense", "{}")]);
        assert_eq!(sim.models.len(), 1, "the model is told, and asked again");
    }
    sim.skip_trace();
    sim.model_turn([model_call("t", "nonsense")]);
    sim.expect_trace("fc_R7 step.done{4,tool_calls} fco_R7{failed,invalid_arguments} failed{invalid_tool_calls}");
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn one_valid_call_resets_the_count_of_invalid_turns() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    for turn in 0..6 {
        sim.model_turn([model_call("nonsense", "{}"), model_call("t", "{}")]);
        let id = sim.tools.last().cloned().expect("a tool runs");
        sim.input(machine::MachineInput::Tool { id, event: model::tool::ToolEvent::End(tool_text("ok")) });
        assert!(!sim.run.fold.has_ended(), "turn {turn}");
    }
}

#[test]
fn a_lost_turn_does_not_reset_the_count_of_invalid_turns() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    for _ in 0..3 {
        sim.model_turn([model_call("nonsense", "{}")]);
    }
    sim.model_outputs([model_text("hm")]);
    sim.crash();
    sim.skip_trace();
    sim.model_turn([model_call("nonsense", "{}")]);
    sim.expect_trace("fc_R5 step.done{4,tool_calls} fco_R5{failed,unknown_tool} failed{invalid_tool_calls}");
}

#[test]
fn a_sub_agent_with_only_invalid_calls_gives_a_failed_result() {
    let mut sim =
        Sim::started(build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    for _ in 0..4 {
        sim.model_turn([model_call("nonsense", "{}")]);
    }
    let result = result_of(&sim, "call_R1");
    assert_eq!(
        (result.status, result.error.unwrap().code.as_str()),
        (Some(ResultStatus::Failed), "invalid_tool_calls")
    );
}

#[test]
fn truncated_arguments_never_run() {
    let cut = |sim: &mut Sim| {
        sim.call(0, "t", &[r#"{"n":1}"#]);
        sim.call(1, "t", &[r#"{"n":"#, "2"]);
    };
    for how in ["limit", "fail", "cancel", "crash", "deadline"] {
        let mut sim = Sim::started(demo_definitions([tool("t")]));
        cut(&mut sim);
        match how {
            "limit" => sim.end_turn(StopReason::MaxTokens),
            "fail" => sim.fail_turn(),
            "cancel" => sim.cancel(CancelMode::Immediate),
            "crash" => sim.crash(),
            _ => sim.fire_run_deadline(),
        }
        assert!(sim.tool_requests.is_empty(), "{how}");
        assert!(!sim.trace().iter().any(|line| line.contains("arguments.done")), "{how}: they are not whole");
    }
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    cut(&mut sim);
    sim.end_turn(StopReason::Stop);
    assert_eq!(sim.tool_requests.len(), 1, "a provider that says nothing of a cut: the JSON does");
    assert_eq!(result_of(&sim, "call_R2").error.unwrap().code, "invalid_arguments");
}

#[test]
fn arguments_larger_than_a_record_never_run() {
    let mut sim = Sim::started(demo_definitions([tool("t"), needs_approval(tool("g"))]));
    let long = format!(r#"{{"x":"{}"}}"#, "y\\n".repeat(RECORD_BYTES_MAX / 3));
    sim.model_turn([model_call("t", &long), model_call("g", &long)]);
    for label in ["call_R1", "call_R2"] {
        assert_eq!(result_of(&sim, label).error.unwrap().code, "invalid_arguments");
    }
    assert!(sim.records().iter().all(|record| record.size_bytes() <= RECORD_BYTES_MAX));
}

/// An exact repetition of an answered call gets the stored result, and the tool does not run.
#[test]
fn a_repeated_call_gets_the_stored_result() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.model_turn([model_call_with_id("p1", "t", r#"{"n":1}"#)]);
    sim.finish_tool("call_R1", tool_text("one"));
    sim.skip_trace();
    sim.model_turn([model_call_with_id("p1", "t", r#"{"n":1}"#)]);
    sim.expect_trace("fc_R2 step.done{2,tool_calls} fco_R2{completed} step.started{3}");
    assert_eq!(sim.request_summary(), "user:go | call:t | result:one | call:t | result:one");
    assert_eq!(sim.run.fold.reference_count, 1, "it is the same group");
}

#[test]
fn a_different_call_with_a_used_id_is_an_error() {
    let mut sim = Sim::started(demo_definitions([tool("t"), tool("u")]));
    sim.model_turn([model_call_with_id("p1", "t", r#"{"n":1}"#)]);
    sim.finish_tool("call_R1", tool_text("one"));
    sim.skip_trace();
    sim.model_turn([model_call_with_id("p1", "t", r#"{"n":2}"#), model_call_with_id("p1", "u", r#"{"n":1}"#)]);
    sim.expect_trace(
        "fc_R2 fc_R3 step.done{2,tool_calls} fco_R2{failed,duplicate_call_id} fco_R3{failed,duplicate_call_id}
         step.started{3}",
    );
}

#[test]
fn a_call_sent_twice_in_one_turn_runs_once() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.skip_trace();
    sim.model_turn([model_call_with_id("p1", "t", "{}"), model_call_with_id("p1", "t", "{}")]);
    sim.expect_trace("fc_R1 fc_R2 step.done{1,tool_calls} tool.started{call_R1}");
    sim.finish_tool("call_R1", tool_text("one"));
    sim.expect_trace("fco_R1{completed} fco_R2{completed} step.started{2}");
    assert_eq!(sim.request_summary(), "user:go | call:t | call:t | result:one | result:one");
}

#[test]
fn a_call_sent_twice_requests_one_approval() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.skip_trace();
    sim.model_turn([model_call_with_id("p1", "t", "{}"), model_call_with_id("p1", "t", "{}")]);
    sim.expect_trace("fc_R1 fc_R2 step.done{1,tool_calls} approval.requested{apr_R1} paused{apr_R1}");
    sim.decide("apr_R1", approve());
    sim.finish_tool("call_R1", tool_text("one"));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1} fco_R1{completed}
         fco_R2{completed} step.started{2}",
    );
}

#[test]
fn a_sub_agents_result_is_stored_like_any_other() {
    let mut sim =
        Sim::started(build_definitions([agent("demo", &["ask"]), agent("helper", &[])], [agent_tool("ask", "helper")]));
    sim.model_turn([model_call_with_id("p1", "ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_text("so it is")]);
    sim.model_turn([model_call_with_id("p1", "ask", r#"{"prompt":"?"}"#)]);
    assert!(
        sim.request_summary().ends_with("result:so it is | call:ask | result:so it is"),
        "{}",
        sim.request_summary()
    );
}

#[test]
fn call_ids_of_a_lost_turn_can_be_reused() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.model_outputs([model_call_with_id("p1", "t", r#"{"n":1}"#)]);
    sim.crash();
    sim.skip_trace();
    sim.model_turn([model_call_with_id("p1", "t", r#"{"n":2}"#)]);
    sim.expect_trace("fc_R2 step.done{1,tool_calls} tool.started{call_R2}");
}

#[test]
fn a_long_result_is_stored_like_any_other() {
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    let long = "é".repeat(100 * 1024);
    sim.model_turn([model_call_with_id("p1", "t", "{}")]);
    sim.finish_tool("call_R1", tool_text(&long));
    sim.model_turn([model_call_with_id("p1", "t", "{}")]);
    assert_eq!(sim.request_summary().matches(&long).count(), 2);
}
