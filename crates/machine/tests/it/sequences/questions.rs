//! Questions of tools that end with them: asked one after the other, answered once, and the same attempt goes on.

use super::result_of;
use crate::fixtures::{
    always, approval_key, approve, demo_definitions, idempotent, model_call, model_text, needs_approval, reject, tool,
    tool_text,
};
use crate::sim::Sim;
use machine::TimerId;
use model::definition::{ApprovalOnTimeout, OnCrash, Tool};
use model::event::{ApprovalDecision, CancelMode, Event, PendingKind, Question};
use model::limits::QUESTION_ROUNDS_MAX;
use model::question::{InputRequired, OnDecline, QuestionAnswer, ToolAnswers, ToolQuestion};
use model::tool::ToolEvent;
use serde_json::{Value, json};

pub(super) fn asks(questions: &[&str]) -> InputRequired {
    let schema = json!({"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]});
    let ask = |id: &&str| ToolQuestion {
        id: (*id).to_owned(),
        question: Question { message: format!("Which {id}?"), schema: Some(schema.clone()), url: None },
    };
    let state = Some("opaque".to_owned());
    InputRequired { questions: questions.iter().map(ask).collect(), state, ..InputRequired::default() }
}

pub(super) fn answer(args: Value) -> ApprovalDecision {
    ApprovalDecision { args: Some(args.into()), ..approve() }
}

fn accepted(args: Value) -> QuestionAnswer {
    QuestionAnswer::Accepted(args.into())
}

/// A run whose tool has asked for a seat.
fn asking(booking: Tool, input: InputRequired) -> Sim {
    let mut sim = Sim::started(demo_definitions([booking]));
    sim.model_turn([model_call("book", r#"{"n":2}"#)]);
    sim.skip_trace();
    sim.tool_event("call_R1", ToolEvent::InputRequired(input));
    sim
}

fn told(sim: &Sim) -> ToolAnswers {
    sim.tool_requests.last().and_then(|request| request.answers.clone()).expect("the tool was called again")
}

#[test]
fn a_question_pauses_the_run_and_its_answer_continues_the_same_attempt() {
    let mut sim = asking(tool("book"), asks(&["seat"]));
    sim.expect_trace("approval.requested{apr_R1_1} paused{apr_R1_1}");
    let pending = &sim.run.fold.root().unwrap().pending[0];
    assert_eq!((pending.kind, &pending.key), (PendingKind::Question, &Some(approval_key("apr_R1_1"))));
    let asked = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some(serde_json::to_value(e).unwrap()),
        _ => None,
    });
    let asked = asked.unwrap();
    assert_eq!(asked["question"]["message"], "Which seat?");
    assert_eq!(asked["question"]["schema"]["required"], json!(["seat"]));
    assert_eq!(asked["action_requests"][0], json!({"name": "book", "args": {"n": 2}, "editable": false}));

    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,approve,user} tool.started{call_R1}");
    let request = sim.tool_requests.last().unwrap();
    assert_eq!((request.attempt, request.arguments.as_str()), (1, r#"{"n":2}"#));
    let answers = [("seat".to_owned(), accepted(json!({"seat": "12A"})))].into();
    assert_eq!(told(&sim), ToolAnswers { state: Some("opaque".to_owned()), answers });
    sim.finish_tool("call_R1", tool_text("booked"));
    sim.expect_trace("fco_R1{completed} step.started{2}");
}

#[test]
fn a_question_survives_a_crash_and_its_answer_is_not_lost_in_the_next_one() {
    let mut sim = asking(tool("book"), asks(&["seat"]));
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("");
    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,approve,user} tool.started{call_R1}");
    assert_eq!(told(&sim).answers["seat"], accepted(json!({"seat": "12A"})));
    // The tool that got the answer may have acted on it.
    sim.crash();
    sim.expect_trace("recovered{1,1} fco_R1{unknown,outcome_unknown} step.started{2}");
}

/// What people answered stays answered when the tool may be started again.
#[test]
fn an_attempt_after_a_crash_gets_the_answers_too() {
    let risky = Tool { on_crash: OnCrash::Ask, ..tool("book") };
    let mut sim = asking(idempotent(tool("book")), asks(&["seat"]));
    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("recovered{1,1} tool.started{call_R1,2}");
    assert_eq!(told(&sim).answers["seat"], accepted(json!({"seat": "12A"})));

    let mut sim = asking(risky, asks(&["seat"]));
    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.skip_trace();
    sim.crash();
    sim.expect_trace("recovered{1,1} approval.requested{apr_R1} paused{apr_R1}");
    sim.decide("apr_R1", approve());
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1,2}");
    assert_eq!(told(&sim).answers["seat"], accepted(json!({"seat": "12A"})));
}

/// Declining a question is no rejection of the call: the tool hears it and says what follows.
#[test]
fn a_declined_question_goes_back_to_the_tool() {
    let mut sim = asking(tool("book"), asks(&["seat"]));
    sim.skip_trace();
    sim.decide("apr_R1_1", reject("none of your business"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,reject,user} tool.started{call_R1}");
    let declined = QuestionAnswer::Declined(Some("none of your business".to_owned()));
    assert_eq!(told(&sim).answers["seat"], declined);
    sim.finish_tool("call_R1", tool_text("booked without a seat"));
    sim.expect_trace("fco_R1{completed} step.started{2}");
}

#[test]
fn a_declined_question_rejects_the_call_of_a_tool_that_says_so() {
    let input = || InputRequired { on_decline: OnDecline::Reject, ..asks(&["seat"]) };
    let mut sim = asking(tool("book"), input());
    sim.skip_trace();
    sim.decide("apr_R1_1", reject("no"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,reject,user} fco_R1{rejected,rejected} step.started{2}");
    assert_eq!(result_of(&sim, "call_R1").error.unwrap().message, "no");

    let mut sim = asking(tool("book"), input());
    sim.skip_trace();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R1_1")));
    sim.expect_trace(
        "resumed{timeout} approval.resolved{apr_R1_1,reject,timeout} fco_R1{rejected,approval_timeout} step.started{2}",
    );
    assert_eq!(result_of(&sim, "call_R1").error.unwrap().message, "No answer within 300 s");
}

/// No clock can answer a question, also where it would approve a call.
#[test]
fn a_question_that_times_out_is_cancelled() {
    let lenient = Tool { approval_on_timeout: ApprovalOnTimeout::Approve, ..tool("book") };
    let mut sim = asking(lenient, asks(&["seat"]));
    sim.skip_trace();
    sim.fire_timer(TimerId::Approval(approval_key("apr_R1_1")));
    sim.expect_trace("resumed{timeout} approval.resolved{apr_R1_1,reject,timeout} tool.started{call_R1}");
    assert_eq!(told(&sim).answers["seat"], QuestionAnswer::Cancelled);
}

#[test]
fn questions_are_asked_one_after_the_other_and_each_has_its_own_key() {
    let mut sim = asking(tool("book"), asks(&["seat", "meal"]));
    sim.skip_trace();
    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1_1,approve,user} approval.requested{apr_R1_2} paused{apr_R1_2}",
    );
    // The first answer once more, late: it does not answer the second question.
    sim.decide("apr_R1_1", answer(json!({"seat": "13B"})));
    sim.expect_trace("");
    sim.crash();
    sim.decide("apr_R1_2", answer(json!({"seat": "fish"})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_2,approve,user} tool.started{call_R1}");
    let answers = told(&sim).answers;
    assert_eq!(answers["seat"], accepted(json!({"seat": "12A"})));
    assert_eq!(answers["meal"], accepted(json!({"seat": "fish"})));
}

#[test]
fn after_a_declined_question_the_others_are_not_asked() {
    let mut sim = asking(tool("book"), asks(&["seat", "meal"]));
    sim.decide("apr_R1_1", reject("no"));
    let answers = told(&sim).answers;
    assert_eq!(answers["seat"], QuestionAnswer::Declined(Some("no".to_owned())));
    assert_eq!(answers["meal"], QuestionAnswer::Cancelled);
}

#[test]
fn a_tool_that_asks_for_ever_is_stopped() {
    let mut sim = asking(tool("book"), asks(&["seat"]));
    for round in 1..=QUESTION_ROUNDS_MAX {
        sim.decide(&format!("apr_R1_{round}"), answer(json!({"seat": "12A"})));
        sim.skip_trace();
        sim.tool_event("call_R1", ToolEvent::InputRequired(asks(&["seat"])));
    }
    sim.expect_trace("fco_R1{failed,too_many_questions} step.started{2}");
}

#[test]
fn a_question_that_cannot_be_asked_fails_the_call() {
    let with_schema = |schema: Value| {
        let question = Question { message: "?".to_owned(), schema: Some(schema), url: None };
        InputRequired { questions: vec![ToolQuestion { id: String::new(), question }], ..InputRequired::default() }
    };
    let endless = json!({"type": "object", "$ref": "https://example.com/schema"});
    let long = InputRequired { state: Some("x".repeat(100_000)), ..asks(&["seat"]) };
    let many = asks(&["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    for input in [asks(&[]), many, long, with_schema(json!({"type": "string"})), with_schema(endless)] {
        let mut sim = asking(tool("book"), input);
        sim.expect_trace("fco_R1{failed,invalid_question} step.started{2}");
    }
}

/// The approval of the call and its question are two requests, and `always` about a question means nothing.
#[test]
fn a_gated_tool_is_approved_first_and_asks_then() {
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("book"))]));
    sim.model_turn([model_call("book", "{}")]);
    sim.decide("apr_R1", approve());
    sim.tool_event("call_R1", ToolEvent::InputRequired(asks(&["seat"])));
    sim.skip_trace();
    sim.decide("apr_R1_1", always(answer(json!({"seat": "1"}))));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,approve,user} tool.started{call_R1}");
    sim.finish_tool("call_R1", tool_text("ok"));
    sim.model_turn([model_text("Again."), model_call("book", "{}")]);
    assert!(sim.trace().last().unwrap().contains("paused"), "{:?}", sim.trace());
}

#[test]
fn a_cancel_withdraws_the_question() {
    let mut sim = asking(tool("book"), asks(&["seat"]));
    sim.skip_trace();
    sim.cancel(CancelMode::Immediate);
    sim.expect_trace(
        "resumed{cancel} approval.resolved{apr_R1_1,reject,system} fco_R1{incomplete,cancelled} cancelled{immediate,user}",
    );
    let mut sim = asking(tool("book"), asks(&["seat"]));
    sim.skip_trace();
    sim.cancel(CancelMode::AfterTurn);
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1_1,reject,system} fco_R1{incomplete,cancelled}
         cancelled{after_turn,user}",
    );
}
