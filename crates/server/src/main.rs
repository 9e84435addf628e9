//! The `headwater` binary: parses the command line, runs a subcommand and prints its error in one line.
//!
//! [`cli`] wires the crates together. Only this file and [`cli`] use `anyhow`; elsewhere errors are types.

mod abandoned_tasks;
mod api_keys;
mod app;
mod archive;
mod auth;
mod cli;
mod config;
mod control_socket;
mod credential_sync;
mod credentials_key;
mod disconnect_guard;
mod error_format;
mod file_response;
mod idempotency_key;
mod json_body;
mod json_response;
mod lingering_close;
mod listen;
mod mcp_authorization;
mod mcp_servers;
mod middleware;
mod openapi;
mod origin_policy;
mod pagination;
mod problem;
mod query_params;
mod response_body;
mod router;
mod routes;
mod shutdown;
mod sse;
mod stateless;
mod storage;
mod storage_backend;
mod stream_request;
mod tickets;
mod viewer_routes;
mod write_timeout;
mod ws;

use clap::Parser as _;
use std::process::ExitCode;

/// Records of similar size are allocated on one thread and freed on another. The system allocator takes twice as long
/// (docs/performance.md), and other allocators retain more memory for viewers that do not read.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // One line, even if the cause has several: logs are read by line.
            let line = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("headwater: {line}");
            ExitCode::FAILURE
        }
    }
}
