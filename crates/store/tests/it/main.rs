//! The store: the conformance suite on both backends, and what is specific to SQLite.

#![cfg(test)]

mod append_log;
mod compact;
mod condensed;
mod damage;
mod data_folder;
mod database_client;
mod files;
mod folder;
mod import;
mod laws;
mod log_size;
mod logged;
mod long_log;
mod packing;
mod postgres;
mod restarts;
mod runtime_ticks;
mod space;
mod write_ahead_log;
mod writer;
