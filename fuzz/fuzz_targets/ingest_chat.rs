//! Fuzzes the reader of Chat Completions streams; the check itself is stable Rust.
#![no_main]

#[path = "../checks/ingest.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_turn_ends_once(upstream::chat::new_ingest, bytes));
