//! What remains after a cancel.

use super::done_raw;
use crate::fixtures::{
    agent, build_definitions, demo_definitions, model_call, model_text, run_id, tool, tool_text, with_handoffs,
};
use crate::sim::Sim;
use model::definition::HandoffHistory;
use model::event::{CancelMode, Event, StopReason};
use model::history::HistoryEntry;
use model::model_turn::ModelDelta;
use model::thread::{ThreadReplay, history_entries};
use model::usage::Usage;
use model_testing::invariants;

/// The history that a thread keeps of an ended run.
fn thread_history(sim: &Sim) -> ThreadReplay {
    let mut replay = ThreadReplay::default();
    sim.records().iter().for_each(|record| replay.push(record));
    replay
}

/// A cancel after the turn lets the answer and all its tools finish, keeps them, counts their tokens and calls no model
/// again.
#[test]
fn after_turn_the_started_work_is_kept_and_counted_and_no_model_is_called() {
    let mut sim = Sim::started(demo_definitions([tool("look")]));
    sim.model_outputs([model_text("Let me look.")]);
    sim.cancel(CancelMode::AfterTurn);
    sim.model_outputs([model_call("look", r#"{"n":1}"#), model_call("look", r#"{"n":2}"#)]);
    sim.end_turn(StopReason::Stop);
    sim.finish_tool("call_R3", tool_text("two"));
    sim.finish_tool("call_R2", tool_text("one"));
    sim.expect_trace(
        "created started step.started{1} cancelling{after_turn} msg_R1 fc_R2 fc_R3 step.done{1,tool_calls}
         tool.started{call_R2} tool.started{call_R3} fco_R3{completed} fco_R2{completed} cancelled{after_turn,user}",
    );
    assert_eq!((sim.model_requests.len(), sim.tool_requests.len()), (1, 2));
    let turn = Usage { input_tokens: 9, output_tokens: 4, ..Usage::default() };
    let Some(Event::Cancelled(end)) = sim.drafts.last().map(|draft| &draft.event) else { panic!("it is cancelled") };
    let thread = thread_history(&sim).thread;
    assert_eq!((end.usage, thread.usage), (turn, turn));
    let past: Vec<&HistoryEntry> = thread.runs[0].entries.iter().map(AsRef::as_ref).collect();
    invariants::check_history(past.iter().copied()).expect("law 12");
    assert_eq!(
        past.iter().filter(|entry| matches!(entry, HistoryEntry::Result { .. })).count(),
        2,
        "the next run reads both"
    );
}

/// A cancel after the turn at a hand-off ends with the new agent as the last one, which the next run continues with.
#[test]
fn after_turn_at_a_handoff_the_new_agent_is_the_last_one() {
    let demo = with_handoffs(agent("demo", &[]), &[("specialist", HandoffHistory::All)]);
    let mut sim = Sim::started(build_definitions([demo, agent("specialist", &[])], []));
    sim.cancel(CancelMode::AfterTurn);
    sim.model_turn([model_call("transfer_to_specialist", "{}")]);
    assert_eq!(sim.model_requests.len(), 1, "it says nothing");
    let object = sim.run.fold.task_object(&run_id()).expect("the run began");
    assert_eq!((object.status.as_str(), object.agent.as_str()), ("cancelled", "specialist"));
    assert_eq!(thread_history(&sim).thread.agent.as_deref(), Some("specialist"));
}

/// After a cancel the partial text and its tokens are in the log, marked incomplete, and the next turn reads the text.
#[test]
fn an_interrupted_turn_keeps_its_text_and_its_tokens() {
    let mut sim = Sim::started(demo_definitions([]));
    let usage = Usage { input_tokens: 7, output_tokens: 2, ..Usage::default() };
    sim.delta(ModelDelta::Usage(usage));
    sim.text(0, &["Once ", "upon"]);
    sim.cancel(CancelMode::Immediate);
    let object = serde_json::to_value(sim.run.fold.task_object(&run_id()).expect("the run began")).unwrap();
    let item = &object["output"][0];
    assert_eq!((&item["status"], &item["reason"]), (&"incomplete".into(), &"cancelled".into()), "{item}");
    assert_eq!(item["block_list"][0]["text"], "Once upon");
    let thread = thread_history(&sim).thread;
    assert_eq!(thread.usage, usage);
    let said = thread.runs[0].entries.last().map(AsRef::as_ref);
    assert!(matches!(said, Some(HistoryEntry::Assistant { text, .. }) if text == "Once upon"), "{said:?}");
}

/// What remains of a cancelled turn is plain text: no reasoning without its output, and nothing that a provider would
/// reject without its reasoning.
#[test]
fn an_interrupted_turn_leaves_no_reasoning_behind() {
    let cuts: [fn(&mut Sim); 4] = [
        |sim| sim.cancel(CancelMode::Immediate),
        Sim::fail_turn,
        Sim::fire_run_deadline,
        |sim| sim.end_turn(StopReason::MaxTokens),
    ];
    for cut in cuts {
        let mut sim = Sim::started(demo_definitions([tool("look")]));
        sim.reasoning(0, 0, &["hm"]);
        done_raw(&mut sim, 0);
        sim.text(1, &["Let me"]);
        done_raw(&mut sim, 1);
        cut(&mut sim);
        let given = history_entries(sim.run.fold.root().expect("the run began"));
        let [HistoryEntry::User { .. }, HistoryEntry::Assistant { raw: None, .. }] = given.as_slice() else {
            panic!("{given:?}")
        };
    }
}
