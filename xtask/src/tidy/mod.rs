//! `cargo xtask tidy`: what the compiler does not check.
//!
//! | room | question |
//! |---|---|
//! | [`map`] | Does ARCHITECTURE.md name every crate, and no crate that is gone? |
//! | [`floors`] | Does every arrow between our crates point down, and are the pure floors pure? |
//! | [`licences`] | May we ship everything that we pull in? |
//! | [`bans`] | Is anything in the tree that we decided against? |
//! | [`promises`] | Does every promise have a test that exists and is not ignored? |
//! | [`leftovers`] | Has a file outgrown its room, or kept a machine path or an unfinished spot? |

mod architecture_map;
mod banned_crates;
mod floors;
mod leftovers;
mod licenses;
pub(crate) mod promises;
mod rust_tests;
mod script_tests;
mod spdx;

use crate::finding::{FindingLevel, TidyFinding};
use crate::workspace::{Metadata, Repo, SourceFile};

/// Prints every complaint; true when none is an error.
pub(crate) fn run_tidy(repo: &Repo) -> anyhow::Result<bool> {
    let files = repo.source_files()?;
    let metadata = repo.metadata()?;
    let complaints = check_all(&files, &metadata);
    for complaint in &complaints {
        println!("{complaint}");
    }
    let errors = complaints.iter().filter(|complaint| complaint.level == FindingLevel::Error).count();
    let warnings = complaints.len() - errors;
    println!(
        "tidy: {errors} errors, {warnings} warnings in {} files and {} packages",
        files.len(),
        metadata.packages.len()
    );
    Ok(errors == 0)
}

fn check_all(files: &[SourceFile], metadata: &Metadata) -> Vec<TidyFinding> {
    let folders: Vec<&str> = metadata.members().map(|package| metadata.folder(package)).collect();
    let mut complaints =
        architecture_map::check_architecture_map(file_text(files, architecture_map::ARCHITECTURE_FILE), &folders);
    complaints.extend(floors::check_floors(metadata, files));
    complaints.extend(licenses::check_licenses(metadata, file_text(files, LOCK_FILE).unwrap_or_default()));
    complaints.extend(banned_crates::check_banned_crates(metadata, files));
    complaints.extend(promises::check_promises(files));
    complaints.extend(leftovers::check_leftovers(files));
    complaints.sort();
    complaints
}

const LOCK_FILE: &str = "Cargo.lock";

fn file_text<'a>(files: &'a [SourceFile], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

#[cfg(test)]
fn source_file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}
