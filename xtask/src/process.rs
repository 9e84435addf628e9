//! Runs a process, forwards its output as it comes, and captures it.
//!
//! A process with a time limit gets a process group of its own, so that its children can be killed with it; one without
//! shares ours, so that Ctrl-C reaches it.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Lines that are buffered before the process has to wait.
const LINES_IN_FLIGHT_MAX: usize = 1024;
/// How long a child may hold the pipes open after the process itself has ended.
const PIPES_OPEN_MAX: Duration = Duration::from_secs(5);

/// How much of a hidden output is shown after a failure.
const TAIL_LINES: usize = 40;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OutputMode {
    Show,
    Hide,
}

#[derive(Debug, PartialEq)]
pub(crate) enum ProcessOutcome {
    Success,
    Failure,
    /// Killed at its time limit.
    TimedOut,
}

/// A process that has ended, and its output on both streams in the order of arrival.
#[derive(Debug)]
pub(crate) struct FinishedProcess {
    pub(crate) outcome: ProcessOutcome,
    pub(crate) output: String,
}

impl FinishedProcess {
    /// Prints the end of an output that was hidden.
    pub(crate) fn print_tail(&self) {
        let lines: Vec<&str> = self.output.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(TAIL_LINES)) {
            println!("    {line}");
        }
    }
}

/// Runs `command` to its end, or to `limit`.
pub(crate) fn run_process(
    command: &mut Command,
    echo: OutputMode,
    limit: Option<Duration>,
) -> anyhow::Result<FinishedProcess> {
    if limit.is_some() {
        command.process_group(0);
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let pid = child.id();
    let (sender, heard) = sync_channel(LINES_IN_FLIGHT_MAX);
    let pipes = [
        child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
        child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>),
    ];
    for pipe in pipes.into_iter().flatten() {
        let sender = sender.clone();
        std::thread::spawn(move || forward_lines(pipe, &sender));
    }
    std::thread::spawn(move || wait_for_exit(child, &sender));
    collect_output(&heard, echo, limit, pid)
}

enum ProcessEvent {
    Line(String),
    Exited(std::io::Result<ExitStatus>),
}

fn forward_lines(pipe: impl Read, sender: &SyncSender<ProcessEvent>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while pipe.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line).into_owned();
        if sender.send(ProcessEvent::Line(text)).is_err() {
            return; // the receiver is gone
        }
        line.clear();
    }
}

fn wait_for_exit(mut child: Child, sender: &SyncSender<ProcessEvent>) {
    // The receiver may be gone.
    drop(sender.send(ProcessEvent::Exited(child.wait())));
}

fn collect_output(
    heard: &Receiver<ProcessEvent>,
    echo: OutputMode,
    limit: Option<Duration>,
    pid: u32,
) -> anyhow::Result<FinishedProcess> {
    let mut output = String::new();
    let mut end = None;
    let mut deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let next = match deadline {
            Some(deadline) => heard.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok(ProcessEvent::Line(line)) => {
                if echo == OutputMode::Show {
                    print!("{line}");
                }
                output.push_str(&line);
            }
            Ok(ProcessEvent::Exited(status)) => {
                let success = status.context("cannot wait for a process")?.success();
                end.get_or_insert(if success { ProcessOutcome::Success } else { ProcessOutcome::Failure });
                deadline = Some(Instant::now() + PIPES_OPEN_MAX);
            }
            Err(RecvTimeoutError::Timeout) if end.is_none() => {
                end = Some(ProcessOutcome::TimedOut);
                kill_group(pid)?;
                deadline = Some(Instant::now() + PIPES_OPEN_MAX);
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(FinishedProcess { outcome: end.context("a process vanished without an end")?, output })
}

fn kill_group(leader: u32) -> anyhow::Result<()> {
    // std can only kill the leader, whose children would live on; without unsafe code only the command `kill` is left.
    Command::new("kill").args(["-KILL", "--", &format!("-{leader}")]).status().context("cannot start kill")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Option<Duration>) -> FinishedProcess {
        run_process(Command::new("sh").args(["-c", script]), OutputMode::Hide, limit).unwrap()
    }

    #[test]
    fn both_streams_and_the_exit_code_are_captured() {
        let ran = sh("echo out; echo err >&2", None);
        let mut lines: Vec<_> = ran.output.lines().collect();
        lines.sort_unstable();
        assert_eq!((ran.outcome, lines), (ProcessOutcome::Success, vec!["err", "out"]));
        assert_eq!(sh("exit 3", None).outcome, ProcessOutcome::Failure);
    }

    #[test]
    fn a_process_at_its_limit_is_killed_with_its_children() {
        let started = Instant::now();
        // The child holds the pipe: if it lived on, we would wait for PIPES_OPEN_MAX and more.
        let ran = sh("echo begun; sleep 600 & sleep 600", Some(Duration::from_millis(300)));
        assert_eq!((ran.outcome, ran.output.as_str()), (ProcessOutcome::TimedOut, "begun\n"));
        assert!(started.elapsed() < PIPES_OPEN_MAX, "its child still held the pipe after {:?}", started.elapsed());
    }

    #[test]
    fn an_orphaned_child_does_not_block_forever() {
        let ran = sh("echo begun; sleep 20 & exit 0", None);
        assert_eq!((ran.outcome, ran.output.as_str()), (ProcessOutcome::Success, "begun\n"));
    }

    #[test]
    fn output_that_is_not_utf8_is_still_captured() {
        assert_eq!(sh(r"printf 'a\377b'", None).output, "a\u{fffd}b");
    }
}
