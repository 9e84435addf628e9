//! A node: a process of the server with its folder, its link to PostgreSQL, and its clock.

use crate::database_proxy::DatabaseProxy;
use crate::http_client::{self, ApiRequest};
use crate::namespace::NodeNamespace;
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;

const READY_TIMEOUT: Duration = Duration::from_secs(40);
const READY_POLL: Duration = Duration::from_millis(20);
/// What a process says that ends because it starts without its database.
const NO_DATABASE: &str = "headwater: cannot connect to the database";
const RESTART_POLL: Duration = Duration::from_millis(200);
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
const LOG_TAIL_LINES: usize = 15;
/// Settings of the machine that a node must not find.
const VARIABLES: [&str; 6] = [
    "HEADWATER_CONFIG",
    "HEADWATER_LISTEN",
    "HEADWATER_DATA_DIR",
    "HEADWATER_RECORD",
    "HEADWATER_LOG",
    "HEADWATER_DATABASE_URL",
];

/// Which data folder a node has after its restart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum DataFolder {
    /// The node has its name again, and knows that its previous process has ended.
    Same,
    /// A new node, as on a new machine.
    New,
}

/// What all nodes of a program have in common.
#[derive(Clone, Debug)]
pub(crate) struct NodeProgram {
    pub(crate) binary: PathBuf,
    /// With the configuration.
    pub(crate) folder: PathBuf,
    /// The library that shifts clocks; none on a machine without a compiler.
    pub(crate) clock_shim: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) index: usize,
    pub(crate) address: String,
    pub(crate) proxy: DatabaseProxy,
    /// None if the node is in the machine's own network.
    pub(crate) namespace: Option<NodeNamespace>,
    program: NodeProgram,
    database_url: String,
    /// Where the process listens, in its namespace.
    listen: String,
    process: Mutex<Option<Child>>,
    is_up: AtomicBool,
    /// Counts the data folders of this node.
    data_folder: AtomicU32,
}

impl Node {
    pub(crate) fn new(
        index: usize,
        program: NodeProgram,
        proxy: DatabaseProxy,
        database_url: String,
        mut namespace: Option<NodeNamespace>,
    ) -> anyhow::Result<Self> {
        let port = find_free_port()?;
        let listen = format!("127.0.0.1:{port}");
        let address = match &mut namespace {
            None => listen.clone(),
            Some(namespace) => {
                namespace.start_relay(port)?;
                format!("{}:{port}", namespace.client_address)
            }
        };
        let node = Self {
            index,
            address,
            proxy,
            namespace,
            listen,
            program,
            database_url,
            process: Mutex::new(None),
            is_up: AtomicBool::new(false),
            data_folder: AtomicU32::new(0),
        };
        node.set_clock(0)?;
        Ok(node)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.program.folder.join(format!("node-{}-{name}", self.index))
    }

    fn data_path(&self) -> PathBuf {
        self.path(&format!("data-{}", self.data_folder.load(Ordering::Relaxed)))
    }

    /// Whether clients may be sent to it. A node that is suspended or cut off is: clients cannot know.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Starts the process and waits until it is ready. While PostgreSQL is down the process ends, and is started again, as the
    /// supervisor of a real node does.
    pub(crate) async fn start(&self, data: DataFolder) -> anyhow::Result<()> {
        if data == DataFolder::New {
            self.data_folder.fetch_add(1, Ordering::Relaxed);
        }
        let mut slot = self.process.lock().await;
        anyhow::ensure!(slot.is_none(), "node {} runs already", self.index);
        let begun = Instant::now();
        loop {
            let mut child = self.spawn()?;
            let ready = self.wait_ready(&mut child).await;
            let lacks_database =
                ready.is_err() && self.log_tail().lines().last().is_some_and(|line| line.starts_with(NO_DATABASE));
            if lacks_database && begun.elapsed() < READY_TIMEOUT {
                tokio::time::sleep(RESTART_POLL).await;
                continue;
            }
            *slot = Some(child);
            self.is_up.store(ready.is_ok(), Ordering::Relaxed);
            return ready.with_context(|| self.log_tail());
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = File::options().create(true).append(true).open(self.path("log"))?;
        let prefix = self.namespace.as_ref().map(NodeNamespace::command_prefix).into_iter().flatten();
        let mut words = prefix.map(OsStr::new).chain([self.program.binary.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(["serve", "--config", "headwater.toml", "--listen", &self.listen]);
        command.args(["--database-url", &self.database_url, "--data-dir"]).arg(self.data_path());
        command.current_dir(&self.program.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.kill_on_drop(true);
        for name in VARIABLES {
            command.env_remove(name);
        }
        if let Some(shim) = &self.program.clock_shim {
            command.env("LD_PRELOAD", shim).env("CLOCK_OFFSET_FILE", self.path("clock"));
        }
        command.spawn().context("cannot start the server")
    }

    async fn wait_ready(&self, child: &mut Child) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < READY_TIMEOUT {
            if let Some(status) = child.try_wait()? {
                bail!("node {} ended with {status} instead of being ready", self.index);
            }
            if self.is_ready().await {
                return Ok(());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        bail!("node {} was not ready within {READY_TIMEOUT:?}", self.index)
    }

    pub(crate) async fn is_ready(&self) -> bool {
        let reply = http_client::send(&self.address, &ApiRequest::get("/readyz"), Duration::from_secs(1)).await;
        reply.is_ok_and(|reply| reply.status == 200)
    }

    /// Ends the process without notice. Returns its id, which is gone.
    pub(crate) async fn kill(&self) -> anyhow::Result<u32> {
        self.is_up.store(false, Ordering::Relaxed);
        let mut child = self.process.lock().await.take().context("the node does not run")?;
        let pid = child.id().context("the node has ended by itself")?;
        child.kill().await?;
        anyhow::ensure!(process_state(pid).is_none(), "process {pid} is still there");
        Ok(pid)
    }

    /// Ends the process with SIGTERM.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        self.is_up.store(false, Ordering::Relaxed);
        let mut child = self.process.lock().await.take().context("the node does not run")?;
        let pid = child.id().context("the node has ended by itself")?;
        send_signal(pid, Signal::TERM)?;
        let status = tokio::time::timeout(EXIT_TIMEOUT, child.wait()).await;
        let status = status.with_context(|| format!("node {} ignores SIGTERM", self.index))??;
        anyhow::ensure!(status.success(), "node {} ended with {status}\n{}", self.index, self.log_tail());
        Ok(())
    }

    pub(crate) async fn pid(&self) -> anyhow::Result<u32> {
        self.process.lock().await.as_ref().and_then(Child::id).context("the node does not run")
    }

    /// Fails if the process has ended by itself.
    pub(crate) async fn check_alive(&self) -> anyhow::Result<()> {
        if let Some(child) = self.process.lock().await.as_mut()
            && let Some(status) = child.try_wait()?
        {
            bail!("node {} has ended by itself with {status}\n{}", self.index, self.log_tail());
        }
        Ok(())
    }

    pub(crate) async fn signal(&self, signal: Signal) -> anyhow::Result<u32> {
        let pid = self.pid().await?;
        send_signal(pid, signal)?;
        Ok(pid)
    }

    /// Shifts the node's wall clock by a number of seconds. Writes eight bytes in place, which the library reads as one number.
    pub(crate) fn set_clock(&self, seconds: i64) -> anyhow::Result<()> {
        let file = File::options().create(true).write(true).truncate(false).open(self.path("clock"))?;
        file.write_all_at(&seconds.to_ne_bytes(), 0).context("cannot set the clock")
    }

    /// What a program with this node's clock says, in seconds. Fails if the node has another clock.
    pub(crate) async fn shifted_time(&self) -> anyhow::Result<i64> {
        let shim = self.program.clock_shim.as_ref().context("needs a C compiler")?;
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid().await?))?;
        for file in [shim, &self.path("clock")] {
            anyhow::ensure!(maps.contains(&file.display().to_string()), "the node does not use {}", file.display());
        }
        let mut date = Command::new("date");
        date.arg("+%s").env("LD_PRELOAD", shim).env("CLOCK_OFFSET_FILE", self.path("clock"));
        let output = date.output().await.context("cannot start `date`")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().parse()?)
    }

    /// What the ids of this node's processes begin with, in the database.
    pub(crate) fn id_prefix(&self) -> anyhow::Result<String> {
        let name = std::fs::read_to_string(self.data_path().join("node-name")).context("the node has no name")?;
        Ok(format!("{name}/"))
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(self.path("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL_LINES)..).unwrap_or_default().join("\n")
    }
}

fn send_signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process id")?;
    kill_process(pid, signal).context("the process is gone")
}

/// The letter of `/proc`, such as `T` for a stopped process; none if there is no such process.
pub(crate) fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Builds the library that shifts the clock of a process. None without a C compiler.
pub(crate) fn build_clock_shim(folder: &Path) -> anyhow::Result<Option<PathBuf>> {
    let (source, library) = (folder.join("clock_shim.c"), folder.join("clock_shim.so"));
    std::fs::write(&source, include_str!("../../siege/src/attacks/clock_shim.c"))?;
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    match compiler.output() {
        Ok(built) if built.status.success() => Ok(Some(library)),
        Ok(built) => bail!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(_) => Ok(None),
    }
}

/// Below the ports of outgoing connections: while the node is down, no connection takes it.
fn find_free_port() -> anyhow::Result<u16> {
    use std::hash::{BuildHasher as _, RandomState};
    let random = RandomState::new();
    let ports = (0..100_u32).filter_map(|attempt| u16::try_from(20_000 + random.hash_one(attempt) % 10_000).ok());
    let mut free = ports.filter(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().context("no free port")
}
