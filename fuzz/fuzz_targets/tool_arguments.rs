//! Fuzzes the arguments of tools, as an approval rule reads them; the check itself is stable Rust.
#![no_main]

#[path = "../checks/arguments.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_rule_judges_any_arguments(bytes));
