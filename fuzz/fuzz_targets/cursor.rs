//! Fuzzes the cursors that clients send; the check itself is stable Rust.
#![no_main]

#[path = "../checks/cursor.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_cursor_means_one_position(bytes));
