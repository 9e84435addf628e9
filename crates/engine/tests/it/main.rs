//! The engine over a real store, with a scripted model: what is shown, when, and to whom.

#![cfg(test)]

mod agents;
mod approvals;
mod budgets;
mod clients;
mod compaction;
mod crashes;
mod crossing;
mod definitions;
mod fake_ports;
mod files;
mod fixtures;
mod hooks;
mod laws;
mod long;
mod queue;
mod random_logs;
mod retries;
mod runs;
mod sentences;
mod test_engine;
