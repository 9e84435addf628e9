//! The laws over the machine's records when the provider's events are out of order. `SEED=n` repeats a run.

use crate::fixtures::{demo_definitions, tool, tool_text};
use crate::sim::Sim;
use machine::MachineInput;
use model::event::{CancelMode, StopReason};
use model::model_turn::{ModelDelta, ModelItemKind};
use model::tool::ToolEvent;
use model_testing::{Rng, invariants};

/// A run with random deltas in any order, tools, failures, cancels and crashes.
fn random_run(seed: u64) -> Sim {
    let mut rng = Rng::new(seed);
    let mut sim = Sim::new(demo_definitions([tool("get_weather")]));
    sim.label = format!("SEED={seed}");
    sim.start(Vec::new());
    for _ in 0..60 {
        if sim.run.fold.has_ended() {
            break;
        }
        if sim.models.is_empty() {
            let id = sim.tools[rng.below(sim.tools.len())].clone();
            sim.input(MachineInput::Tool { id, event: ToolEvent::End(tool_text("ok")) });
            continue;
        }
        random_delta(&mut sim, &mut rng);
    }
    sim.cancel(CancelMode::Immediate);
    sim
}

fn random_delta(sim: &mut Sim, rng: &mut Rng) {
    let slot = rng.between(0, 3);
    match rng.below(14) {
        0..=3 => sim.text(slot, &[rng.choose("a[^", &["1]", "é\n", "🦀 "])]),
        4 | 5 => sim.reasoning(slot, rng.between(0, 2), &["hm"]),
        6 | 7 => sim.call(slot, rng.choose("get_weather", &["nonsense"]), &["{}"]),
        8 => sim.finish_item(slot),
        9 if rng.chance(50) => sim.delta(ModelDelta::Unknown(serde_json::json!({"odd": true}))),
        9 => {
            let (part, partial) = (rng.between(0, 1), rng.chance(66).then_some(0));
            if rng.chance(50) {
                let item = ModelItemKind::HostedCall { name: "image_generation".to_owned(), action: None };
                sim.delta(ModelDelta::Started { slot, item });
            }
            sim.delta(ModelDelta::Image { slot, part, partial, url: "data:,x".to_owned() });
        }
        10 => sim.end_turn(StopReason::Stop),
        11 => sim.end_turn(rng.choose(StopReason::MaxTokens, &[StopReason::ContentFilter, StopReason::ToolCalls])),
        12 if rng.chance(25) => sim.fail_turn(),
        13 if rng.chance(25) => sim.cancel(CancelMode::Immediate),
        13 if rng.chance(33) => sim.crash(),
        _ => {}
    }
}

#[test]
fn law_3_done_repeats_what_the_machine_streamed() {
    for seed in model_testing::test_seeds() {
        let sim = random_run(seed);
        invariants::check_done_matches_deltas(&sim.records()).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
    }
}

#[test]
fn law_9_every_run_of_the_machine_ends_once() {
    for seed in model_testing::test_seeds() {
        let sim = random_run(seed);
        invariants::check_one_terminal_event(&sim.records()).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
        assert!(sim.run.fold.has_ended(), "SEED={seed}");
    }
}

/// After any crash, cancel or failure the stored history has no call without a result.
#[test]
fn law_12_no_call_is_left_without_a_result() {
    for seed in model_testing::test_seeds() {
        let sim = random_run(seed);
        let root = sim.run.fold.root().expect("the run began");
        invariants::check_history(&model::thread::history_entries(root))
            .unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
    }
}
