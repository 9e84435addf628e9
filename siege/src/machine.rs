//! What this machine allows: an attack that it cannot do is reported as not run, with the reason.

use std::path::Path;
use std::process::{Command, Stdio};

/// Something that an attack needs from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// `strace` that may attach to the server.
    Strace,
    /// A file system in memory, with a size.
    SmallDisk,
    /// A C compiler, for a library that shifts the clock.
    Compiler,
    /// The right to change the machine's routes, on its loopback network.
    Routes,
}

impl Need {
    /// None if the machine has it; else why not.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let (is_there, why) = match self {
            Self::Strace => (is_root() && succeeds("strace", &["-o", "/dev/null", "true"]), "needs root and strace"),
            Self::SmallDisk => (is_root() && can_mount(), "needs the right to mount a file system"),
            Self::Compiler => (succeeds("cc", &["--version"]), "needs a C compiler"),
            Self::Routes => (is_root() && succeeds("ip", &["route", "show"]), "needs root and `ip route`"),
        };
        (!is_there).then_some(why)
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn can_mount() -> bool {
    succeeds("unshare", &["--mount", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/mnt"])
}

/// Whether the program can be started and ends with 0.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The cores, what they had to do already, and the memory, for the report.
pub(crate) fn describe_machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let memory: u64 = memory.trim().trim_end_matches("kB").trim().parse().unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{cores} cores with a load of {load} before, {} GiB of memory", memory.div_ceil(1024 * 1024))
}

/// The revision of the source, if it is a git repository.
pub(crate) fn describe_revision(root: &Path) -> String {
    let output = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok();
        output
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let commit = output(&["rev-parse", "--short", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let changes = output(&["status", "--porcelain", "--", "siege", "crates", "Cargo.toml", "Cargo.lock"]);
    let suffix = if changes.is_some_and(|changes| !changes.trim().is_empty()) { " with changes" } else { "" };
    format!("{}{suffix}", commit.trim())
}

pub(crate) fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
