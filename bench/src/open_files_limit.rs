//! The limit on open files.
//!
//! Ten thousand viewers need as many sockets here and in the server, which uses three quarters of the limit, and many systems start a process with a
//! soft limit of 1,024. A process may raise it up to the hard limit; the standard library has no call for that and this
//! workspace no `unsafe`, so a shell raises it and executes this program again. Children inherit the limit.

use anyhow::Context;
use std::os::unix::process::CommandExt;
use std::process::Command;

const FILES_MIN: u64 = 16_384;

/// Ensures that this process may open [`FILES_MIN`] files, if necessary by executing itself again with a higher limit.
pub(crate) fn raise_open_files_limit() -> anyhow::Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let (soft, hard) = parse_open_files_limit(&limits).context("/proc/self/limits is not as expected")?;
    if soft >= FILES_MIN {
        return Ok(());
    }
    anyhow::ensure!(hard >= FILES_MIN, "this needs {FILES_MIN} open files and only {hard} are allowed (`ulimit -Hn`)");
    let failure = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -n {FILES_MIN} && exec \"$0\" \"$@\""))
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(failure).context("cannot start over with a higher limit on open files")
}

fn parse_open_files_limit(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut numbers = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 unlimited            files\n";
        assert_eq!(parse_open_files_limit(limits), Some((1024, u64::MAX)));
        assert_eq!(parse_open_files_limit(""), None);
    }
}
