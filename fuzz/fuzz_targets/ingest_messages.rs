//! Fuzzes the reader of Anthropic Messages streams; the check itself is stable Rust.
#![no_main]

#[path = "../checks/ingest.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_turn_ends_once(upstream::messages::new_ingest, bytes));
