//! Lists the files of a folder as they are: partial uploads and foreign files included.

use crate::error::FileStoreError;
use crate::folder_id::FOLDER_ID_FILE;
use std::path::Path;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The key, in the same form as [`crate::FileKey`].
    pub name: String,
    pub bytes: u64,
    pub kind: ListedFileKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedFileKind {
    File,
    /// The bytes so far of an upload with this key.
    PartialUpload,
    /// A symbolic link, or something else without bytes.
    Other,
}

/// Blocking.
pub(crate) fn list_folder(folder: &Path) -> Result<Vec<ListedFile>, FileStoreError> {
    let mut files = Vec::new();
    list_folder_into(folder, "", &mut files).map_err(|error| FileStoreError::Unavailable(error.to_string()))?;
    Ok(files)
}

fn list_folder_into(folder: &Path, prefix: &str, files: &mut Vec<ListedFile>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if name == FOLDER_ID_FILE {
            continue;
        }
        // Metadata of the entry itself: links are not followed.
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            list_folder_into(&entry.path(), &format!("{name}/"), files)?;
            continue;
        }
        let part = name.rsplit_once('#').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        let (name, kind) = match part {
            _ if !metadata.is_file() => (name, ListedFileKind::Other),
            Some((key, _)) => (key.to_owned(), ListedFileKind::PartialUpload),
            None => (name, ListedFileKind::File),
        };
        files.push(ListedFile { name, bytes: metadata.len(), kind });
    }
    Ok(())
}
