//! MCP servers as real programs: `tests/servers/server.py`, friendly and hostile.

#![cfg(test)]

mod auth_server;
mod calls;
mod catalog;
mod content;
mod fixtures;
mod hostile;
mod http;
mod http_credentials;
mod http_hostile;
mod http_server;
mod http_tokens;
mod oauth;
mod pins;
mod pool;
mod questions;
