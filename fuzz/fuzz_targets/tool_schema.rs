//! Fuzzes the schemas of tools, with arguments; the check itself is stable Rust.
#![no_main]

#[path = "../checks/schema.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_schema_judges_any_arguments(bytes));
