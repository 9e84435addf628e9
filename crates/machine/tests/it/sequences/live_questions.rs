//! Questions of tools that wait for the answer while they run: elicitations of MCP sessions.

use super::questions::{answer, asks};
use crate::fixtures::{demo_definitions, idempotent, model_call, needs_approval, reject, tool, tool_text};
use crate::sim::Sim;
use model::definition::{OnCrash, Tool};
use model::error::{ErrorCode, ErrorInfo};
use model::event::CancelMode;
use model::limits::QUESTION_ROUNDS_MAX;
use model::question::{QuestionAnswer, ToolQuestion};
use model::tool::{ProgressUpdate, ToolEvent};
use serde_json::json;

fn seat() -> ToolQuestion {
    asks(&["seat"]).questions.remove(0)
}

/// A run that waits for the answer to the question of a tool that runs.
fn asking(booking: Tool) -> Sim {
    let mut sim = Sim::started(demo_definitions([booking, needs_approval(tool("trade"))]));
    sim.model_turn([model_call("book", "{}")]);
    sim.tool_event("call_R1", ToolEvent::Question(seat()));
    sim.skip_trace();
    sim
}

#[test]
fn the_answer_goes_to_the_tool_that_waits() {
    let mut sim = Sim::started(demo_definitions([tool("book")]));
    sim.model_turn([model_call("book", "{}")]);
    sim.skip_trace();
    sim.tool_event("call_R1", ToolEvent::Question(seat()));
    sim.expect_trace("approval.requested{apr_R1_1} paused{apr_R1_1}");
    sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1_1,approve,user}");
    let told = sim.tool_answers.last().map(|(_, told)| told.clone());
    assert_eq!(told, Some(QuestionAnswer::Accepted(json!({"seat": "12A"}).into())));
    // It asks once more, is declined, and ends.
    sim.tool_event("call_R1", ToolEvent::Question(seat()));
    sim.decide("apr_R1_2", reject("no"));
    assert_eq!(sim.tool_answers.last().unwrap().1, QuestionAnswer::Declined(Some("no".to_owned())));
    sim.skip_trace();
    sim.finish_tool("call_R1", tool_text("booked"));
    sim.expect_trace("fco_R1{completed} step.started{2}");
    assert_eq!(sim.tool_requests.len(), 1);
}

#[test]
fn a_crash_withdraws_the_question_and_on_crash_decides() {
    let cases = [
        (tool("book"), "fco_R1{unknown,outcome_unknown} step.started{2}"),
        (Tool { on_crash: OnCrash::Fail, ..tool("book") }, "fco_R1{failed,outcome_unknown} step.started{2}"),
        (idempotent(tool("book")), "tool.started{call_R1,2}"),
        (Tool { on_crash: OnCrash::Ask, ..tool("book") }, "approval.requested{apr_R1} paused{apr_R1}"),
    ];
    for (booking, follows) in cases {
        let mut sim = asking(booking);
        sim.crash();
        sim.expect_trace(&format!(
            "resumed{{system}} approval.resolved{{apr_R1_1,reject,system}} recovered{{1,1}} {follows}"
        ));
        // An answer that comes now is too late.
        let before = sim.drafts.len();
        sim.decide("apr_R1_1", answer(json!({"seat": "12A"})));
        assert_eq!(sim.drafts.len(), before);
    }
}

/// Another call of the turn waits for an approval: it keeps waiting.
#[test]
fn a_withdrawn_question_leaves_the_other_requests_open() {
    let mut sim = Sim::started(demo_definitions([tool("book"), needs_approval(tool("trade"))]));
    sim.model_turn([model_call("book", "{}"), model_call("trade", "{}")]);
    sim.tool_event("call_R1", ToolEvent::Question(seat()));
    sim.skip_trace();
    sim.crash();
    sim.expect_trace(
        "resumed{system} approval.resolved{apr_R1_1,reject,system} recovered{1,1} fco_R1{unknown,outcome_unknown}
         paused{apr_R2}",
    );
}

#[test]
fn a_question_needs_no_answer_when_the_tool_has_ended_or_withdraws_it() {
    let mut sim = asking(tool("book"));
    sim.tool_event("call_R1", ToolEvent::Progress(ProgressUpdate::default()));
    sim.expect_trace("");
    sim.finish_tool("call_R1", tool_text("never mind"));
    sim.expect_trace("resumed{system} approval.resolved{apr_R1_1,reject,system} fco_R1{completed} step.started{2}");
    let mut sim = asking(tool("book"));
    sim.tool_event("call_R1", ToolEvent::QuestionWithdrawn);
    sim.expect_trace("resumed{system} approval.resolved{apr_R1_1,reject,system}");
    sim.finish_tool("call_R1", tool_text("never mind"));
    sim.expect_trace("fco_R1{completed} step.started{2}");
}

/// The server of the tool died while people thought.
#[test]
fn a_lost_tool_withdraws_its_question_and_on_crash_decides() {
    let lost = || ToolEvent::Lost(ErrorInfo::new(ErrorCode::McpUnavailable, "The server is gone."));
    for (booking, follows) in [
        (tool("book"), "fco_R1{unknown,outcome_unknown} step.started{2}"),
        (Tool { on_crash: OnCrash::Ask, ..tool("book") }, "approval.requested{apr_R1} paused{apr_R1}"),
    ] {
        let mut sim = asking(booking);
        sim.tool_event("call_R1", lost());
        sim.expect_trace(&format!("resumed{{system}} approval.resolved{{apr_R1_1,reject,system}} {follows}"));
    }
}

#[test]
fn a_cancel_stops_the_tool_that_asks() {
    let mut sim = asking(tool("book"));
    sim.cancel(CancelMode::Immediate);
    sim.expect_trace(
        "resumed{cancel} approval.resolved{apr_R1_1,reject,system} fco_R1{incomplete,cancelled} cancelled{immediate,user}",
    );
    // After the turn, the tool is told and may end.
    let mut sim = asking(tool("book"));
    sim.cancel(CancelMode::AfterTurn);
    assert_eq!(sim.tool_answers.last().unwrap().1, QuestionAnswer::Cancelled);
    sim.finish_tool("call_R1", tool_text("nothing booked"));
    sim.expect_trace(
        "resumed{cancel} cancelling{after_turn} approval.resolved{apr_R1_1,reject,system} fco_R1{completed}
         cancelled{after_turn,user}",
    );
}

#[test]
fn a_tool_that_asks_for_ever_in_mid_call_is_stopped() {
    let mut sim = asking(tool("book"));
    for round in 1..=QUESTION_ROUNDS_MAX {
        sim.decide(&format!("apr_R1_{round}"), answer(json!({"seat": "12A"})));
        sim.skip_trace();
        sim.tool_event("call_R1", ToolEvent::Question(seat()));
    }
    sim.expect_trace("fco_R1{failed,too_many_questions} step.started{2}");
    assert!(sim.tools.is_empty());
}
