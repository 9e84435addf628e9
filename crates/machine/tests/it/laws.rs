//! The laws over what the machine writes, under random schedules. `SEED=n` plays one again.

use crate::sim::Sim;
use model::delta::{ModelDelta, ModelItem};
use model::event::{Event, StopReason};
use model::testing::laws;

/// A small generator; the sequence depends on the seed alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// A run with random deltas, tools, failures, cancels and crashes.
fn random_run(seed: u64) -> Sim {
    let mut dice = Dice(seed);
    let mut sim = Sim::started();
    for _ in 0..60 {
        if sim.run.fold.is_over() {
            break;
        }
        if !sim.tools.is_empty() && dice.roll(2) == 0 {
            sim.weather_result();
            continue;
        }
        if sim.model.is_none() {
            if sim.tools.is_empty() {
                break;
            }
            continue;
        }
        let slot = u32::try_from(dice.roll(4)).unwrap_or(0);
        match dice.roll(14) {
            0..=3 => sim.say(slot, &[["a[^", "1]", "é\n", "🦀 "][usize::try_from(dice.roll(4)).unwrap_or(0)]]),
            4 | 5 => sim.think(slot, u32::try_from(dice.roll(3)).unwrap_or(0), &["hm"]),
            6 | 7 => sim.call(slot, ["get_weather", "nonsense"][usize::try_from(dice.roll(2)).unwrap_or(0)], &["{}"]),
            8 => sim.done(slot),
            9 if dice.roll(2) == 0 => sim.delta(ModelDelta::Unknown(serde_json::json!({"odd": true}))),
            9 => {
                let (part, partial) = (u32::try_from(dice.roll(2)).unwrap_or(0), (dice.roll(3) > 0).then_some(0));
                if dice.roll(2) == 0 {
                    let item = ModelItem::HostedCall { name: "image_generation".to_owned() };
                    sim.delta(ModelDelta::Started { slot, item });
                }
                sim.delta(ModelDelta::Image { slot, part, partial, url: "data:,x".to_owned() });
            }
            10 => sim.end(StopReason::Stop),
            11 => sim.end(
                [StopReason::MaxTokens, StopReason::ContentFilter, StopReason::ToolCalls]
                    [usize::try_from(dice.roll(3)).unwrap_or(0)],
            ),
            12 if dice.roll(4) == 0 => sim.fail(),
            13 if dice.roll(4) == 0 => sim.cancel(),
            13 if dice.roll(3) == 0 => sim.crash(),
            _ => {}
        }
    }
    if !sim.run.fold.is_over() {
        sim.cancel();
    }
    sim
}

#[test]
fn law_3_done_repeats_what_the_machine_streamed() {
    for seed in model::testing::seeds() {
        let sim = random_run(seed);
        laws::done_repeats(&sim.records()).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
    }
}

#[test]
fn law_9_every_run_of_the_machine_ends_once() {
    for seed in model::testing::seeds() {
        let sim = random_run(seed);
        laws::one_terminal_last(&sim.records()).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
        assert!(sim.run.fold.is_over(), "SEED={seed}");
    }
}

#[test]
fn law_12_no_call_is_left_without_a_result() {
    for seed in model::testing::seeds() {
        let sim = random_run(seed);
        let root = sim.run.fold.root().expect("the run began");
        laws::valid_history(&model::thread::entries(root)).unwrap_or_else(|why| panic!("SEED={seed}: {why}"));
    }
}

#[test]
fn every_prefix_of_a_run_can_be_recovered() {
    for seed in model::testing::seeds().take(40) {
        let whole = random_run(seed);
        for cut in 1..whole.drafts.len() {
            let mut sim = Sim::new();
            sim.drafts = whole.drafts[..cut].to_vec();
            sim.crash();
            laws::one_terminal_last(&sim.records()).unwrap_or_else(|why| panic!("SEED={seed} cut at {cut}: {why}"));
            assert!(
                matches!(sim.drafts.last().map(|draft| &draft.event), Some(event) if event.is_terminal() || matches!(event, Event::Failed(_)))
            );
        }
    }
}
