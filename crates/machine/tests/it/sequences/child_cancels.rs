//! Cancelling one sub-agent: it and its descendants stop, its parent gets a result, all other tasks continue.

use super::result_of;
use crate::fixtures::{
    agent, agent_tool, approval_key, approve, build_definitions, model_call, model_text, needs_approval, task_id, tool,
    tool_text, with_kind,
};
use crate::sim::Sim;
use machine::TimerId;
use model::definition::{Definitions, ToolExecutor};
use model::event::CancelMode::{self, AfterTurn, Immediate};
use model::event::StopReason;
use model::task::TaskStatus;

/// An agent that calls a helper, which calls another; all have a tool, a gated tool and a client tool.
fn nested_definitions() -> Definitions {
    let tools = [
        tool("look"),
        needs_approval(tool("trade")),
        with_kind(tool("pick"), ToolExecutor::Client),
        agent_tool("ask", "helper"),
        agent_tool("deeper", "expert"),
    ];
    let demo = agent("demo", &["look", "trade", "ask"]);
    let helper = agent("helper", &["look", "trade", "pick", "deeper"]);
    build_definitions([demo, helper, agent("expert", &["look", "trade"])], tools)
}

fn started_run() -> Sim {
    let mut sim = Sim::started(nested_definitions());
    sim.skip_trace();
    sim
}

/// Two helpers are called, `call_R1` and `call_R2`. The second was called last, so it sends first.
fn two_sub_agents() -> Sim {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"a"}"#), model_call("ask", r#"{"prompt":"b"}"#)]);
    sim.skip_trace();
    sim
}

fn cancel_task(sim: &mut Sim, task: &str, mode: CancelMode) {
    sim.cancel_task(task_id(task), mode);
}

#[test]
fn cancelling_a_sub_agent_leaves_its_parent_and_sibling_running() {
    let mut sim = two_sub_agents();
    sim.model_outputs([model_text("I am b")]);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R2", Immediate);
    sim.expect_trace(
        "call_R2/msg_R3{incomplete,cancelled} call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user}
         fco_R2{incomplete,cancelled}",
    );
    sim.model_turn([model_text("I am a")]);
    sim.expect_trace("call_R1/msg_R4 call_R1/step.done{1,stop} call_R1/completed fco_R1{completed} step.started{2}");
    assert_eq!(
        sim.request_summary(),
        "user:go | call:ask | call:ask | result:I am a | result:I am b The agent was cancelled.",
        "the model reads what was said, and that it was cut"
    );
    sim.model_turn([model_text("well")]);
    sim.expect_trace("msg_R5 step.done{2,stop} completed");
}

#[test]
fn cancelling_a_sub_agent_cancels_its_descendants_newest_first() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#), model_call("look", "{}"), model_call("trade", "{}")]);
    sim.model_turn([model_call("look", "{}")]);
    let late = sim.tools.clone();
    sim.skip_trace();
    cancel_task(&mut sim, "call_R1", Immediate);
    sim.expect_trace(
        "call_R2/fco_R5{incomplete,cancelled} call_R2/cancelled{immediate,user}
         call_R1/fco_R2{incomplete,cancelled} call_R1/fco_R3{incomplete,cancelled}
         call_R1/approval.resolved{apr_R4,reject,system} call_R1/fco_R4{incomplete,cancelled}
         call_R1/cancelled{immediate,user} fco_R1{incomplete,cancelled} step.started{2}",
    );
    assert_eq!(late.len(), 2);
    for id in late {
        sim.input(machine::MachineInput::Tool { id, event: model::tool::ToolEvent::End(tool_text("late")) });
    }
    sim.expect_trace("");
}

#[test]
fn cancelling_a_nested_sub_agent_lets_its_parent_continue() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R2", Immediate);
    sim.expect_trace(
        "call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user} call_R1/fco_R2{incomplete,cancelled}
         call_R1/step.started{2}",
    );
}

#[test]
fn a_run_paused_for_a_sub_agents_approval_resumes_without_it() {
    for (mode, end) in [
        (Immediate, "call_R1/fco_R2{incomplete,cancelled} call_R1/cancelled{immediate,user}"),
        (AfterTurn, "call_R1/fco_R2{rejected,cancelled} call_R1/cancelled{after_turn,user}"),
    ] {
        let mut sim = started_run();
        sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
        sim.model_turn([model_call("trade", "{}")]);
        sim.skip_trace();
        cancel_task(&mut sim, "call_R1", mode);
        let announced = if mode == AfterTurn { "call_R1/cancelling{after_turn}" } else { "" };
        sim.expect_trace(&format!(
            "resumed{{cancel}} {announced} call_R1/approval.resolved{{apr_R2,reject,system}} {end}
             fco_R1{{incomplete,cancelled}} step.started{{2}}"
        ));
        // Neither an answer nor a timer changes anything now.
        sim.decide("apr_R2", approve());
        sim.fire_timer(TimerId::Approval(approval_key("apr_R2")));
        sim.expect_trace("");
    }
}

#[test]
fn pending_requests_of_other_tasks_are_listed_again_at_the_next_pause() {
    let mut sim = two_sub_agents();
    sim.model_turn([model_call("trade", "{}")]);
    sim.model_turn([model_call("pick", "{}")]);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R2", Immediate);
    sim.expect_trace(
        "resumed{cancel} call_R2/approval.resolved{apr_R3,reject,system} call_R2/fco_R3{incomplete,cancelled}
         call_R2/cancelled{immediate,user} fco_R2{incomplete,cancelled} paused{call_R4}",
    );
    sim.submit_client_result("call_R4", "red");
    sim.expect_trace("resumed{user} call_R1/fco_R4{completed} call_R1/step.started{2}");
}

#[test]
fn after_turn_a_sub_agent_finishes_its_turn_and_tools_and_calls_no_model() {
    let mut sim = two_sub_agents();
    sim.model_outputs([model_text("Let me look.")]);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R2", AfterTurn);
    cancel_task(&mut sim, "call_R2", AfterTurn);
    sim.model_outputs([
        model_call("look", "{}"),
        model_call("trade", "{}"),
        model_call("pick", "{}"),
        model_call("deeper", r#"{"prompt":"?"}"#),
    ]);
    sim.end_turn(StopReason::Stop);
    sim.expect_trace(
        "call_R2/cancelling{after_turn} call_R2/msg_R3 call_R2/fc_R4 call_R2/fc_R5 call_R2/fc_R6 call_R2/fc_R7
         call_R2/step.done{1,tool_calls} call_R2/tool.started{call_R4} call_R2/fco_R5{incomplete,cancelled}
         call_R2/fco_R6{incomplete,cancelled} call_R2/fco_R7{incomplete,cancelled}",
    );
    sim.finish_tool("call_R4", tool_text("seen"));
    sim.expect_trace("call_R2/fco_R4{completed} call_R2/cancelled{after_turn,user} fco_R2{incomplete,cancelled}");
    // The sibling may still request approval.
    sim.model_turn([model_call("trade", "{}")]);
    sim.expect_trace("call_R1/fc_R8 call_R1/step.done{1,tool_calls} call_R1/approval.requested{apr_R8} paused{apr_R8}");
}

#[test]
fn after_turn_descendants_of_a_sub_agent_stop_too_and_a_last_answer_counts() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R1", AfterTurn);
    sim.model_turn([model_text("so it is")]);
    sim.expect_trace(
        "call_R1/cancelling{after_turn} call_R2/msg_R3 call_R2/step.done{1,stop} call_R2/completed
         call_R1/fco_R2{completed} call_R1/cancelled{after_turn,user} fco_R1{incomplete,cancelled} step.started{2}",
    );
}

#[test]
fn now_overrides_after_turn_and_a_cancel_of_the_run_overrides_both() {
    let mut sim = two_sub_agents();
    cancel_task(&mut sim, "call_R1", AfterTurn);
    cancel_task(&mut sim, "call_R1", Immediate);
    sim.expect_trace(
        "call_R1/cancelling{after_turn} call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user}
         fco_R1{incomplete,cancelled}",
    );
    cancel_task(&mut sim, "call_R2", AfterTurn);
    sim.cancel(Immediate);
    sim.expect_trace(
        "call_R2/cancelling{after_turn} call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user}
         fco_R2{incomplete,cancelled} cancelled{immediate,user}",
    );
}

#[test]
fn a_run_that_stops_after_its_turn_needs_no_cancel_of_its_sub_agents() {
    let mut sim = two_sub_agents();
    sim.cancel(AfterTurn);
    sim.skip_trace();
    cancel_task(&mut sim, "call_R1", AfterTurn);
    sim.expect_trace("");
    cancel_task(&mut sim, "call_R1", Immediate);
    sim.expect_trace("call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user} fco_R1{incomplete,cancelled}");
}

#[test]
fn cancelling_an_ended_or_unknown_sub_agent_does_nothing() {
    let mut sim = two_sub_agents();
    sim.model_turn([model_text("I am b")]);
    sim.skip_trace();
    for mode in [Immediate, AfterTurn] {
        for nobody in ["call_R2", "call_R9", "task_other"] {
            cancel_task(&mut sim, nobody, mode);
        }
    }
    sim.expect_trace("");
    assert_eq!(sim.run.fold.task(&task_id("call_R2")).expect("it was").status, TaskStatus::Completed);
}

#[test]
fn after_turn_a_crash_cancels_that_sub_agent_alone() {
    let mut sim = two_sub_agents();
    sim.model_outputs([model_text("I am b")]);
    cancel_task(&mut sim, "call_R2", AfterTurn);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "call_R2/msg_R3{incomplete,cancelled} call_R2/step.done{1,cancelled} call_R2/cancelled{after_turn,user}
         call_R1/step.done{1,lost} call_R1/recovered{1,2} call_R1/step.started{1,2} fco_R2{incomplete,cancelled}",
    );
    let result = result_of(&sim, "call_R2");
    assert_eq!(result.error.expect("it says why").message, "The agent was cancelled.");
}
