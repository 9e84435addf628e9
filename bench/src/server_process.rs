//! The servers of a measurement, as child processes that end with it.
//!
//! Each child is killed by its own id: by `stop` in the normal case, by `kill_on_drop` otherwise. Headwater gets a new
//! data folder on the disk that holds the build, because the folder for temporary files may be in memory, where
//! durability costs nothing.

use crate::proxy::ProxyMode;
use crate::target::{LoadTarget, TargetApi};
use anyhow::{Context, bail};
use clap::ValueEnum;
use hyper::http::uri::Authority;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const LOG_TAIL_LINES: usize = 20;
const READY_PREFIX: &str = "listening on http://";

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HeadwaterOptions {
    /// Binary to measure [default: build this workspace in release mode].
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
    /// Held for as long as the child may write there.
    scratch_dir: Option<TempDir>,
}

impl ServerProcess {
    pub(crate) fn target(&self) -> &LoadTarget {
        &self.target
    }

    pub(crate) async fn start_mock(name: &'static str) -> anyhow::Result<Self> {
        let arguments = ["mock".into()];
        Self::spawn(name, TargetApi::Stream, &std::env::current_exe()?, &arguments, None).await
    }

    pub(crate) async fn start_proxy(mode: ProxyMode, upstream: &Authority) -> anyhow::Result<Self> {
        let name = match mode {
            ProxyMode::Pass => "do-nothing proxy",
            ProxyMode::Parse => "parsing proxy",
        };
        let mode = mode.to_possible_value().context("every mode has a name")?;
        let arguments = ["proxy", "--mode", mode.get_name(), "--upstream", upstream.as_str()].map(OsString::from);
        Self::spawn(name, TargetApi::Stream, &std::env::current_exe()?, &arguments, None).await
    }

    /// Headwater with the configuration of the benchmark; none if the options say so.
    pub(crate) async fn start_headwater(options: &HeadwaterOptions) -> anyhow::Result<Option<Self>> {
        if options.without_headwater {
            return Ok(None);
        }
        let binary = match &options.headwater {
            Some(binary) => binary.clone(),
            None => build_headwater().await?,
        };
        let scratch = scratch_dir()?;
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("headwater.toml");
        let arguments: [OsString; 7] = [
            "serve".into(),
            "--config".into(),
            config.into(),
            "--listen".into(),
            "127.0.0.1:0".into(),
            "--data-dir".into(),
            scratch.path().join("data").into(),
        ];
        Self::spawn("headwater", TargetApi::Tasks, &binary, &arguments, Some(scratch)).await.map(Some)
    }

    async fn spawn(
        name: &'static str,
        dialect: TargetApi,
        binary: &Path,
        arguments: &[OsString],
        scratch: Option<TempDir>,
    ) -> anyhow::Result<Self> {
        let log = scratch.as_ref().map(log_path);
        let stderr = match &log {
            Some(log) => File::create(log)?.into(),
            None => Stdio::inherit(),
        };
        let mut child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let pid = child.id().context("the server ended at once")?;
        let mut lines = BufReader::new(child.stdout.take().context("no stdout")?).lines();
        let ready = tokio::time::timeout(READY_TIMEOUT, read_authority(&mut lines)).await;
        let Ok(Ok(authority)) = ready else {
            bail!(
                "{name} ended, or did not say `{READY_PREFIX}…` within {READY_TIMEOUT:?}\n{}",
                log_tail(scratch.as_ref())
            );
        };
        // Further output is discarded; the child must not block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { target: LoadTarget { name, authority, pid, dialect }, child, scratch_dir: scratch })
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

async fn build_headwater() -> anyhow::Result<PathBuf> {
    let build = ["build", "--release", "--bin", "headwater"];
    let status = Command::new("cargo").args(build).current_dir(workspace_root()).status().await.context("cargo")?;
    anyhow::ensure!(status.success(), "cargo build failed");
    let exe = std::env::current_exe()?;
    Ok(exe.with_file_name("headwater"))
}
