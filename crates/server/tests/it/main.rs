//! The real binary, over real sockets.

#![cfg(test)]

mod agent_runs;
mod approvals;
mod auth;
mod bad_input;
mod blocks;
mod broker;
mod cancels;
mod chat_api;
mod check_config;
mod client_tools;
mod crash_points;
mod crashed_tools;
mod crowd;
mod demo;
mod fake;
mod framing;
mod gateway;
mod guard;
mod harness;
mod idempotency;
mod kill;
mod messages_api;
mod power_cut;
mod proxies;
mod queue;
mod recording;
mod replay;
mod responses;
mod routes;
mod run_items;
mod runs;
mod sentences;
mod site;
mod startup;
mod stop;
mod streams;
mod sub_agents;
mod tls;
mod trap;
mod upstreams;
mod usage;
mod viewers;
