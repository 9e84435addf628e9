//! Ends tool programs whose server has died.
//!
//! A server that is killed cannot end its programs. They carry a mark in their environment, so that two others can:
//!
//! - a guardian, a small process beside the server that reads a pipe. The pipe closes when the server dies, however it
//!   dies, and the guardian kills what has the server's mark;
//! - the next server of the data folder, before it runs anything again: a tool must not start beside its orphan.
//!
//! A mark needs no message from the server about each program, so there is no moment at which a program runs unknown. It
//! is found in `/proc`; where there is none, programs of a killed server run to their end.

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process, kill_process_group};
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// The variable with the mark.
const VARIABLE: &str = "HEADWATER_SERVER";
/// A program may be starting at the moment of the crash, so the search is repeated until it stays empty.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);
const EMPTY_SEARCHES: usize = 4;
/// A program in an uninterruptible call dies later, without further help.
const SEARCH_DURATION_MAX: Duration = Duration::from_secs(10);

/// What marks the programs of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessMark {
    /// The same for all servers of a data folder.
    folder: String,
    /// One start of the server.
    instance: String,
}

/// Whose programs to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramOwner {
    /// This server.
    Instance,
    /// Any server of the data folder.
    Folder,
}

impl ProcessMark {
    /// Both texts are letters and digits.
    pub fn new(folder: impl Into<String>, instance: impl Into<String>) -> Self {
        Self { folder: folder.into(), instance: instance.into() }
    }

    /// The variable for the environment of a program.
    pub(crate) fn variable(&self) -> (String, String) {
        (VARIABLE.to_owned(), self.to_argument())
    }

    /// As an argument of the guardian.
    pub fn to_argument(&self) -> String {
        format!("{}.{}", self.folder, self.instance)
    }

    pub fn from_argument(text: &str) -> Option<Self> {
        text.split_once('.').map(|(folder, instance)| Self::new(folder, instance))
    }

    /// The guardian: waits until the pipe closes, then kills the programs of the server.
    pub fn guard(&self, mut pipe: impl Read) {
        let mut buffer = [0; 64];
        while pipe.read(&mut buffer).is_ok_and(|count| count > 0) {}
        self.kill_programs(ProgramOwner::Instance);
    }

    /// Kills marked programs and what they started, until none is left. Returns how many there were.
    pub fn kill_programs(&self, owner: ProgramOwner) -> usize {
        let entry = match owner {
            ProgramOwner::Instance => format!("{VARIABLE}={}", self.to_argument()),
            ProgramOwner::Folder => format!("{VARIABLE}={}.", self.folder),
        };
        let is_marked = |variable: &[u8]| match owner {
            ProgramOwner::Instance => variable == entry.as_bytes(),
            ProgramOwner::Folder => variable.starts_with(entry.as_bytes()),
        };
        let (started, mut killed, mut empty) = (Instant::now(), 0, 0);
        while started.elapsed() < SEARCH_DURATION_MAX {
            let found = kill_found(&is_marked);
            killed += found;
            empty = if found == 0 { empty + 1 } else { 0 };
            // A program that is just starting can only belong to a server that has just died.
            if empty == EMPTY_SEARCHES || (owner == ProgramOwner::Folder && killed == 0) {
                break;
            }
            #[expect(clippy::disallowed_methods, reason = "nothing tells when a process of somebody else has ended")]
            std::thread::sleep(SEARCH_INTERVAL);
        }
        killed
    }
}

/// Returns the number of processes that had the mark.
fn kill_found(is_marked: &impl Fn(&[u8]) -> bool) -> usize {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let found = processes.filter_map(|entry| {
        let path = entry.ok()?.path();
        let pid = path.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        has_variable(&path, is_marked).then_some(pid)
    });
    found.map(kill_with_group).count()
}

/// The environment is readable for processes of the same user; it is empty once a process has ended.
fn has_variable(process: &Path, is_marked: &impl Fn(&[u8]) -> bool) -> bool {
    std::fs::read(process.join("environ")).is_ok_and(|environment| environment.split(|byte| *byte == 0).any(is_marked))
}

/// A child of the program that cleared its environment is still in its group. Errors mean that it has ended.
fn kill_with_group(pid: Pid) {
    if let Ok(group) = getpgid(Some(pid))
        && group != getpgrp()
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = kill_process(pid, Signal::KILL);
}
