//! The images of a run, read where its files are. One that cannot be read keeps its URL.

use bytes::Bytes;
use files::{FileKey, FileStore, StorageLocation};
use gateway::attachments::inline_images::{has_blob_url, inline_images_with};
use std::cell::RefCell;
use std::collections::HashMap;
use store::LoggedRun;

pub(super) struct RunImages {
    location: StorageLocation,
    env_vars: Vec<(String, String)>,
    /// Opened for the first image: most runs have none.
    file_store: Option<FileStore>,
}

impl RunImages {
    pub(super) const fn new(location: StorageLocation, env_vars: Vec<(String, String)>) -> Self {
        Self { location, env_vars, file_store: None }
    }

    /// Inserts the images into the frames.
    pub(super) async fn inline(&mut self, run: &LoggedRun, frames: Bytes) -> Bytes {
        if !has_blob_url(&frames) {
            return frames;
        }
        let hashes = RefCell::new(Vec::new());
        inline_images_with(frames.clone(), |hash| {
            hashes.borrow_mut().push(hash.to_owned());
            None
        });
        let mut images = HashMap::new();
        for hash in hashes.into_inner() {
            let image = self.read_image(run, &hash).await;
            images.insert(hash, image);
        }
        inline_images_with(frames, |hash| images.get(hash).cloned().flatten())
    }

    /// Empty if the image was deleted, `None` if it cannot be read.
    async fn read_image(&mut self, run: &LoggedRun, hash: &str) -> Option<Bytes> {
        let Some(row) = run.find_blob(hash).await.ok()? else { return Some(Bytes::new()) };
        let key = FileKey::parse_stored(&row.path).ok()?;
        self.file_store()?.read_all(&key, row.size_bytes).await.ok()
    }

    fn file_store(&mut self) -> Option<&FileStore> {
        if self.file_store.is_none() {
            // Opening would create the folder.
            if let StorageLocation::Folder(folder) = &self.location
                && !folder.is_dir()
            {
                return None;
            }
            self.file_store = FileStore::open(&self.location, &self.env_vars).ok();
        }
        self.file_store.as_ref()
    }
}
