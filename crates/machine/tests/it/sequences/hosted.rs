//! What a provider wants others to do: approve a call of a tool of its own, or operate a computer.

use super::result_of;
use crate::fixtures::{
    ModelOutput, always, approval_key, approve, call_id, demo_definitions, edit, model_approval, model_call,
    model_text, reject, run_id, tool, tool_text,
};
use crate::sim::{Sim, client_results_answer};
use machine::{MachineInput, TimerId};
use model::command::ClientToolResult;
use model::content::ContentPart;
use model::definition::{ApprovalOnTimeout, Tool};
use model::event::{ActionRequest, CancelMode, ClientTool, Event};
use model::history::HistoryEntry;
use model::item::{ApprovalGate, CallKind, Item, ToolCall};
use model::model_turn::{ModelDelta, ModelItemKind};
use serde_json::json;

/// A run whose provider asks whether it may search.
fn paused_search() -> Sim {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_turn([model_text("I will search."), model_approval("docs", "search", "mcpr_1")]);
    sim.expect_trace(
        "created started step.started{1} msg_R1 fc_R2 step.done{1,tool_calls} approval.requested{apr_R2} paused{apr_R2}",
    );
    sim
}

fn call_of(sim: &Sim, id: &str) -> ToolCall {
    sim.run.fold.root().expect("the run began").call(&call_id(id)).expect("it was called").1.clone()
}

/// The calls and results that the last turn was given.
fn exchanged(sim: &Sim) -> Vec<String> {
    let request = sim.model_requests.last().expect("a model was asked");
    let word = |entry: &HistoryEntry| match entry {
        HistoryEntry::Call { name, raw, .. } => Some(format!("call {name} {}", raw.is_some())),
        HistoryEntry::Result { status, .. } => Some(format!("{status:?}")),
        _ => None,
    };
    request.history.iter().filter_map(word).collect()
}

#[test]
fn a_provider_that_asks_is_answered_by_a_person() {
    let mut sim = paused_search();
    let call = call_of(&sim, "call_R2");
    assert_eq!((call.kind, call.gate), (Some(CallKind::Hosted), Some(ApprovalGate::Always)));
    assert_eq!(call.server_label.as_deref(), Some("docs"));
    let asked = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some(e.action_requests[0].clone()),
        _ => None,
    });
    let (name, args, server_label) = ("search".to_owned(), json!({"q": 1}).into(), Some("docs".to_owned()));
    assert_eq!(asked, Some(ActionRequest { name, args, server_label, editable: Some(false), note: None }));
    sim.decide("apr_R2", approve());
    sim.model_turn([model_text("Found.")]);
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R2,approve,user} fco_R2{completed}
         step.started{2} msg_R3 step.done{2,stop} completed",
    );
    assert_eq!(exchanged(&sim), ["call search true", "Completed"]);
    assert!(sim.tool_requests.is_empty(), "the provider runs it");
    assert_eq!(result_of(&sim, "call_R2").block_list.unwrap().len(), 1);
}

#[test]
fn a_rejection_and_its_reason_reach_the_provider() {
    let mut sim = paused_search();
    sim.decide("apr_R2", reject("not today"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,reject,user} fco_R2{rejected,rejected} step.started{2}");
    assert!(sim.request_summary().ends_with("result:not today"), "{}", sim.request_summary());
}

/// A tool of ours has the same name, and would be approved when the time is up.
#[test]
fn a_question_of_the_provider_that_nobody_answers_is_rejected() {
    let careless = Tool { approval_on_timeout: ApprovalOnTimeout::Approve, ..tool("search") };
    let mut sim = Sim::started(demo_definitions([careless]));
    sim.model_turn([model_approval("docs", "search", "mcpr_1")]);
    sim.skip_trace();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R1")));
    sim.expect_trace(
        "resumed{timeout} approval.resolved{apr_R1,reject,timeout} fco_R1{rejected,approval_timeout} step.started{2}",
    );
    sim.decide("apr_R1", approve());
    sim.expect_trace("");
}

#[test]
fn an_edited_question_is_not_approved() {
    let mut sim = paused_search();
    sim.decide("apr_R2", edit(json!({"q": 2})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,edit,user} fco_R2{rejected,rejected} step.started{2}");
    assert_eq!(call_of(&sim, "call_R2").arguments.as_deref(), Some(r#"{"q":1}"#));
}

#[test]
fn several_questions_of_one_turn_are_decided_one_by_one() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    let asked = ["a", "b", "c"].map(|name| model_approval("docs", name, &format!("mcpr_{name}")));
    sim.model_turn(asked.into_iter().chain([model_call("look", "{}")]));
    sim.expect_trace(
        "created started step.started{1} fc_R1 fc_R2 fc_R3 fc_R4 step.done{1,tool_calls} approval.requested{apr_R1}
         approval.requested{apr_R2} approval.requested{apr_R3} tool.started{call_R4}",
    );
    sim.finish_tool("call_R4", tool_text("seen"));
    sim.expect_trace("fco_R4{completed} paused{apr_R1,apr_R2,apr_R3}");
    sim.decide("apr_R2", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R2,approve,user} fco_R2{completed} paused{apr_R1,apr_R3}");
    sim.crash();
    sim.expect_trace("");
    sim.decide_all([("apr_R1", reject("no")), ("apr_R3", approve())]);
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,reject,user} approval.resolved{apr_R3,approve,user}
         fco_R1{rejected,rejected} fco_R3{completed} step.started{2}",
    );
    let given = ["call a true", "call b true", "call c true", "call look false"];
    let results = ["Rejected", "Completed", "Completed", "Completed"];
    assert_eq!(exchanged(&sim), [given, results].concat());
}

#[test]
fn always_holds_for_the_same_tool_of_the_same_server() {
    let mut sim = paused_search();
    sim.decide("apr_R2", always(approve()));
    sim.skip_trace();
    sim.model_turn([
        model_approval("docs", "search", "mcpr_2"),
        model_approval("wiki", "search", "mcpr_3"),
        model_approval("docs", "delete", "mcpr_4"),
    ]);
    sim.expect_trace(
        "fc_R3 fc_R4 fc_R5 step.done{2,tool_calls} fco_R3{completed} approval.requested{apr_R4}
         approval.requested{apr_R5} paused{apr_R4,apr_R5}",
    );
    sim.decide_all([("apr_R4", always(reject("never"))), ("apr_R5", approve())]);
    sim.skip_trace();
    sim.model_turn([model_approval("wiki", "search", "mcpr_5")]);
    sim.expect_trace("fc_R6 step.done{3,tool_calls} fco_R6{rejected,rejected} step.started{4}");
}

#[test]
fn a_repeated_question_has_the_same_answer() {
    let mut sim = paused_search();
    sim.decide("apr_R2", approve());
    sim.skip_trace();
    sim.model_turn([model_approval("docs", "search", "mcpr_1")]);
    sim.expect_trace("fc_R3 step.done{2,tool_calls} fco_R3{completed} step.started{3}");
}

#[test]
fn a_cancel_withdraws_the_question() {
    let mut sim = paused_search();
    sim.cancel(CancelMode::Immediate);
    sim.expect_trace(
        "resumed{cancel} approval.resolved{apr_R2,reject,system} fco_R2{incomplete,cancelled} cancelled{immediate,user}",
    );
}

/// Without what the provider sent, the provider cannot be answered: it is told neither the question nor the decision.
#[test]
fn a_question_without_its_item_is_left_out_of_the_history() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    let (name, server_label) = ("search".to_owned(), "docs".to_owned());
    let item = ModelItemKind::HostedApproval { name, server_label, provider_call_id: None };
    sim.delta(ModelDelta::Started { slot: 0, item });
    sim.end_turn(model::event::StopReason::Stop);
    sim.decide("apr_R1", approve());
    assert_eq!(exchanged(&sim), [""; 0]);
}

/// The provider names the question by its own id, people by its key.
#[test]
fn a_hosted_call_names_the_question_that_approved_it() {
    let mut sim = paused_search();
    sim.decide("apr_R2", approve());
    let action = |id: &str| Some(json!({"name": "search", "approval_request_id": id}));
    let item = ModelItemKind::HostedCall { name: "mcp".to_owned(), action: action("mcpr_1") };
    sim.delta(ModelDelta::Started { slot: 0, item });
    sim.delta(ModelDelta::Hosted { slot: 0, state: "completed".to_owned(), action: action("mcpr_1") });
    sim.delta(ModelDelta::Done { slot: 0, raw: None });
    sim.delta(ModelDelta::Hosted { slot: 1, state: "x".to_owned(), action: None });
    let item = ModelItemKind::HostedCall { name: "mcp".to_owned(), action: action("mcpr_9") };
    sim.delta(ModelDelta::Started { slot: 1, item });
    let items = &sim.run.fold.root().unwrap().items;
    let named = items.iter().filter_map(|fold| match &fold.item {
        Item::HostedCall(call) => call.action.as_ref()?.get("approval_request_id")?.as_str().map(str::to_owned),
        _ => None,
    });
    let expected = [approval_key("apr_R2").to_string(), "mcpr_9".to_owned()];
    assert_eq!(named.collect::<Vec<_>>(), expected);
}

fn click() -> ModelOutput {
    ModelOutput::Computer(r#"{"action":{"type":"click"},"pending_safety_checks":[{"id":"sc_1"}]}"#.to_owned())
}

#[test]
fn a_computer_call_waits_for_the_client() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_turn([click()]);
    sim.expect_trace("created started step.started{1} fc_R1 step.done{1,tool_calls} paused{call_R1}");
    assert_eq!(call_of(&sim, "call_R1").kind, Some(CallKind::Client));
    sim.crash();
    let content = vec![ContentPart::image("/v1/blobs/ab12")];
    let checks = vec![json!({"id": "sc_1"})];
    let result =
        ClientToolResult { call_id: call_id("call_R1"), content, error: None, acknowledged_checks: checks.clone() };
    sim.input(MachineInput::Answers { answers: vec![client_results_answer(vec![result])], inputs: Vec::new() });
    sim.expect_trace("resumed{user} fco_R1{completed} step.started{2}");
    sim.crash();
    let request = sim.model_requests.last().unwrap();
    let HistoryEntry::Result { content, acknowledged_checks, .. } = request.history.iter().next_back().unwrap() else {
        panic!("{:?}", request.history)
    };
    assert_eq!(content.as_slice(), [ContentPart::image("/v1/blobs/ab12")]);
    assert_eq!(acknowledged_checks.as_deref(), Some(checks.as_slice()));
}

/// Who says nothing about the checks acknowledges none.
#[test]
fn checks_are_not_acknowledged_by_silence() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_turn([click()]);
    sim.submit_client_result("call_R1", "no screen");
    let last = sim.model_requests.last().unwrap().history.iter().next_back().cloned();
    assert!(matches!(last, Some(HistoryEntry::Result { acknowledged_checks: Some(checks), .. }) if checks.is_empty()));
}

#[test]
fn a_tool_named_computer_runs_computer_calls() {
    let mut sim = Sim::started(demo_definitions([tool("computer")]));
    sim.model_turn([click()]);
    sim.finish_tool("call_R1", tool_text("clicked"));
    sim.expect_trace(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} tool.started{call_R1} fco_R1{completed}
         step.started{2}",
    );
    let last = sim.model_requests.last().unwrap().history.iter().next_back().cloned();
    assert!(
        matches!(last, Some(HistoryEntry::Result { acknowledged_checks: None, .. })),
        "running it acknowledged them"
    );
}

/// A function of that name is another thing: the model made it up, or the client has declared it.
#[test]
fn a_function_named_computer_is_no_computer_call() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_turn([model_call("computer", "{}")]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} fco_R1{failed,unknown_tool} step.started{2}",
    );
    let mut sim = Sim::new(demo_definitions([tool("look")]));
    let (name, parameters) = ("computer".to_owned(), json!({"type": "object"}));
    sim.start(vec![ClientTool { name, description: String::new(), parameters }]);
    sim.model_turn([model_call("computer", "{}")]);
    sim.expect_trace("created started step.started{1} fc_R1 step.done{1,tool_calls} paused{call_R1}");
    assert_eq!(sim.run.fold.root().unwrap().id, run_id());
}
