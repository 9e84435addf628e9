//! The engine over a real store, with a scripted model: what viewers see, when, and who sees it.

#![cfg(test)]

mod agents;
mod approvals;
mod budgets;
mod checkpoints;
mod clients;
mod compaction;
mod crashes;
mod decision_races;
mod definitions;
mod expectations;
mod fake_ports;
mod files;
mod fixtures;
mod full_disk;
mod hooks;
mod hub_interleavings;
mod laws;
mod questions;
mod queue;
mod random_logs;
mod recovery_limits;
mod resolved_definitions;
mod retries;
mod runs;
mod scale;
mod test_engine;
mod viewers;
