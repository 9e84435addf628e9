//! A program that runs in a process group of its own, and ends with all that it started.
//!
//! ```text
//!   running ── leader exits, pipes close (or a second passes) ──▶ SIGKILL to what is left ──▶ reaped
//!      └────── dropped ──▶ SIGTERM to the group ── at most a second ──▶ SIGKILL ──▶ reaped
//! ```
//!
//! The leader stays unreaped until the whole group was killed. As long as it is, nobody else can get its number, so a
//! signal never hits a stranger. A process that leaves the group on purpose is out of reach; it only loses its pipes.

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

/// How long the pipes of a leader that exited may stay open: somebody else writes to them, if anybody.
const PIPE_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a group has between SIGTERM and SIGKILL.
const TERMINATE_GRACE: Duration = Duration::from_secs(1);
const STDOUT_BUFFER_BYTES: usize = 64 * 1024;
const STDERR_BUFFER_BYTES: usize = 8 * 1024;
/// How much of stderr is kept.
const STDERR_BYTES_MAX: usize = 64 * 1024;

/// What to run.
pub(crate) struct ProcessSpec<'a> {
    /// The program and its arguments; no shell reads them.
    pub(crate) command: &'a [String],
    /// Where.
    pub(crate) dir: Option<&'a str>,
    /// All of its environment.
    pub(crate) env: Vec<(String, String)>,
    /// All of its input.
    pub(crate) stdin: Vec<u8>,
    /// Where programs are looked for.
    pub(crate) search_path: Option<String>,
}

/// What is still being written to stdin.
type StdinWrite = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A program that was started. Dropping it ends its group.
pub(crate) struct Process {
    /// `None` when it was reaped.
    group: Option<ProcessGroup>,
    stdin: Option<StdinWrite>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    /// When the pipes are given up; `None` while the leader runs.
    pipe_deadline: Option<Instant>,
    stderr_tail: TailBuffer,
    stdout_buffer: Vec<u8>,
    stderr_buffer: Vec<u8>,
}

impl Process {
    pub(crate) async fn spawn(launch: ProcessSpec<'_>) -> Result<Self, ErrorInfo> {
        let Some((name, arguments)) = launch.command.split_first() else {
            return Err(ErrorInfo::new(ErrorCode::InvalidTool, "no program is named"));
        };
        let program = find_program(name, launch.search_path.as_deref()).await.unwrap_or_else(|| PathBuf::from(name));
        let mut command = Command::new(program);
        command.arg0(name).args(arguments).env_clear().envs(launch.env).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(dir) = launch.dir {
            command.current_dir(dir);
        }
        let mut group = ProcessGroup::spawn(&mut command)
            .map_err(|error| ErrorInfo::new(ErrorCode::CommandFailed, format!("cannot start `{name}`: {error}")))?;
        let leader = &mut group.leader;
        let (stdin, stdout, stderr) = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        Ok(Self {
            group: Some(group),
            stdin: stdin.map(|stdin| -> StdinWrite { Box::pin(write_stdin(stdin, launch.stdin)) }),
            stdout,
            stderr,
            pipe_deadline: None,
            stderr_tail: TailBuffer::new(STDERR_BYTES_MAX),
            stdout_buffer: vec![0; STDOUT_BUFFER_BYTES],
            stderr_buffer: vec![0; STDERR_BUFFER_BYTES],
        })
    }

    /// The next piece of stdout; `None` when the leader exited and there is no more.
    pub(crate) async fn read_stdout(&mut self) -> Option<Bytes> {
        let Self {
            group,
            stdin,
            stdout,
            stderr,
            pipe_deadline: linger,
            stderr_tail,
            stdout_buffer: out,
            stderr_buffer: err,
        } = self;
        let group = group.as_mut()?;
        while linger.is_none() || stdout.is_some() || stderr.is_some() {
            let late = linger.is_some_and(|at| at <= Instant::now());
            tokio::select! {
                // In this order: what was written in time is read first, also when we come late, and a flood hides no exit.
                biased;
                () = stdin_done(stdin) => *stdin = None,
                () = group.leader_exited(), if linger.is_none() => *linger = Some(Instant::now() + PIPE_DRAIN_TIMEOUT),
                count = read_some(stdout, out) => match out.get(..count) {
                    Some(piece) if !piece.is_empty() => {
                        // A pipe holds no more than this; what follows was written afterwards.
                        stdout.take_if(|_| late);
                        return Some(Bytes::copy_from_slice(piece));
                    }
                    _ => *stdout = None,
                },
                count = read_some(stderr, err) => match err.get(..count) {
                    Some(piece) if !piece.is_empty() => {
                        stderr_tail.push(piece);
                        stderr.take_if(|_| late);
                    }
                    _ => *stderr = None,
                },
                () = deadline_passed(*linger) => {
                    *stdout = None;
                    *stderr = None;
                }
            }
        }
        None
    }

    /// How it ended. What it left behind is killed.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.stdin = None;
        let mut group = self.group.take().ok_or_else(|| io::Error::other("it was reaped before"))?;
        group.reap().await
    }

    /// The end of what it said on stderr.
    pub(crate) fn stderr_tail(&self) -> String {
        self.stderr_tail.to_text()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(group) = self.group.take() else { return };
        group.signal(Signal::TERM);
        // Without a runtime nobody can wait, and the group is killed at once by being dropped here.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(terminate_group(group, self.stdout.take(), self.stderr.take()));
        }
    }
}

/// Gives a group that was told to end the time to do so. Its pipes are emptied, or it could not say goodbye.
async fn terminate_group(mut group: ProcessGroup, stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) {
    let gone = async { tokio::join!(group.leader_exited(), drain_pipe(stdout), drain_pipe(stderr)) };
    let _ = timeout(TERMINATE_GRACE, gone).await;
    // If even that takes long, dropping the group leaves it to the runtime.
    let _ = timeout(TERMINATE_GRACE, group.reap()).await;
}

/// The leader of a process group, not yet reaped.
struct ProcessGroup {
    leader: Child,
    id: Pid,
    /// Some child of ours changed.
    child_signals: SignalStream,
    is_reaped: bool,
}

impl ProcessGroup {
    fn spawn(command: &mut Command) -> io::Result<Self> {
        // Before the start, so that no change is missed.
        let changes = signal(SignalKind::child())?;
        let mut leader = command.spawn()?;
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        match id {
            Some(id) => Ok(Self { leader, id, child_signals: changes, is_reaped: false }),
            None => leader.start_kill().and(Err(io::Error::other("it has no process id"))),
        }
    }

    /// Waits for the leader's exit without reaping it.
    async fn leader_exited(&mut self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.id), look), Ok(None)) {
            self.child_signals.recv().await;
        }
    }

    /// A group that has nobody left cannot be signalled, which is what was wanted.
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

/// Writes all of the input and closes it. A program need not read it.
async fn write_stdin(mut stdin: ChildStdin, input: Vec<u8>) {
    let _ = stdin.write_all(&input).await;
}

async fn stdin_done(future: &mut Option<StdinWrite>) {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Reads something; 0 is the end, also when the pipe broke.
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

/// Looks for a program where the server would, because the program's own environment may have no `PATH`.
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
