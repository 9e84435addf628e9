//! Fuzzes the paths and names of files that clients send; the check itself is stable Rust.
#![no_main]

#[path = "../checks/file_path.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check::a_path_names_one_file(bytes));
