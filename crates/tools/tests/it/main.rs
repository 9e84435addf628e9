//! Tools with real programs and real sockets.

#![cfg(test)]

mod builtin;
mod command;
mod hooks;
mod http;
mod http_ends;
mod process_ends;
mod questions;
mod secrets;
mod shortage;
mod site;
mod streams;
mod test_toolbox;
