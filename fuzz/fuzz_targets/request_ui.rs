//! Fuzzes requests of `useChat`; the check itself is stable Rust.
#![no_main]

#[path = "../checks/requests.rs"]
#[expect(dead_code, reason = "each target calls one of the checks")]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_ui_chat_request(bytes));
