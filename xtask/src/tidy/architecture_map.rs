//! Is ARCHITECTURE.md still a map of this house?
//!
//! A crate is named by its folder in backticks, alone in a heading or in the first cell of a table row
//! (``### `crates/model` ``). Prose may mention what it likes: only these two places count, in both directions.

use crate::finding::TidyFinding;

pub(crate) const ARCHITECTURE_FILE: &str = "ARCHITECTURE.md";

/// Reports each of `folders` that the map lacks, and about each folder on the map that is no crate.
pub(crate) fn check_architecture_map(map: Option<&str>, folders: &[&str]) -> Vec<TidyFinding> {
    let Some(map) = map else {
        return vec![TidyFinding::error(
            ARCHITECTURE_FILE,
            1,
            "there is no map: write one, with a heading for every crate",
        )];
    };
    let named: Vec<(usize, &str)> =
        map.lines().enumerate().filter_map(|(i, line)| Some((i + 1, crate_named_in_line(line)?))).collect();

    let missing = folders.iter().filter(|folder| !named.iter().any(|(_, name)| name == *folder));
    let missing = missing.map(|folder| {
        TidyFinding::error(
            ARCHITECTURE_FILE,
            1,
            format!("`{folder}` is not on the map: add a heading ``### `{folder}` `` that says what lives there"),
        )
    });
    let gone = named.iter().filter(|(_, name)| !folders.contains(name));
    let gone = gone.map(|(line, name)| {
        TidyFinding::error(
            ARCHITECTURE_FILE,
            *line,
            format!("`{name}` is on the map but no crate of the workspace: take it off"),
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
    // A table may list other things in backticks; only a folder of crates is taken for a claim.
    cell.starts_with("crates/").then_some(cell)
}

/// What is between the backticks, when there is nothing else.
fn in_backticks(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix('`')?.strip_suffix('`')?;
    (!inner.is_empty() && !inner.contains(['`', ' '])).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Map\n\n### `crates/model`\n\nWords.\n\n| crate | what |\n|---|---|\n| `crates/store` | logs |\n| `seq` | a number |\n";

    #[test]
    fn a_map_that_names_all_and_only_the_crates_is_fine() {
        assert_eq!(check_architecture_map(Some(MAP), &["crates/model", "crates/store"]), []);
    }

    #[test]
    fn a_crate_without_a_heading_is_missing_even_if_prose_mentions_it() {
        let map = format!("{MAP}\nAlso see `crates/engine`, which runs.\n");
        let findings = check_architecture_map(Some(&map), &["crates/model", "crates/store", "crates/engine"]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.starts_with("`crates/engine` is not on the map"), "{}", findings[0]);
    }

    #[test]
    fn a_heading_whose_crate_is_gone_is_pointed_at() {
        let findings = check_architecture_map(Some(MAP), &["crates/store"]);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].line, findings[0].file.as_str()), (3, ARCHITECTURE_FILE));
    }

    #[test]
    fn no_map_at_all_is_one_complaint() {
        assert_eq!(check_architecture_map(None, &["crates/model"]).len(), 1);
    }
}
