//! A connection pooler in front of a server.

use crate::account::ServerAccount;
use crate::folder::ServerFolder;
use crate::port::start_on_free_port;
use crate::programs::{PostgresPrograms, find_pgbouncer, pgbouncer_command};
use crate::psql::Psql;
use crate::server::PostgresServer;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};

/// PgBouncer in transaction mode: consecutive transactions of one client may run on different connections of the
/// server. Dropping it ends its connections.
#[derive(Debug)]
pub struct PgBouncer {
    psql: Psql,
    process: Child,
    _folder: ServerFolder,
}

impl PgBouncer {
    /// If it cannot run here, writes to stderr that `test`, the name of the calling test, is skipped.
    #[must_use]
    pub fn start_or_skip(server: &PostgresServer, test: &str) -> Option<Self> {
        let program = find_pgbouncer().ok_or("it is missing".to_owned());
        match program.and_then(|program| check_program(&program).map(|()| program)) {
            Ok(program) => Some(Self::start(server, pgbouncer_command(&program))),
            Err(why) => {
                // Straight to the file descriptor: the test harness would capture a print.
                let written = writeln!(std::io::stderr(), "SKIPPED {test}: needs pgbouncer, and {why}");
                written.expect("stderr is there");
                None
            }
        }
    }

    fn start(server: &PostgresServer, mut command: Command) -> Self {
        let folder = ServerFolder::create("headwater-pgbouncer-");
        command.arg(folder.path().join("pgbouncer.ini"));
        let (port, process) = start_on_free_port(|port| {
            folder.write_private_file("pgbouncer.ini", &configuration(server.port(), port));
            let process = folder.start_server(&mut command, |_pid, log| log.contains("process up"))?;
            Ok((port, process))
        });
        let psql = Psql::new(PostgresPrograms::find(), format!("postgres://postgres@127.0.0.1:{port}"));
        Self { psql, process, _folder: folder }
    }

    /// The URL of a database of the server, through the pooler.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.psql.url(database)
    }

    /// As [`PostgresServer::execute`], through the pooler; on the database `pgbouncer`, a command to the pooler itself.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        self.psql.try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}\nfailed on {database}: {error}"))
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Another user may be unable to reach what was unpacked into root's own folder.
fn check_program(program: &Path) -> Result<(), String> {
    let mut command = pgbouncer_command(program);
    command.arg("--version").current_dir("/");
    if let Some(account) = ServerAccount::for_root() {
        account.apply_to(&mut command);
    }
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{} fails: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{} does not start: {error}", program.display())),
    }
}

/// A server that was down is tried again after a second, not after the default of fifteen.
fn configuration(server_port: u16, port: u16) -> String {
    format!(
        "[databases]
* = host=127.0.0.1 port={server_port} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 500
default_pool_size = 20
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
"
    )
}
