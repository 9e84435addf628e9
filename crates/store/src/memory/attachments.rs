//! The rows of files and of what threads use, without a disk.

use super::{File, Memory, Tables};
use crate::admit;
use model::ports::{AttachmentOutcome, AttachmentRow, Attachments, BoxFuture, StoreError};
use model::seq::Millis;
use model::{ThreadId, UserId};
use std::collections::BTreeSet;

impl Attachments for Memory {
    fn reserve_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        _at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.tables().attachments.entry((owner.clone(), path.to_owned())).or_insert(File::Expected);
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
                return Err(admit::blob_without_thread(&row.path));
            }
            self.tables().put(owner, row, bytes_max)
        })
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move { Ok(self.tables().by_path(owner, path).cloned()) })
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move { Ok(self.tables().held(owner)) })
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let key = (owner.clone(), path.to_owned());
        Box::pin(async move {
            let mut tables = self.tables();
            tables.uses.retain(|(of, _, used)| of != owner || used != path);
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
            let mut tables = self.tables();
            let found = tables.by_path(owner, path).cloned();
            Ok(tables.used(owner, thread, found))
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
                return Err(admit::blob_without_hash(&row.path));
            };
            let mut tables = self.tables();
            if let Some(known) = tables.by_hash(owner, &hash).cloned() {
                tables.uses.insert((owner.clone(), thread.clone(), known.path.clone()));
                return Ok(if known.path == row.path {
                    AttachmentOutcome::Stored
                } else {
                    AttachmentOutcome::Duplicate(known)
                });
            }
            let path = row.path.clone();
            if tables.by_path(owner, &path).is_some() {
                return Err(admit::taken_path(&path));
            }
            let kept = tables.put(owner, row, bytes_max)?;
            if kept == AttachmentOutcome::Stored {
                tables.uses.insert((owner.clone(), thread.clone(), path));
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
            let mut tables = self.tables();
            let found = tables.by_hash(owner, hash).cloned();
            Ok(tables.used(owner, thread, found))
        })
    }

    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        Box::pin(async move {
            let tables = self.tables();
            let uses = |thread: &ThreadId, row: &AttachmentRow| {
                tables.uses.contains(&(owner.clone(), thread.clone(), row.path.clone()))
            };
            let found = tables.by_hash(owner, hash);
            Ok(found.filter(|row| thread.is_none_or(|thread| uses(thread, row))).cloned())
        })
    }

    fn unreferenced_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(async move { Ok(self.tables().places(|file| matches!(file, File::Released))) })
    }

    fn stale_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(async move { Ok(self.tables().places(|file| !matches!(file, File::There(_)))) })
    }
}

impl Tables {
    /// A user's files that are there.
    fn files(&self, owner: &UserId) -> impl Iterator<Item = &AttachmentRow> {
        self.attachments.iter().filter(move |((of, _), _)| of == owner).filter_map(|(_, file)| match file {
            File::There(row) => Some(row),
            File::Expected | File::Released => None,
        })
    }

    /// What they hold together.
    fn held(&self, owner: &UserId) -> u64 {
        self.files(owner).fold(0, |sum, row| sum.saturating_add(row.size_bytes))
    }

    fn by_path(&self, owner: &UserId, path: &str) -> Option<&AttachmentRow> {
        self.files(owner).find(|row| row.path == path)
    }

    fn by_hash(&self, owner: &UserId, hash: &str) -> Option<&AttachmentRow> {
        self.files(owner).find(|row| row.hash.as_deref() == Some(hash))
    }

    fn places(&self, wanted: impl Fn(&File) -> bool) -> Vec<(UserId, String)> {
        self.attachments.iter().filter(|(_, file)| wanted(file)).map(|(place, _)| place.clone()).collect()
    }

    fn put(
        &mut self,
        owner: &UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> Result<AttachmentOutcome, StoreError> {
        let used = self.held(owner);
        let place = (owner.clone(), row.path.clone());
        match self.attachments.get(&place) {
            Some(File::There(_)) => return Ok(AttachmentOutcome::Stored),
            Some(File::Released) => return Err(admit::taken_path(&row.path)),
            Some(File::Expected) | None => {}
        }
        if bytes_max.is_some_and(|most| used.saturating_add(row.size_bytes) > most) {
            return Ok(AttachmentOutcome::QuotaExceeded { used });
        }
        self.attachments.insert(place, File::There(row));
        Ok(AttachmentOutcome::Stored)
    }

    /// A thread uses what was found, if anything was.
    fn used(&mut self, owner: &UserId, thread: &ThreadId, found: Option<AttachmentRow>) -> Option<AttachmentRow> {
        let used = found.as_ref().map(|row| (owner.clone(), thread.clone(), row.path.clone()));
        self.uses.extend(used);
        found
    }

    /// The thread uses nothing any more, and what nobody else uses is released.
    pub(super) fn use_nothing(&mut self, owner: &UserId, thread: &ThreadId) {
        let (gone, uses): (BTreeSet<_>, BTreeSet<_>) =
            std::mem::take(&mut self.uses).into_iter().partition(|(of, by, _)| of == owner && by == thread);
        self.uses = uses;
        for (owner, _, path) in gone {
            if !self.uses.iter().any(|(of, _, used)| *of == owner && *used == path) {
                self.attachments.insert((owner, path), File::Released);
            }
        }
    }
}
