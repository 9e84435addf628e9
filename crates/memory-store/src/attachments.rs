//! The rows of files and their links.

use crate::{AttachmentEntry, MemoryStore, MemoryTables};
use async_trait::async_trait;
use model::ports::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, AttachmentWriter, Attachments, StoreError, StoreResult};
use model::seq::Millis;
use model::{ThreadId, UserId};
use std::collections::BTreeSet;

#[async_trait]
impl Attachments for MemoryStore {
    async fn attachment(&self, owner: &UserId, path: &str) -> StoreResult<Option<AttachmentRow>> {
        Ok(self.lock_tables().find_attachment(owner, path).cloned())
    }

    async fn attachment_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        Ok(self.lock_tables().stored_bytes(owner))
    }

    async fn blob(&self, owner: &UserId, thread: Option<&ThreadId>, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        let tables = self.lock_tables();
        let uses = |thread: &ThreadId, row: &AttachmentRow| {
            tables.attachment_links.contains(&(owner.clone(), thread.clone(), row.path.clone()))
        };
        let found = tables.find_blob(owner, hash);
        Ok(found.filter(|row| thread.is_none_or(|thread| uses(thread, row))).cloned())
    }

    async fn unreferenced_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        Ok(self.lock_tables().paths_where(|file| matches!(file, AttachmentEntry::Unreferenced)))
    }

    async fn stale_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        Ok(self.lock_tables().paths_where(|file| !matches!(file, AttachmentEntry::Committed(_))))
    }
}

#[async_trait]
impl AttachmentWriter for MemoryStore {
    async fn reserve_attachment(&self, owner: &UserId, path: &str, _at: Millis) -> StoreResult<()> {
        self.check_space()?;
        self.lock_tables().attachments.entry((owner.clone(), path.to_owned())).or_insert(AttachmentEntry::Reserved);
        Ok(())
    }

    async fn commit_attachment(
        &self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        self.check_space()?;
        if row.hash.is_some() {
            return Err(validation::blob_without_thread_error(&row.path));
        }
        self.lock_tables().insert_attachment(owner, row, bytes_max)
    }

    async fn delete_attachment(&self, owner: &UserId, path: &str) -> StoreResult<bool> {
        let key = (owner.clone(), path.to_owned());
        let mut tables = self.lock_tables();
        tables.attachment_links.retain(|(of, _, used)| of != owner || used != path);
        Ok(tables.attachments.remove(&key).is_some())
    }

    async fn link_attachment(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        path: &str,
    ) -> StoreResult<Option<AttachmentRow>> {
        self.check_space()?;
        let mut tables = self.lock_tables();
        let found = tables.find_attachment(owner, path).cloned();
        Ok(tables.add_link(owner, thread, found))
    }

    async fn commit_blob(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreResult<AttachmentOutcome> {
        self.check_space()?;
        let Some(hash) = row.hash.clone() else {
            return Err(validation::blob_without_hash_error(&row.path));
        };
        let mut tables = self.lock_tables();
        if let Some(known) = tables.find_blob(owner, &hash).cloned() {
            tables.attachment_links.insert((owner.clone(), thread.clone(), known.path.clone()));
            return Ok(if known.path == row.path {
                AttachmentOutcome::Stored
            } else {
                AttachmentOutcome::Duplicate(known)
            });
        }
        let path = row.path.clone();
        if tables.find_attachment(owner, &path).is_some() {
            return Err(validation::path_taken_error(&path));
        }
        let kept = tables.insert_attachment(owner, row, bytes_max)?;
        if kept == AttachmentOutcome::Stored {
            tables.attachment_links.insert((owner.clone(), thread.clone(), path));
        }
        Ok(kept)
    }

    async fn link_blob(&self, owner: &UserId, thread: &ThreadId, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        self.check_space()?;
        let mut tables = self.lock_tables();
        let found = tables.find_blob(owner, hash).cloned();
        Ok(tables.add_link(owner, thread, found))
    }
}

impl MemoryTables {
    fn committed_attachments(&self, owner: &UserId) -> impl Iterator<Item = &AttachmentRow> {
        self.attachments.iter().filter(move |((of, _), _)| of == owner).filter_map(|(_, file)| match file {
            AttachmentEntry::Committed(row) => Some(row),
            AttachmentEntry::Reserved | AttachmentEntry::Unreferenced => None,
        })
    }

    fn stored_bytes(&self, owner: &UserId) -> u64 {
        self.committed_attachments(owner).fold(0, |sum, row| sum.saturating_add(row.size_bytes))
    }

    pub(super) fn find_attachment(&self, owner: &UserId, path: &str) -> Option<&AttachmentRow> {
        self.committed_attachments(owner).find(|row| row.path == path)
    }

    fn find_blob(&self, owner: &UserId, hash: &str) -> Option<&AttachmentRow> {
        self.committed_attachments(owner).find(|row| row.hash.as_deref() == Some(hash))
    }

    fn paths_where(&self, wanted: impl Fn(&AttachmentEntry) -> bool) -> Vec<(UserId, String)> {
        self.attachments.iter().filter(|(_, file)| wanted(file)).map(|(key, _)| key.clone()).collect()
    }

    fn insert_attachment(
        &mut self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> Result<AttachmentOutcome, StoreError> {
        let used = self.stored_bytes(owner);
        let key = (owner.clone(), row.path.clone());
        match self.attachments.get(&key) {
            Some(AttachmentEntry::Committed(_)) => return Ok(AttachmentOutcome::Stored),
            Some(AttachmentEntry::Unreferenced) => return Err(validation::path_taken_error(&row.path)),
            Some(AttachmentEntry::Reserved) | None => {}
        }
        if bytes_max.is_some_and(|bytes_max| used.saturating_add(row.size_bytes) > bytes_max) {
            return Ok(AttachmentOutcome::QuotaExceeded { used });
        }
        self.attachments.insert(key, AttachmentEntry::Committed(row));
        Ok(AttachmentOutcome::Stored)
    }

    /// Links a file, if it was found, to a thread.
    fn add_link(&mut self, owner: &UserId, thread: &ThreadId, found: Option<AttachmentRow>) -> Option<AttachmentRow> {
        let used = found.as_ref().map(|row| (owner.clone(), thread.clone(), row.path.clone()));
        self.attachment_links.extend(used);
        found
    }

    /// Removes a thread's links and releases files without further links.
    pub(super) fn unlink_thread(&mut self, owner: &UserId, thread: &ThreadId) {
        let (removed, kept): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.attachment_links).into_iter().partition(|(of, by, _)| of == owner && by == thread);
        self.attachment_links = kept;
        for (owner, _, path) in removed {
            if !self.attachment_links.iter().any(|(of, _, used)| *of == owner && *used == path) {
                self.attachments.insert((owner, path), AttachmentEntry::Unreferenced);
            }
        }
    }
}
