//! Hand-offs: after the ordinary tools of its turn, another agent goes on in the same task.

use crate::fixtures::{
    agent, agent_tool, approve, build_definitions, edit, model_call, model_text, needs_approval, reject, tool,
    tool_text, with_handoffs, with_kind,
};
use crate::sim::Sim;
use model::definition::{Definitions, HandoffHistory, ToolExecutor};
use model::event::Event;
use serde_json::json;

/// `demo` hands over to `specialist`, which is given this much, and `specialist` to `third`.
fn relay(first: HandoffHistory, second: HandoffHistory) -> Definitions {
    let demo = with_handoffs(agent("demo", &["look"]), &[("specialist", first), ("third", HandoffHistory::All)]);
    let specialist = with_handoffs(agent("specialist", &["dig"]), &[("third", second)]);
    build_definitions([demo, specialist, agent("third", &[])], [tool("look"), tool("dig")])
}

fn plain() -> Definitions {
    relay(HandoffHistory::All, HandoffHistory::All)
}

#[test]
fn handoff() {
    let mut sim = Sim::started(plain());
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

/// An ordinary tool that is called beside a hand-off is announced and run all the same.
#[test]
fn a_handoff_waits_for_the_ordinary_tools_of_its_turn() {
    let mut sim = Sim::started(plain());
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
fn of_two_handoffs_in_one_turn_the_first_counts() {
    let mut sim = Sim::started(plain());
    sim.skip_trace();
    sim.model_turn([model_call("transfer_to_third", "{}"), model_call("transfer_to_specialist", "{}")]);
    sim.expect_trace(
        "fc_R1 fc_R2 step.done{1,tool_calls} fco_R2{failed,handoff_ignored}
         tool.started{call_R1} fco_R1{completed} agent.updated{third,demo} step.started{2}",
    );
}

#[test]
fn who_took_over_has_their_own_tools_and_no_others() {
    let mut sim = Sim::started(plain());
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    let names: Vec<&str> = sim.model_requests[1].tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["dig", "transfer_to_third"]);
    sim.skip_trace();
    sim.model_turn([model_call("look", "{}"), model_call("dig", "{}")]);
    sim.expect_trace("fc_R2 fc_R3 step.done{2,tool_calls} fco_R2{failed,unknown_tool} tool.started{call_R3}");
}

/// `demo` hands over only when somebody says yes.
fn asking_first() -> Sim {
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
fn a_handoff_may_wait_for_a_yes() {
    let mut sim = asking_first();
    sim.decide("apr_R1", approve());
    sim.expect_trace(
        "resumed{user} approval.resolved{apr_R1,approve,user} tool.started{call_R1} fco_R1{completed}
         agent.updated{specialist,demo} step.started{2}",
    );
}

#[test]
fn a_handoff_that_is_refused_leaves_the_agent_as_it_is() {
    let mut sim = asking_first();
    sim.decide("apr_R1", reject("stay"));
    sim.expect_trace("resumed{user} approval.resolved{apr_R1,reject,user} fco_R1{rejected,rejected} step.started{2}");
    assert_eq!(sim.model_requests[1].model, "scripted/demo");
}

#[test]
fn a_handoff_that_was_edited_starts_with_the_other_arguments() {
    let mut sim = asking_first();
    sim.decide("apr_R1", edit(json!({"n": 2})));
    let started = sim.drafts.iter().find_map(|draft| match &draft.event {
        Event::ToolStarted(e) => Some(e.arguments.clone()),
        _ => None,
    });
    assert_eq!(started.as_deref(), Some(r#"{"n":2}"#));
}

#[test]
fn who_takes_over_is_given_what_the_handoff_says() {
    for (history, given) in [
        (
            HandoffHistory::All,
            "user:go | said:One moment. | call:look | result:seen | user:quickly | said:I hand over. | \
             call:transfer_to_specialist | result:{\"assistant\":\"specialist\"}",
        ),
        (HandoffHistory::Messages, "user:go | said:One moment. | user:quickly | said:I hand over."),
        (HandoffHistory::Input, "user:quickly"),
    ] {
        let mut sim = Sim::started(relay(history, HandoffHistory::All));
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
fn what_was_kept_from_one_is_not_given_to_the_next() {
    let mut sim = Sim::started(relay(HandoffHistory::Input, HandoffHistory::All));
    sim.model_turn([model_text("a secret"), model_call("transfer_to_specialist", "{}")]);
    assert_eq!(sim.request_summary(), "user:go");
    sim.model_turn([model_call("transfer_to_third", "{}")]);
    assert_eq!(sim.request_summary(), r#"user:go | call:transfer_to_third | result:{"assistant":"third"}"#);
}

#[test]
fn a_sub_agent_may_hand_over_too() {
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
fn a_turn_that_was_lost_after_a_handoff_is_done_again_by_who_took_over() {
    let mut sim = Sim::started(relay(HandoffHistory::Messages, HandoffHistory::All));
    sim.model_turn([model_text("Hold on."), model_call("transfer_to_specialist", "{}")]);
    sim.model_outputs([model_text("spec")]);
    sim.crash();
    assert_eq!(sim.request_summary(), "user:go | said:Hold on.");
    assert_eq!(sim.model_requests.last().unwrap().model, "scripted/specialist");
}
