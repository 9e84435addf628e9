//! The identity of a folder of files: two nodes that find the same one share the folder, wherever it is mounted.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

pub(crate) const FOLDER_ID_FILE: &str = ".folder-id";
const OWNER_ONLY_FOLDER: u32 = 0o700;
const OWNER_ONLY_FILE: u32 = 0o600;
const ID_BYTES: usize = 16;

/// Reads the folder's id, or gives it one. Blocking.
///
/// # Errors
/// When the folder cannot be read or written.
pub fn read_or_create_folder_id(folder: &Path) -> io::Result<String> {
    DirBuilder::new().recursive(true).mode(OWNER_ONLY_FOLDER).create(folder)?;
    let path = folder.join(FOLDER_ID_FILE);
    let mut id = [0; ID_BYTES];
    getrandom::fill(&mut id).map_err(io::Error::other)?;
    let proposed: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    // Of several nodes that create it, one wins.
    match OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY_FILE).open(&path) {
        Ok(mut file) => {
            file.write_all(proposed.as_bytes())?;
            file.sync_all()?;
            Ok(proposed)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::read_to_string(&path).map(|id| id.trim().to_owned())
        }
        Err(error) => Err(error),
    }
}

/// Reads the folder's id; `None` if it has none. Blocking.
///
/// # Errors
/// When the folder cannot be read.
pub fn read_folder_id(folder: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(folder.join(FOLDER_ID_FILE)) {
        Ok(id) => Ok(Some(id.trim().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        assert_eq!(read_folder_id(&one).unwrap(), None);
        assert!(!one.exists(), "reading creates nothing");
        let id = read_or_create_folder_id(&one).unwrap();
        assert_eq!(read_folder_id(&one).unwrap().as_ref(), Some(&id));
        assert_eq!(id.len(), 2 * ID_BYTES);
        assert_eq!(read_or_create_folder_id(&one).unwrap(), id);
        assert_ne!(read_or_create_folder_id(&other).unwrap(), id);
        assert!(crate::list_folder::list_folder(&one).unwrap().is_empty());
    }
}
