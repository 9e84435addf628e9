//! Client tools: the run waits for their results.

use super::result_of;
use crate::fixtures::{
    agent, agent_tool, build_definitions, call_id, demo_definitions, model_call, model_text, tool, tool_text, with_kind,
};
use crate::sim::{Sim, client_results_answer};
use machine::{MachineInput, pending_requests};
use model::command::ClientToolResult;
use model::content::ContentPart;
use model::definition::ToolExecutor;
use model::error::ErrorInfo;
use model::event::{CancelMode, ClientTool};
use serde_json::json;

/// A run whose caller declared `pick`.
fn run_with_client_tool() -> Sim {
    let mut sim = Sim::new(demo_definitions([tool("look")]));
    let parameters = json!({"type": "object", "properties": {"of": {"type": "integer"}}});
    sim.start(vec![ClientTool { name: "pick".to_owned(), description: String::new(), parameters }]);
    sim
}

#[test]
fn client() {
    let mut sim = run_with_client_tool();
    assert!(sim.model_requests[0].tools.iter().any(|tool| tool.name == "pick"));
    sim.model_turn([model_call("pick", "{}")]);
    sim.submit_client_result("call_R1", "red");
    sim.model_turn([model_text("red, then")]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} paused{call_R1}
         resumed{user} fco_R1{completed} step.started{2} msg_R2 step.done{2,stop} completed",
    );
}

#[test]
fn a_failed_client_tool_reports_its_error() {
    let mut sim = run_with_client_tool();
    sim.model_turn([model_call("pick", "{}")]);
    sim.skip_trace();
    let error = Some(ErrorInfo::external("closed", "The dialog was closed."));
    let result =
        ClientToolResult { call_id: call_id("call_R1"), content: Vec::new(), error, acknowledged_checks: Vec::new() };
    sim.input(MachineInput::Answers { answers: vec![client_results_answer(vec![result])], inputs: Vec::new() });
    sim.expect_trace("resumed{user} fco_R1{failed,closed} step.started{2}");
    assert!(sim.request_summary().ends_with("result:The dialog was closed."), "{}", sim.request_summary());
}

#[test]
fn only_declared_client_tools_are_requested() {
    let mut sim = run_with_client_tool();
    sim.skip_trace();
    sim.model_turn([model_call("pick", r#"{"of":"many"}"#)]);
    sim.expect_trace("fc_R1 step.done{1,tool_calls} fco_R1{failed,invalid_arguments} step.started{2}");
}

#[test]
fn two_client_calls_are_answered_separately_or_together() {
    let mut sim = run_with_client_tool();
    sim.model_turn([model_call("pick", "{}"), model_call("pick", "{}"), model_call("look", "{}")]);
    sim.skip_trace();
    sim.submit_client_result("call_R2", "before the pause");
    sim.finish_tool("call_R3", tool_text("seen"));
    sim.expect_trace("fco_R2{completed} fco_R3{completed} paused{call_R1}");
    sim.submit_client_result("call_R2", "again");
    sim.submit_client_result("call_R9", "what?");
    sim.expect_trace("");
    let answer = |words| crate::sim::client_result_answer(call_id("call_R1"), words);
    sim.input(MachineInput::Answers { answers: vec![answer("first"), answer("second")], inputs: Vec::new() });
    sim.expect_trace("resumed{user} fco_R1{completed} step.started{2}");
    assert!(
        sim.request_summary().contains("result:first | result:before the pause | result:seen"),
        "{}",
        sim.request_summary()
    );
}

/// The pending client calls, whether the run is paused or not.
fn pending_client_calls(sim: &Sim) -> Vec<String> {
    let waits = pending_requests(&sim.run.fold).into_iter().map(|pending| pending.call_id);
    waits.map(|call| call.to_string().replace(crate::fixtures::run_id().run_suffix(), "R")).collect()
}

#[test]
fn the_run_waits_for_the_client_while_other_tools_run() {
    let helper = agent("helper", &["pick", "look"]);
    let tools = [with_kind(tool("pick"), ToolExecutor::Client), tool("look"), agent_tool("ask", "helper")];
    let mut sim = Sim::started(build_definitions([agent("demo", &["pick", "look", "ask"]), helper], tools));
    sim.model_outputs([model_call("pick", "{}")]);
    assert_eq!(pending_client_calls(&sim), [""; 0], "not before the turn has ended: it might be cut");
    sim.model_outputs([model_call("look", "{}"), model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.end_turn(model::event::StopReason::Stop);
    assert_eq!(pending_client_calls(&sim), ["call_R1"]);
    sim.model_turn([model_call("pick", "{}"), model_call("look", "{}")]);
    assert_eq!(pending_client_calls(&sim), ["call_R1", "call_R4"], "a sub-agent's as well");
    sim.skip_trace();
    let gave = |label| ClientToolResult {
        call_id: call_id(label),
        content: vec![ContentPart::text("red")],
        error: None,
        acknowledged_checks: Vec::new(),
    };
    sim.input(MachineInput::Answers {
        answers: vec![client_results_answer(vec![gave("call_R4"), gave("call_R1")])],
        inputs: Vec::new(),
    });
    sim.expect_trace("call_R3/fco_R4{completed} fco_R1{completed}");
    assert_eq!(pending_client_calls(&sim), [""; 0]);
}

#[test]
fn all_results_of_one_request_cause_one_resume_and_one_turn() {
    let mut sim = run_with_client_tool();
    sim.model_turn([model_call("pick", "{}"), model_call("pick", "{}"), model_call("pick", "{}")]);
    sim.skip_trace();
    let gave = |label| ClientToolResult {
        call_id: call_id(label),
        content: vec![ContentPart::text(label)],
        error: None,
        acknowledged_checks: Vec::new(),
    };
    let all = ["call_R3", "call_R1", "call_R2"].map(gave);
    sim.input(MachineInput::Answers { answers: vec![client_results_answer(all.to_vec())], inputs: Vec::new() });
    sim.expect_trace("resumed{user} fco_R3{completed} fco_R1{completed} fco_R2{completed} step.started{2}");
    assert!(
        sim.request_summary().ends_with("result:call_R1 | result:call_R2 | result:call_R3"),
        "{}",
        sim.request_summary()
    );
}

#[test]
fn a_client_result_for_a_server_tool_is_ignored() {
    let mut sim = run_with_client_tool();
    sim.model_turn([model_call("look", "{}")]);
    sim.skip_trace();
    sim.submit_client_result("call_R1", "mine");
    sim.expect_trace("");
    sim.finish_tool("call_R1", tool_text("seen"));
    assert!(sim.request_summary().ends_with("result:seen"));
}

#[test]
fn a_cancel_gives_unanswered_client_calls_a_result() {
    for (mode, ending) in [
        (CancelMode::Immediate, "resumed{cancel} fco_R1{incomplete,cancelled} cancelled{immediate,user}"),
        (
            CancelMode::AfterTurn,
            "resumed{cancel} cancelling{after_turn} fco_R1{incomplete,cancelled} cancelled{after_turn,user}",
        ),
    ] {
        let mut sim = run_with_client_tool();
        sim.model_turn([model_call("pick", "{}")]);
        sim.skip_trace();
        sim.cancel(mode);
        sim.expect_trace(ending);
        sim.submit_client_result("call_R1", "too late");
        sim.expect_trace("");
    }
}

#[test]
fn an_operator_may_declare_a_client_tool_too() {
    let mut sim = Sim::started(demo_definitions([with_kind(tool("pick"), ToolExecutor::Client)]));
    sim.model_turn([model_call("pick", "{}")]);
    sim.skip_trace();
    sim.submit_client_result("call_R1", "red");
    sim.expect_trace("resumed{user} fco_R1{completed} step.started{2}");
    assert_eq!(result_of(&sim, "call_R1").error, None);
}
