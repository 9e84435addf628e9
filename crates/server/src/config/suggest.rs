//! Suggestions for names that do not exist.

/// Longer names get no suggestion.
const CHARS_MAX: usize = 64;
const LISTED_MAX: usize = 32;

/// The nearest name, or else all of them.
pub(super) fn suggest_name(wanted: &str, known: &[&str]) -> String {
    match nearest(wanted, known) {
        Some(name) => format!("did you mean `{name}`?"),
        None => expected_names(known),
    }
}

fn expected_names(known: &[&str]) -> String {
    match known {
        [] => "none is defined".to_owned(),
        names => format!("expected one of {}", list_names(names)),
    }
}

pub(super) fn list_names(names: &[&str]) -> String {
    let (listed, more) = names.split_at(names.len().min(LISTED_MAX));
    match (listed, more.len()) {
        ([], _) => "none".to_owned(),
        (listed, 0) => format!("`{}`", listed.join("`, `")),
        (listed, more) => format!("`{}` and {more} more", listed.join("`, `")),
    }
}

/// The name with the smallest edit distance, at most a third of the letters; case does not count.
fn nearest<'a>(wanted: &str, known: &[&'a str]) -> Option<&'a str> {
    let wanted: Vec<char> = wanted.chars().take(CHARS_MAX + 1).flat_map(char::to_lowercase).collect();
    if wanted.len() > CHARS_MAX {
        return None;
    }
    let edits_max = (wanted.len() / 3).max(1);
    let near = known.iter().map(|name| (edit_distance(&wanted, name), *name)).filter(|(edits, _)| *edits <= edits_max);
    near.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// The number of insertions, deletions, substitutions and transpositions.
fn edit_distance(one: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().flat_map(char::to_lowercase).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    let mut last = None;
    for (line, &a) in one.iter().enumerate() {
        let mut next = vec![line + 1];
        let mut last_other = None;
        for (column, &b) in other.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let changed = cell(&row, column) + usize::from(a != b);
            let mut least = changed.min(cell(&row, column + 1) + 1).min(cell(&next, column) + 1);
            if last == Some(b) && last_other == Some(a) && a != b {
                least = least.min(cell(&before, column.saturating_sub(1)) + 1);
            }
            next.push(least);
            last_other = Some(b);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(a);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_typing_errors() {
        let between = |one: &str, other: &str| edit_distance(&one.chars().collect::<Vec<_>>(), other);
        assert_eq!(between("", ""), 0);
        assert_eq!(between("", "abc"), 3);
        assert_eq!(between("abc", ""), 3);
        assert_eq!(between("model", "model"), 0);
        assert_eq!(between("modle", "model"), 1);
        assert_eq!(between("modl", "model"), 1);
        assert_eq!(between("moddel", "model"), 1);
        assert_eq!(between("kitten", "sitting"), 3);
    }

    #[test]
    fn a_near_match_is_suggested_and_otherwise_all_are_listed() {
        let known = ["get_weather", "lookup", "trade"];
        assert_eq!(suggest_name("get_wether", &known), "did you mean `get_weather`?");
        assert_eq!(suggest_name("Lookup", &known), "did you mean `lookup`?");
        assert_eq!(suggest_name("zzz", &known), "expected one of `get_weather`, `lookup`, `trade`");
        assert_eq!(suggest_name("x", &[]), "none is defined");
        assert_eq!(suggest_name(&"l".repeat(1_000_000), &known), "expected one of `get_weather`, `lookup`, `trade`");
        let many = vec!["n"; 38];
        assert!(list_names(&many).ends_with("`n` and 6 more"));
    }
}
