//! One test's database.

use crate::psql::Psql;
use crate::server::{ADMIN_DATABASE, PostgresServer, shared};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A new database. Dropping it ends its connections, and deletes it unless its server deletes all of its data anyway: a
/// deletion takes longer than many tests, because it writes a checkpoint.
#[derive(Debug)]
pub struct TestDatabase {
    psql: Psql,
    name: String,
    on_drop: String,
}

impl TestDatabase {
    /// On the shared server.
    #[must_use]
    pub fn create() -> Self {
        Self::create_on(shared())
    }

    #[must_use]
    pub fn create_on(server: &PostgresServer) -> Self {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{count}", std::process::id());
        let delete = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE);");
        // A server that runs on may have the database of a killed process that had the same id.
        server.execute(ADMIN_DATABASE, &format!("{delete}\nCREATE DATABASE {name};"));
        let end_connections = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname";
        let on_drop = if server.is_temporary() { format!("{end_connections} = '{name}';") } else { delete };
        Self { psql: server.psql().clone(), name, on_drop }
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn url(&self) -> String {
        self.psql.url(&self.name)
    }

    /// As [`PostgresServer::execute`], on this database.
    pub fn execute(&self, sql: &str) -> String {
        self.psql.try_execute(&self.name, sql).unwrap_or_else(|error| panic!("{sql}\nfailed: {error}"))
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        if let Err(error) = self.psql.try_execute(ADMIN_DATABASE, &self.on_drop) {
            // A test may have stopped its server for good.
            let _ = writeln!(std::io::stderr(), "the database {} stays: {error}", self.name);
        }
    }
}
