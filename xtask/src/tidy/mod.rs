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

mod bans;
mod floors;
mod leftovers;
mod licences;
mod map;
pub(crate) mod promises;
mod rust_tests;
mod script_tests;
mod spdx;

use crate::complaint::{Complaint, Weight};
use crate::workspace::{Metadata, Repo, SourceFile};

/// Prints every complaint; true when none is an error.
pub(crate) fn tidy(repo: &Repo) -> anyhow::Result<bool> {
    let files = repo.source_files()?;
    let metadata = repo.metadata()?;
    let complaints = check(&files, &metadata);
    for complaint in &complaints {
        println!("{complaint}");
    }
    let errors = complaints.iter().filter(|complaint| complaint.weight == Weight::Error).count();
    let warnings = complaints.len() - errors;
    println!(
        "tidy: {errors} errors, {warnings} warnings in {} files and {} packages",
        files.len(),
        metadata.packages.len()
    );
    Ok(errors == 0)
}

fn check(files: &[SourceFile], metadata: &Metadata) -> Vec<Complaint> {
    let folders: Vec<&str> = metadata.members().map(|package| metadata.folder(package)).collect();
    let mut complaints = map::check(text_of(files, map::FILE), &folders);
    complaints.extend(floors::check(metadata, files));
    complaints.extend(licences::check(metadata, text_of(files, LOCK_FILE).unwrap_or_default()));
    complaints.extend(bans::check(metadata, files));
    complaints.extend(promises::check(files));
    complaints.extend(leftovers::check(files));
    complaints.sort();
    complaints
}

const LOCK_FILE: &str = "Cargo.lock";

fn text_of<'a>(files: &'a [SourceFile], path: &str) -> Option<&'a str> {
    files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}
