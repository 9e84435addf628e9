//! The server as a child process: start, signals, exit, and what the kernel says about it.

use crate::memory_limit::MemoryLimit;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(5);
/// Far beyond every grace: a server that is still there has to be killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// `USER_HZ`, the unit of times in `/proc`: 100 on every Linux that Rust runs on.
const TICK_MS: u64 = 10;
/// Settings of the machine that the server must not find.
const VARIABLES: [&str; 5] =
    ["HEADWATER_CONFIG", "HEADWATER_LISTEN", "HEADWATER_DATA_DIR", "HEADWATER_RECORD", "HEADWATER_LOG"];

/// How the process is started.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchOptions {
    /// Soft and hard limit of open files.
    pub(crate) descriptors: Option<u32>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) memory: Option<MemoryLimit>,
}

/// What the process has used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerUsage {
    pub(crate) cpu: Duration,
    pub(crate) memory_peak_mib: u64,
}

#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    pid: u32,
    address: String,
    started: Instant,
}

impl ServerProcess {
    /// Starts the binary in `folder`, where its configuration is.
    pub(crate) fn spawn(binary: &Path, folder: &Path, address: &str, options: &LaunchOptions) -> anyhow::Result<Self> {
        let log = File::options().create(true).append(true).open(log_path(folder))?;
        let mut script = String::new();
        if let Some(limit) = &options.memory {
            script.push_str(&limit.shell_prefix());
        }
        if let Some(descriptors) = options.descriptors {
            script.push_str(&format!("ulimit -n {descriptors} && "));
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{script}exec \"$0\" \"$@\"")).arg(binary);
        command.args(["serve", "--config", "headwater.toml", "--listen", address]);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.envs(options.env.iter().cloned());
        let started = Instant::now();
        let child = command.spawn().context("cannot start the server")?;
        let pid = child.id().context("the server ended at once")?;
        Ok(Self { child, pid, address: address.to_owned(), started })
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until `/readyz` says so, and returns the time since the start.
    pub(crate) async fn wait_ready(&mut self) -> anyhow::Result<Duration> {
        while self.started.elapsed() < READY_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} instead of being ready");
            }
            if tokio::time::timeout(Duration::from_secs(1), is_ready(&self.address)).await.unwrap_or(false) {
                return Ok(self.started.elapsed());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        bail!("the server was not ready within {READY_TIMEOUT:?}")
    }

    pub(crate) fn send_signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("the server is gone")
    }

    /// Waits for the end of the process, which is killed if it takes far too long.
    pub(crate) async fn wait_exit(mut self) -> anyhow::Result<(ExitStatus, Duration)> {
        let begun = Instant::now();
        match tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await {
            Ok(status) => Ok((status?, begun.elapsed())),
            Err(_) => {
                self.child.kill().await?;
                bail!("the server did not end within {EXIT_TIMEOUT:?}")
            }
        }
    }

    /// Whether the process has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    pub(crate) fn usage(&self) -> anyhow::Result<ServerUsage> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).context("the server is gone")?;
        let ticks = parse_cpu_ticks(&stat).context("/proc/<pid>/stat is not as expected")?;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let peak = parse_memory_peak_kib(&status).context("/proc/<pid>/status has no VmHWM")?;
        Ok(ServerUsage { cpu: Duration::from_millis(ticks * TICK_MS), memory_peak_mib: peak / 1024 })
    }
}

/// The server's stderr.
pub(crate) fn log_path(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

async fn is_ready(address: &str) -> bool {
    let ask = async {
        let mut socket = TcpStream::connect(address).await?;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask.await.unwrap_or(false)
}

/// `utime` and `stime`, fields 14 and 15. The second field is the program's name in parentheses and may contain anything.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn parse_memory_peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_read_as_it_writes_them() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 90 0 0 0 41 2 0 0 20 0 3 0 100 200 300";
        assert_eq!(parse_cpu_ticks(stat), Some(43));
        assert_eq!(parse_memory_peak_kib("VmPeak:\t 9 kB\nVmHWM:\t   2048 kB\n"), Some(2048));
    }
}
