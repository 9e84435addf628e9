//! The run loop, input by input: records come in the order of the reference sequences.
//!
//! `fixtures` is the vocabulary, `sim` drives one run and checks the `invariants` after every input, `event_trace`
//! formats records as the reference sequences do, `provider_rules` is what providers reject. `sequences` has the
//! scenarios, `expectations` what users expect in addition, `edges` boundary values, `parts` what a provider sends besides
//! text, `requests` what a request carries besides its input, `crash` crashes at every input of some scenarios,
//! `schedules` does everything at random, `laws` sends provider events out of order.
//! A failure prints its seed; `SEED=123 cargo test -p machine` repeats it.

#![cfg(test)]

mod compaction;
mod crash;
mod edges;
mod event_trace;
mod expectations;
mod fixtures;
mod invariants;
mod laws;
mod parts;
mod provider_rules;
mod requests;
mod schedules;
mod sequences;
mod sim;
