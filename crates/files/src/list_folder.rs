//! Everything that is in a folder, as it is there: also what is not whole yet, and what is not ours.

use crate::FileStoreError;
use std::path::Path;

/// Something that is in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name, as keys are written.
    pub name: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// What it is.
    pub kind: ListedFileKind,
}

/// What something in a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedFileKind {
    /// A file.
    File,
    /// What has come so far of the file of this name.
    PartialUpload,
    /// A link, or something else that holds no bytes.
    Other,
}

/// Blocks.
pub(crate) fn list_folder(folder: &Path) -> Result<Vec<ListedFile>, FileStoreError> {
    let mut found = Vec::new();
    list_folder_into(folder, "", &mut found).map_err(|error| FileStoreError::Unavailable(error.to_string()))?;
    Ok(found)
}

fn list_folder_into(folder: &Path, prefix: &str, found: &mut Vec<ListedFile>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        // Of the entry itself: a link is not followed.
        let about = entry.metadata()?;
        if about.is_dir() {
            list_folder_into(&entry.path(), &format!("{name}/"), found)?;
            continue;
        }
        let part = name.rsplit_once('#').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let (name, what) = match part {
            _ if !about.is_file() => (name, ListedFileKind::Other),
            Some((whole, _)) => (whole.to_owned(), ListedFileKind::PartialUpload),
            None => (name, ListedFileKind::File),
        };
        found.push(ListedFile { name, bytes: about.len(), kind: what });
    }
    Ok(())
}
