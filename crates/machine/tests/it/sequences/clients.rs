//! Tools that the client runs: the run waits for it.

use super::result_of;
use crate::sim::Sim;
use crate::words::{call, call_id, demo, gives, how, run_id, text, tool};
use machine::Input;
use model::command::{Answer, AnswerTo};
use model::definition::ToolHow;
use model::event::{CancelMode, ClientTool, ErrorInfo};
use serde_json::json;

/// A run whose caller declared `pick`.
fn picking() -> Sim {
    let mut sim = Sim::new(demo([tool("look")]));
    let parameters = json!({"type": "object", "properties": {"of": {"type": "integer"}}});
    sim.start(vec![ClientTool { name: "pick".to_owned(), description: String::new(), parameters }]);
    sim
}

#[test]
fn client() {
    let mut sim = picking();
    assert!(sim.requests[0].tools.iter().any(|tool| tool.name == "pick"));
    sim.turn([call("pick", "{}")]);
    sim.client("call_R1", "red");
    sim.turn([text("red, then")]);
    sim.tells(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} paused{call_R1}
         resumed{user} fco_R1{completed} step.started{2} msg_R2 step.done{2,stop} completed",
    );
}

#[test]
fn a_client_that_could_not_says_why() {
    let mut sim = picking();
    sim.turn([call("pick", "{}")]);
    sim.skip();
    let error = Some(ErrorInfo::new("closed", "The dialog was closed."));
    let to = AnswerTo::ClientTool { call_id: call_id("call_R1"), content: Vec::new(), error };
    sim.input(Input::Answers(vec![Answer { task_id: run_id(), to }]));
    sim.tells("resumed{user} fco_R1{failed,closed} step.started{2}");
    assert!(sim.given().ends_with("result:The dialog was closed."), "{}", sim.given());
}

#[test]
fn a_client_is_asked_only_for_what_it_can_do() {
    let mut sim = picking();
    sim.skip();
    sim.turn([call("pick", r#"{"of":"many"}"#)]);
    sim.tells("fc_R1 step.done{1,tool_calls} fco_R1{failed,invalid_arguments} step.started{2}");
}

#[test]
fn two_calls_are_answered_one_by_one_or_twice_in_one_breath() {
    let mut sim = picking();
    sim.turn([call("pick", "{}"), call("pick", "{}"), call("look", "{}")]);
    sim.skip();
    sim.client("call_R2", "before the pause");
    sim.ends("call_R3", gives("seen"));
    sim.tells("fco_R2{completed} fco_R3{completed} paused{call_R1}");
    sim.client("call_R2", "again");
    sim.client("call_R9", "what?");
    sim.tells("");
    let answer = |words| crate::sim::client_gives(call_id("call_R1"), words);
    sim.input(Input::Answers(vec![answer("first"), answer("second")]));
    sim.tells("resumed{user} fco_R1{completed} step.started{2}");
    assert!(sim.given().contains("result:first | result:before the pause | result:seen"), "{}", sim.given());
}

#[test]
fn nobody_answers_for_a_tool_that_the_server_runs() {
    let mut sim = picking();
    sim.turn([call("look", "{}")]);
    sim.skip();
    sim.client("call_R1", "mine");
    sim.tells("");
    sim.ends("call_R1", gives("seen"));
    assert!(sim.given().ends_with("result:seen"));
}

#[test]
fn a_cancel_answers_what_the_client_never_did() {
    for (mode, ending) in [
        (CancelMode::Immediate, "resumed{cancel} fco_R1{incomplete,cancelled} cancelled{immediate,user}"),
        (
            CancelMode::AfterTurn,
            "resumed{cancel} cancelling{after_turn} fco_R1{incomplete,cancelled} cancelled{after_turn,user}",
        ),
    ] {
        let mut sim = picking();
        sim.turn([call("pick", "{}")]);
        sim.skip();
        sim.cancel(mode);
        sim.tells(ending);
        sim.client("call_R1", "too late");
        sim.tells("");
    }
}

#[test]
fn an_operator_may_declare_a_client_tool_too() {
    let mut sim = Sim::of(demo([how(tool("pick"), ToolHow::Client)]));
    sim.turn([call("pick", "{}")]);
    sim.skip();
    sim.client("call_R1", "red");
    sim.tells("resumed{user} fco_R1{completed} step.started{2}");
    assert_eq!(result_of(&sim, "call_R1").error, None);
}
