//! Approvals: requested at once, decided once, and the effect of each decision.

use super::result_of;
use crate::fixtures::{agent, agent_tool};
use crate::fixtures::{
    always, approval_key, approve, build_definitions, call_id, demo_definitions, edit, model_call, model_text,
    needs_approval, reject, tool, tool_text, with_kind,
};
use crate::sim::{Sim, approval_answer, client_result_answer};
use machine::{MachineInput, TimerId, timeout_answer};
use model::approval_rule::ApprovalRule;
use model::definition::{ApprovalOnTimeout, ApprovalPolicy, Tool, ToolExecutor};
use model::event::{CancelMode, Event};
use serde_json::json;

/// A run that waits for the approval of a trade.
fn paused_trade() -> Sim {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("execute_trade")), tool("look")]));
    sim.model_turn([
        model_text("I will place the order."),
        model_call("execute_trade", r#"{"symbol":"VNM", "n":100}"#),
    ]);
    sim.expect_trace(
        "created started step.started{1} msg_R1 fc_R2 step.done{1,tool_calls} approval.requested{apr_R2} paused{apr_R2}",
    );
    sim
}

#[test]
fn trade_requests_approval_with_arguments_and_deadline() {
    let sim = paused_trade();
    let asked = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some((draft.at, e)),
        _ => None,
    });
    let (at, asked) = asked.expect("somebody is asked");
    assert_eq!((&asked.key, &asked.call_id), (&approval_key("apr_R2"), &call_id("call_R2")));
    assert_eq!(asked.action_requests[0].args, json!({"symbol": "VNM", "n": 100}).into());
    assert!(asked.review_configs[0].require_approval);
    assert_eq!((asked.timeout_seconds, asked.expires_at), (300, at + 300_000));
    let object = sim.run.fold.task_object(&crate::fixtures::run_id()).expect("the run began");
    assert_eq!(object.pending[0].key, Some(approval_key("apr_R2")));
}

#[test]
fn trade_approved() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", approve());
    sim.finish_tool("call_R2", tool_text("Order placed: VNM x100"));
    sim.model_turn([model_text("Done: bought VNM.[^1]")]);
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R2,approve,user} tool.started{call_R2} fco_R2{completed}
         step.started{2} msg_R3 step.done{2,stop} completed",
    );
    assert_eq!(sim.tool_requests[0].arguments, r#"{"symbol":"VNM", "n":100}"#, "to the letter");
}

/// A rejected call has a result with the given message, and the run continues.
#[test]
fn trade_rejected() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", reject("too risky"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,reject,user} fco_R2{rejected,rejected} step.started{2}");
    assert_eq!(result_of(&sim, "call_R2").error.unwrap().message, "too risky");
    assert!(sim.request_summary().ends_with("result:too risky"), "{}", sim.request_summary());
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn trade_timed_out() {
    let mut sim = paused_trade();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R2")));
    sim.expect_trace(
        "resumed{timeout} approval.resolved{apr_R2,reject,timeout} fco_R2{rejected,approval_timeout} step.started{2}",
    );
    assert_eq!(result_of(&sim, "call_R2").error.unwrap().message, "No decision within 300 s");
    sim.decide("apr_R2", approve());
    sim.expect_trace("");
}

#[test]
fn a_time_out_can_be_configured_to_approve() {
    let careless = Tool { approval_on_timeout: ApprovalOnTimeout::Approve, ..needs_approval(tool("t")) };
    let mut sim = Sim::started(demo_definitions([careless]));
    sim.model_turn([model_call("t", "{}")]);
    sim.skip_trace();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R1")));
    sim.expect_trace("resumed{timeout} approval.resolved{apr_R1,approve,timeout} tool.started{call_R1}");
}

#[test]
fn a_decision_discards_a_queued_time_out() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", "{}"), model_call("t", "{}"), model_call("t", "{}")]);
    sim.skip_trace();
    let late = |sim: &Sim, label| timeout_answer(&sim.run, &approval_key(label)).expect("it is open");
    let answers = vec![late(&sim, "apr_R1"), approval_answer(approval_key("apr_R2"), approve())];
    sim.input(MachineInput::Answers { answers, inputs: Vec::new() });
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,reject,timeout} approval.resolved{apr_R2,approve,user}
         fco_R1{rejected,approval_timeout} tool.started{call_R2}",
    );
    assert_eq!(timeout_answer(&sim.run, &approval_key("apr_R1")), None, "what is decided has no time left to be up");
    // The deadline itself decides nothing: the time-out's answer does, when it arrives.
    let mut alone = sim.run.clone();
    let mut out = machine::MachineOutput::new(sim.now);
    let moment = MachineInput::Timer(TimerId::Approval(approval_key("apr_R3")));
    machine::apply_input(&mut alone, moment, &mut out);
    assert!(out.drafts.is_empty());
    let answers = vec![late(&sim, "apr_R3")];
    sim.input(MachineInput::Answers { answers, inputs: Vec::new() });
    sim.expect_trace("approval.resolved{apr_R3,reject,timeout} fco_R3{rejected,approval_timeout}");
}

#[test]
fn trade_cancelled_in_the_pause() {
    let mut sim = paused_trade();
    sim.cancel(CancelMode::Immediate);
    sim.expect_trace(
        "resumed{cancel} approval.resolved{apr_R2,reject,system} fco_R2{incomplete,cancelled} cancelled{immediate,user}",
    );
    sim.decide("apr_R2", approve());
    sim.expect_trace("");
}

#[test]
fn an_edited_call_has_the_arguments_that_ran_and_keeps_the_models_beside_them() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", edit(json!({"symbol": "VNM", "n": 1})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,edit,user} tool.started{call_R2}");
    let Some(Event::ToolStarted(started)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it runs") };
    let args: serde_json::Value = serde_json::from_str(&started.arguments).unwrap();
    assert_eq!(args, json!({"symbol": "VNM", "n": 1}));
    assert_eq!(sim.tool_requests[0].arguments, started.arguments);
    let written = Some(r#"{"symbol":"VNM", "n":100}"#);
    assert_eq!(started.original_arguments.as_deref(), written);
    let ran = started.arguments.clone();
    let (_, call) = sim.run.fold.root().unwrap().call(&call_id("call_R2")).unwrap();
    assert_eq!((call.arguments.as_ref(), call.original_arguments.as_deref()), (Some(&ran), written));
}

#[test]
fn an_edit_that_changes_nothing_keeps_the_models_text() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", edit(json!({"n": 100, "symbol": "VNM"})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,edit,user} tool.started{call_R2}");
    assert_eq!(sim.tool_requests[0].arguments, r#"{"symbol":"VNM", "n":100}"#);
    let (_, call) = sim.run.fold.root().unwrap().call(&call_id("call_R2")).unwrap();
    assert_eq!(call.original_arguments, None);
}

#[test]
fn an_invalid_edit_runs_nothing() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", edit(json!({"n": "all of it"})));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R2,edit,user} fco_R2{failed,invalid_arguments} step.started{2}",
    );
    assert!(sim.tool_requests.is_empty());
}

/// `always` covers later calls of the same tool in the same run.
#[test]
fn always_approve_requests_no_further_approval_in_this_run() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", always(approve()));
    sim.finish_tool("call_R2", tool_text("ok"));
    sim.skip_trace();
    sim.model_turn([model_call("execute_trade", "{}")]);
    sim.expect_trace("fc_R3 step.done{2,tool_calls} tool.started{call_R3}");
}

#[test]
fn always_reject_rejects_later_calls_without_asking() {
    let mut sim = paused_trade();
    sim.decide("apr_R2", always(reject("never")));
    sim.skip_trace();
    sim.model_turn([model_call("execute_trade", "{}"), model_call("look", "{}")]);
    sim.expect_trace("fc_R3 fc_R4 step.done{2,tool_calls} fco_R3{rejected,rejected} tool.started{call_R4}");
}

#[test]
fn always_covers_one_tool() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("a")), needs_approval(tool("b"))]));
    sim.model_turn([model_call("a", "{}")]);
    sim.decide("apr_R1", always(approve()));
    sim.finish_tool("call_R1", tool_text("ok"));
    sim.skip_trace();
    sim.model_turn([model_call("b", "{}")]);
    sim.expect_trace("fc_R2 step.done{2,tool_calls} approval.requested{apr_R2} paused{apr_R2}");
}

/// Approving one of two pending calls runs it and pauses again, without calling the model.
#[test]
fn deciding_one_of_two_runs_it_and_pauses_again_without_a_model_call() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", r#"{"n":1}"#), model_call("t", r#"{"n":2}"#)]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 fc_R2 step.done{1,tool_calls}
         approval.requested{apr_R1} approval.requested{apr_R2} paused{apr_R1,apr_R2}",
    );
    sim.decide("apr_R2", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,approve,user} tool.started{call_R2}");
    sim.finish_tool("call_R2", tool_text("2"));
    sim.expect_trace("fco_R2{completed} paused{apr_R1}");
    sim.decide("apr_R1", reject("no"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,reject,user} fco_R1{rejected,rejected} step.started{2}");
    assert_eq!(sim.request_summary(), "user:go | call:t | call:t | result:no | result:2");
}

#[test]
fn queued_decisions_are_one_input_and_rejections_come_first() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("t"))]));
    sim.model_turn([model_call("t", "{}"), model_call("t", "{}")]);
    sim.skip_trace();
    sim.decide_all([("apr_R1", approve()), ("apr_R2", reject("no")), ("apr_R1", reject("too late"))]);
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,approve,user} approval.resolved{apr_R2,reject,user}
         fco_R2{rejected,rejected} tool.started{call_R1}",
    );
}

/// In a mixed turn, calls that need no approval run once, before the pause, and not again after it.
#[test]
fn calls_without_approval_run_before_the_pause_and_not_again() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("trade")), tool("look")]));
    sim.model_turn([model_call("trade", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} paused{apr_R1}");
    sim.decide("apr_R1", approve());
    sim.finish_tool("call_R1", tool_text("bought"));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1} fco_R1{completed} step.started{2}",
    );
    assert_eq!(sim.tool_requests.len(), 2);
}

#[test]
fn a_decision_before_the_pause_needs_no_resume() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("trade")), tool("look")]));
    sim.model_turn([model_call("trade", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.decide("apr_R1", approve());
    sim.expect_trace("approval.resolved{apr_R1,approve,user} tool.started{call_R1}");
}

#[test]
fn a_rule_requires_approval_for_some_calls() {
    let rule = ApprovalRule::parse("n > 10").unwrap();
    let mut sim = Sim::started(demo_definitions([Tool { approval: ApprovalPolicy::When(rule), ..tool("t") }]));
    sim.model_turn([model_call("t", r#"{"n":1}"#), model_call("t", r#"{"n":11}"#)]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 fc_R2 step.done{1,tool_calls}
         tool.started{call_R1} approval.requested{apr_R2}",
    );
}

#[test]
fn a_duplicate_argument_does_not_bypass_a_rule() {
    // One parser takes the last of two, another the first: the arguments that were shown must be the ones that run.
    for arguments in
        [r#"{"n":11,"n":1}"#, r#"{"n":1,"n":11}"#, r#"{"n":1,"\u006e":11}"#, r#"{"n":1,"of":[{"a":{"b":1,"b":2}}]}"#]
    {
        let rule = ApprovalRule::parse("n > 10").unwrap();
        let mut sim = Sim::started(demo_definitions([
            Tool { approval: ApprovalPolicy::When(rule), ..tool("t") },
            needs_approval(tool("g")),
        ]));
        sim.skip_trace();
        sim.model_turn([model_call("t", arguments), model_call("g", arguments)]);
        sim.expect_trace(
            "fc_R1 fc_R2 step.done{1,tool_calls} fco_R1{failed,invalid_arguments} fco_R2{failed,invalid_arguments}
             step.started{2}",
        );
        let why = result_of(&sim, "call_R1").error.unwrap().message;
        assert!(why.contains("duplicate key"), "{arguments}: {why}");
        assert!(sim.tool_requests.is_empty(), "{arguments}");
    }
    // The same name in two objects is no duplicate.
    let mut sim = Sim::started(demo_definitions([tool("t")]));
    sim.model_turn([model_call("t", r#"{"n":1,"a":{"n":true,"b":[{"n":null},{"n":-1.5}]},"c":"n"}"#)]);
    assert_eq!(sim.tool_requests.len(), 1);
}

/// A decision is bound to its request: for another one it is void, and repeated it changes nothing.
#[test]
fn a_decision_counts_once_and_only_for_a_pending_approval() {
    let mut sim = paused_trade();
    sim.decide("apr_R9", approve());
    sim.decide_all([]);
    sim.expect_trace("");
    sim.decide("apr_R2", reject("no"));
    sim.skip_trace();
    sim.decide("apr_R2", approve());
    sim.fire_timer(TimerId::Approval(approval_key("apr_R2")));
    sim.expect_trace("");
    assert!(sim.tool_requests.is_empty());
}

#[test]
fn a_client_result_does_not_replace_a_decision() {
    let mut sim = paused_trade();
    sim.submit_client_result("call_R2", "bought, trust me");
    sim.expect_trace("");
    sim.decide("apr_R2", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,approve,user} tool.started{call_R2}");
}

#[test]
fn a_sub_agents_approval_pauses_the_whole_run_once() {
    let tools = [agent_tool("ask", "helper"), needs_approval(tool("trade")), tool("look")];
    let mut sim =
        Sim::started(build_definitions([agent("demo", &["ask", "look"]), agent("helper", &["trade"])], tools));
    sim.model_turn([model_call("ask", r#"{"prompt":"buy"}"#), model_call("look", "{}")]);
    sim.skip_trace();
    sim.model_turn([model_call("trade", "{}")]);
    sim.expect_trace("call_R1/fc_R3 call_R1/step.done{1,tool_calls} call_R1/approval.requested{apr_R3}");
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} paused{apr_R3}");
    let Some(Event::Paused(paused)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it pauses") };
    assert_eq!(paused.pending[0].task_id, call_id("call_R1").child_task_id(), "whose question it is");
    sim.decide("apr_R3", approve());
    sim.finish_tool("call_R3", tool_text("bought"));
    sim.model_turn([model_text("bought it")]);
    sim.expect_trace(
        "resumed{user} call_R1/approval.resolved{apr_R3,approve,user} call_R1/tool.started{call_R3}
         call_R1/fco_R3{completed} call_R1/step.started{2} call_R1/msg_R4 call_R1/step.done{2,stop} call_R1/completed
         fco_R1{completed} step.started{2}",
    );
}

#[test]
fn starting_a_sub_agent_may_need_approval() {
    let tools = [needs_approval(agent_tool("ask", "helper"))];
    let mut sim = Sim::started(build_definitions([agent("demo", &["ask"]), agent("helper", &[])], tools));
    sim.model_turn([model_call("ask", r#"{"prompt":"buy"}"#)]);
    sim.skip_trace();
    sim.decide("apr_R1", edit(json!({"prompt": "sell"})));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,edit,user} tool.started{call_R1} fco_R1+
         call_R1/created call_R1/started call_R1/step.started{1}",
    );
    assert_eq!(sim.request_summary(), "user:sell");
}

#[test]
fn a_client_tool_waits_for_approval_and_then_for_the_client() {
    let mut sim = Sim::started(demo_definitions([needs_approval(with_kind(tool("pick"), ToolExecutor::Client))]));
    sim.model_turn([model_call("pick", "{}")]);
    sim.skip_trace();
    sim.submit_client_result("call_R1", "red");
    sim.expect_trace("");
    sim.decide("apr_R1", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} paused{call_R1}");
    sim.submit_client_result("call_R1", "red");
    sim.expect_trace("resumed{user} fco_R1{completed} step.started{2}");
}

#[test]
fn decisions_and_results_of_one_request_are_one_resume() {
    let mut sim =
        Sim::started(demo_definitions([needs_approval(tool("trade")), with_kind(tool("pick"), ToolExecutor::Client)]));
    sim.model_turn([model_call("trade", "{}"), model_call("pick", "{}")]);
    sim.skip_trace();
    let picked = client_result_answer(call_id("call_R2"), "red");
    sim.input(MachineInput::Answers {
        answers: vec![picked, approval_answer(approval_key("apr_R1"), approve())],
        inputs: Vec::new(),
    });
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} fco_R2{completed} tool.started{call_R1}");
}
