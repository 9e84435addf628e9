//! MCP servers as real programs: `tests/servers/server.py`, friendly and hostile.

#![cfg(test)]

mod calls;
mod catalog;
mod content;
mod fixtures;
mod hostile;
mod pins;
mod pool;
mod questions;
