//! What users expect of an agent loop, one sentence per test: those that concern the machine alone and that no scenario
//! shows. Where a scenario shows one, the sentence is its doc comment. `docs/promises.md` lists them all.

mod approval_scope;
mod cancels;
mod handoffs;
mod turns;

use crate::sim::Sim;
use model::history::RawItem;
use model::model_turn::ModelDelta;
use serde_json::json;

/// Completes the item in this slot, with a raw form that the provider wants back unchanged.
fn done_raw(sim: &mut Sim, slot: u32) {
    let raw = RawItem { origin: "scripted/demo".to_owned(), item: json!({"slot": slot}) };
    sim.delta(ModelDelta::Done { slot, raw: Some(raw) });
}
