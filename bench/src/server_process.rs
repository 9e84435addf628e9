//! The servers of a measurement, as child processes that end with it.
//!
//! Each child is killed by its own id: by `stop` in the normal case, by `kill_on_drop` otherwise. Headwater gets a new
//! data folder on the disk that holds the build, because the folder for temporary files may be in memory, where
//! durability costs nothing.

use crate::proxy::ProxyMode;
use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;
use anyhow::{Context, bail};
use clap::ValueEnum;
use hyper::http::uri::Authority;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const LOG_TAIL_LINES: usize = 20;
const READY_PREFIX: &str = "listening on http://";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HeadwaterOptions {
    /// Binary to measure [default: build this workspace in the same profile].
    #[arg(long, value_name = "PATH")]
    headwater: Option<PathBuf>,
    /// Measure only the baselines.
    #[arg(long, conflicts_with = "headwater")]
    without_headwater: bool,
}

/// The workspace's root, from which `cargo` and `git` are run.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A new folder beside the build, removed when dropped.
pub(crate) fn scratch_dir() -> anyhow::Result<TempDir> {
    let exe = std::env::current_exe()?;
    let build = exe.parent().context("the program has no folder")?;
    tempfile::Builder::new().prefix("bench-").tempdir_in(build).context("no scratch folder")
}

/// A child process that listens.
pub(crate) struct ServerProcess {
    target: LoadTarget,
    child: Child,
    /// From its start until it listened.
    ready_after: Duration,
    /// Held for as long as the child may write there.
    scratch_dir: Option<TempDir>,
}

impl ServerProcess {
    pub(crate) fn target(&self) -> &LoadTarget {
        &self.target
    }

    pub(crate) fn ready_after(&self) -> Duration {
        self.ready_after
    }

    pub(crate) async fn start_mock(name: &'static str) -> anyhow::Result<Self> {
        Self::spawn(name, Command::new(std::env::current_exe()?).arg("mock"), None).await
    }

    pub(crate) async fn start_proxy(mode: ProxyMode, upstream: &Authority) -> anyhow::Result<Self> {
        let name = match mode {
            ProxyMode::Pass => "do-nothing proxy",
            ProxyMode::Parse => "parsing proxy",
        };
        let mode = mode.to_possible_value().context("every mode has a name")?;
        let arguments = ["proxy", "--mode", mode.get_name(), "--upstream", upstream.as_str()];
        Self::spawn(name, Command::new(std::env::current_exe()?).args(arguments), None).await
    }

    /// Headwater with the configuration of the benchmark and `upstream` as its provider; none if the options say so.
    pub(crate) async fn start_headwater(
        options: &HeadwaterOptions,
        upstream: &Authority,
    ) -> anyhow::Result<Option<Self>> {
        if options.without_headwater {
            return Ok(None);
        }
        let binary = headwater_binary(options).await?;
        Self::start_headwater_in(&binary, upstream, scratch_dir()?, &[]).await.map(Some)
    }

    /// The same, with its log in a database.
    pub(crate) async fn start_headwater_on(
        options: &HeadwaterOptions,
        upstream: &Authority,
        database_url: &str,
    ) -> anyhow::Result<Self> {
        let more = ["--database-url", database_url];
        Self::start_headwater_in(&headwater_binary(options).await?, upstream, scratch_dir()?, &more).await
    }

    /// Kills Headwater and starts it again with its data.
    pub(crate) async fn restart_headwater(
        mut self,
        options: &HeadwaterOptions,
        upstream: &Authority,
    ) -> anyhow::Result<Self> {
        let scratch = self.scratch_dir.take().context("it has no data")?;
        self.stop().await?;
        Self::start_headwater_in(&headwater_binary(options).await?, upstream, scratch, &[]).await
    }

    async fn start_headwater_in(
        binary: &Path,
        upstream: &Authority,
        scratch: TempDir,
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("headwater.toml");
        let mut command = Command::new(binary);
        command.arg("serve").arg("--config").arg(config).args(["--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(scratch.path().join("data")).args(more).env("OPENAI_BASE_URL", format!("http://{upstream}/v1"));
        // A proxy of the environment is for other hosts than this one.
        command.env("NO_PROXY", "127.0.0.1");
        Self::spawn("headwater", &mut command, Some(scratch)).await
    }

    async fn spawn(name: &'static str, command: &mut Command, scratch: Option<TempDir>) -> anyhow::Result<Self> {
        let log = scratch.as_ref().map(log_path);
        let stderr = match &log {
            Some(log) => File::create(log)?.into(),
            None => Stdio::inherit(),
        };
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = child.id().context("the server ended at once")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let ready = tokio::time::timeout(READY_TIMEOUT, read_authority(&mut lines)).await;
        let Ok(Ok(authority)) = ready else {
            bail!(
                "{name} ended, or did not say `{READY_PREFIX}…` within {READY_TIMEOUT:?}\n{}",
                log_tail(scratch.as_ref())
            );
        };
        let ready_after = started.elapsed();
        // Further output is discarded; the child must not block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // The mock and the proxies pass on what a provider of Chat Completions sends.
        let target = LoadTarget { name, authority, pid, protocol: StreamProtocol::Chat, model: "story" };
        Ok(Self { target, child, ready_after, scratch_dir: scratch })
    }

    /// The last lines that the server logged, for when a measurement failed.
    pub(crate) fn log_tail(&self) -> String {
        log_tail(self.scratch_dir.as_ref())
    }

    /// Kills the process and waits until it is gone.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("{} had already ended", self.target.name))
    }
}

fn log_path(scratch: &TempDir) -> PathBuf {
    scratch.path().join("stderr")
}

fn log_tail(scratch: Option<&TempDir>) -> String {
    let log = scratch.and_then(|scratch| std::fs::read_to_string(log_path(scratch)).ok()).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines.get(lines.len().saturating_sub(LOG_TAIL_LINES)..).unwrap_or_default().join("\n")
}

async fn read_authority(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<Authority> {
    while let Some(line) = lines.next_line().await? {
        if let Some((_, url)) = line.split_once(READY_PREFIX) {
            return Ok(url.trim().trim_end_matches('/').parse()?);
        }
    }
    bail!("it ended")
}

/// The binary to measure, built in the profile of this program if none is named.
pub(crate) async fn headwater_binary(options: &HeadwaterOptions) -> anyhow::Result<PathBuf> {
    if let Some(binary) = &options.headwater {
        return Ok(binary.clone());
    }
    let build = ["build", "--profile", &build_profile()?, "--bin", "headwater"];
    let status = Command::new("cargo").args(build).current_dir(workspace_root()).status().await.context("cargo")?;
    anyhow::ensure!(status.success(), "cargo build failed");
    Ok(std::env::current_exe()?.with_file_name("headwater"))
}

/// The profile in which this program was built, which cargo names the folder of the build after.
pub(crate) fn build_profile() -> anyhow::Result<String> {
    let exe = std::env::current_exe()?;
    let folder = exe.parent().and_then(Path::file_name).context("the program has no folder")?;
    Ok(folder.to_string_lossy().into_owned())
}
