//! Statements of tests, through `psql`.

use crate::programs::PostgresPrograms;
use std::io::Write as _;
use std::process::{Output, Stdio};

/// Seconds.
const CONNECT_TIMEOUT: &str = "10";

/// Connects to one server as its superuser.
#[derive(Clone, Debug)]
pub(crate) struct Psql {
    programs: PostgresPrograms,
    /// Without the database: `postgres://postgres@127.0.0.1:5432`.
    server_url: String,
}

impl Psql {
    pub(crate) const fn new(programs: PostgresPrograms, server_url: String) -> Self {
        Self { programs, server_url }
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("{}/{database}", self.server_url)
    }

    /// Runs `sql` and returns the rows without header, columns separated by `|`. The error is the one that `psql` prints.
    pub(crate) fn try_execute(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = self.run(database, sql).map_err(|error| format!("cannot run psql: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    fn run(&self, database: &str, sql: &str) -> std::io::Result<Output> {
        let mut command = self.programs.command("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url(database));
        command.env("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT);
        let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdin = psql.stdin.take();
        // Beside reading the output: both pipes could be full.
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // A psql that ended early says why on stderr.
                stdin.map(|mut stdin| stdin.write_all(sql.as_bytes()))
            });
            psql.wait_with_output()
        })
    }
}
