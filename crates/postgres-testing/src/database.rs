//! One test's database.

use crate::psql::Psql;
use crate::server::{ADMIN_DATABASE, PostgresServer, shared};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// A new database. Dropping it ends its connections and deletes it.
#[derive(Debug)]
pub struct TestDatabase {
    psql: Psql,
    name: String,
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
        // A server that runs on may have the database of a killed process that had the same id.
        server.execute(ADMIN_DATABASE, &format!("{}\nCREATE DATABASE {name};", drop_statement(&name)));
        Self { psql: server.psql().clone(), name }
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
        if let Err(error) = self.psql.try_execute(ADMIN_DATABASE, &drop_statement(&self.name)) {
            // A test may have stopped its server for good.
            let _ = writeln!(std::io::stderr(), "the database {} stays: {error}", self.name);
        }
    }
}

fn drop_statement(name: &str) -> String {
    format!("DROP DATABASE IF EXISTS {name} WITH (FORCE);")
}
