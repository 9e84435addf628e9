//! The real binary, over real sockets.

#![cfg(test)]

mod auth;
mod bad_input;
mod crowd;
mod framing;
mod guard;
mod harness;
mod idempotency;
mod kill;
mod power_cut;
mod routes;
mod runs;
mod startup;
mod stop;
mod streams;
mod viewers;
