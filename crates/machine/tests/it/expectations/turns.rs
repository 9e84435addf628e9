//! Provider events, and how a run ends.

use crate::fixtures::{demo_definitions, model_text, run_id, tool};
use crate::sim::{Sim, model_end, model_failure};
use machine::{MachineInput, TimerId};
use model::event::{CancelMode, Event, StopReason};
use model::model_turn::ModelDelta;
use model::record::RecordDraft;
use model_testing::{Rng, test_seeds};
use serde_json::json;

/// A record of a provider's delta, in short.
fn delta_summary(draft: &RecordDraft) -> Option<String> {
    match &draft.event {
        Event::TextDelta(e) => Some(e.delta.clone()),
        Event::SummaryDelta(e) => Some(e.delta.clone()),
        Event::ArgumentsDelta(e) => Some(e.delta.clone()),
        Event::ProviderEvent(e) => e.event["piece"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// All events of a provider arrive in its order and exactly once, however its items are interleaved. Headwater has no
/// second, raw stream: an event is a delta of its item, and unknown events are passed through unchanged.
#[test]
fn every_delta_of_a_turn_is_recorded_once_and_in_the_providers_order() {
    for seed in test_seeds() {
        let mut rng = Rng::new(seed);
        let mut sim = Sim::started(demo_definitions([tool("t")]));
        sim.call(2, "t", &[]);
        let mut sent = Vec::new();
        for number in 0..rng.between(20, 60) {
            let text = format!("{number};");
            sent.push(text.clone());
            sim.delta(match rng.below(4) {
                0 => ModelDelta::Reasoning { slot: 0, part: 0, text },
                1 => ModelDelta::Text { slot: 1, part: 0, text, logprobs: None },
                2 => ModelDelta::Arguments { slot: 2, text },
                _ => ModelDelta::Unknown(json!({"piece": text})),
            });
        }
        sim.end_turn(StopReason::Stop);
        let told: Vec<String> = sim.drafts.iter().filter_map(delta_summary).collect();
        assert_eq!(told, sent, "SEED={seed}");
    }
}

type Ends = fn(&mut Sim);

/// The first end holds: no later limit, failure or cancel replaces it.
#[test]
fn a_later_end_does_not_replace_the_first() {
    let firsts: [(&str, Ends); 5] = [
        ("completed", |sim| sim.end_turn(StopReason::Stop)),
        ("failed{provider_error}", Sim::fail_turn),
        ("incomplete{max_tokens}", |sim| sim.end_turn(StopReason::MaxTokens)),
        ("incomplete{deadline}", Sim::fire_run_deadline),
        ("cancelled{immediate,user}", |sim| sim.cancel(CancelMode::Immediate)),
    ];
    for (first, comes) in firsts {
        let mut sim = Sim::started(demo_definitions([]));
        let model = sim.last_model();
        sim.model_outputs([model_text("Once")]);
        comes(&mut sim);
        assert_eq!(sim.trace().last().map(String::as_str), Some(first));
        sim.skip_trace();
        sim.input(model_failure(model.clone()));
        sim.input(model_end(model, StopReason::MaxTokens));
        sim.input(MachineInput::Timer(TimerId::Run(run_id())));
        sim.cancel(CancelMode::AfterTurn);
        sim.cancel(CancelMode::Immediate);
        sim.expect_trace("");
    }
}
