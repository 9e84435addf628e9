//! Fuzzes the decoding of stored records; the check itself is stable Rust.
#![no_main]

#[path = "../checks/record.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_record_decodes_the_same_twice(bytes));
