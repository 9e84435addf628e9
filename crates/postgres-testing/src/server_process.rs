//! A cluster in a temporary folder, and the `postgres` that runs on it.

use crate::folder::ServerFolder;
use crate::port::start_on_free_port;
use crate::programs::PostgresPrograms;
use crate::tls::create_server_certificate;
use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

const STOP_MAX: Duration = Duration::from_secs(30);
const AUTHORITY_FILE: &str = "ca.pem";

/// The settings are in the file and not on the command line, where `ALTER
/// SYSTEM` could not change them. Shared memory in files disappears with the folder of a server that was killed.
/// Just-in-time compilation makes short queries slow and needs a library that may be missing.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
max_connections = 200
shared_buffers = 64MB
dynamic_shared_memory_type = mmap
jit = off
log_line_prefix = '%m [%p] %q%u@%d '
";
const TLS_SETTINGS: &str = "
ssl = on
ssl_cert_file = '../server.pem'
ssl_key_file = '../server.key'
";

/// Whether a server accepts TLS beside plain connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServerTls {
    Off,
    On,
}

/// Whether a commit waits for the disk. Without that it survives a kill of the server all the same, because the kernel has it,
/// but not a power cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ServerFsync {
    Off,
    On,
}

impl ServerFsync {
    const fn setting(self) -> &'static str {
        match self {
            Self::Off => "fsync = off\n",
            Self::On => "fsync = on\n",
        }
    }
}

/// Dropping it stops the server and removes its folder.
#[derive(Debug)]
pub(crate) struct PostgresProcess {
    programs: PostgresPrograms,
    port: u16,
    /// `None` while the server is stopped.
    postmaster: Option<Child>,
    folder: ServerFolder,
}

impl PostgresProcess {
    pub(crate) fn start(programs: PostgresPrograms, tls: ServerTls, fsync: ServerFsync) -> Self {
        let folder = ServerFolder::create("headwater-postgres-");
        let mut server = Self { programs, port: 0, postmaster: None, folder };
        server.initialise_cluster();
        server.write_settings(tls, fsync);
        start_on_free_port(|port| {
            server.port = port;
            server.run()
        });
        server
    }

    /// # Panics
    ///
    /// If the server is stopped.
    pub(crate) fn postmaster_pid(&self) -> u32 {
        self.postmaster.as_ref().expect("the server is running").id()
    }

    fn initialise_cluster(&self) {
        let mut initdb = self.programs.command("initdb");
        initdb.args(["--data-checksums", "--encoding=UTF8", "--locale=C", "--auth=trust", "--username=postgres"]);
        // Only for initdb itself.
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(self.folder.data());
        let ended = self.folder.spawn(&mut initdb).wait();
        assert!(ended.is_ok_and(|status| status.success()), "initdb failed:\n{}", self.folder.log_tail());
    }

    fn write_settings(&self, tls: ServerTls, fsync: ServerFsync) {
        let mut settings = format!("{SETTINGS}unix_socket_directories = '{}'\n", self.folder.path().display());
        settings.push_str(fsync.setting());
        if tls == ServerTls::On {
            let files = create_server_certificate();
            self.folder.write_private_file(AUTHORITY_FILE, &files.authority);
            self.folder.write_private_file("server.pem", &files.certificate);
            self.folder.write_private_file("server.key", &files.key);
            settings.push_str(TLS_SETTINGS);
        }
        let file = File::options().append(true).open(self.folder.data().join("postgresql.conf"));
        let written = file.and_then(|mut file| file.write_all(settings.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot append to postgresql.conf: {error}"));
    }

    /// Starts `postgres` and waits until it accepts connections.
    fn run(&mut self) -> Result<(), String> {
        let mut postgres = self.programs.command("postgres");
        postgres.arg("-D").arg(self.folder.data()).args(["-p", &self.port.to_string()]);
        self.postmaster = Some(self.folder.start_server(&mut postgres, |pid, _log| self.is_ready(pid))?);
        Ok(())
    }

    /// What `pg_ctl` waits for: the eighth line of the lock file. After a crash the file is that of another process.
    fn is_ready(&self, postmaster: u32) -> bool {
        let file = fs::read_to_string(self.folder.data().join("postmaster.pid")).unwrap_or_default();
        let mut lines = file.lines().map(str::trim);
        lines.next() == Some(postmaster.to_string().as_str()) && lines.nth(6) == Some("ready")
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) const fn folder(&self) -> &ServerFolder {
        &self.folder
    }

    pub(crate) fn authority_path(&self) -> PathBuf {
        let path = self.folder.path().join(AUTHORITY_FILE);
        assert!(path.exists(), "this server has no certificate: use `PostgresServer::start_with_tls`");
        path
    }

    pub(crate) fn start_again(&mut self) {
        assert!(self.postmaster.is_none(), "the server on port {} is running", self.port);
        self.run().unwrap_or_else(|why| panic!("{why}"));
    }

    /// A fast shutdown: connections end, transactions are rolled back, and the next start needs no recovery.
    pub(crate) fn stop_fast(&mut self) -> Result<(), String> {
        let mut postmaster = self.postmaster.take().ok_or("the server is not running")?;
        let pid = i32::try_from(postmaster.id()).ok().and_then(Pid::from_raw).ok_or("no process id")?;
        kill_process(pid, Signal::INT).map_err(|error| format!("cannot stop the server: {error}"))?;
        if wait_until(STOP_MAX, || !matches!(postmaster.try_wait(), Ok(None))) {
            return Ok(());
        }
        self.postmaster = Some(postmaster);
        self.crash()?;
        Err(format!("the server did not stop within {STOP_MAX:?} and was killed:\n{}", self.folder.log_tail()))
    }

    /// Kills all processes. The postmaster is first, so that it neither starts others nor recovers from their end.
    pub(crate) fn crash(&mut self) -> Result<(), String> {
        let mut postmaster = self.postmaster.take().ok_or("the server is not running")?;
        let killed = postmaster.kill().and_then(|()| postmaster.wait());
        killed.map_err(|error| format!("cannot kill the server: {error}"))?;
        // A start before the last of them is gone would fail, because the shared memory is in use.
        if self.folder.kill_processes() { Ok(()) } else { Err("a process of the server survived SIGKILL".to_owned()) }
    }
}

impl Drop for PostgresProcess {
    fn drop(&mut self) {
        // What goes wrong here is for the folder's guardian.
        let _ = self.stop_fast();
    }
}
