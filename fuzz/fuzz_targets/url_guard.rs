//! Fuzzes the guard of the URLs that are fetched for users; the check itself is stable Rust.
#![no_main]

#[path = "../checks/url_guard.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::an_allowed_url_is_public(bytes));
