//! `headwater`: the ground under the house's roof. Reads the command line, and says in one line what went wrong.
//!
//! Everything is wired together here and in [`cli`]; the floors below know nothing of each other. Only this file and the
//! verbs in [`cli`] speak `anyhow`: everywhere else an error is a type that says what can go wrong.

mod app;
mod auth;
mod begin;
mod body;
mod cli;
mod config;
mod control;
mod converse;
mod day;
mod documents;
mod files;
mod guard;
mod hex;
mod keys;
mod linger;
mod listen;
mod paging;
mod places;
mod problem;
mod query;
mod routes;
mod schema;
mod shares;
mod sse;
mod stateless;
mod streams;
mod tickets;
mod tongue;
mod watch;
mod wire;
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
