//! `cargo xtask tidy`: what the compiler does not check.
//!
//! | module | question |
//! |---|---|
//! | [`architecture_map`] | Does ARCHITECTURE.md name every crate, and no crate that is gone? |
//! | [`floors`] | Do all dependencies between our crates point down, and do the pure crates do no I/O? |
//! | [`licenses`] | Does every dependency have an accepted licence? |
//! | [`banned_crates`] | Does anything depend on a crate that we decided against? |
//! | [`promises`] | Does every promise have a test that exists and is not ignored? |
//! | [`leftovers`] | Does a file hold a machine's path or an unfinished mark? |
//! | [`type_names`] | Does a public type name mean one thing in the workspace? |
//! | [`function_names`] | Do free functions have a verb and a noun? |
//! | [`import_cycles`] | Do the modules of a crate import each other without a circle? |
//! | [`crate_sizes`] | Is every file and every crate small enough? |

mod architecture_map;
mod banned_crates;
mod crate_sizes;
mod floors;
mod function_names;
mod import_cycles;
mod leftovers;
mod licenses;
mod product_code;
pub(crate) mod promises;
mod rust_source;
mod rust_tests;
mod script_tests;
mod type_names;

use crate::finding::TidyFinding;
use crate::workspace::{Metadata, Repo, SourceFile};

/// Prints every finding; true when none is an error.
pub(crate) fn run_tidy(repo: &Repo) -> anyhow::Result<bool> {
    let files = repo.source_files()?;
    let metadata = repo.metadata()?;
    let findings = check_all(&files, &metadata);
    for finding in &findings {
        println!("{finding}");
    }
    let (errors, packages) = (findings.len(), metadata.packages.len());
    println!("tidy: {errors} errors in {} files and {packages} packages", files.len());
    Ok(errors == 0)
}

/// Prints the product lines of each crate and its share of the whole.
pub(crate) fn print_figures(repo: &Repo) -> anyhow::Result<()> {
    let product = product_code::product_files(&repo.source_files()?);
    let sizes = crate_sizes::crate_sizes(&product);
    for size in &sizes {
        println!("{:<12}{:>7} lines{:>4}.{} %", size.crate_name, size.lines, size.per_mille / 10, size.per_mille % 10);
    }
    let lines: usize = sizes.iter().map(|size| size.lines).sum();
    println!("{:<12}{lines:>7} lines in {} files", "product", product.len());
    Ok(())
}

fn check_all(files: &[SourceFile], metadata: &Metadata) -> Vec<TidyFinding> {
    let folders: Vec<&str> = metadata.members().map(|package| metadata.folder(package)).collect();
    let mut findings =
        architecture_map::check_architecture_map(file_text(files, architecture_map::ARCHITECTURE_FILE), &folders);
    findings.extend(floors::check_floors(metadata, files));
    findings.extend(licenses::check_licenses(metadata, file_text(files, LOCK_FILE).unwrap_or_default()));
    findings.extend(banned_crates::check_banned_crates(metadata, files));
    findings.extend(promises::check_promises(files));
    findings.extend(leftovers::check_leftovers(files));
    findings.extend(check_structure(files));
    findings.sort();
    findings
}

fn check_structure(files: &[SourceFile]) -> Vec<TidyFinding> {
    let product = product_code::product_files(files);
    let mut findings = type_names::check_type_names(&product);
    findings.extend(function_names::check_function_names(&product));
    findings.extend(import_cycles::check_import_cycles(&product));
    findings.extend(crate_sizes::check_file_sizes(&product, files));
    findings.extend(crate_sizes::check_crate_sizes(&product));
    findings
}

const LOCK_FILE: &str = "Cargo.lock";

fn file_text<'a>(files: &'a [SourceFile], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

#[cfg(test)]
fn source_file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}
