//! Everything that is in a folder, as it is there: also what is not whole yet, and what is not ours.

use crate::FilesError;
use std::path::Path;

/// Something that is in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name, as keys are written.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// What it is.
    pub what: What,
}

/// What something in a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A file.
    File,
    /// What has come so far of the file of this name.
    Part,
    /// A link, or something else that holds no bytes.
    Other,
}

/// Blocks.
pub(crate) fn walk(folder: &Path) -> Result<Vec<Found>, FilesError> {
    let mut found = Vec::new();
    look(folder, "", &mut found).map_err(|error| FilesError::Unavailable(error.to_string()))?;
    Ok(found)
}

fn look(folder: &Path, prefix: &str, found: &mut Vec<Found>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Of the entry itself: a link is not followed.
        let about = entry.metadata()?;
        if about.is_dir() {
            look(&entry.path(), &format!("{name}/"), found)?;
            continue;
        }
        let part = name.rsplit_once('#').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let (name, what) = match part {
            _ if !about.is_file() => (name, What::Other),
            Some((whole, _)) => (whole.to_owned(), What::Part),
            None => (name, What::File),
        };
        found.push(Found { name, bytes: about.len(), what });
    }
    Ok(())
}
