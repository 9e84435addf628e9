//! The data folder of a node whose data is in a database: its lock and its name.
//!
//! The name outlives the process. The lock proves that the node's previous process has ended, so its lease in the
//! database need not be waited for.

use crate::sqlite::{StoreOpenError, lock_folder, open_private_file, sync_dir};
use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::path::Path;

const NAME_FILE: &str = "node-name";
const NAME_BYTES_MAX: u64 = 64;

/// A node's data folder, locked until this is dropped.
#[derive(Debug)]
pub struct NodeFolder {
    name: String,
    _lock: File,
}

impl NodeFolder {
    /// Locks the folder, or creates it. A new node gets the proposed name.
    pub fn open(dir: &Path, proposed_name: &str) -> Result<Self, StoreOpenError> {
        let lock = lock_folder(dir)?;
        let path = dir.join(NAME_FILE);
        let denied = |error: std::io::Error| StoreOpenError::denied(&path, &error);
        let mut file = open_private_file(&path)?;
        let mut name = String::new();
        Read::by_ref(&mut file).take(NAME_BYTES_MAX).read_to_string(&mut name).map_err(denied)?;
        if !is_node_name(&name) {
            proposed_name.clone_into(&mut name);
            file.set_len(0).map_err(denied)?;
            file.rewind().map_err(denied)?;
            file.write_all(name.as_bytes()).and_then(|()| file.sync_all()).map_err(denied)?;
            sync_dir(dir);
        }
        Ok(Self { name, _lock: lock })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

fn is_node_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_name_and_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let first = NodeFolder::open(&folder, "node-1").unwrap();
        assert_eq!(first.name(), "node-1");
        assert!(matches!(NodeFolder::open(&folder, "node-2"), Err(StoreOpenError::Locked(_))));
        drop(first);
        assert_eq!(NodeFolder::open(&folder, "node-2").unwrap().name(), "node-1");
        std::fs::write(folder.join(NAME_FILE), "half a na\0").unwrap();
        assert_eq!(NodeFolder::open(&folder, "node-3").unwrap().name(), "node-3");
    }
}
