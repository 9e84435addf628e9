//! What a program did and found.

use crate::faults::{FAILURE_FACTOR, FaultKind, FaultReport, TAKEOVER_MAX};
use anyhow::Context;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct ChaosReport {
    pub(crate) seed: u64,
    pub(crate) faults: Vec<FaultReport>,
    pub(crate) takeovers: Vec<Duration>,
    pub(crate) runs: usize,
    pub(crate) viewers: usize,
    pub(crate) streams: usize,
    pub(crate) frames: usize,
    pub(crate) records: usize,
    /// Of the archive.
    pub(crate) segments: usize,
    pub(crate) reconnects: usize,
    pub(crate) effects: usize,
    pub(crate) decisions: usize,
    pub(crate) cancels: usize,
    pub(crate) recoveries: usize,
    /// How the runs ended.
    pub(crate) ends: BTreeMap<String, usize>,
    /// From the last fault until every run had ended.
    pub(crate) settled: Duration,
    pub(crate) took: Duration,
    /// Guarantees that do not hold.
    pub(crate) problems: Vec<String>,
    /// What the program could not do, so that it says less than it should.
    pub(crate) failures: Vec<String>,
}

/// Problems that are printed.
const PROBLEMS_SHOWN_MAX: usize = 30;

pub(crate) const PAGE: &str = "docs/guarantees.md";
const OPEN: &str = "<!-- chaos -->";
const CLOSE: &str = "<!-- /chaos -->";

impl ChaosReport {
    pub(crate) fn is_broken(&self) -> bool {
        !self.problems.is_empty() || !self.failures.is_empty()
    }

    /// The section of the page. `origin` says where the figures come from.
    pub(crate) fn to_markdown(&self, origin: &str) -> String {
        let mut text =
            format!("{origin}\n\n| fault | what happens | times | threads taken over | median | worst (≤ 15 s) |\n");
        text.push_str("|---|---|---|---|---|---|\n");
        for kind in FaultKind::ALL {
            let faults: Vec<&FaultReport> = self.faults.iter().filter(|fault| fault.kind == kind).collect();
            let takeovers: Vec<Duration> = faults.iter().flat_map(|fault| fault.takeovers.iter().copied()).collect();
            let (median, worst) = median_and_worst(&takeovers).map_or_else(
                || ("–".to_owned(), "–".to_owned()),
                |(median, worst)| (format!("{:.1} s", median.as_secs_f64()), format!("{:.1} s", worst.as_secs_f64())),
            );
            let (name, description, times, threads) = (kind.name(), kind.describe(), faults.len(), takeovers.len());
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| `{name}` | {description} | {times} | {threads} | {median} | {worst} |");
        }
        let _ = writeln!(
            text,
            "\n{} runs, {} viewers in seven protocols with {} frames and {} reconnects, {} records and {} segments of the archive, {} effects of \
             tools and {} decisions were checked: {}. All runs had ended {:.1} s after the last fault.",
            self.runs,
            self.viewers,
            self.frames,
            self.reconnects,
            self.records,
            self.segments,
            self.effects,
            self.decisions,
            match self.problems.len() {
                0 => "nothing was lost, changed, repeated or done twice".to_owned(),
                count => format!("**{count} problems**"),
            },
            self.settled.as_secs_f64()
        );
        text
    }
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| time.as_secs_f64();
        let (middle, worst) = median_and_worst(&self.takeovers).unwrap_or_default();
        let late = self.takeovers.iter().filter(|time| **time > TAKEOVER_MAX).count();
        writeln!(f, "{} faults in {:.0} s, seed {}", self.faults.len(), seconds(self.took), self.seed)?;
        writeln!(
            f,
            "{} takeovers: median {:.1} s, worst {:.1} s, {late} after more than {} s (a failure from {} s on)",
            self.takeovers.len(),
            seconds(middle),
            seconds(worst),
            TAKEOVER_MAX.as_secs(),
            (TAKEOVER_MAX * FAILURE_FACTOR).as_secs()
        )?;
        let ends: Vec<String> = self.ends.iter().map(|(end, count)| format!("{count} {end}")).collect();
        writeln!(
            f,
            "{} runs ({}), {} recoveries, all ended {:.1} s after the last fault",
            self.runs,
            ends.join(", "),
            self.recoveries,
            seconds(self.settled)
        )?;
        writeln!(
            f,
            "{} viewers with {} streams, {} frames, {} reconnects; {} records, {} archived segments; {} effects; {} decisions; \
             {} cancellations",
            self.viewers,
            self.streams,
            self.frames,
            self.reconnects,
            self.records,
            self.segments,
            self.effects,
            self.decisions,
            self.cancels
        )?;
        for problem in self.problems.iter().take(PROBLEMS_SHOWN_MAX) {
            writeln!(f, "problem: {problem}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failure of the program itself: {failure}")?;
        }
        match self.problems.len() {
            0 if !self.failures.is_empty() => write!(f, "not everything was checked"),
            0 => write!(f, "nothing was lost, changed, repeated or done twice"),
            count => write!(f, "{count} problems"),
        }
    }
}

fn median_and_worst(times: &[Duration]) -> Option<(Duration, Duration)> {
    let mut times = times.to_vec();
    times.sort_unstable();
    Some((*times.get(times.len() / 2)?, *times.last()?))
}

/// Replaces the generated section of the page.
pub(crate) fn write_section(root: &Path, section: &str) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    std::fs::write(&path, replace_section(&page, section)?).with_context(|| format!("cannot write {PAGE}"))
}

fn replace_section(page: &str, section: &str) -> anyhow::Result<String> {
    let (before, rest) = page.split_once(OPEN).with_context(|| format!("{PAGE} lacks `{OPEN}`"))?;
    let (_, after) = rest.split_once(CLOSE).with_context(|| format!("{PAGE} lacks `{CLOSE}`"))?;
    Ok(format!("{before}{OPEN}\n{}\n{CLOSE}{after}", section.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_changes() {
        let page = format!("a\n{OPEN}\nold\n{CLOSE}\nb");
        assert_eq!(replace_section(&page, "new\n").unwrap(), format!("a\n{OPEN}\nnew\n{CLOSE}\nb"));
        assert!(replace_section("a", "new").is_err());
    }

    #[test]
    fn a_program_that_could_not_do_everything_is_broken() {
        assert!(!ChaosReport::default().is_broken());
        assert!(ChaosReport { failures: vec!["x".to_owned()], ..ChaosReport::default() }.is_broken());
        assert!(ChaosReport { problems: vec!["x".to_owned()], ..ChaosReport::default() }.is_broken());
    }

    #[test]
    fn every_fault_has_a_row_in_the_documentation_and_every_row_a_fault() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let page = std::fs::read_to_string(path).unwrap();
        let section = page.split_once(OPEN).unwrap().1.split_once(CLOSE).unwrap().0;
        let rows: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
            .collect();
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(rows, names, "write the table again: cargo xtask chaos --full --write");
    }
}
