//! The server that a test sees.

use crate::programs::PostgresPrograms;
use crate::psql::Psql;
use crate::server_process::{PostgresProcess, ServerFsync, ServerTls};
use crate::wait::wait_until;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Names a running server for [`shared`], by the URL of a superuser: `postgres://postgres@127.0.0.1:5432/postgres`.
const URL_VARIABLE: &str = "HEADWATER_TEST_POSTGRES_URL";
/// The database for statements that concern the whole server.
pub(crate) const ADMIN_DATABASE: &str = "postgres";
const RECOVERY_MAX: Duration = Duration::from_secs(60);
const RELOAD_MAX: Duration = Duration::from_secs(30);

/// The server of this test process. It must not be stopped or changed: other tests use it at the same time. No test can take
/// its power away, so its commits do not wait for the disk, whose stalls beside a build would fail tests by their time limits.
pub fn shared() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "where tests find a server, which is not a setting of the product")]
    SHARED.get_or_init(|| match std::env::var(URL_VARIABLE) {
        Ok(url) => PostgresServer::at_url(&url),
        Err(_) => PostgresServer::start_process(ServerTls::Off, ServerFsync::Off),
    })
}

/// A PostgreSQL server on 127.0.0.1 whose superuser `postgres` needs no password. Dropping it stops it and removes its
/// data.
#[derive(Debug)]
pub struct PostgresServer {
    psql: Psql,
    port: u16,
    /// `None` if somebody else runs the server.
    process: Option<PostgresProcess>,
}

impl PostgresServer {
    /// Its commits are as durable as by default.
    ///
    /// # Panics
    ///
    /// If the programs of PostgreSQL are missing or do not start.
    #[must_use]
    pub fn start() -> Self {
        Self::start_process(ServerTls::Off, ServerFsync::On)
    }

    /// Accepts TLS beside plain connections. [`Self::ca_path`] is what clients have to trust.
    #[must_use]
    pub fn start_with_tls() -> Self {
        Self::start_process(ServerTls::On, ServerFsync::On)
    }

    fn start_process(tls: ServerTls, fsync: ServerFsync) -> Self {
        let programs = PostgresPrograms::find();
        let process = PostgresProcess::start(programs.clone(), tls, fsync);
        let port = process.port();
        let psql = Psql::new(programs, format!("postgres://postgres@127.0.0.1:{port}"));
        Self { psql, port, process: Some(process) }
    }

    /// A server that is running already.
    fn at_url(url: &str) -> Self {
        let parts =
            url.rsplit_once('/').and_then(|(server, _)| Some((server, server.rsplit_once(':')?.1.parse().ok()?)));
        let Some((server_url, port)) = parts else {
            panic!("{URL_VARIABLE} is {url:?} and not of the form postgres://postgres@127.0.0.1:5432/postgres")
        };
        let server = Self { psql: Psql::new(PostgresPrograms::find(), server_url.to_owned()), port, process: None };
        server.execute(ADMIN_DATABASE, "SELECT 1");
        server
    }

    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, for the superuser.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        self.psql.url(database)
    }

    /// The certificate, in PEM, of the authority that signed the server's.
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        self.process().authority_path()
    }

    /// Whether the server and its data end with this process.
    pub(crate) fn is_temporary(&self) -> bool {
        self.process.is_some()
    }

    /// The process whose children serve the connections.
    #[must_use]
    pub fn postmaster_pid(&self) -> u32 {
        self.process().postmaster_pid()
    }

    /// The folder with the cluster (`data`) and the log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.process().folder().path()
    }

    /// What the server has logged since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        self.process().folder().log()
    }

    /// Runs statements, each in a transaction of its own. Returns the rows, one per line, columns separated by `|`.
    ///
    /// # Panics
    ///
    /// With the message of `psql`, at the first statement that fails.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        self.psql.try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}\nfailed on {database}: {error}"))
    }

    /// Changes a setting of the server, and waits until new connections have it and others were told. A few settings
    /// need a restart: see `pg_settings.context`.
    pub fn set(&self, name: &str, value: &str) {
        let loaded = self.execute(ADMIN_DATABASE, "SELECT pg_conf_load_time()");
        let value = value.replace('\'', "''");
        self.execute(ADMIN_DATABASE, &format!("ALTER SYSTEM SET {name} = '{value}';\nSELECT pg_reload_conf();"));
        let is_loaded = || self.execute(ADMIN_DATABASE, "SELECT pg_conf_load_time()") != loaded;
        assert!(wait_until(RELOAD_MAX, is_loaded), "the server did not reload its settings within {RELOAD_MAX:?}");
    }

    /// The processes that serve the clients of a database.
    #[must_use]
    pub fn backend_pids(&self, database: &str) -> Vec<i32> {
        let name = database.replace('\'', "''");
        let backends = format!(
            "SELECT pid FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend' \
             AND pid <> pg_backend_pid() ORDER BY backend_start"
        );
        let pids = self.execute(ADMIN_DATABASE, &backends);
        pids.lines().map(|pid| pid.parse().expect("a process id is a number")).collect()
    }

    /// Kills the process of one client with SIGKILL. The server then ends all connections and recovers from its log, as
    /// after a crash; [`Self::wait_until_ready`] waits for that.
    pub fn kill_backend(&self, pid: i32) {
        self.process().folder().kill_child_process(pid);
    }

    /// Waits until the server accepts connections.
    pub fn wait_until_ready(&self) {
        let mut error = String::new();
        let is_ready = || match self.psql.try_execute(ADMIN_DATABASE, "SELECT 1") {
            Ok(_) => true,
            Err(why) => {
                error = why;
                false
            }
        };
        assert!(wait_until(RECOVERY_MAX, is_ready), "no connection within {RECOVERY_MAX:?}: {error}");
    }

    /// Kills all processes of the server with SIGKILL, and returns when they are gone.
    pub fn crash(&mut self) {
        self.process_mut().crash().unwrap_or_else(|why| panic!("{why}"));
    }

    /// A fast shutdown: connections end, transactions are rolled back, the next start needs no recovery.
    pub fn stop_fast(&mut self) {
        self.process_mut().stop_fast().unwrap_or_else(|why| panic!("{why}"));
    }

    /// Starts a stopped or crashed server on the same port and data, and waits until it accepts connections.
    pub fn start_again(&mut self) {
        self.process_mut().start_again();
    }

    pub(crate) const fn psql(&self) -> &Psql {
        &self.psql
    }

    fn process(&self) -> &PostgresProcess {
        self.process.as_ref().expect("a test may do this to a server that it has started, and this one runs elsewhere")
    }

    fn process_mut(&mut self) -> &mut PostgresProcess {
        self.process.as_mut().expect("only a server that the test has started is not shared")
    }
}
