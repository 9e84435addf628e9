//! The temporary folder of a server, and the processes that run in it.

use crate::account::ServerAccount;
use crate::guardian::Guardian;
use crate::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const READY_MAX: Duration = Duration::from_secs(60);
const KILL_MAX: Duration = Duration::from_secs(30);
/// How much of a log an error message repeats.
const LOG_TAIL_LINES: usize = 20;

/// All processes of a server have `data` as their working directory, from their first moment; that is how they are
/// found. Dropping the folder kills them and removes it.
#[derive(Debug)]
pub(crate) struct ServerFolder {
    path: PathBuf,
    account: Option<ServerAccount>,
    _guardian: Guardian,
}

impl ServerFolder {
    pub(crate) fn create(prefix: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(prefix).tempdir();
        let folder = folder.unwrap_or_else(|error| panic!("cannot create a temporary folder: {error}"));
        let path = folder.path().canonicalize().expect("the folder was just created");
        let data = path.join("data");
        fs::create_dir(&data).expect("a new folder is writable");
        let account = ServerAccount::for_root();
        if let Some(account) = &account {
            account.take_ownership(&path);
            account.take_ownership(&data);
        }
        let guardian = Guardian::start(&path);
        // From here the guardian removes it.
        let _ = folder.keep();
        Self { path, account, _guardian: guardian }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Writes a file that only the server and root can read.
    pub(crate) fn write_private_file(&self, name: &str, content: &str) -> PathBuf {
        use std::io::Write as _;
        use std::os::unix::fs::OpenOptionsExt as _;
        let path = self.path.join(name);
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| file.write_all(content.as_bytes()));
        written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        if let Some(account) = &self.account {
            account.take_ownership(&path);
        }
        path
    }

    /// Starts the server and waits until `is_ready`, which is asked with its process id and its log since this start. The
    /// error has that log.
    pub(crate) fn start_server(
        &self,
        command: &mut Command,
        is_ready: impl Fn(u32, &str) -> bool,
    ) -> Result<Child, String> {
        let log_before = self.log().len();
        let log = || self.log().get(log_before..).unwrap_or_default().to_owned();
        let mut process = self.spawn(command);
        let mut exit = None;
        let done = wait_until(READY_MAX, || {
            exit = process.try_wait().ok().flatten();
            exit.is_some() || is_ready(process.id(), &log())
        });
        let program = command.get_program().display();
        match exit {
            Some(status) => Err(format!("{program} ended with {status} instead of accepting connections:\n{}", log())),
            None if done => Ok(process),
            None => {
                // What it started is killed with the folder.
                let _ = process.kill().and_then(|()| process.wait());
                Err(format!("{program} accepted no connection within {READY_MAX:?}:\n{}", log()))
            }
        }
    }

    /// Starts a process of the server. Its output is appended to the log.
    pub(crate) fn spawn(&self, command: &mut Command) -> Child {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("the log is writable");
        let same_log = log.try_clone().expect("a descriptor can be duplicated");
        command.current_dir(self.data()).process_group(0).stdin(Stdio::null()).stdout(same_log).stderr(log);
        let mut user = "this user";
        if let Some(account) = &self.account {
            account.apply_to(command);
            user = account.name();
        }
        command.spawn().unwrap_or_else(|error| {
            let (program, data) = (command.get_program().display(), self.data());
            panic!(
                "cannot start {program} in {}: {error}; {user} must be able to reach both, see TMPDIR",
                data.display()
            )
        })
    }

    fn log_path(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read(self.log_path()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL_LINES)..).unwrap_or_default().join("\n")
    }

    /// The processes that run. One that has ended and was not waited for has no working directory.
    fn processes(&self) -> Vec<Pid> {
        let data = self.data();
        let entries = fs::read_dir("/proc").expect("/proc is there: this crate is for Linux");
        let found = entries.filter_map(|entry| {
            let process = entry.ok()?.path();
            let pid = process.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
            (fs::read_link(process.join("cwd")).ok()? == data).then_some(pid)
        });
        found.collect()
    }

    /// Kills all processes; false if one is left after a time that is far too long.
    #[must_use]
    pub(crate) fn kill_processes(&self) -> bool {
        wait_until(KILL_MAX, || {
            let found = self.processes();
            for pid in &found {
                // An error means that it has ended.
                let _ = kill_process(*pid, Signal::KILL);
            }
            found.is_empty()
        })
    }

    /// Kills one process, and returns when its parent has noticed.
    pub(crate) fn kill_child_process(&self, pid: i32) {
        let process = Pid::from_raw(pid).filter(|pid| self.processes().contains(pid));
        let process = process.unwrap_or_else(|| panic!("{pid} is not a process of this server"));
        kill_process(process, Signal::KILL).unwrap_or_else(|error| panic!("cannot kill {pid}: {error}"));
        let entry = Path::new("/proc").join(pid.to_string());
        assert!(wait_until(KILL_MAX, || !entry.exists()), "process {pid} still exists {KILL_MAX:?} after SIGKILL");
    }
}
