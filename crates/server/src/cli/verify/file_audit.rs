//! Compares the storage of files with the rows of the store.

use files::{FileKey, FileStore, FileStoreError, ListedFile, ListedFileKind};
use futures_util::TryStreamExt as _;
use gateway::secret_token::encode_hex;
use model::UserId;
use model::ports::AttachmentRow;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use store::StoredFiles;

/// A file that does not match its row.
#[derive(Debug)]
pub(super) struct FileProblem {
    /// The file's path, or its name if it has no row.
    pub(super) path: String,
    pub(super) text: String,
}

#[derive(Default)]
pub(super) struct FileAudit {
    found: HashMap<String, u64>,
    partial_uploads: Vec<String>,
    problems: Vec<FileProblem>,
}

impl FileAudit {
    pub(super) fn new(all: Vec<ListedFile>) -> Self {
        let mut audit = Self::default();
        for ListedFile { name, bytes, kind } in all {
            match kind {
                ListedFileKind::File => drop(audit.found.insert(name, bytes)),
                ListedFileKind::PartialUpload => audit.partial_uploads.push(name),
                ListedFileKind::Other => {
                    audit.problems.push(FileProblem { text: format!("{name} is not a file"), path: name });
                }
            }
        }
        audit
    }

    /// `None` for the file store is one without files.
    pub(super) async fn compare_with_rows(
        mut self,
        file_store: Option<&FileStore>,
        stored: &StoredFiles,
    ) -> Result<Vec<FileProblem>, FileStoreError> {
        for (owner, row) in &stored.committed {
            if let Some(text) = self.check_file(file_store, owner, row).await? {
                self.problems.push(FileProblem { path: row.path.clone(), text });
            }
        }
        // Uploads and deletions in progress may or may not have a file.
        let unfinished: HashSet<&str> = stored.stale.iter().map(|(_, path)| path.as_str()).collect();
        let unknown =
            self.found.into_keys().chain(self.partial_uploads).filter(|name| !unfinished.contains(name.as_str()));
        let mut unknown: Vec<String> = unknown.collect();
        unknown.sort();
        let problem = |name| FileProblem { text: format!("no row refers to the file {name}"), path: name };
        self.problems.extend(unknown.into_iter().map(problem));
        Ok(self.problems)
    }

    async fn check_file(
        &mut self,
        file_store: Option<&FileStore>,
        owner: &UserId,
        row: &AttachmentRow,
    ) -> Result<Option<String>, FileStoreError> {
        let path = &row.path;
        let missing = || Ok(Some(format!("the file {path} is missing")));
        let Some(bytes) = self.found.remove(path) else { return missing() };
        let Some(key) = FileKey::parse_stored(path).ok().filter(|key| key.owner() == owner) else {
            return Ok(Some(format!("the file {path} has a name that files of {owner} cannot have")));
        };
        if bytes != row.size_bytes {
            return Ok(Some(format!("the file {path} has {bytes} bytes instead of {}", row.size_bytes)));
        }
        let (Some(hash), Some(file_store)) = (&row.hash, file_store) else { return Ok(None) };
        let is_intact = match file_digest(file_store, &key).await {
            // Deleted since it was listed.
            Err(FileStoreError::NotFound) => return missing(),
            digest => digest? == *hash,
        };
        Ok((!is_intact).then(|| format!("the content of the blob {path} does not match {hash}")))
    }
}

async fn file_digest(file_store: &FileStore, key: &FileKey) -> Result<String, FileStoreError> {
    let reading = file_store.read(key, None).await?;
    let hashing = reading.stream.try_fold(Sha256::new(), async |hasher, piece| Ok(hasher.chain_update(&piece)));
    Ok(encode_hex(&hashing.await?.finalize()))
}
