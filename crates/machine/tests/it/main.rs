//! The run loop, input by input: the order of records is that of the reference sequences.
//!
//! `words` is the vocabulary, `sim` drives one run and checks what must hold after every input, `story` writes records
//! down as the reference sequences do, `provider_rules` is what providers refuse. `sequences` has the scenarios,
//! `sentences` what people expect besides, `edges` what turns exactly at a limit, `parts` what a
//! provider sends beside words, `requests` what a request brings beside its input, `crash` dies at every input of some
//! scenarios, `schedules` does everything at random, `laws` lets the provider be disorderly.
//! A failure names its seed; `SEED=123 cargo test -p machine` tries that one again.

#![cfg(test)]

mod compaction;
mod crash;
mod edges;
mod event_trace;
mod fixtures;
mod invariants;
mod laws;
mod parts;
mod provider_rules;
mod requests;
mod schedules;
mod sentences;
mod sequences;
mod sim;
