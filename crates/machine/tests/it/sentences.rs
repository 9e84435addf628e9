//! What people expect of an agent loop, a sentence each: those that the machine alone keeps and no scenario shows. Where
//! a scenario shows one, the sentence stands above it. `docs/promises.md` lists them all.

mod cancels;
mod handoffs;
mod people;
mod turns;

use crate::sim::Sim;
use model::history::RawItem;
use model::model_turn::ModelDelta;
use serde_json::json;

/// The item of this slot is whole, and the provider wants it back as it came.
fn done_raw(sim: &mut Sim, slot: u32) {
    let raw = RawItem { origin: "scripted/demo".to_owned(), item: json!({"slot": slot}) };
    sim.delta(ModelDelta::Done { slot, raw: Some(raw) });
}
