//! The product's code: what is built into the binary. Tests, test support and development crates are left out.
//!
//! Inline test modules are blanked; files that hold only tests are recognised by their names (`tests.rs`,
//! `*_tests.rs`, a folder `tests`) or by the `#[cfg(test)] mod name;` that declares them.

use std::collections::BTreeSet;

use super::rust_source::{blank_comments_and_literals, has_word, is_word};
use crate::workspace::SourceFile;

/// Crates that only tests and benchmarks depend on.
pub(crate) const DEV_CRATES: &[&str] = &["memory-store", "model-testing", "postgres-testing", "store-conformance"];

/// A source file of a product crate, reduced to its code.
#[derive(Debug)]
pub(crate) struct ProductFile {
    pub(crate) crate_name: String,
    /// From the root of the repository.
    pub(crate) path: String,
    /// From the crate's `src`.
    pub(crate) path_in_src: String,
    /// Comments, literals and test items are blank; line numbers are those of the file.
    pub(crate) code: String,
    /// Lines that are not part of a test item, comments and blank lines included.
    pub(crate) lines: usize,
}

impl ProductFile {
    /// The path of the file's module from the crate root: `["a", "b"]` for `src/a/b.rs`, empty for `src/lib.rs`.
    pub(crate) fn module_path(&self) -> Vec<&str> {
        let path = self.path_in_src.trim_end_matches(".rs");
        let path = path.strip_suffix("/mod").unwrap_or(path);
        if matches!(path, "lib" | "main") { Vec::new() } else { path.split('/').collect() }
    }
}

pub(crate) fn product_files(files: &[SourceFile]) -> Vec<ProductFile> {
    let sources = files.iter().filter_map(|file| {
        let (crate_name, path_in_src) = file.path.strip_prefix("crates/")?.split_once("/src/")?;
        let is_product = !DEV_CRATES.contains(&crate_name) && path_in_src.ends_with(".rs");
        is_product.then_some((crate_name, path_in_src, file))
    });
    let sources: Vec<_> = sources.collect();
    let test_modules: BTreeSet<String> =
        sources.iter().flat_map(|(_, _, file)| test_module_paths(&file.path, &file.text)).collect();
    let product = sources.into_iter().filter(|(_, path_in_src, file)| {
        !has_test_name(path_in_src) && !test_modules.contains(file.path.trim_end_matches(".rs"))
    });
    product
        .map(|(crate_name, path_in_src, file)| {
            let (code, test_lines) = blank_test_items(&blank_comments_and_literals(&file.text));
            ProductFile {
                crate_name: crate_name.to_owned(),
                path: file.path.clone(),
                path_in_src: path_in_src.to_owned(),
                code,
                lines: file.text.lines().count().saturating_sub(test_lines),
            }
        })
        .collect()
}

fn has_test_name(path: &str) -> bool {
    let mut parts = path.split('/').map(|part| part.trim_end_matches(".rs"));
    parts.any(|part| part == "tests" || part.ends_with("_tests"))
}

/// The paths, without `.rs`, of the modules that `path` declares for tests only.
fn test_module_paths(path: &str, text: &str) -> Vec<String> {
    let stem = path.trim_end_matches(".rs");
    let folder = match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        _ => stem,
    };
    let code = blank_comments_and_literals(text);
    let items = test_items(&code);
    let declared = items.iter().filter_map(|(start, end)| code.get(*start..*end)?.strip_suffix(';'));
    declared
        .filter_map(|item| {
            let (before, name) = item.rsplit_once(' ')?;
            before.trim_end().ends_with("mod").then(|| format!("{folder}/{name}"))
        })
        .collect()
}

/// Blanks the items of `code` that are built for tests only, and counts their lines.
fn blank_test_items(code: &str) -> (String, usize) {
    let mut product = String::with_capacity(code.len());
    let (mut at, mut lines) = (0, 0);
    for (start, end) in test_items(code) {
        let item = code.get(start..end).unwrap_or_default();
        lines += item.lines().count();
        product.push_str(code.get(at..start).unwrap_or_default());
        product.extend(item.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    product.push_str(code.get(at..).unwrap_or_default());
    (product, lines)
}

/// Where the items under `#[cfg(test)]` begin and end, attributes included.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items: Vec<(usize, usize)> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let attribute = code.get(start..).and_then(|rest| rest.split(']').next()).unwrap_or_default();
        let nested = items.last().is_some_and(|(_, end)| start < *end);
        if !nested && has_word(attribute, "test") && !attribute.contains("not(test") {
            items.push((start, start + item_len(code.get(start..).unwrap_or_default())));
        }
    }
    items
}

/// The length of the item that `code` begins with: attributes, and all up to its `;` or its closing brace.
fn item_len(code: &str) -> usize {
    let (mut depth, mut attribute_depth) = (0_usize, 0_usize);
    let mut ends_with_semicolon = false;
    let mut word = String::new();
    for (at, c) in code.char_indices() {
        if is_word(c) {
            word.push(c);
            continue;
        }
        // `use a::{b, c};` has braces and ends after them.
        ends_with_semicolon |= depth == 0 && matches!(word.as_str(), "use" | "static");
        word.clear();
        match c {
            '[' | '(' => attribute_depth += 1,
            ']' | ')' => attribute_depth = attribute_depth.saturating_sub(1),
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && !ends_with_semicolon {
                    return at + 1;
                }
            }
            ';' if depth == 0 && attribute_depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source_file;

    fn product(files: &[(&str, &str)]) -> Vec<ProductFile> {
        let files: Vec<_> = files.iter().map(|(path, text)| source_file(path, text)).collect();
        product_files(&files)
    }

    #[test]
    fn test_files_and_development_crates_are_left_out() {
        let files = product(&[
            ("crates/a/src/lib.rs", "mod x;\n#[cfg(all(test, feature = \"shuttle\"))]\nmod x_shuttle;\n"),
            ("crates/a/src/x.rs", "#[cfg(test)]\n#[path = \"x_tests.rs\"]\nmod tests;\n"),
            ("crates/a/src/x_tests.rs", ""),
            ("crates/a/src/x_shuttle.rs", ""),
            ("crates/a/src/x/tests/deep.rs", ""),
            ("crates/a/tests/it/main.rs", ""),
            ("crates/model-testing/src/lib.rs", ""),
            ("xtask/src/main.rs", ""),
        ]);
        let paths: Vec<_> = files.iter().map(|file| file.path_in_src.as_str()).collect();
        assert_eq!(paths, ["lib.rs", "x.rs"]);
    }

    #[test]
    fn test_items_are_blank_and_do_not_count() {
        let text = "fn a() {}\n#[cfg(test)]\nuse x::{y};\n#[cfg(test)]\nmod tests {\n    fn b() { \"}\"; }\n}\nfn c() {}\n\
                    #[cfg(not(test))]\nfn d() {}\n";
        let files = product(&[("crates/a/src/x.rs", text)]);
        let file = &files[0];
        assert_eq!(file.lines, 4);
        assert_eq!(file.code.lines().count(), text.lines().count());
        let functions: Vec<_> =
            ["a", "b", "c", "d"].iter().map(|name| file.code.contains(&format!("fn {name}("))).collect();
        assert_eq!(functions, [true, false, true, true]);
    }

    #[test]
    fn a_file_knows_its_module() {
        let files = product(&[
            ("crates/a/src/lib.rs", ""),
            ("crates/a/src/b.rs", ""),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/d/mod.rs", ""),
        ]);
        let paths: Vec<_> = files.iter().map(|file| file.module_path().join("::")).collect();
        assert_eq!(paths, ["", "b", "b::c", "d"]);
    }
}
