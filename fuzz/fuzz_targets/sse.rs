//! Fuzzes the decoder of event streams; the check itself is stable Rust.
#![no_main]

#[path = "../checks/sse.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::any_split_gives_the_same_events(bytes));
