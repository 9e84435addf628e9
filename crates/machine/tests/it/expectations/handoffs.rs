//! What a hand-off shows and passes on.

use super::done_raw;
use crate::fixtures::{agent, build_definitions, tool, tool_text, with_handoffs};
use crate::sim::Sim;
use model::definition::HandoffHistory::{self, All, Input, Messages};
use model::event::{Event, StopReason};
use model::history::HistoryEntry;
use std::collections::BTreeSet;

/// A turn with reasoning, text and a tool, then one that reasons and hands off. Every item has a raw form.
fn run_with_handoff(history: HandoffHistory) -> Sim {
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

/// A history entry in short; a `+` marks the raw form.
fn entry_summary(entry: &HistoryEntry) -> &'static str {
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

/// A filtered history keeps reasoning together with its output, or drops both: text without its reasoning is plain
/// text.
#[test]
fn a_handoff_passes_on_reasoning_with_its_output_or_neither() {
    for (history, given) in
        [(All, "user thought+ said+ call+ result thought+ call+ result"), (Messages, "user said"), (Input, "user")]
    {
        let sim = run_with_handoff(history);
        let request = sim.model_requests.last().expect("the specialist is asked");
        assert_eq!(request.model, "scripted/specialist");
        let words: Vec<&str> = request.history.iter().map(entry_summary).collect();
        assert_eq!(words.join(" "), given, "{history:?}");
    }
}

/// No item of the history that a hand-off passes on is announced again: the filter changes what the model receives, and
/// the log stays unchanged.
#[test]
fn history_passed_on_by_a_handoff_is_not_announced_again() {
    let stories = [All, Messages, Input].map(|history| {
        let sim = run_with_handoff(history);
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
