//! Limits: turns, tokens, cost, time.

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

/// A run under these limits that has used one turn of 13 tokens and waits for its tool.
fn run_after_one_turn(limits: RunLimits, spent: Spend) -> Sim {
    let mut definitions = demo_definitions([tool("t")]);
    // 9 input tokens and 4 output tokens: 17 millionths.
    definitions.prices.insert("scripted/demo".to_owned(), Price { input: 1.0, output: 2.0, ..Price::default() });
    definitions.limits = limits;
    let mut sim = Sim::new(definitions);
    sim.run.prior_spend = spent;
    sim.start(Vec::new());
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim
}

/// A run at its turn limit ends incomplete, on the same path as any other end, and keeps its output. (No handler
/// invents a final answer; a request without input continues the thread from there.)
#[test]
fn too_many_steps_end_the_task() {
    let mut sim = run_after_one_turn(RunLimits { steps_max: 2, ..RunLimits::default() }, Spend::default());
    sim.finish_tool("call_R1", tool_text("ok"));
    sim.model_turn([model_call("t", "{}")]);
    sim.finish_tool("call_R2", tool_text("ok"));
    sim.expect_trace(
        "fco_R1{completed} step.started{2} fc_R2 step.done{2,tool_calls} tool.started{call_R2} fco_R2{completed}
         incomplete{max_steps}",
    );
}

#[test]
fn a_lost_turn_does_not_count_as_a_step() {
    let mut sim = Sim::started({
        let mut definitions = demo_definitions([]);
        definitions.limits.steps_max = 1;
        definitions
    });
    sim.model_outputs([model_text("hm")]);
    sim.crash();
    sim.skip_trace();
    sim.model_turn([model_text("yes")]);
    sim.expect_trace("msg_R2 step.done{1,stop} completed");
}

#[test]
fn an_exhausted_budget_ends_the_run_before_the_next_turn() {
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
        let mut sim = run_after_one_turn(limits, spent_before);
        sim.finish_tool("call_R1", tool_text("ok"));
        let next = if ends { "incomplete{budget}" } else { "step.started{2}" };
        sim.expect_trace(&format!("fco_R1{{completed}} {next}"));
    }
}

#[test]
fn no_run_starts_when_the_daily_budget_is_exhausted() {
    let mut definitions = demo_definitions([]);
    definitions.limits.user_day_tokens_max = Some(100);
    let mut sim = Sim::new(definitions);
    sim.run.prior_spend = Spend { usage: Usage { output_tokens: 100, ..Usage::default() }, cost: CostMicros(0) };
    sim.start(Vec::new());
    sim.expect_trace("created started incomplete{budget}");
}

#[test]
fn a_sub_agent_counts_against_the_budget_of_its_run() {
    let mut definitions =
        build_definitions([agent("demo", &["ask"]), agent("helper", &["t"])], [agent_tool("ask", "helper"), tool("t")]);
    definitions.limits.run_tokens_max = Some(26);
    let mut sim = Sim::started(definitions);
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
fn the_deadline_ends_all_tasks() {
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
fn the_deadline_of_another_run_is_ignored() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.input(MachineInput::Timer(TimerId::Run(TaskId::from("task_before"))));
    sim.expect_trace("");
    sim.input(MachineInput::Timer(TimerId::Run(run_id())));
    sim.expect_trace("step.done{1,cancelled} incomplete{deadline}");
}

#[test]
fn a_content_filter_ends_the_task() {
    let mut sim = Sim::started(demo_definitions([]));
    sim.skip_trace();
    sim.model_outputs([model_text("Once")]);
    sim.end_turn(StopReason::ContentFilter);
    sim.expect_trace("msg_R1{incomplete,limit} step.done{1,content_filter} incomplete{content_filter}");
}
