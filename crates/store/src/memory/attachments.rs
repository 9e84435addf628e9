//! The rows of files, without a disk.

use super::{Memory, Tables};
use model::UserId;
use model::ports::{AttachmentRow, Attachments, BoxFuture, Kept, StoreError};
use model::seq::Millis;

impl Tables {
    /// What a user's files hold together.
    fn held(&self, owner: &UserId) -> u64 {
        let rows = self.attachments.iter().filter(|((of, _), _)| of == owner).filter_map(|(_, row)| row.as_ref());
        rows.fold(0, |sum, row| sum.saturating_add(row.bytes))
    }
}

impl Attachments for Memory {
    fn expect_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
        _at: Millis,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            self.tables().attachments.entry((owner.clone(), path.to_owned())).or_insert(None);
            Ok(())
        })
    }

    fn put_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> BoxFuture<'a, Result<Kept, StoreError>> {
        Box::pin(async move {
            let mut tables = self.tables();
            let used = tables.held(owner);
            let there = tables.attachments.entry((owner.clone(), row.path.clone())).or_insert(None);
            if there.is_some() {
                return Ok(Kept::Now);
            }
            if bytes_max.is_some_and(|most| used.saturating_add(row.bytes) > most) {
                return Ok(Kept::Over { used });
            }
            *there = Some(row);
            Ok(Kept::Now)
        })
    }

    fn attachment<'a>(
        &'a self,
        owner: &'a UserId,
        path: &'a str,
    ) -> BoxFuture<'a, Result<Option<AttachmentRow>, StoreError>> {
        let key = (owner.clone(), path.to_owned());
        Box::pin(async move { Ok(self.tables().attachments.get(&key).cloned().flatten()) })
    }

    fn attachment_bytes<'a>(&'a self, owner: &'a UserId) -> BoxFuture<'a, Result<u64, StoreError>> {
        Box::pin(async move { Ok(self.tables().held(owner)) })
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> BoxFuture<'a, Result<bool, StoreError>> {
        let key = (owner.clone(), path.to_owned());
        Box::pin(async move { Ok(self.tables().attachments.remove(&key).is_some()) })
    }

    fn unfinished_attachments(&self) -> BoxFuture<'_, Result<Vec<(UserId, String)>, StoreError>> {
        Box::pin(async move {
            let tables = self.tables();
            let expected = tables.attachments.iter().filter(|(_, row)| row.is_none());
            Ok(expected.map(|(place, _)| place.clone()).collect())
        })
    }
}
