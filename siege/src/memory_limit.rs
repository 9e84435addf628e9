//! A limit on the server's memory: a control group where one can be made, else a limit on its data segment.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The limit of the full form.
pub(crate) const LIMIT_BYTES: u64 = 1024 * 1024 * 1024;

const REMOVE_TRIES: u32 = 40;
const REMOVE_PAUSE: Duration = Duration::from_millis(50);

const GROUPS_V1: &str = "/sys/fs/cgroup/memory";
const GROUPS_V2: &str = "/sys/fs/cgroup";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MemoryLimit {
    /// The kernel ends the server if it needs more.
    ControlGroup(PathBuf),
    /// `RLIMIT_DATA`: allocations beyond it fail.
    DataSegment,
}

impl MemoryLimit {
    /// The strictest limit that this machine allows.
    pub(crate) fn create() -> Self {
        let v1 = || make_group(Path::new(GROUPS_V1), "memory.limit_in_bytes");
        let v2 = || make_group(Path::new(GROUPS_V2), "memory.max");
        v1().or_else(v2).map_or(Self::DataSegment, Self::ControlGroup)
    }

    /// What a shell executes in front of the server.
    pub(crate) fn shell_prefix(&self) -> String {
        match self {
            Self::ControlGroup(group) => format!("echo $$ > '{}/cgroup.procs' && ", group.display()),
            Self::DataSegment => format!("ulimit -d {} && ", LIMIT_BYTES / 1024),
        }
    }

    pub(crate) const fn describe(&self) -> &'static str {
        match self {
            Self::ControlGroup(_) => "a control group of 1 GiB",
            Self::DataSegment => "a data segment of 1 GiB (`ulimit -d`)",
        }
    }

    /// Removes the group once its processes have ended; one that stays costs nothing.
    pub(crate) async fn remove(&self) {
        let Self::ControlGroup(group) = self else { return };
        for _ in 0..REMOVE_TRIES {
            if std::fs::remove_dir(group).is_ok() {
                return;
            }
            tokio::time::sleep(REMOVE_PAUSE).await;
        }
    }
}

fn make_group(root: &Path, file: &str) -> Option<PathBuf> {
    let group = root.join(format!("headwater-siege-{}", std::process::id()));
    std::fs::create_dir(&group).ok()?;
    let limit = group.join(file);
    if limit.exists() && std::fs::write(&limit, LIMIT_BYTES.to_string()).is_ok() {
        return Some(group);
    }
    // Not a group of this kind, or without the right to limit it.
    let _ = std::fs::remove_dir(&group);
    None
}
