//! Does ARCHITECTURE.md describe every crate, and no crate that is gone?
//!
//! A crate is named by its folder in backticks, alone in a heading or in the first cell of a table row
//! (``### `crates/model` ``). Mentions in prose do not count.

use crate::finding::TidyFinding;

pub(crate) const ARCHITECTURE_FILE: &str = "ARCHITECTURE.md";

/// Reports each of `folders` that the map lacks, and each folder on the map that is no crate.
pub(crate) fn check_architecture_map(map: Option<&str>, folders: &[&str]) -> Vec<TidyFinding> {
    let Some(map) = map else {
        return vec![TidyFinding::error(
            ARCHITECTURE_FILE,
            1,
            "the file is missing: write it, with a heading for every crate",
        )];
    };
    let named: Vec<(usize, &str)> =
        map.lines().enumerate().filter_map(|(i, line)| Some((i + 1, crate_named_in_line(line)?))).collect();

    let missing = folders.iter().filter(|folder| !named.iter().any(|(_, name)| name == *folder));
    let missing = missing.map(|folder| {
        TidyFinding::error(
            ARCHITECTURE_FILE,
            1,
            format!("`{folder}` is not described: add a heading ``### `{folder}` ``"),
        )
    });
    let gone = named.iter().filter(|(_, name)| !folders.contains(name));
    let gone = gone.map(|(line, name)| {
        TidyFinding::error(
            ARCHITECTURE_FILE,
            *line,
            format!("`{name}` is described but is no crate of the workspace: remove it"),
        )
    });
    missing.chain(gone).collect()
}

/// The folder that this line names, if it is a heading or a table row that names one.
fn crate_named_in_line(line: &str) -> Option<&str> {
    let line = line.trim();
    if line.starts_with('#') {
        return in_backticks(line.trim_start_matches('#'));
    }
    let cell = in_backticks(line.strip_prefix('|')?.split('|').next()?)?;
    // A table may list other things in backticks; only a crate's folder counts.
    cell.starts_with("crates/").then_some(cell)
}

/// The text between backticks, if there is nothing else.
fn in_backticks(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix('`')?.strip_suffix('`')?;
    (!inner.is_empty() && !inner.contains(['`', ' '])).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Map\n\n### `crates/model`\n\nWords.\n\n| crate | what |\n|---|---|\n| `crates/store` | logs |\n| `seq` | a number |\n";

    #[test]
    fn a_map_with_exactly_the_crates_passes() {
        assert_eq!(check_architecture_map(Some(MAP), &["crates/model", "crates/store"]), []);
    }

    #[test]
    fn a_crate_without_a_heading_is_missing_even_if_prose_mentions_it() {
        let map = format!("{MAP}\nAlso see `crates/engine`, which runs.\n");
        let findings = check_architecture_map(Some(&map), &["crates/model", "crates/store", "crates/engine"]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.starts_with("`crates/engine` is not described"), "{}", findings[0]);
    }

    #[test]
    fn a_heading_of_a_removed_crate_is_reported() {
        let findings = check_architecture_map(Some(MAP), &["crates/store"]);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].line, findings[0].file.as_str()), (3, ARCHITECTURE_FILE));
    }

    #[test]
    fn a_missing_map_is_one_finding() {
        assert_eq!(check_architecture_map(None, &["crates/model"]).len(), 1);
    }
}
