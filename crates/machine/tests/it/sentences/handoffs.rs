//! What a hand-off shows, and what it hands on.

use super::done_raw;
use crate::fixtures::{agent, build_definitions, tool, tool_text, with_handoffs};
use crate::sim::Sim;
use model::definition::HandoffHistory::{self, All, Input, Messages};
use model::event::{Event, StopReason};
use model::history::HistoryEntry;
use std::collections::BTreeSet;

/// A turn with a thought, words and a tool, then one that thinks and hands over. Every item came with a raw form.
fn handed_over(history: HandoffHistory) -> Sim {
    let demo = with_handoffs(agent("demo", &["look"]), &[("specialist", history)]);
    let mut sim = Sim::started(build_definitions([demo, agent("specialist", &[])], [tool("look")]));
    sim.reasoning(0, 0, &["I look first."]);
    done_raw(&mut sim, 0);
    sim.text(1, &["One moment."]);
    done_raw(&mut sim, 1);
    sim.call(2, "look", &["{}"]);
    done_raw(&mut sim, 2);
    sim.end_turn(StopReason::Stop);
    sim.finish_tool("call_R3", tool_text("seen"));
    sim.reasoning(0, 0, &["Not mine."]);
    done_raw(&mut sim, 0);
    sim.call(1, "transfer_to_specialist", &["{}"]);
    done_raw(&mut sim, 1);
    sim.end_turn(StopReason::Stop);
    sim
}

/// What the model is given of an entry; a `+` is the form in which it came.
fn word(entry: &HistoryEntry) -> &'static str {
    match entry {
        HistoryEntry::Reasoning { .. } => "thought+",
        HistoryEntry::Assistant { raw: Some(_), .. } => "said+",
        HistoryEntry::Assistant { raw: None, .. } => "said",
        HistoryEntry::Call { raw: Some(_), .. } => "call+",
        HistoryEntry::Call { raw: None, .. } => "call",
        HistoryEntry::Result { .. } => "result",
        HistoryEntry::User { .. } => "user",
        HistoryEntry::Hosted { .. } => "hosted",
        HistoryEntry::GeneratedImages { .. } => "drawn",
        HistoryEntry::Summary { .. } => "summary",
        HistoryEntry::System { .. } => "system",
    }
}

/// A filtered history keeps a thought together with what it led to, or drops both: words without their thought are plain
/// words.
#[test]
fn who_takes_over_is_given_a_thought_with_what_it_led_to_or_neither() {
    for (history, given) in
        [(All, "user thought+ said+ call+ result thought+ call+ result"), (Messages, "user said"), (Input, "user")]
    {
        let sim = handed_over(history);
        let request = sim.model_requests.last().expect("the specialist is asked");
        assert_eq!(request.model, "scripted/specialist");
        let words: Vec<&str> = request.history.iter().map(word).collect();
        assert_eq!(words.join(" "), given, "{history:?}");
    }
}

/// Whatever of the past a hand-off passes on, no item of it is announced again: the filter is about what the model is
/// given, and the log stays as it was.
#[test]
fn what_a_handoff_passes_on_is_not_announced_again() {
    let stories = [All, Messages, Input].map(|history| {
        let sim = handed_over(history);
        let mut ids = BTreeSet::new();
        for draft in &sim.drafts {
            if let Event::ItemAdded(added) = &draft.event {
                assert!(ids.insert(added.item.id().clone()), "{history:?}: {} twice", added.item.id());
            }
        }
        assert_eq!(ids.len(), 7, "{history:?}: five items of the model, two results");
        sim.trace()
    });
    assert!(stories.iter().all(|story| *story == stories[0]), "{stories:#?}");
}
