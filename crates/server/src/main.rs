//! `headwater`: the ground under the house's roof. Reads the command line, and says in one line what went wrong.
//!
//! Everything is wired together here and in [`cli`]; the floors below know nothing of each other. Only this file and the
//! verbs in [`cli`] speak `anyhow`: everywhere else an error is a type that says what can go wrong.

mod api_keys;
mod app;
mod auth;
mod cli;
mod config;
mod control_socket;
mod dates;
mod error_format;
mod file_response;
mod idempotency_key;
mod json_body;
mod json_response;
mod lingering_close;
mod listen;
mod native_api;
mod origin_policy;
mod pagination;
mod problem;
mod query_params;
mod router;
mod routes;
mod sse;
mod stateless;
mod stream_limiter;
mod stream_request;
mod tickets;
mod viewer_routes;
mod ws;

use clap::Parser as _;
use std::process::ExitCode;

/// Records are made on one thread and dropped on another, many of one size: the system's allocator spends twice the time
/// on that (docs/performance.md), and others keep more memory for viewers that do not read.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // One line, whatever the cause wrote: an operator's log is read by line.
            let line = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("headwater: {line}");
            ExitCode::FAILURE
        }
    }
}
