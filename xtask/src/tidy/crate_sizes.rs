//! No crate becomes the place where everything is, and no file a hall.

use std::collections::BTreeMap;

use super::product_code::ProductFile;
use crate::finding::TidyFinding;
use crate::workspace::SourceFile;

const CRATE_SHARE_MAX_PERCENT: usize = 18;
/// Lines of a file that are not tests.
const PRODUCT_LINES_MAX: usize = 500;
/// Lines of a file with its tests, or of a file of tests.
const FILE_LINES_MAX: usize = 700;

/// The product lines of one crate.
#[derive(Debug, PartialEq)]
pub(crate) struct CrateSize<'a> {
    pub(crate) crate_name: &'a str,
    pub(crate) lines: usize,
    pub(crate) per_mille: usize,
}

/// Product lines per crate, the largest first.
pub(crate) fn crate_sizes(files: &[ProductFile]) -> Vec<CrateSize<'_>> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        *lines.entry(&file.crate_name).or_default() += file.lines;
    }
    let total: usize = lines.values().sum();
    let sizes = lines.into_iter();
    let sizes =
        sizes.map(|(crate_name, lines)| CrateSize { crate_name, lines, per_mille: lines * 1000 / total.max(1) });
    let mut sizes: Vec<_> = sizes.collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.lines));
    sizes
}

pub(crate) fn check_crate_sizes(files: &[ProductFile]) -> Vec<TidyFinding> {
    let sizes = crate_sizes(files);
    let too_large = sizes.iter().filter(|size| size.per_mille > CRATE_SHARE_MAX_PERCENT * 10);
    too_large
        .map(|size| {
            let (whole, tenth) = (size.per_mille / 10, size.per_mille % 10);
            let message = format!(
                "{} lines are {whole}.{tenth} % of the product's, and {CRATE_SHARE_MAX_PERCENT} % is the most: move a subject out",
                size.lines
            );
            TidyFinding::error(&format!("crates/{}/Cargo.toml", size.crate_name), 1, message)
        })
        .collect()
}

pub(crate) fn check_file_sizes(product: &[ProductFile], files: &[SourceFile]) -> Vec<TidyFinding> {
    let product = product.iter().filter(|file| file.lines > PRODUCT_LINES_MAX).map(|file| {
        let message = format!(
            "{} lines without its tests, and {PRODUCT_LINES_MAX} is the most: split it where the subject changes",
            file.lines
        );
        TidyFinding::error(&file.path, PRODUCT_LINES_MAX + 1, message)
    });
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let any = rust.map(|file| (file, file.text.lines().count())).filter(|(_, lines)| *lines > FILE_LINES_MAX);
    let any = any.map(|(file, lines)| {
        let message = format!("{lines} lines, and {FILE_LINES_MAX} is the most: split it where the subject changes");
        TidyFinding::error(&file.path, FILE_LINES_MAX + 1, message)
    });
    product.chain(any).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::product_code::product_files;
    use crate::tidy::source_file;

    fn lines(count: usize) -> String {
        "//\n".repeat(count)
    }

    #[test]
    fn a_crate_with_more_than_its_share_is_refused() {
        let names = ["a", "b", "c", "d", "e", "f"];
        let even: Vec<_> =
            names.iter().map(|name| source_file(&format!("crates/{name}/src/lib.rs"), &lines(10))).collect();
        assert_eq!(check_crate_sizes(&product_files(&even)), []);
        let mut uneven = even;
        uneven.push(source_file("crates/c/src/more.rs", &lines(5)));
        let uneven = product_files(&uneven);
        let findings = check_crate_sizes(&uneven);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, "crates/c/Cargo.toml");
        assert!(findings[0].message.starts_with("15 lines are 23.0 %"), "{}", findings[0]);
        let largest = &crate_sizes(&uneven)[0];
        assert_eq!((largest.crate_name, largest.lines), ("c", 15));
    }

    #[test]
    fn product_code_ends_at_five_hundred_lines_and_tests_at_seven_hundred() {
        let check = |path: &str, text: String| {
            let files = [source_file(path, &text)];
            check_file_sizes(&product_files(&files), &files).len()
        };
        assert_eq!(check("crates/a/src/lib.rs", lines(500)), 0);
        assert_eq!(check("crates/a/src/lib.rs", lines(501)), 1);
        let with_tests = |count: usize| lines(400) + "#[cfg(test)]\nmod tests {\n" + &lines(count) + "}\n";
        assert_eq!(check("crates/a/src/lib.rs", with_tests(297)), 0);
        assert_eq!(check("crates/a/src/lib.rs", with_tests(298)), 1);
        assert_eq!(check("crates/a/tests/it/main.rs", lines(700)), 0);
        assert_eq!(check("crates/a/tests/it/main.rs", lines(701)), 1);
        assert_eq!(check("docs/long.md", lines(900)), 0);
    }
}
