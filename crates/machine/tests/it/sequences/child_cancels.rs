//! Cancels of one sub-agent: it and all below it stop, its parent reads so, everybody else goes on.

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

/// An agent that asks a helper, who asks another; all have a tool, a gated tool and one that a client runs.
fn family() -> Definitions {
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

fn begun() -> Sim {
    let mut sim = Sim::started(family());
    sim.skip_trace();
    sim
}

/// Two helpers are asked, `call_R1` and `call_R2`. The second one was asked last, so it speaks first.
fn twins() -> Sim {
    let mut sim = begun();
    sim.model_turn([model_call("ask", r#"{"prompt":"a"}"#), model_call("ask", r#"{"prompt":"b"}"#)]);
    sim.skip_trace();
    sim
}

fn stop(sim: &mut Sim, task: &str, mode: CancelMode) {
    sim.cancel_task(task_id(task), mode);
}

#[test]
fn a_sub_agent_is_stopped_and_its_parent_and_its_sibling_go_on() {
    let mut sim = twins();
    sim.model_outputs([model_text("I am b")]);
    sim.skip_trace();
    stop(&mut sim, "call_R2", Immediate);
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
fn all_below_a_sub_agent_stop_with_it_newest_first() {
    let mut sim = begun();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#), model_call("look", "{}"), model_call("trade", "{}")]);
    sim.model_turn([model_call("look", "{}")]);
    let late = sim.tools.clone();
    sim.skip_trace();
    stop(&mut sim, "call_R1", Immediate);
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
fn one_in_the_middle_is_stopped_and_who_asked_it_goes_on() {
    let mut sim = begun();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    stop(&mut sim, "call_R2", Immediate);
    sim.expect_trace(
        "call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user} call_R1/fco_R2{incomplete,cancelled}
         call_R1/step.started{2}",
    );
}

#[test]
fn a_run_that_waits_for_a_sub_agents_approval_resumes_and_goes_on_without_it() {
    for (mode, end) in [
        (Immediate, "call_R1/fco_R2{incomplete,cancelled} call_R1/cancelled{immediate,user}"),
        (AfterTurn, "call_R1/fco_R2{rejected,cancelled} call_R1/cancelled{after_turn,user}"),
    ] {
        let mut sim = begun();
        sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
        sim.model_turn([model_call("trade", "{}")]);
        sim.skip_trace();
        stop(&mut sim, "call_R1", mode);
        let announced = if mode == AfterTurn { "call_R1/cancelling{after_turn}" } else { "" };
        sim.expect_trace(&format!(
            "resumed{{cancel}} {announced} call_R1/approval.resolved{{apr_R2,reject,system}} {end}
             fco_R1{{incomplete,cancelled}} step.started{{2}}"
        ));
        // Neither a person nor the clock has anything left to say.
        sim.decide("apr_R2", approve());
        sim.fire_timer(TimerId::Approval(approval_key("apr_R2")));
        sim.expect_trace("");
    }
}

#[test]
fn what_others_wait_for_is_asked_for_again_at_the_next_pause() {
    let mut sim = twins();
    sim.model_turn([model_call("trade", "{}")]);
    sim.model_turn([model_call("pick", "{}")]);
    sim.skip_trace();
    stop(&mut sim, "call_R2", Immediate);
    sim.expect_trace(
        "resumed{cancel} call_R2/approval.resolved{apr_R3,reject,system} call_R2/fco_R3{incomplete,cancelled}
         call_R2/cancelled{immediate,user} fco_R2{incomplete,cancelled} paused{call_R4}",
    );
    sim.submit_client_result("call_R4", "red");
    sim.expect_trace("resumed{user} call_R1/fco_R4{completed} call_R1/step.started{2}");
}

#[test]
fn after_turn_a_sub_agent_finishes_its_turn_and_its_tools_and_asks_nobody() {
    let mut sim = twins();
    sim.model_outputs([model_text("Let me look.")]);
    sim.skip_trace();
    stop(&mut sim, "call_R2", AfterTurn);
    stop(&mut sim, "call_R2", AfterTurn);
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
    // The sibling may still ask.
    sim.model_turn([model_call("trade", "{}")]);
    sim.expect_trace("call_R1/fc_R8 call_R1/step.done{1,tool_calls} call_R1/approval.requested{apr_R8} paused{apr_R8}");
}

#[test]
fn after_turn_those_below_a_sub_agent_stop_too_and_a_last_answer_counts() {
    let mut sim = begun();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    stop(&mut sim, "call_R1", AfterTurn);
    sim.model_turn([model_text("so it is")]);
    sim.expect_trace(
        "call_R1/cancelling{after_turn} call_R2/msg_R3 call_R2/step.done{1,stop} call_R2/completed
         call_R1/fco_R2{completed} call_R1/cancelled{after_turn,user} fco_R1{incomplete,cancelled} step.started{2}",
    );
}

#[test]
fn now_overrides_after_turn_and_the_runs_own_cancel_either() {
    let mut sim = twins();
    stop(&mut sim, "call_R1", AfterTurn);
    stop(&mut sim, "call_R1", Immediate);
    sim.expect_trace(
        "call_R1/cancelling{after_turn} call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user}
         fco_R1{incomplete,cancelled}",
    );
    stop(&mut sim, "call_R2", AfterTurn);
    sim.cancel(Immediate);
    sim.expect_trace(
        "call_R2/cancelling{after_turn} call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user}
         fco_R2{incomplete,cancelled} cancelled{immediate,user}",
    );
}

#[test]
fn a_run_that_stops_after_its_turn_has_stopped_its_sub_agents_already() {
    let mut sim = twins();
    sim.cancel(AfterTurn);
    sim.skip_trace();
    stop(&mut sim, "call_R1", AfterTurn);
    sim.expect_trace("");
    stop(&mut sim, "call_R1", Immediate);
    sim.expect_trace("call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user} fco_R1{incomplete,cancelled}");
}

#[test]
fn one_that_has_ended_or_never_was_is_not_stopped() {
    let mut sim = twins();
    sim.model_turn([model_text("I am b")]);
    sim.skip_trace();
    for mode in [Immediate, AfterTurn] {
        for nobody in ["call_R2", "call_R9", "task_other"] {
            stop(&mut sim, nobody, mode);
        }
    }
    sim.expect_trace("");
    assert_eq!(sim.run.fold.task(&task_id("call_R2")).expect("it was").status, TaskStatus::Completed);
}

#[test]
fn after_turn_a_crash_cancels_that_sub_agent_alone() {
    let mut sim = twins();
    sim.model_outputs([model_text("I am b")]);
    stop(&mut sim, "call_R2", AfterTurn);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "call_R2/msg_R3{incomplete,cancelled} call_R2/step.done{1,cancelled} call_R2/cancelled{after_turn,user}
         call_R1/step.done{1,lost} call_R1/recovered{1,2} call_R1/step.started{1,2} fco_R2{incomplete,cancelled}",
    );
    let result = result_of(&sim, "call_R2");
    assert_eq!(result.error.expect("it says why").message, "The agent was cancelled.");
}
