//! Cancels: now, or when every task has finished its turn.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, needs_approval, tool, tool_text,
    with_handoffs, with_kind,
};
use crate::sim::Sim;
use model::definition::{Definitions, HandoffHistory, ToolExecutor};
use model::event::CancelMode::{AfterTurn, Immediate};
use model::event::StopReason;

/// An agent with a tool, a gated tool, a sub-agent and an heir.
fn everything() -> Definitions {
    let demo = with_handoffs(agent("demo", &["look", "trade", "ask"]), &[("specialist", HandoffHistory::All)]);
    let tools = [tool("look"), needs_approval(tool("trade")), agent_tool("ask", "helper")];
    build_definitions([demo, agent("helper", &["look"]), agent("specialist", &[])], tools)
}

fn begun() -> Sim {
    let mut sim = Sim::started(everything());
    sim.skip_trace();
    sim
}

#[test]
fn a_cancel_answers_the_call_that_runs() {
    let mut sim = begun();
    sim.model_turn([model_call("look", "{}")]);
    let late = sim.tools[0].clone();
    sim.skip_trace();
    sim.cancel(Immediate);
    sim.expect_trace("fco_R1{incomplete,cancelled} cancelled{immediate,user}");
    sim.input(machine::MachineInput::Tool { id: late, event: model::tool::ToolEvent::End(tool_text("late")) });
    sim.expect_trace("");
}

#[test]
fn a_cancel_goes_newest_task_first() {
    let mut sim = begun();
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
fn calls_of_a_turn_that_was_cut_get_no_result_and_never_run() {
    let mut sim = begun();
    sim.model_outputs([model_call("look", "{}")]);
    sim.cancel(Immediate);
    sim.expect_trace("fc_R1 step.done{1,cancelled} cancelled{immediate,user}");
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn after_turn_a_last_answer_ends_completed() {
    let mut sim = begun();
    sim.model_outputs([model_text("Once ")]);
    sim.cancel(AfterTurn);
    sim.model_outputs([model_text("upon a time")]);
    sim.cancel(AfterTurn);
    sim.end_turn(StopReason::Stop);
    sim.expect_trace("cancelling{after_turn} msg_R1 msg_R2 step.done{1,stop} completed");
}

#[test]
fn after_turn_while_speaking_lets_the_turns_tools_run_and_asks_nobody() {
    let mut sim = begun();
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
    let mut sim = begun();
    sim.model_turn([model_call("look", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.finish_tool("call_R1", tool_text("1"));
    sim.expect_trace("cancelling{after_turn} fco_R1{completed}");
    sim.finish_tool("call_R2", tool_text("2"));
    sim.expect_trace("fco_R2{completed} cancelled{after_turn,user}");
}

#[test]
fn after_turn_withdraws_what_is_pending() {
    let mut sim = begun();
    sim.model_turn([model_call("trade", "{}"), model_call("trade", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{rejected,cancelled}
         approval.resolved{apr_R2,reject,system} fco_R2{rejected,cancelled} cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_withdraws_what_is_pending_beside_a_tool_that_runs() {
    let mut sim = begun();
    sim.model_turn([model_call("trade", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.cancel(AfterTurn);
    sim.expect_trace("cancelling{after_turn} approval.resolved{apr_R1,reject,system} fco_R1{rejected,cancelled}");
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} cancelled{after_turn,user}");
}

#[test]
fn after_turn_every_task_finishes_its_own_turn() {
    let mut sim = begun();
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
    let mut sim = begun();
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
fn after_turn_at_a_handoff_the_agent_changes_and_says_nothing() {
    let mut sim = begun();
    sim.cancel(AfterTurn);
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    sim.expect_trace(
        "cancelling{after_turn} fc_R1 step.done{1,tool_calls} tool.started{call_R1} fco_R1{completed}
         agent.updated{specialist,demo} cancelled{after_turn,user}",
    );
}

#[test]
fn after_turn_a_handoff_that_waits_for_a_yes_is_withdrawn() {
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
fn after_turn_a_steer_is_not_taken() {
    let mut sim = begun();
    sim.cancel(AfterTurn);
    sim.steer("and?");
    sim.model_turn([model_text("that is all")]);
    sim.expect_trace("cancelling{after_turn} msg_R1 step.done{1,stop} completed");
}

#[test]
fn a_steer_that_nobody_will_read_any_more_makes_it_cancelled() {
    let mut sim = begun();
    sim.steer("and?");
    sim.cancel(AfterTurn);
    sim.model_turn([model_text("that is all")]);
    sim.expect_trace("input.added cancelling{after_turn} msg_R2 step.done{1,stop} cancelled{after_turn,user}");
}

#[test]
fn after_turn_a_crash_cancels() {
    let mut sim = begun();
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

/// Cancelling in both modes is harmless: the one that waits gives way to the one that does not.
#[test]
fn now_overrides_after_turn() {
    let mut sim = begun();
    sim.model_outputs([model_text("Once")]);
    sim.cancel(AfterTurn);
    sim.cancel(Immediate);
    sim.expect_trace(
        "cancelling{after_turn} msg_R1{incomplete,cancelled} step.done{1,cancelled} cancelled{immediate,user}",
    );
}

/// After a cancel nothing more is told, whatever still comes in.
#[test]
fn what_a_model_says_after_the_end_is_not_heard() {
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
