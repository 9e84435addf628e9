//! Cancels: immediately, or after every task has finished its turn.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, needs_approval, tool, tool_text,
    with_handoffs, with_kind,
};
use crate::sim::Sim;
use model::definition::{Definitions, HandoffHistory, ToolExecutor};
use model::event::CancelMode::{AfterTurn, Immediate};
use model::event::StopReason;

/// An agent with a tool, a gated tool, a sub-agent and a hand-off target.
fn full_definitions() -> Definitions {
    let demo = with_handoffs(agent("demo", &["look", "trade", "ask"]), &[("specialist", HandoffHistory::All)]);
    let tools = [tool("look"), needs_approval(tool("trade")), agent_tool("ask", "helper")];
    build_definitions([demo, agent("helper", &["look"]), agent("specialist", &[])], tools)
}

fn started_run() -> Sim {
    let mut sim = Sim::started(full_definitions());
    sim.skip_trace();
    sim
}

#[test]
fn a_cancel_gives_the_running_call_a_result() {
    let mut sim = started_run();
    sim.model_turn([model_call("look", "{}")]);
    let late = sim.tools[0].clone();
    sim.skip_trace();
    sim.cancel(Immediate);
    sim.expect_trace("fco_R1{incomplete,cancelled} cancelled{immediate,user}");
    sim.input(machine::MachineInput::Tool { id: late, event: model::tool::ToolEvent::End(tool_text("late")) });
    sim.expect_trace("");
}

#[test]
fn a_cancel_ends_the_newest_task_first() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#), model_call("look", "{}"), model_call("trade", "{}")]);
    sim.model_outputs([model_text("I am")]);
    sim.skip_trace();
    sim.cancel(Immediate);
    sim.expect_trace(
        "call_R1/msg_R4{incomplete,cancelled} call_R1/step.done{1,cancelled} call_R1/cancelled{immediate,user}
         fco_R1{incomplete,cancelled} fco_R2{incomplete,cancelled}
         approval.resolved{apr_R3,reject,system} fco_R3{incomplete,cancelled} cancelled{immediate,user}",
    );
}

#[test]
fn calls_of_an_interrupted_turn_get_no_result_and_never_run() {
    let mut sim = started_run();
    sim.model_outputs([model_call("look", "{}")]);
    sim.cancel(Immediate);
    sim.expect_trace("fc_R1 step.done{1,cancelled} cancelled{immediate,user}");
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn after_turn_a_last_answer_ends_completed() {
    let mut sim = started_run();
    sim.model_outputs([model_text("Once ")]);
    sim.cancel(AfterTurn);
    sim.model_outputs([model_text("upon a time")]);
    sim.cancel(AfterTurn);
    sim.end_turn(StopReason::Stop);
    sim.expect_trace("cancelling{after_turn} msg_R1 msg_R2 step.done{1,stop} completed");
}

#[test]
fn after_turn_during_a_model_turn_runs_its_tools_and_calls_no_model() {
    let mut sim = started_run();
    sim.model_outputs([model_text("Let me look.")]);
    sim.cancel(AfterTurn);
    sim.model_outputs([model_call("look", "{}"), model_call("trade", "{}"), model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.end_turn(StopReason::Stop);
    sim.expect_trace(
        "cancelling{after_turn} msg_R1 fc_R2 fc_R3 fc_R4 step.done{1,tool_calls}
         tool.started{call_R2} fco_R3{incomplete,cancelled} fco_R4{incomplete,cancelled}",
    );
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} cancelled{after_turn,user}");
}

#[test]
fn after_turn_while_tools_run_lets_them_end() {
    let mut sim = started_run();
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.finish_tool("call_R1", tool_text("1"));
    sim.expect_trace("cancelling{after_turn} fco_R1{completed}");
    sim.finish_tool("call_R2", tool_text("2"));
    sim.expect_trace("fco_R2{completed} cancelled{after_turn,user}");
}

#[test]
fn after_turn_withdraws_pending_requests() {
    let mut sim = started_run();
    sim.model_turn([model_call("trade", "{}"), model_call("trade", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{rejected,cancelled}
         approval.resolved{apr_R2,reject,system} fco_R2{rejected,cancelled} cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_withdraws_pending_requests_while_a_tool_runs() {
    let mut sim = started_run();
    sim.model_turn([model_call("trade", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.expect_trace("cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{rejected,cancelled}");
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} cancelled{after_turn,user}");
}

#[test]
fn after_turn_every_task_finishes_its_own_turn() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.model_turn([model_call("look", "{}")]);
    sim.expect_trace(
        "cancelling{after_turn} call_R1/fc_R2 call_R1/step.done{1,tool_calls} call_R1/tool.started{call_R2}",
    );
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace(
        "call_R1/fco_R2{completed} call_R1/cancelled{after_turn,user} fco_R1{incomplete,cancelled}
         cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_a_sub_agents_last_answer_counts() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.model_turn([model_text("so it is")]);
    sim.expect_trace(
        "cancelling{after_turn} call_R1/msg_R2 call_R1/step.done{1,stop} call_R1/completed fco_R1{completed}
         cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_at_a_handoff_the_agent_changes_and_is_not_called() {
    let mut sim = started_run();
    sim.cancel(AfterTurn);
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    sim.expect_trace(
        "cancelling{after_turn} fc_R1 step.done{1,tool_calls} tool.started{call_R1} fco_R1{completed}
         agent.updated{specialist,demo} cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_a_handoff_that_waits_for_approval_is_withdrawn() {
    let escalate =
        needs_approval(with_kind(tool("escalate"), ToolExecutor::Handoff { agent: "specialist".to_owned() }));
    let mut sim = Sim::started(build_definitions([agent("demo", &["escalate"]), agent("specialist", &[])], [escalate]));
    sim.model_turn([model_call("escalate", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{rejected,cancelled}
         cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_a_steer_is_not_accepted() {
    let mut sim = started_run();
    sim.cancel(AfterTurn);
    sim.steer("and?");
    sim.model_turn([model_text("that is all")]);
    sim.expect_trace("cancelling{after_turn} msg_R1 step.done{1,stop} completed");
}

#[test]
fn an_unread_steer_makes_the_run_cancelled() {
    let mut sim = started_run();
    sim.steer("and?");
    sim.cancel(AfterTurn);
    sim.model_turn([model_text("that is all")]);
    sim.expect_trace("input.added cancelling{after_turn} msg_R2 step.done{1,stop} cancelled{after_turn,user}");
}

#[test]
fn after_turn_a_crash_cancels() {
    let mut sim = started_run();
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#), model_call("look", "{}")]);
    sim.model_outputs([model_text("I am")]);
    sim.cancel(AfterTurn);
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "call_R1/msg_R3{incomplete,cancelled} call_R1/step.done{1,cancelled} call_R1/cancelled{after_turn,user}
         fco_R1{incomplete,cancelled} fco_R2{incomplete,cancelled} cancelled{after_turn,user}",
    );
}

/// Cancelling in both modes is harmless: `now` overrides `after_turn`.
#[test]
fn now_overrides_after_turn() {
    let mut sim = started_run();
    sim.model_outputs([model_text("Once")]);
    sim.cancel(AfterTurn);
    sim.cancel(Immediate);
    sim.expect_trace(
        "cancelling{after_turn} msg_R1{incomplete,cancelled} step.done{1,cancelled} cancelled{immediate,user}",
    );
}

/// No event follows a cancel, whatever input still arrives.
#[test]
fn model_events_after_the_end_are_ignored() {
    let mut sim = Sim::started(demo_definitions([]));
    let model = sim.last_model();
    sim.model_outputs([model_text("x")]);
    sim.cancel(Immediate);
    sim.skip_trace();
    let words = model::model_turn::ModelDelta::Text { slot: 0, part: 0, text: "late".to_owned(), logprobs: None };
    sim.input(machine::MachineInput::Model { id: model.clone(), event: model::model_turn::ModelEvent::Delta(words) });
    sim.input(crate::sim::model_end(model, StopReason::Stop));
    sim.expect_trace("");
}
