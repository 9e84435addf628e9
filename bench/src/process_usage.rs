//! CPU time and memory of a process, as the kernel counts them (`/proc`, so Linux only).
//!
//! CPU is user plus system time of the whole process, threads that have ended included. Its resolution
//! is 10 ms, so a cell has to run long enough for that not to matter. Peak memory is reset at the start of each
//! measurement, though an allocator may still hold what an earlier cell made it allocate.

use anyhow::Context;
use std::fs;

/// `USER_HZ`, the unit of times in `/proc`: 100 on every Linux that Rust runs on.
const TICK_MS: u64 = 10;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessUsage {
    pub(crate) cpu_ms: f64,
    pub(crate) rss_peak_mb: f64,
    /// Busy share of all cores, everything on the machine included.
    pub(crate) machine_busy: f64,
}

pub(crate) struct UsageMeter {
    pid: u32,
    cpu_ticks: u64,
    machine: MachineTicks,
}

impl UsageMeter {
    pub(crate) fn start(pid: u32) -> anyhow::Result<Self> {
        // Resets the peak. Where that is not allowed the peak covers the life of the process: larger, never smaller.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        Ok(Self { pid, cpu_ticks: cpu_ticks(pid)?, machine: MachineTicks::now()? })
    }

    pub(crate) fn stop(&self) -> anyhow::Result<ProcessUsage> {
        let ticks = cpu_ticks(self.pid)?.saturating_sub(self.cpu_ticks);
        let machine = MachineTicks::now()?;
        let all = machine.all.saturating_sub(self.machine.all).max(1);
        let idle = machine.idle.saturating_sub(self.machine.idle);
        Ok(ProcessUsage {
            cpu_ms: (ticks * TICK_MS) as f64,
            rss_peak_mb: rss_peak_kb(self.pid)? as f64 / 1024.0,
            machine_busy: 1.0 - idle as f64 / all as f64,
        })
    }
}

fn cpu_ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the server is gone")?;
    ProcessStat::parse(&stat).map(|stat| stat.own_ticks).context("/proc/<pid>/stat is not as expected")
}

/// CPU time of a process, its children, and its children that have ended: PostgreSQL has a process per connection.
pub(crate) fn family_cpu_ms(pid: u32) -> anyhow::Result<f64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end meanwhile.
        let Ok(stat) = fs::read_to_string(format!("/proc/{id}/stat")) else { continue };
        match ProcessStat::parse(&stat) {
            Some(stat) if id == pid => ticks += stat.own_ticks + stat.ended_children_ticks,
            Some(stat) if stat.parent == u64::from(pid) => ticks += stat.own_ticks,
            Some(_) | None => {}
        }
    }
    Ok((ticks * TICK_MS) as f64)
}

#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    parent: u64,
    own_ticks: u64,
    ended_children_ticks: u64,
}

impl ProcessStat {
    /// The second field is the program's name in parentheses and may contain anything. The parent is field 4; `utime`, `stime`,
    /// `cutime` and `cstime` are fields 14 to 17.
    fn parse(stat: &str) -> Option<Self> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_whitespace().skip(1).map(|field| field.parse::<i64>().ok());
        let parent = fields.next()??.cast_unsigned();
        let mut times = fields.skip(9).map(|time| time.map(i64::cast_unsigned));
        let (user, system) = (times.next()??, times.next()??);
        let (children_user, children_system) = (times.next()??, times.next()??);
        Some(Self { parent, own_ticks: user + system, ended_children_ticks: children_user + children_system })
    }
}

fn rss_peak_kb(pid: u32) -> anyhow::Result<u64> {
    status_kb(pid, "VmHWM:")
}

/// Memory that the process has now.
pub(crate) fn rss_kb(pid: u32) -> anyhow::Result<u64> {
    status_kb(pid, "VmRSS:")
}

fn status_kb(pid: u32, name: &'static str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

struct MachineTicks {
    all: u64,
    idle: u64,
}

impl MachineTicks {
    fn now() -> anyhow::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().context("/proc/stat is empty")?;
        // user nice system idle iowait irq softirq steal; guest time is already in user.
        let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self { all: ticks.iter().sum(), idle: ticks.iter().skip(3).take(2).sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 90 0 0 0 41 2 5 1 20 0 3 0 100 200 300";
        let parsed = ProcessStat { parent: 1, own_ticks: 43, ended_children_ticks: 6 };
        assert_eq!(ProcessStat::parse(stat), Some(parsed));
        assert_eq!(ProcessStat::parse("nonsense"), None);
    }

    #[test]
    fn this_process_can_be_measured() {
        let usage = UsageMeter::start(std::process::id()).unwrap().stop().unwrap();
        assert!(usage.rss_peak_mb > 0.0);
        assert!(family_cpu_ms(std::process::id()).unwrap() >= 0.0);
    }
}
