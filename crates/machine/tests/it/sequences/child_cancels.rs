//! Cancels of one sub-agent: it and all below it stop, its parent reads so, everybody else goes on.

use super::result_of;
use crate::sim::Sim;
use crate::words::{agent, approve, asking, call, gated, gives, house, how, key, task_id, text, tool};
use machine::TimerId;
use model::definition::{Definitions, ToolExecutor};
use model::event::CancelMode::{self, AfterTurn, Immediate};
use model::event::StopReason;
use model::task::TaskStatus;

/// An agent that asks a helper, who asks another; all have a tool, a gated tool and one that a client runs.
fn family() -> Definitions {
    let tools = [
        tool("look"),
        gated(tool("trade")),
        how(tool("pick"), ToolExecutor::Client),
        asking("ask", "helper"),
        asking("deeper", "expert"),
    ];
    let demo = agent("demo", &["look", "trade", "ask"]);
    let helper = agent("helper", &["look", "trade", "pick", "deeper"]);
    house([demo, helper, agent("expert", &["look", "trade"])], tools)
}

fn begun() -> Sim {
    let mut sim = Sim::of(family());
    sim.skip();
    sim
}

/// Two helpers are asked, `call_R1` and `call_R2`. The second one was asked last, so it speaks first.
fn twins() -> Sim {
    let mut sim = begun();
    sim.turn([call("ask", r#"{"prompt":"a"}"#), call("ask", r#"{"prompt":"b"}"#)]);
    sim.skip();
    sim
}

fn stop(sim: &mut Sim, task: &str, mode: CancelMode) {
    sim.cancel_task(task_id(task), mode);
}

#[test]
fn a_sub_agent_is_stopped_and_its_parent_and_its_sibling_go_on() {
    let mut sim = twins();
    sim.speak([text("I am b")]);
    sim.skip();
    stop(&mut sim, "call_R2", Immediate);
    sim.tells(
        "call_R2/msg_R3{incomplete,cancelled} call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user}
         fco_R2{incomplete,cancelled}",
    );
    sim.turn([text("I am a")]);
    sim.tells("call_R1/msg_R4 call_R1/step.done{1,stop} call_R1/completed fco_R1{completed} step.started{2}");
    assert_eq!(
        sim.given(),
        "user:go | call:ask | call:ask | result:I am a | result:I am b The agent was cancelled.",
        "the model reads what was said, and that it was cut"
    );
    sim.turn([text("well")]);
    sim.tells("msg_R5 step.done{2,stop} completed");
}

#[test]
fn all_below_a_sub_agent_stop_with_it_newest_first() {
    let mut sim = begun();
    sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
    sim.turn([call("deeper", r#"{"prompt":"?"}"#), call("look", "{}"), call("trade", "{}")]);
    sim.turn([call("look", "{}")]);
    let late = sim.tools.clone();
    sim.skip();
    stop(&mut sim, "call_R1", Immediate);
    sim.tells(
        "call_R2/fco_R5{incomplete,cancelled} call_R2/cancelled{immediate,user}
         call_R1/fco_R2{incomplete,cancelled} call_R1/fco_R3{incomplete,cancelled}
         call_R1/approval.resolved{apr_R4,reject,system} call_R1/fco_R4{incomplete,cancelled}
         call_R1/cancelled{immediate,user} fco_R1{incomplete,cancelled} step.started{2}",
    );
    assert_eq!(late.len(), 2);
    for id in late {
        sim.input(machine::MachineInput::Tool { id, event: model::tool::ToolEvent::End(gives("late")) });
    }
    sim.tells("");
}

#[test]
fn one_in_the_middle_is_stopped_and_who_asked_it_goes_on() {
    let mut sim = begun();
    sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
    sim.turn([call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip();
    stop(&mut sim, "call_R2", Immediate);
    sim.tells(
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
        sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
        sim.turn([call("trade", "{}")]);
        sim.skip();
        stop(&mut sim, "call_R1", mode);
        let announced = if mode == AfterTurn { "call_R1/cancelling{after_turn}" } else { "" };
        sim.tells(&format!(
            "resumed{{cancel}} {announced} call_R1/approval.resolved{{apr_R2,reject,system}} {end}
             fco_R1{{incomplete,cancelled}} step.started{{2}}"
        ));
        // Neither a person nor the clock has anything left to say.
        sim.decide("apr_R2", approve());
        sim.fires(TimerId::Approval(key("apr_R2")));
        sim.tells("");
    }
}

#[test]
fn what_others_wait_for_is_asked_for_again_at_the_next_pause() {
    let mut sim = twins();
    sim.turn([call("trade", "{}")]);
    sim.turn([call("pick", "{}")]);
    sim.skip();
    stop(&mut sim, "call_R2", Immediate);
    sim.tells(
        "resumed{cancel} call_R2/approval.resolved{apr_R3,reject,system} call_R2/fco_R3{incomplete,cancelled}
         call_R2/cancelled{immediate,user} fco_R2{incomplete,cancelled} paused{call_R4}",
    );
    sim.client("call_R4", "red");
    sim.tells("resumed{user} call_R1/fco_R4{completed} call_R1/step.started{2}");
}

#[test]
fn after_turn_a_sub_agent_finishes_its_turn_and_its_tools_and_asks_nobody() {
    let mut sim = twins();
    sim.speak([text("Let me look.")]);
    sim.skip();
    stop(&mut sim, "call_R2", AfterTurn);
    stop(&mut sim, "call_R2", AfterTurn);
    sim.speak([call("look", "{}"), call("trade", "{}"), call("pick", "{}"), call("deeper", r#"{"prompt":"?"}"#)]);
    sim.end(StopReason::Stop);
    sim.tells(
        "call_R2/cancelling{after_turn} call_R2/msg_R3 call_R2/fc_R4 call_R2/fc_R5 call_R2/fc_R6 call_R2/fc_R7
         call_R2/step.done{1,tool_calls} call_R2/tool.started{call_R4} call_R2/fco_R5{incomplete,cancelled}
         call_R2/fco_R6{incomplete,cancelled} call_R2/fco_R7{incomplete,cancelled}",
    );
    sim.ends("call_R4", gives("seen"));
    sim.tells("call_R2/fco_R4{completed} call_R2/cancelled{after_turn,user} fco_R2{incomplete,cancelled}");
    // The sibling may still ask.
    sim.turn([call("trade", "{}")]);
    sim.tells("call_R1/fc_R8 call_R1/step.done{1,tool_calls} call_R1/approval.requested{apr_R8} paused{apr_R8}");
}

#[test]
fn after_turn_those_below_a_sub_agent_stop_too_and_a_last_answer_counts() {
    let mut sim = begun();
    sim.turn([call("ask", r#"{"prompt":"?"}"#)]);
    sim.turn([call("deeper", r#"{"prompt":"?"}"#)]);
    sim.skip();
    stop(&mut sim, "call_R1", AfterTurn);
    sim.turn([text("so it is")]);
    sim.tells(
        "call_R1/cancelling{after_turn} call_R2/msg_R3 call_R2/step.done{1,stop} call_R2/completed
         call_R1/fco_R2{completed} call_R1/cancelled{after_turn,user} fco_R1{incomplete,cancelled} step.started{2}",
    );
}

#[test]
fn now_overrides_after_turn_and_the_runs_own_cancel_either() {
    let mut sim = twins();
    stop(&mut sim, "call_R1", AfterTurn);
    stop(&mut sim, "call_R1", Immediate);
    sim.tells(
        "call_R1/cancelling{after_turn} call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user}
         fco_R1{incomplete,cancelled}",
    );
    stop(&mut sim, "call_R2", AfterTurn);
    sim.cancel(Immediate);
    sim.tells(
        "call_R2/cancelling{after_turn} call_R2/step.done{1,cancelled} call_R2/cancelled{immediate,user}
         fco_R2{incomplete,cancelled} cancelled{immediate,user}",
    );
}

#[test]
fn a_run_that_stops_after_its_turn_has_stopped_its_sub_agents_already() {
    let mut sim = twins();
    sim.cancel(AfterTurn);
    sim.skip();
    stop(&mut sim, "call_R1", AfterTurn);
    sim.tells("");
    stop(&mut sim, "call_R1", Immediate);
    sim.tells("call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user} fco_R1{incomplete,cancelled}");
}

#[test]
fn one_that_has_ended_or_never_was_is_not_stopped() {
    let mut sim = twins();
    sim.turn([text("I am b")]);
    sim.skip();
    for mode in [Immediate, AfterTurn] {
        for nobody in ["call_R2", "call_R9", "task_other"] {
            stop(&mut sim, nobody, mode);
        }
    }
    sim.tells("");
    assert_eq!(sim.run.fold.task(&task_id("call_R2")).expect("it was").status, TaskStatus::Completed);
}

#[test]
fn after_turn_a_crash_cancels_that_sub_agent_alone() {
    let mut sim = twins();
    sim.speak([text("I am b")]);
    stop(&mut sim, "call_R2", AfterTurn);
    sim.skip();
    sim.crash();
    sim.tells(
        "call_R2/msg_R3{incomplete,cancelled} call_R2/step.done{1,cancelled} call_R2/cancelled{after_turn,user}
         call_R1/step.done{1,lost} call_R1/recovered{1,2} call_R1/step.started{1,2} fco_R2{incomplete,cancelled}",
    );
    let result = result_of(&sim, "call_R2");
    assert_eq!(result.error.expect("it says why").message, "The agent was cancelled.");
}
