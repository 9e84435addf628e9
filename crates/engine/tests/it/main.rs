//! The engine over a real store, with a scripted model: what is shown, when, and to whom.

#![cfg(test)]

mod agents;
mod approvals;
mod budgets;
mod cast;
mod clients;
mod compaction;
mod crashes;
mod crossing;
mod definitions;
mod files;
mod hooks;
mod house;
mod laws;
mod long;
mod ports;
mod queue;
mod random_logs;
mod retries;
mod runs;
mod sentences;
