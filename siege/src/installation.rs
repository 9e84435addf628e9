//! An installation of the server under siege: a folder with its configuration, its data, its users, and the effects of
//! its tool.

use crate::http_client::ApiUser;
use crate::memory_limit::MemoryLimit;
use crate::server_process::{LaunchOptions, ServerProcess, ServerUsage, log_path};
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::fmt::Write;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::Mutex;

pub(crate) const PROBE_USER: &str = "probe";
pub(crate) const ATTACKER: &str = "attacker";
const LOG_TAIL_LINES: usize = 12;

/// What differs between the servers of two attacks.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSettings {
    pub(crate) descriptors: Option<u32>,
    pub(crate) env: Vec<(String, String)>,
    /// Keys of `[limits]`.
    pub(crate) limits: Vec<(&'static str, u64)>,
    /// Keys of `[files]`.
    pub(crate) files: Vec<(&'static str, u64)>,
    /// Tables at the end of the configuration.
    pub(crate) tables: String,
}

pub(crate) struct Installation {
    folder: TempDir,
    data: PathBuf,
    binary: PathBuf,
    address: String,
    upstream_port: u16,
    pub(crate) stop_grace: Duration,
    memory: Option<MemoryLimit>,
    process: Mutex<Option<ServerProcess>>,
    pub(crate) probe: ApiUser,
    pub(crate) attacker: ApiUser,
}

/// What every installation of a siege has in common.
#[derive(Clone, Debug)]
pub(crate) struct InstallationPlan {
    pub(crate) binary: PathBuf,
    pub(crate) upstream_port: u16,
    pub(crate) stop_grace: Duration,
    pub(crate) memory: Option<MemoryLimit>,
    /// Users that were created before, so that not every installation has to.
    pub(crate) users: Option<Arc<InstallationUsers>>,
}

/// The keys of both users, and a data folder that knows them.
#[derive(Debug)]
pub(crate) struct InstallationUsers {
    data: TempDir,
    probe_key: String,
    attacker_key: String,
}

impl Installation {
    /// A new folder beside the build, because the folder for temporary files may be in memory, where `fsync` is free.
    /// `data` is the data folder, if it is elsewhere.
    pub(crate) fn create(plan: &InstallationPlan, data: Option<PathBuf>) -> anyhow::Result<Self> {
        let exe = std::env::current_exe()?;
        let build = exe.parent().context("the program has no folder")?;
        let folder = tempfile::Builder::new().prefix("siege-").tempdir_in(build)?;
        let data = data.unwrap_or_else(|| folder.path().join("data"));
        // The port is free now, and the same one is used after each restart.
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string();
        let user = |name| ApiUser { name, key: String::new(), address: address.clone() };
        let (probe, attacker) = (user(PROBE_USER), user(ATTACKER));
        let mut installation = Self {
            folder,
            data,
            binary: plan.binary.clone(),
            address,
            upstream_port: plan.upstream_port,
            stop_grace: plan.stop_grace,
            memory: plan.memory.clone(),
            process: Mutex::new(None),
            probe,
            attacker,
        };
        installation.write_config(&ServerSettings::default())?;
        if let Some(users) = &plan.users {
            copy_files(users.data.path(), &installation.data)?;
            installation.probe.key.clone_from(&users.probe_key);
            installation.attacker.key.clone_from(&users.attacker_key);
        } else {
            installation.probe.key = installation.create_key(PROBE_USER)?;
            installation.attacker.key = installation.create_key(ATTACKER)?;
        }
        Ok(installation)
    }

    /// Copies the data folder, whose server was not started yet, for further installations.
    pub(crate) fn copy_users(&self) -> anyhow::Result<InstallationUsers> {
        let data = tempfile::Builder::new().prefix("siege-users-").tempdir()?;
        copy_files(&self.data, data.path())?;
        Ok(InstallationUsers { data, probe_key: self.probe.key.clone(), attacker_key: self.attacker.key.clone() })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn data_dir(&self) -> &Path {
        &self.data
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Each line is one execution of the tool `record`, with its arguments.
    pub(crate) fn effects_path(&self) -> PathBuf {
        self.path("effects")
    }

    fn write_config(&self, settings: &ServerSettings) -> anyhow::Result<()> {
        let (data, effects) = (self.data.display(), self.effects_path().display().to_string());
        let (grace, port) = (self.stop_grace.as_millis(), self.upstream_port);
        let mut text = format!(
            r#"[server]
data_dir = "{data}"
stop_grace_ms = {grace}

[auth]
mode = "keys"

[agents.writer]
model = "mock/writer"
tools = ["record"]

[providers.mock]
kind = "openai-chat"
base_url = "http://127.0.0.1:{port}/v1"

[tools.record]
kind = "command"
description = "Writes its arguments to a file."
command = ["sh", "-c", 'cat >> "{effects}"; echo recorded']
env_pass = ["PATH"]
parameters = {{ type = "object", properties.mark.type = "string" }}
"#
        );
        for (table, keys) in [("limits", &settings.limits), ("files", &settings.files)] {
            let _ = writeln!(text, "\n[{table}]");
            for (key, value) in keys {
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text.push_str(&settings.tables);
        std::fs::write(self.path("headwater.toml"), text).context("cannot write the configuration")
    }

    fn create_key(&self, user: &str) -> anyhow::Result<String> {
        let output = self.run_verb(&["keys", "create", "--user", user])?;
        let key = output.trim();
        anyhow::ensure!(key.starts_with("hw_"), "no key: {key}");
        Ok(key.to_owned())
    }

    /// Runs a subcommand of the binary; an error has its output.
    pub(crate) fn run_verb(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).args(["--config", "headwater.toml"]).current_dir(self.folder.path());
        let output = command.output().context("cannot start the binary")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            bail!("`headwater {}`: {}: {text}", arguments.join(" "), output.status);
        }
        Ok(text)
    }

    /// Starts the server and returns how long it took to be ready.
    pub(crate) async fn start(&self, settings: &ServerSettings) -> anyhow::Result<Duration> {
        self.write_config(settings)?;
        self.restart(settings).await
    }

    /// Starts the server with the configuration that is there.
    pub(crate) async fn restart(&self, settings: &ServerSettings) -> anyhow::Result<Duration> {
        let options =
            LaunchOptions { descriptors: settings.descriptors, env: settings.env.clone(), memory: self.memory.clone() };
        let mut slot = self.process.lock().await;
        anyhow::ensure!(slot.is_none(), "the server runs already");
        let mut process = ServerProcess::spawn(&self.binary, self.folder.path(), &self.address, &options)?;
        let ready = process.wait_ready().await.with_context(|| self.log_tail());
        *slot = Some(process);
        ready
    }

    /// Sends SIGTERM, and returns how long the server took to end. An exit code other than 0 is an error.
    pub(crate) async fn stop(&self) -> anyhow::Result<Duration> {
        let process = self.process.lock().await.take().context("the server does not run")?;
        process.send_signal(Signal::TERM)?;
        let (status, took) = process.wait_exit().await?;
        anyhow::ensure!(status.success(), "after SIGTERM the server ended with {status}\n{}", self.log_tail());
        Ok(took)
    }

    /// Ends the server without notice.
    pub(crate) async fn kill(&self) -> anyhow::Result<()> {
        let process = self.process.lock().await.take().context("the server does not run")?;
        process.send_signal(Signal::KILL)?;
        process.wait_exit().await.map(drop)
    }

    pub(crate) async fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.process.lock().await.as_ref().context("the server does not run")?.send_signal(signal)
    }

    pub(crate) async fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.process.lock().await.as_ref().context("the server does not run")?.pid())
    }

    pub(crate) async fn usage(&self) -> anyhow::Result<ServerUsage> {
        self.process.lock().await.as_ref().context("the server does not run")?.usage()
    }

    /// Whether the server runs. One that has ended by itself is forgotten, so that it can be started again.
    pub(crate) async fn is_running(&self) -> bool {
        let mut slot = self.process.lock().await;
        if slot.as_mut().is_some_and(|process| process.exit_status().is_some()) {
            *slot = None;
        }
        slot.is_some()
    }

    /// The last lines of the server's log, for messages.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(log_path(self.folder.path())).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

/// Copies the files directly in a folder, with their permissions.
fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
