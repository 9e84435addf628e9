//! A real PostgreSQL server for tests.
//!
//! [`PostgresServer::start`] initialises a cluster in a temporary folder and runs `postgres` as a child process;
//! [`shared`] starts one per test process, and a [`TestDatabase`] is one test's database on it. A test that crashes or
//! restarts a server starts its own. [`PgBouncer`] is a connection pooler in front of a server.
//!
//! Nothing outlives the test process, however it ends: see `guardian`. Nothing here speaks the protocol of
//! PostgreSQL; statements go through `psql`. Functions panic on an error. `install`, beside `src`, brings the programs.

#![expect(clippy::expect_used, clippy::panic, reason = "how a test says that its server is missing or broken")]

mod account;
mod database;
mod folder;
mod guardian;
mod pgbouncer;
mod port;
mod programs;
mod psql;
mod server;
mod server_process;
mod tls;
mod wait;

pub use database::TestDatabase;
pub use pgbouncer::PgBouncer;
pub use server::{PostgresServer, shared};
