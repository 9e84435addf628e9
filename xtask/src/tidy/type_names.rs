//! One public type name means one thing in the workspace.
//!
//! Only `pub` and `pub(crate)` types of the product's code count: what a module keeps to itself has its module's context.

use std::collections::BTreeMap;

use super::product_code::ProductFile;
use super::rust_source::is_word;
use crate::finding::TidyFinding;

/// Names that may be used more than once, each with its reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[];

const TYPE_KEYWORDS: &[&str] = &["struct", "enum", "trait", "union", "type"];

pub(crate) fn check_type_names(files: &[ProductFile]) -> Vec<TidyFinding> {
    let mut definitions: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files {
        for (index, line) in file.code.lines().enumerate() {
            if let Some(name) = public_type_name(line) {
                definitions.entry(name).or_default().push((&file.path, index + 1));
            }
        }
    }
    definitions.retain(|name, _| !SHARED_TYPE_NAMES.iter().any(|(shared, _)| shared == name));
    let repeated = definitions.iter().flat_map(|(name, places)| {
        let (first, others) = places.split_first().map_or((None, &[][..]), |(first, others)| (Some(first), others));
        others.iter().filter_map(move |(path, line)| {
            let (first_path, first_line) = first?;
            let message = format!(
                "a second public type `{name}` (the first is in {first_path}:{first_line}): say in its name what it is"
            );
            Some(TidyFinding::error(path, *line, message))
        })
    });
    repeated.collect()
}

/// `Frame` for `pub(crate) struct Frame<'a> {`.
fn public_type_name(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = rest.strip_prefix("(crate)").unwrap_or(rest).strip_prefix(' ')?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let name = rest.split(|c: char| !is_word(c)).next()?;
    (TYPE_KEYWORDS.contains(&keyword) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::product_code::product_files;
    use crate::tidy::source_file;

    #[test]
    fn a_second_public_type_of_the_same_name_is_refused_with_the_path_of_the_first() {
        let files = [
            source_file(
                "crates/a/src/lib.rs",
                "pub struct Frame<'a>(&'a str);\npub(crate) enum Kind {}\nstruct Local;\n",
            ),
            source_file("crates/b/src/lib.rs", "struct Local;\n\npub(crate) type Frame = u8;\npub fn Kind() {}\n"),
        ];
        let findings = check_type_names(&product_files(&files));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].file.as_str(), findings[0].line), ("crates/b/src/lib.rs", 3));
        assert!(findings[0].message.contains("`Frame` (the first is in crates/a/src/lib.rs:1)"), "{}", findings[0]);
    }

    #[test]
    fn tests_and_private_types_may_repeat_a_name() {
        let files = [
            source_file("crates/a/src/lib.rs", "pub trait Port {}\n"),
            source_file(
                "crates/b/src/lib.rs",
                "#[cfg(test)]\nmod tests {\n    pub struct Port;\n}\npub(super) struct Port;\n",
            ),
        ];
        assert_eq!(check_type_names(&product_files(&files)), []);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(SHARED_TYPE_NAMES.iter().all(|(name, reason)| !name.is_empty() && reason.len() > 20));
    }
}
