//! The store: the conformance suite on both backends, and what is specific to SQLite.

#![cfg(test)]

mod compact;
mod condensed;
mod damage;
mod files;
mod folder;
mod laws;
mod log_size;
mod logged;
mod long_log;
mod restarts;
mod space;
mod writer;
