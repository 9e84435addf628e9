//! Tables, and the sections of `docs/performance.md` that hold them.
//!
//! A section of the page is between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; only that is replaced. Each says
//! when, from which commit, on how many cores and by which command it was written.

use crate::server_process::{build_profile, workspace_root};
use anyhow::Context;
use std::fmt::Write;
use std::fs;
use std::process::Command;

/// Where a section goes besides stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SectionOutput {
    Stdout,
    Page,
}

/// A Markdown table.
pub(crate) struct Table {
    text: String,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        let mut table = Self { text: String::new() };
        table.push_row(head);
        table.push_row(&vec!["---"; head.len()]);
        table
    }

    pub(crate) fn push_row<T: AsRef<str>>(&mut self, cells: &[T]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub(crate) fn into_markdown(self) -> String {
        self.text
    }
}

/// Three significant digits, and no fraction from a hundred on.
pub(crate) fn format_figure(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".into(),
        size if size >= 99_950.0 => format!("{:.0}k", value / 1000.0),
        size if size >= 9_999.5 => format!("{:.1}k", value / 1000.0),
        size if size >= 99.5 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn format_verdict(text: &str, is_met: bool) -> String {
    format!("- {}: {text}\n", if is_met { "met" } else { "**MISSED**" })
}

/// Prints a section, and replaces it in the page if `output` says so.
pub(crate) fn publish_section(name: &str, body: &str, output: SectionOutput) -> anyhow::Result<()> {
    let section = format!("{}\n\n{}", provenance(), body.trim_end());
    println!("{section}\n");
    if output == SectionOutput::Page {
        let path = workspace_root().join("docs/performance.md");
        let page = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fs::write(&path, replace_section(&page, name, &section)?)?;
    }
    Ok(())
}

/// Writes a plot beside the page if `output` says so.
pub(crate) fn publish_plot(name: &str, svg: &str, output: SectionOutput) -> anyhow::Result<()> {
    if output == SectionOutput::Page {
        let path = workspace_root().join("docs").join(format!("performance-{name}.svg"));
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn provenance() -> String {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments.join(" ");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let date = command_output("date", &["-u", "+%Y-%m-%d"]);
    let mut commit = command_output("git", &["rev-parse", "--short", "HEAD"]);
    if !command_output("git", &["status", "--porcelain", "--", "bench", "crates", "Cargo.toml", "Cargo.lock"])
        .is_empty()
    {
        commit += " with changes";
    }
    let profile = build_profile().unwrap_or_else(|_| "unknown".into());
    format!("{date}, commit {commit}, {cores} cores, `cargo run --profile {profile} -p bench -- {command}`")
}

/// The output of a command. The figures do not depend on it, so a failure is no error.
fn command_output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(workspace_root()).output();
    match output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        _ => "unknown".into(),
    }
}

fn replace_section(page: &str, name: &str, section: &str) -> anyhow::Result<String> {
    let (open, close) = (format!("<!-- bench:{name} -->"), format!("<!-- /bench:{name} -->"));
    let lacks = || format!("docs/performance.md lacks `{open}` … `{close}`");
    let (before, rest) = page.split_once(&open).with_context(lacks)?;
    let (_, after) = rest.split_once(&close).with_context(lacks)?;
    Ok(format!("{before}{open}\n{section}\n{close}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_section_changes() {
        let page = "a\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nb <!-- bench:y --> <!-- /bench:y -->";
        let new = replace_section(page, "x", "new").unwrap();
        assert_eq!(new, "a\n<!-- bench:x -->\nnew\n<!-- /bench:x -->\nb <!-- bench:y --> <!-- /bench:y -->");
        assert_eq!(replace_section(&new, "x", "new").unwrap(), new);
        assert!(replace_section(page, "z", "new").is_err());
    }

    #[test]
    fn figures_are_short() {
        let texts = [0.174, 9.996, 21.54, 471.2, 20_440.0, 243_900.0, f64::NAN].map(format_figure);
        assert_eq!(texts, ["0.17", "10.0", "21.5", "471", "20.4k", "244k", "–"]);
    }

    #[test]
    fn a_table_is_markdown() {
        let mut table = Table::new(&["a", "b"]);
        table.push_row(&["1", "2"]);
        assert_eq!(table.into_markdown(), "| a | b |\n| --- | --- |\n| 1 | 2 |\n");
    }
}
