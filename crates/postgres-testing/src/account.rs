//! The user that servers run as.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// In order of preference.
const NAMES: [&str; 2] = ["postgres", "nobody"];

/// An unprivileged user: PostgreSQL and PgBouncer refuse to run as root.
#[derive(Clone, Debug)]
pub(crate) struct ServerAccount {
    name: String,
    uid: u32,
    gid: u32,
}

impl ServerAccount {
    /// `None` if this process is not root: servers then run as its own user.
    pub(crate) fn for_root() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd is readable");
        let account = NAMES.iter().find_map(|name| users.lines().find_map(|line| Self::parse(line, name)));
        Some(account.unwrap_or_else(|| panic!("PostgreSQL does not run as root, and there is no user {NAMES:?}")))
    }

    fn parse(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let (_password, uid, gid) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self { name: name.to_owned(), uid, gid })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn apply_to(&self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }

    pub(crate) fn take_ownership(&self, path: &Path) {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid)).expect("root may change the owner of a file");
    }
}
