//! The scope of an approval.

use crate::fixtures::{
    agent, agent_tool, always, approve, build_definitions, demo_definitions, model_call, model_text, needs_approval,
    reject, tool, tool_text,
};
use crate::sim::Sim;
use model::definition::Definitions;
use model::event::Event;
use std::sync::Arc;

fn two_pending_approvals() -> Definitions {
    demo_definitions([needs_approval(tool("buy")), needs_approval(tool("sell"))])
}

/// `always` covers later calls of that tool by that agent in its run, also after a crash, and no other tool. (The next run
/// asks again.)
#[test]
fn always_approve_survives_a_crash_and_covers_one_tool() {
    let mut sim = Sim::started(two_pending_approvals());
    sim.model_turn([model_call("buy", r#"{"n":1}"#)]);
    sim.decide("apr_R1", always(approve()));
    sim.finish_tool("call_R1", tool_text("bought"));
    sim.model_outputs([model_text("And now")]);
    sim.crash();
    sim.skip_trace();
    sim.model_turn([model_call("buy", r#"{"n":2}"#), model_call("sell", r#"{"n":3}"#)]);
    sim.expect_trace("fc_R3 fc_R4 step.done{2,tool_calls} tool.started{call_R3} approval.requested{apr_R4}");
}

/// A decision about one call beats `always`: a rejection of this call holds, whichever was made first.
#[test]
fn rejecting_one_call_beats_always_approve() {
    for yes_first in [true, false] {
        let mut sim = Sim::started(two_pending_approvals());
        sim.model_turn([model_call("buy", r#"{"n":1}"#), model_call("buy", r#"{"n":2}"#)]);
        let (yes, no) = (("apr_R1", always(approve())), ("apr_R2", reject("not this one")));
        let answers = if yes_first { [yes, no] } else { [no, yes] };
        for (key, decision) in answers {
            sim.decide(key, decision);
        }
        sim.skip_trace();
        sim.finish_tool("call_R1", tool_text("bought"));
        sim.expect_trace("fco_R1{completed} step.started{2}");
        assert_eq!(sim.request_summary(), "user:go | call:buy | call:buy | result:bought | result:not this one");
        sim.model_turn([model_call("buy", r#"{"n":3}"#)]);
        sim.expect_trace("fc_R3 step.done{2,tool_calls} tool.started{call_R3}");
        assert_eq!(sim.tool_requests.len(), 2);
    }
}

/// An approval is bound to one call with the arguments that were shown: it runs that call unchanged, and no other.
#[test]
fn an_approval_runs_its_own_call_and_no_other() {
    let mut sim = Sim::started(two_pending_approvals());
    sim.model_turn([
        model_call("buy", r#"{"n": 1}"#),
        model_call("buy", r#"{"n":2}"#),
        model_call("sell", r#"{"n":1}"#),
    ]);
    sim.decide("apr_R1", approve());
    let ran: Vec<(&str, &str)> =
        sim.tool_requests.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    assert_eq!(ran, [("buy", r#"{"n": 1}"#)]);
    sim.skip_trace();
    sim.finish_tool("call_R1", tool_text("bought"));
    sim.expect_trace("fco_R1{completed} paused{apr_R2,apr_R3}");
}

/// An approval of a tool whose definition has changed is void. (A run keeps its definitions: this is one whose
/// definitions can no longer be read.)
#[test]
fn an_approval_of_a_changed_tool_runs_nothing() {
    let mut narrower = tool("buy");
    narrower.spec.parameters = serde_json::json!({"type": "object", "required": ["account"]});
    for (now, code) in [
        (demo_definitions([needs_approval(narrower)]), "invalid_arguments"),
        (demo_definitions([tool("look")]), "unknown_tool"),
    ] {
        let mut sim = Sim::started(two_pending_approvals());
        sim.model_turn([model_call("buy", r#"{"n":1}"#)]);
        sim.skip_trace();
        sim.run.definitions = Arc::new(now);
        sim.decide("apr_R1", approve());
        sim.expect_trace(&format!(
            "resumed{{user}} approval.resolved{{apr_R1,approve,user}} fco_R1{{failed,{code}}} step.started{{2}}"
        ));
        assert!(sim.tool_requests.is_empty(), "{code}");
    }
}

/// Of two `always` decisions about one tool the last one holds, whichever call each was made for.
#[test]
fn the_last_of_two_always_decisions_holds() {
    for no_last in [true, false] {
        let mut sim = Sim::started(two_pending_approvals());
        sim.model_turn([model_call("buy", r#"{"n":1}"#), model_call("buy", r#"{"n":2}"#)]);
        let (yes, no) = (("apr_R2", always(approve())), ("apr_R1", always(reject("never again"))));
        let answers = if no_last { [yes, no] } else { [no, yes] };
        for (key, decision) in answers {
            sim.decide(key, decision);
        }
        sim.finish_tool("call_R2", tool_text("bought"));
        sim.skip_trace();
        sim.model_turn([model_call("buy", r#"{"n":3}"#)]);
        let then = if no_last { "fco_R3{rejected,rejected} step.started{3}" } else { "tool.started{call_R3}" };
        sim.expect_trace(&format!("fc_R3 step.done{{2,tool_calls}} {then}"));
    }
}

/// `always` is for the agent that asked: neither its sub-agents nor the agent above it may call the tool unasked.
#[test]
fn always_approve_covers_the_agent_that_asked() {
    let definitions = || {
        build_definitions(
            [agent("demo", &["buy", "ask"]), agent("helper", &["buy"])],
            [needs_approval(tool("buy")), agent_tool("ask", "helper")],
        )
    };
    // The parent is asked about, then its sub-agent calls the tool.
    let mut sim = Sim::started(definitions());
    sim.model_turn([model_call("buy", r#"{"n":1}"#)]);
    sim.decide("apr_R1", always(approve()));
    sim.finish_tool("call_R1", tool_text("bought"));
    sim.model_turn([model_call("ask", r#"{"prompt":"buy"}"#)]);
    sim.skip_trace();
    sim.model_turn([model_call("buy", r#"{"n":2}"#)]);
    sim.expect_trace("call_R2/fc_R3 call_R2/step.done{1,tool_calls} call_R2/approval.requested{apr_R3} paused{apr_R3}");
    // The sub-agent is asked about, and calls it again; then the parent does.
    sim.decide("apr_R3", always(approve()));
    sim.finish_tool("call_R3", tool_text("bought"));
    sim.skip_trace();
    sim.model_turn([model_call("buy", r#"{"n":3}"#)]);
    sim.expect_trace("call_R2/fc_R4 call_R2/step.done{2,tool_calls} call_R2/tool.started{call_R4}");
    let mut sim = Sim::started(definitions());
    sim.model_turn([model_call("ask", r#"{"prompt":"buy"}"#)]);
    sim.model_turn([model_call("buy", r#"{"n":1}"#)]);
    sim.decide("apr_R2", always(approve()));
    sim.finish_tool("call_R2", tool_text("bought"));
    sim.model_turn([model_text("done")]);
    sim.skip_trace();
    sim.model_turn([model_call("buy", r#"{"n":2}"#)]);
    sim.expect_trace("fc_R4 step.done{2,tool_calls} approval.requested{apr_R4} paused{apr_R4}");
}

/// People are asked about the numbers that run.
#[test]
fn a_number_of_any_size_is_asked_about_as_it_was_written() {
    let large = r#"{"e":1e2,"n":18446744073709551616}"#;
    let mut sim = Sim::started(demo_definitions([needs_approval(tool("buy")), tool("look")]));
    sim.model_turn([model_call("buy", large), model_call("look", large)]);
    assert_eq!(sim.tool_requests[0].arguments, large);
    let asked = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ApprovalRequested(e) => Some(e.action_requests[0].args.to_string()),
        _ => None,
    });
    assert_eq!(asked.as_deref(), Some(large));
}
