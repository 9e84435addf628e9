//! The real binary, over real sockets.

#![cfg(test)]

mod approvals;
mod auth;
mod bad_input;
mod broker;
mod check_config;
mod client_tools;
mod crashed_tools;
mod crowd;
mod demo;
mod framing;
mod guard;
mod harness;
mod idempotency;
mod kill;
mod power_cut;
mod queue;
mod routes;
mod runs;
mod startup;
mod stop;
mod streams;
mod usage;
mod viewers;
