//! A program in its own process group, which ends together with everything that it started.
//!
//! ```text
//!   running ── leader exits, pipes close (or a second passes) ──▶ SIGKILL to what is left ──▶ reaped
//!      └────── dropped ──▶ SIGTERM to the group ── at most a second ──▶ SIGKILL ──▶ reaped
//! ```
//!
//! The leader stays unreaped until the whole group has been killed. Until then its process id cannot be reused, so a
//! signal never reaches an unrelated process. A process that leaves the group is out of reach; it only loses its pipes.

use crate::shortage::{StartBackoff, is_shortage};
use crate::truncate::TailBuffer;
use bytes::Bytes;
use model::error::{ErrorCode, ErrorInfo};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::future::pending;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Instant, sleep_until, timeout};

/// How long to read the pipes after the leader exited: only its descendants can still write to them.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between SIGTERM and SIGKILL.
const TERMINATE_GRACE: Duration = Duration::from_secs(1);
const STDOUT_BUFFER_BYTES: usize = 64 * 1024;
const STDERR_BUFFER_BYTES: usize = 8 * 1024;
const STDERR_BYTES_MAX: usize = 64 * 1024;

pub(crate) struct ProcessSpec<'a> {
    /// The program and its arguments; no shell interprets them.
    pub(crate) command: &'a [String],
    pub(crate) dir: Option<&'a str>,
    /// The complete environment.
    pub(crate) env: Vec<(String, String)>,
    /// `PATH` for finding the program.
    pub(crate) search_path: Option<String>,
}

type StdinWrite = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Dropping it terminates its process group.
pub(crate) struct Process {
    /// `None` after it was reaped.
    group: Option<ProcessGroup>,
    stdin: Option<StdinWrite>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// When to stop reading the pipes; `None` while the leader runs.
    pipe_deadline: Option<Instant>,
    stderr_tail: TailBuffer,
    stdout_buffer: Vec<u8>,
    stderr_buffer: Vec<u8>,
}

impl Process {
    /// Starts a program that reads `input` and then the end of its stdin.
    pub(crate) async fn spawn(spec: ProcessSpec<'_>, input: Vec<u8>) -> Result<Self, ErrorInfo> {
        let (mut process, stdin) = Self::spawn_open(spec).await?;
        process.stdin = stdin.map(|stdin| -> StdinWrite { Box::pin(write_stdin(stdin, input)) });
        Ok(process)
    }

    /// Starts a program whose stdin stays open.
    pub(crate) async fn spawn_open(spec: ProcessSpec<'_>) -> Result<(Self, Option<ChildStdin>), ErrorInfo> {
        let Some((name, arguments)) = spec.command.split_first() else {
            return Err(ErrorInfo::new(ErrorCode::InvalidTool, "the command is empty"));
        };
        let program = find_program(name, spec.search_path.as_deref()).await.unwrap_or_else(|| PathBuf::from(name));
        let mut command = Command::new(program);
        command.arg0(name).args(arguments).env_clear().envs(spec.env).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(dir) = spec.dir {
            command.current_dir(dir);
        }
        let mut group = spawn_group(&mut command, name).await?;
        let leader = &mut group.leader;
        let (stdin, stdout, stderr) = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        let process = Self {
            group: Some(group),
            stdin: None,
            stdout,
            stderr,
            pipe_deadline: None,
            stderr_tail: TailBuffer::new(STDERR_BYTES_MAX),
            stdout_buffer: vec![0; STDOUT_BUFFER_BYTES],
            stderr_buffer: vec![0; STDERR_BUFFER_BYTES],
        };
        Ok((process, stdin))
    }

    /// `None` when the leader has exited and stdout is exhausted.
    pub(crate) async fn read_stdout(&mut self) -> Option<Bytes> {
        let Self { group, stdin, stdout, stderr, pipe_deadline, stderr_tail, stdout_buffer, stderr_buffer } = self;
        let group = group.as_mut()?;
        while pipe_deadline.is_none() || stdout.is_some() || stderr.is_some() {
            let is_late = pipe_deadline.is_some_and(|at| at <= Instant::now());
            tokio::select! {
                // The order matters: output written in time is read even after the deadline, and a flood of output cannot
                // hide the exit.
                biased;
                () = stdin_done(stdin) => *stdin = None,
                () = group.leader_exited(), if pipe_deadline.is_none() => {
                    *pipe_deadline = Some(Instant::now() + PIPE_DRAIN_TIMEOUT);
                }
                count = read_some(stdout, stdout_buffer) => match stdout_buffer.get(..count) {
                    Some(chunk) if !chunk.is_empty() => {
                        // A pipe holds no more than one buffer; anything after it was written too late.
                        stdout.take_if(|_| is_late);
                        return Some(Bytes::copy_from_slice(chunk));
                    }
                    _ => *stdout = None,
                },
                count = read_some(stderr, stderr_buffer) => match stderr_buffer.get(..count) {
                    Some(chunk) if !chunk.is_empty() => {
                        stderr_tail.push(chunk);
                        stderr.take_if(|_| is_late);
                    }
                    _ => *stderr = None,
                },
                () = deadline_passed(*pipe_deadline) => {
                    *stdout = None;
                    *stderr = None;
                }
            }
        }
        None
    }

    /// Kills what is left of the group and returns the leader's exit status.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        let mut group = self.group.take().ok_or_else(|| io::Error::other("it was already reaped"))?;
        group.reap().await
    }

    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr_tail.to_text()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        group.signal(Signal::TERM);
        // Without a runtime there is no grace period: dropping the group kills it.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(terminate_group(group, self.stdout.take(), self.stderr.take()));
        }
    }
}

/// Waits for a group that got SIGTERM. Its pipes are drained, because a full pipe would block its last writes.
async fn terminate_group(mut group: ProcessGroup, stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) {
    let exited = async { tokio::join!(group.leader_exited(), drain_pipe(stdout), drain_pipe(stderr)) };
    let _ = timeout(TERMINATE_GRACE, exited).await;
    // If reaping takes too long, dropping the child leaves it to the runtime.
    let _ = timeout(TERMINATE_GRACE, group.reap()).await;
}

async fn spawn_group(command: &mut Command, name: &str) -> Result<ProcessGroup, ErrorInfo> {
    let mut backoff = StartBackoff::default();
    loop {
        match ProcessGroup::spawn(command) {
            Ok(group) => return Ok(group),
            Err(error) if is_shortage(&error) => backoff.wait(name).await,
            Err(error) => {
                tracing::debug!(program = name, %error, "a program cannot be started");
                // Users and models see this: where the operator keeps the program is not their business.
                let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
                return Err(ErrorInfo::new(ErrorCode::CommandFailed, format!("cannot start `{name}`: {error}")));
            }
        }
    }
}

/// The leader of a process group, not yet reaped.
struct ProcessGroup {
    leader: Child,
    id: Pid,
    /// SIGCHLD: some child of this process changed state.
    child_signals: SignalStream,
    is_reaped: bool,
}

impl ProcessGroup {
    fn spawn(command: &mut Command) -> io::Result<Self> {
        // Subscribe before spawning, so that no change is missed.
        let child_signals = signal(SignalKind::child())?;
        let mut leader = command.spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match id {
            Some(id) => Ok(Self { leader, id, child_signals, is_reaped: false }),
            None => leader.start_kill().and(Err(io::Error::other("it has no process id"))),
        }
    }

    /// Waits for the leader's exit without reaping it.
    async fn leader_exited(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.id), options), Ok(None)) {
            self.child_signals.recv().await;
        }
    }

    /// Fails when the group is empty, which is fine.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    async fn reap(&mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        let status = self.leader.wait().await;
        self.is_reaped = true;
        status
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if !self.is_reaped {
            self.signal(Signal::KILL);
        }
    }
}

/// Errors are ignored: a program need not read its input.
async fn write_stdin(mut stdin: ChildStdin, input: Vec<u8>) {
    let _ = stdin.write_all(&input).await;
}

async fn stdin_done(future: &mut Option<StdinWrite>) {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Returns 0 at the end of the pipe and on errors.
async fn read_some(pipe: &mut Option<impl AsyncRead + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or_default(),
        None => pending().await,
    }
}

async fn deadline_passed(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}

async fn drain_pipe(pipe: Option<impl AsyncRead + Unpin>) {
    if let Some(mut pipe) = pipe {
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
}

/// Searches the server's `PATH`, because the program's own environment may have none.
async fn find_program(name: &str, path: Option<&str>) -> Option<PathBuf> {
    if name.contains('/') {
        return None;
    }
    for folder in path?.split(':').map(Path::new).filter(|folder| folder.is_absolute()) {
        let file = folder.join(name);
        let found = tokio::fs::metadata(&file).await;
        if found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0) {
            return Some(file);
        }
    }
    None
}
