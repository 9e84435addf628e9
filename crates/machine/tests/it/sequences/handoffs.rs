//! Hand-offs: after the ordinary tools of its turn, another agent continues the same task.

use crate::fixtures::{
    agent, agent_tool, approve, build_definitions, edit, model_call, model_text, needs_approval, reject, tool,
    tool_text, with_handoffs, with_kind,
};
use crate::sim::Sim;
use model::definition::{Definitions, HandoffHistory, ToolExecutor};
use model::event::Event;
use serde_json::json;

/// `demo` hands off to `specialist` with this history filter, and `specialist` to `third`.
fn handoff_definitions(first: HandoffHistory, second: HandoffHistory) -> Definitions {
    let demo = with_handoffs(agent("demo", &["look"]), &[("specialist", first), ("third", HandoffHistory::All)]);
    let specialist = with_handoffs(agent("specialist", &["dig"]), &[("third", second)]);
    build_definitions([demo, specialist, agent("third", &[])], [tool("look"), tool("dig")])
}

fn unfiltered_handoffs() -> Definitions {
    handoff_definitions(HandoffHistory::All, HandoffHistory::All)
}

#[test]
fn handoff() {
    let mut sim = Sim::started(unfiltered_handoffs());
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    sim.model_turn([model_text("specialist here")]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} tool.started{call_R1} fco_R1{completed}
         agent.updated{specialist,demo} step.started{2} msg_R2 step.done{2,stop} completed",
    );
    let story = sim.trace();
    assert!(story.contains(&r#"text.done "{\"assistant\":\"specialist\"}""#.to_owned()), "{story:#?}");
    let said = sim.drafts.iter().rev().find_map(|draft| match &draft.event {
        Event::ItemDone(e) => serde_json::to_value(&e.item).ok(),
        _ => None,
    });
    assert_eq!(said.unwrap()["agent"], "specialist");
    assert_eq!(sim.model_requests[1].model, "scripted/specialist");
    assert_eq!(sim.run.fold.reference_count, 0, "there is nothing to cite in it");
}

/// An ordinary tool that is called together with a hand-off is announced and run as usual.
#[test]
fn a_handoff_waits_for_the_ordinary_tools_of_its_turn() {
    let mut sim = Sim::started(unfiltered_handoffs());
    sim.skip_trace();
    sim.model_turn([model_call("transfer_to_specialist", "{}"), model_call("look", "{}")]);
    sim.expect_trace("fc_R1 fc_R2 step.done{1,tool_calls} tool.started{call_R2}");
    sim.finish_tool("call_R2", tool_text("seen"));
    sim.expect_trace(
        "fco_R2{completed} tool.started{call_R1} fco_R1{completed} agent.updated{specialist,demo} step.started{2}",
    );
    assert_eq!(
        sim.request_summary(),
        r#"user:go | call:transfer_to_specialist | call:look | result:{"assistant":"specialist"} | result:seen"#
    );
}

#[test]
fn only_the_first_of_two_handoffs_in_one_turn_counts() {
    let mut sim = Sim::started(unfiltered_handoffs());
    sim.skip_trace();
    sim.model_turn([model_call("transfer_to_third", "{}"), model_call("transfer_to_specialist", "{}")]);
    sim.expect_trace(
        "fc_R1 fc_R2 step.done{1,tool_calls} fco_R2{failed,handoff_ignored}
         tool.started{call_R1} fco_R1{completed} agent.updated{third,demo} step.started{2}",
    );
}

#[test]
fn after_a_handoff_the_agent_has_only_its_own_tools() {
    let mut sim = Sim::started(unfiltered_handoffs());
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    let names: Vec<&str> = sim.model_requests[1].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["dig", "transfer_to_third"]);
    sim.skip_trace();
    sim.model_turn([model_call("look", "{}"), model_call("dig", "{}")]);
    sim.expect_trace("fc_R2 fc_R3 step.done{2,tool_calls} fco_R2{failed,unknown_tool} tool.started{call_R3}");
}

/// `demo` hands off only after an approval.
fn handoff_with_approval() -> Sim {
    let transfer =
        needs_approval(with_kind(tool("escalate"), ToolExecutor::Handoff { agent: "specialist".to_owned() }));
    let mut sim = Sim::started(build_definitions([agent("demo", &["escalate"]), agent("specialist", &[])], [transfer]));
    sim.model_turn([model_call("escalate", r#"{"n":1}"#)]);
    sim.expect_trace(
        "created started step.started{1} fc_R1 step.done{1,tool_calls} approval.requested{apr_R1} paused{apr_R1}",
    );
    sim
}

#[test]
fn a_handoff_may_need_approval() {
    let mut sim = handoff_with_approval();
    sim.decide("apr_R1", approve());
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1} fco_R1{completed}
         agent.updated{specialist,demo} step.started{2}",
    );
}

#[test]
fn a_rejected_handoff_keeps_the_agent() {
    let mut sim = handoff_with_approval();
    sim.decide("apr_R1", reject("stay"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,reject,user} fco_R1{rejected,rejected} step.started{2}");
    assert_eq!(sim.model_requests[1].model, "scripted/demo");
}

#[test]
fn an_edited_handoff_uses_the_edited_arguments() {
    let mut sim = handoff_with_approval();
    sim.decide("apr_R1", edit(json!({"n": 2})));
    let started = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ToolStarted(e) => Some(e.arguments.clone()),
        _ => None,
    });
    assert_eq!(started.as_deref(), Some(r#"{"n":2}"#));
}

#[test]
fn the_history_filter_of_a_handoff_selects_the_history() {
    for (history, given) in [
        (
            HandoffHistory::All,
            "user:go | said:One moment. | call:look | result:seen | user:quickly | said:I hand over. | \
             call:transfer_to_specialist | result:{\"assistant\":\"specialist\"}",
        ),
        (HandoffHistory::Messages, "user:go | said:One moment. | user:quickly | said:I hand over."),
        (HandoffHistory::Input, "user:quickly"),
    ] {
        let mut sim = Sim::started(handoff_definitions(history, HandoffHistory::All));
        sim.model_turn([model_text("One moment."), model_call("look", "{}")]);
        sim.steer("quickly");
        sim.finish_tool("call_R2", tool_text("seen"));
        sim.model_turn([model_text("I hand over."), model_call("transfer_to_specialist", "{}")]);
        assert_eq!(sim.request_summary(), given);
        sim.model_turn([model_call("dig", "{}")]);
        let dug = sim.tools.last().cloned().expect("a tool runs");
        sim.input(machine::MachineInput::Tool { id: dug, event: model::tool::ToolEvent::End(tool_text("dug")) });
        assert_eq!(sim.request_summary(), format!("{given} | call:dig | result:dug"), "and then all of its own");
    }
}

#[test]
fn filtered_history_does_not_reappear_at_the_next_handoff() {
    let mut sim = Sim::started(handoff_definitions(HandoffHistory::Input, HandoffHistory::All));
    sim.model_turn([model_text("a secret"), model_call("transfer_to_specialist", "{}")]);
    assert_eq!(sim.request_summary(), "user:go");
    sim.model_turn([model_call("transfer_to_third", "{}")]);
    assert_eq!(sim.request_summary(), r#"user:go | call:transfer_to_third | result:{"assistant":"third"}"#);
}

#[test]
fn a_sub_agent_may_hand_off_too() {
    let helper = with_handoffs(agent("helper", &[]), &[("third", HandoffHistory::All)]);
    let agents = [agent("demo", &["ask"]), helper, agent("third", &[])];
    let mut sim = Sim::started(build_definitions(agents, [agent_tool("ask", "helper")]));
    sim.model_turn([model_call("ask", r#"{"prompt":"?"}"#)]);
    sim.skip_trace();
    sim.model_turn([model_call("transfer_to_third", "{}")]);
    sim.model_turn([model_text("third here")]);
    sim.expect_trace(
        "call_R1/fc_R2 call_R1/step.done{1,tool_calls} call_R1/tool.started{call_R2} call_R1/fco_R2{completed}
         call_R1/agent.updated{third,helper} call_R1/step.started{2} call_R1/msg_R3 call_R1/step.done{2,stop}
         call_R1/completed fco_R1{completed} step.started{2}",
    );
}

#[test]
fn a_turn_lost_after_a_handoff_is_repeated_by_the_new_agent() {
    let mut sim = Sim::started(handoff_definitions(HandoffHistory::Messages, HandoffHistory::All));
    sim.model_turn([model_text("Hold on."), model_call("transfer_to_specialist", "{}")]);
    sim.model_outputs([model_text("spec")]);
    sim.crash();
    assert_eq!(sim.request_summary(), "user:go | said:Hold on.");
    assert_eq!(sim.model_requests.last().unwrap().model, "scripted/specialist");
}
