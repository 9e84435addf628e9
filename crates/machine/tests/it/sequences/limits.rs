//! Limits: turns, tokens, money, time.

use crate::fixtures::{
    agent, agent_tool, build_definitions, demo_definitions, model_call, model_text, needs_approval, run_id, tool,
    tool_text,
};
use crate::sim::Sim;
use machine::{MachineInput, TimerId};
use model::TaskId;
use model::definition::Price;
use model::event::StopReason;
use model::limits::{CostMicros, RunLimits};
use model::ports::Spend;
use model::usage::Usage;

/// A run under these limits that has taken one turn of 13 tokens and waits for its tool.
fn after_one_turn(limits: RunLimits, spent: Spend) -> Sim {
    let mut house = demo_definitions([tool("t")]);
    // 9 tokens read and 4 written: 17 millionths.
    house.prices.insert("scripted/demo".to_owned(), Price { input: 1.0, output: 2.0, ..Price::default() });
    house.limits = limits;
    let mut sim = Sim::new(house);
    sim.run.prior_spend = spent;
    sim.start(Vec::new());
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim
}

/// A run that has had its last turn ends incomplete, on the same path as any other end, and keeps all that it did. (No
/// handler makes up a last answer in its place: without input the thread goes on from there.)
#[test]
fn too_many_steps_end_the_task() {
    let mut sim = after_one_turn(RunLimits { steps_max: 2, ..RunLimits::default() }, Spend::default());
    sim.finish_tool("call_R1", tool_text("ok"));
    sim.model_turn([model_call("t", "{}")]);
    sim.finish_tool("call_R2", tool_text("ok"));
    sim.expect_trace(
        "fco_R1{completed} step.started{2} fc_R2 step.done{2,tool_calls} tool.started{call_R2} fco_R2{completed}
         incomplete{max_steps}",
    );
}

#[test]
fn a_turn_that_was_lost_is_not_one_more() {
    let mut sim = Sim::started({
        let mut house = demo_definitions([]);
        house.limits.steps_max = 1;
        house
    });
    sim.model_outputs([model_text("hm")]);
    sim.crash();
    sim.skip_trace();
    sim.model_turn([model_text("yes")]);
    sim.expect_trace("msg_R2 step.done{1,stop} completed");
}

#[test]
fn what_is_used_up_ends_the_run_before_the_next_turn() {
    let none = RunLimits::default();
    let spent = Spend { usage: Usage { input_tokens: 100, ..Usage::default() }, cost: CostMicros(1_000) };
    for (limits, spent_before, ends) in [
        (RunLimits { run_tokens_max: Some(13), ..none }, Spend::default(), true),
        (RunLimits { run_tokens_max: Some(14), ..none }, Spend::default(), false),
        (RunLimits { run_cost_max: Some(CostMicros(17)), ..none }, Spend::default(), true),
        (RunLimits { run_cost_max: Some(CostMicros(18)), ..none }, Spend::default(), false),
        (RunLimits { user_day_tokens_max: Some(113), ..none }, spent, true),
        (RunLimits { user_day_tokens_max: Some(114), ..none }, spent, false),
        (RunLimits { user_day_cost_max: Some(CostMicros(1_017)), ..none }, spent, true),
        (RunLimits { user_day_cost_max: Some(CostMicros(1_018)), ..none }, spent, false),
    ] {
        let mut sim = after_one_turn(limits, spent_before);
        sim.finish_tool("call_R1", tool_text("ok"));
        let next = if ends { "incomplete{budget}" } else { "step.started{2}" };
        sim.expect_trace(&format!("fco_R1{{completed}} {next}"));
    }
}

#[test]
fn nothing_begins_when_the_day_is_used_up() {
    let mut house = demo_definitions([]);
    house.limits.user_day_tokens_max = Some(100);
    let mut sim = Sim::new(house);
    sim.run.prior_spend = Spend { usage: Usage { output_tokens: 100, ..Usage::default() }, cost: CostMicros(0) };
    sim.start(Vec::new());
    sim.expect_trace("created started incomplete{budget}");
}

#[test]
fn a_sub_agent_uses_up_its_runs_budget() {
    let mut house =
        build_definitions([agent("demo", &["ask"]), agent("helper", &["t"])], [agent_tool("ask", "helper"), tool("t")]);
    house.limits.run_tokens_max = Some(26);
    let mut sim = Sim::started(house);
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim.finish_tool("call_R2", tool_text("ok"));
    sim.expect_trace(
        "call_R1/fco_R2{completed} call_R1/incomplete{budget} fco_R1{incomplete,budget} incomplete{budget}",
    );
}

#[test]
fn the_deadline_ends_the_run() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.model_outputs([model_text("Once")]);
    sim.fire_run_deadline();
    sim.expect_trace("msg_R1{incomplete,limit} step.done{1,cancelled} incomplete{deadline}");
}

#[test]
fn the_deadline_ends_a_pause_too() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim.fire_run_deadline();
    sim.expect_trace(
        "resumed{timeout} approval.resolved{apr_R1,reject,system} fco_R1{incomplete,deadline} incomplete{deadline}",
    );
}

#[test]
fn the_deadline_ends_everybody() {
    let tools = [agent_tool("ask", "helper"), tool("t")];
    let mut sim = Sim::started(build_definitions([agent("demo", &["ask", "t"]), agent("helper", &[])], tools));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#), model_call("t", "{}")]);
    sim.skip_trace();
    sim.fire_run_deadline();
    sim.expect_trace(
        "call_R1/step.done{1,cancelled} call_R1/incomplete{deadline} fco_R1{incomplete,deadline}
         fco_R2{incomplete,deadline} incomplete{deadline}",
    );
}

#[test]
fn another_runs_deadline_is_not_this_ones() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.input(MachineInput::Timer(TimerId::Run(TaskId::from("task_before"))));
    sim.expect_trace("");
    sim.input(MachineInput::Timer(TimerId::Run(run_id())));
    sim.expect_trace("step.done{1,cancelled} incomplete{deadline}");
}

#[test]
fn a_filter_ends_the_task() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.model_outputs([model_text("Once")]);
    sim.end_turn(StopReason::ContentFilter);
    sim.expect_trace("msg_R1{incomplete,limit} step.done{1,content_filter} incomplete{content_filter}");
}
