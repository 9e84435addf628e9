//! The rows of files and of what threads use, without a disk.

use super::{AttachmentEntry, MemoryStore, MemoryTables};
use crate::validation;
use model::ports::{AttachmentOutcome, AttachmentRow, Attachments, BoxFuture, StoreError};
use model::seq::Millis;
use model::{ThreadId, UserId};
use std::collections::BTreeSet;

impl Attachments for MemoryStore {
    fn reserve_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        _at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.lock_tables().attachments.entry((owner.clone(), path.to_owned())).or_insert(AttachmentEntry::Reserved);
            Ok(())
        })
    }

    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        Box::pin(async move {
            if row.hash.is_some() {
                return Err(validation::blob_without_thread_error(&row.path));
            }
            self.lock_tables().insert_attachment(owner, row, bytes_max)
        })
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().find_attachment(owner, path).cloned()) })
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move { Ok(self.lock_tables().stored_bytes(owner)) })
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let key = (owner.clone(), path.to_owned());
        Box::pin(async move {
            let mut tables = self.lock_tables();
            tables.attachment_links.retain(|(of, _, used)| of != owner || used != path);
            Ok(tables.attachments.remove(&key).is_some())
        })
    }

    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let found = tables.find_attachment(owner, path).cloned();
            Ok(tables.add_link(owner, thread, found))
        })
    }

    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<AttachmentOutcome, StoreError>> {
        Box::pin(async move {
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
        })
    }

    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move {
            let mut tables = self.lock_tables();
            let found = tables.find_blob(owner, hash).cloned();
            Ok(tables.add_link(owner, thread, found))
        })
    }

    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.lock_tables();
            let uses = |thread: &ThreadId, row: &AttachmentRow| {
                tables.attachment_links.contains(&(owner.clone(), thread.clone(), row.path.clone()))
            };
            let found = tables.find_blob(owner, hash);
            Ok(found.filter(|row| thread.is_none_or(|thread| uses(thread, row))).cloned())
        })
    }

    fn unreferenced_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(
            async move { Ok(self.lock_tables().paths_where(|file| matches!(file, AttachmentEntry::Unreferenced))) },
        )
    }

    fn stale_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(
            async move { Ok(self.lock_tables().paths_where(|file| !matches!(file, AttachmentEntry::Committed(_)))) },
        )
    }
}

impl MemoryTables {
    /// A user's files that are there.
    fn committed_attachments(&self, owner: &UserId) -> impl Iterator<Item = &AttachmentRow> {
        self.attachments.iter().filter(move |((of, _), _)| of == owner).filter_map(|(_, file)| match file {
            AttachmentEntry::Committed(row) => Some(row),
            AttachmentEntry::Reserved | AttachmentEntry::Unreferenced => None,
        })
    }

    /// What they hold together.
    fn stored_bytes(&self, owner: &UserId) -> u64 {
        self.committed_attachments(owner).fold(0, |sum, row| sum.saturating_add(row.size_bytes))
    }

    fn find_attachment(&self, owner: &UserId, path: &str) -> Option<&AttachmentRow> {
        self.committed_attachments(owner).find(|row| row.path == path)
    }

    fn find_blob(&self, owner: &UserId, hash: &str) -> Option<&AttachmentRow> {
        self.committed_attachments(owner).find(|row| row.hash.as_deref() == Some(hash))
    }

    fn paths_where(&self, wanted: impl Fn(&AttachmentEntry) -> bool) -> Vec<(UserId, String)> {
        self.attachments.iter().filter(|(_, file)| wanted(file)).map(|(place, _)| place.clone()).collect()
    }

    fn insert_attachment(
        &mut self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> Result<AttachmentOutcome, StoreError> {
        let used = self.stored_bytes(owner);
        let place = (owner.clone(), row.path.clone());
        match self.attachments.get(&place) {
            Some(AttachmentEntry::Committed(_)) => return Ok(AttachmentOutcome::Stored),
            Some(AttachmentEntry::Unreferenced) => return Err(validation::path_taken_error(&row.path)),
            Some(AttachmentEntry::Reserved) | None => {}
        }
        if bytes_max.is_some_and(|most| used.saturating_add(row.size_bytes) > most) {
            return Ok(AttachmentOutcome::QuotaExceeded { used });
        }
        self.attachments.insert(place, AttachmentEntry::Committed(row));
        Ok(AttachmentOutcome::Stored)
    }

    /// A thread uses what was found, if anything was.
    fn add_link(&mut self, owner: &UserId, thread: &ThreadId, found: Option<AttachmentRow>) -> Option<AttachmentRow> {
        let used = found.as_ref().map(|row| (owner.clone(), thread.clone(), row.path.clone()));
        self.attachment_links.extend(used);
        found
    }

    /// The thread uses nothing any more, and what nobody else uses is released.
    pub(super) fn unlink_thread(&mut self, owner: &UserId, thread: &ThreadId) {
        let (gone, uses): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.attachment_links).into_iter().partition(|(of, by, _)| of == owner && by == thread);
        self.attachment_links = uses;
        for (owner, _, path) in gone {
            if !self.attachment_links.iter().any(|(of, _, used)| *of == owner && *used == path) {
                self.attachments.insert((owner, path), AttachmentEntry::Unreferenced);
            }
        }
    }
}
