//! The table of `docs/guarantees.md`: what is promised under each attack, and what was measured.
//!
//! Only what is between `<!-- siege -->` and `<!-- /siege -->` is generated.

use crate::bounds::{Bounds, FIRST_TOKEN_MAX, MEDIAN_FACTOR, MEMORY_MAX_MIB, READY_MAX};
use crate::checker::CheckReport;
use crate::figures::{AttackFigures, AttackResult, AttackRow, format_time};
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

pub(crate) const PAGE: &str = "docs/guarantees.md";
const OPEN: &str = "<!-- siege -->";
const CLOSE: &str = "<!-- /siege -->";

#[derive(Debug)]
pub(crate) struct SiegeReport {
    pub(crate) bounds: Bounds,
    pub(crate) idle: AttackFigures,
    pub(crate) rows: Vec<AttackRow>,
    pub(crate) checks: CheckReport,
    pub(crate) took: Duration,
}

impl SiegeReport {
    pub(crate) fn is_broken(&self) -> bool {
        !self.checks.problems.is_empty() || self.rows.iter().any(|row| row.is_broken(&self.bounds))
    }

    /// Each guarantee that does not hold, a line each: the last thing that a failed siege prints.
    pub(crate) fn broken_lines(&self) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.is_broken(&self.bounds)).map(|row| row.describe(&self.bounds));
        rows.chain(self.checks.problems.iter().map(|problem| format!("problem: {problem}"))).collect()
    }

    /// The section of the page. `origin` says where the figures come from.
    pub(crate) fn to_markdown(&self, origin: &str) -> String {
        let mut text = format!("{origin}\n\n");
        let _ = writeln!(
            text,
            "| attack | what the attacker does | first token, median (≤ {}) | worst (≤ {}) | failures (0) | \
             memory (≤ {MEMORY_MAX_MIB} MiB) | ready (≤ {}) | SIGTERM (≤ {}) | verdict |\n|---|---|---|---|---|---|---|---|---|",
            format_time(Some(self.bounds.median_max)),
            format_time(Some(FIRST_TOKEN_MAX)),
            format_time(Some(READY_MAX)),
            format_time(Some(self.bounds.stop_max)),
        );
        let _ = writeln!(text, "| none | Nothing: the idle server. | {} | – |", figure_cells(&self.idle));
        for row in &self.rows {
            let cells = match &row.result {
                AttackResult::Ran(figures) => figure_cells(figures),
                AttackResult::NotRun(_) | AttackResult::Failed(_) => "– | – | – | – | – | –".to_owned(),
            };
            let verdict = row.verdict(&self.bounds);
            let _ = writeln!(text, "| `{}` | {} | {cells} | {verdict} |", row.name, row.description);
        }
        let checks = &self.checks;
        let _ = writeln!(
            text,
            "\nThe bound of the median is {MEDIAN_FACTOR} × that of the idle server, at the start or right before the \
             attack, whichever is slower. At the end the checker read {} acknowledged runs with {} events, compared {} \
             events that clients had read before, {} uploads and {} effects of the tool: {}.",
            checks.runs,
            checks.events,
            checks.readings,
            checks.uploads,
            checks.effects,
            match checks.problems.len() {
                0 => "nothing was lost, changed or done twice".to_owned(),
                count => format!("**{count} problems**"),
            }
        );
        text
    }
}

fn figure_cells(figures: &AttackFigures) -> String {
    format!(
        "{} | {} | {} | {} MiB | {} | {}",
        format_time(figures.median()),
        format_time(figures.worst()),
        figures.probe.failures + figures.problems.len(),
        figures.usage.memory_peak_mib,
        format_time(Some(figures.ready)),
        format_time(Some(figures.stop)),
    )
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
    use crate::attacks::ATTACKS;

    #[test]
    fn only_the_section_changes() {
        let page = format!("a\n{OPEN}\nold\n{CLOSE}\nb");
        let new = replace_section(&page, "new\n").unwrap();
        assert_eq!(new, format!("a\n{OPEN}\nnew\n{CLOSE}\nb"));
        assert!(replace_section("a", "new").is_err());
    }

    #[test]
    fn every_attack_has_a_row_in_the_documentation_and_every_row_an_attack() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
        let page = std::fs::read_to_string(path).unwrap();
        let section = page.split_once(OPEN).unwrap().1.split_once(CLOSE).unwrap().0;
        let rows: Vec<&str> = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name))
            .collect();
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name()).collect();
        assert_eq!(rows, names, "write the table again: cargo xtask siege --full --write");
    }
}
