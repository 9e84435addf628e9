//! The law of [`model::ports::Attachments`], rules 1 to 5.

use super::TestStore;
use super::fixtures::{other_user, test_user};
use futures_util::future::join_all;
use model::ports::{AttachmentOutcome, AttachmentRow, Journal};

#[must_use]
pub fn nth_attachment(n: usize, bytes: u64) -> AttachmentRow {
    AttachmentRow {
        path: format!("files/{n}"),
        name: format!("the {n}. \"file\".txt"),
        content_type: "text/plain".to_owned(),
        size_bytes: bytes,
        created_at: n as u64,
        hash: None,
    }
}

/// 1, 2: a file that is only reserved does not exist and does not count.
pub async fn a_file_exists_once_it_is_put_and_not_before(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, row) = (test_user(), nth_attachment(1, 7));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(None));
    directory.reserve_attachment(&owner, &row.path, 5).await.unwrap();
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(None));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(0));
    assert_eq!(directory.commit_attachment(&owner, row.clone(), None).await, Ok(AttachmentOutcome::Stored));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row.clone())));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
    assert_eq!(directory.delete_attachment(&owner, &row.path).await, Ok(true));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(None));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(0));
    assert_eq!(directory.delete_attachment(&owner, &row.path).await, Ok(false));
}

/// 4: neither a second reservation nor a second commit changes a file.
pub async fn an_existing_file_is_not_overwritten(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, row) = (test_user(), nth_attachment(1, 7));
    directory.commit_attachment(&owner, row.clone(), None).await.unwrap();
    directory.reserve_attachment(&owner, &row.path, 9).await.unwrap();
    let other = AttachmentRow { name: "other".to_owned(), size_bytes: 100, ..row.clone() };
    assert_eq!(directory.commit_attachment(&owner, other, Some(1)).await, Ok(AttachmentOutcome::Stored));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row)));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
    assert_eq!(directory.stale_attachments().await, Ok(Vec::new()));
}

/// 1: interrupted uploads are listed.
pub async fn expected_files_are_listed_until_they_are_forgotten(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other) = (test_user(), other_user());
    for (who, n) in [(&owner, 1), (&owner, 2), (&other, 1), (&other, 3)] {
        directory.reserve_attachment(who, &nth_attachment(n, 0).path, 1).await.unwrap();
    }
    directory.commit_attachment(&owner, nth_attachment(2, 5), None).await.unwrap();
    let mut wanted = vec![(owner.clone(), nth_attachment(1, 0).path), (other.clone(), nth_attachment(1, 0).path)];
    wanted.push((other.clone(), nth_attachment(3, 0).path));
    wanted.sort();
    assert_eq!(directory.stale_attachments().await, Ok(wanted.clone()));
    assert_eq!(directory.delete_attachment(&owner, &nth_attachment(1, 0).path).await, Ok(true));
    wanted.retain(|(who, _)| *who == other);
    assert_eq!(directory.stale_attachments().await, Ok(wanted));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(5));
}

/// 3: the quota is exact under concurrent commits.
pub async fn a_users_files_stay_within_the_quota(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let puts = (0..20).map(|n| directory.commit_attachment(&owner, nth_attachment(n, 10), Some(95)));
    let kept: Vec<AttachmentOutcome> = join_all(puts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(kept.iter().filter(|kept| **kept == AttachmentOutcome::Stored).count(), 9, "{kept:?}");
    assert!(
        kept.iter()
            .all(|kept| matches!(kept, AttachmentOutcome::Stored | AttachmentOutcome::QuotaExceeded { used: 90 })),
        "{kept:?}"
    );
    assert_eq!(
        directory.commit_attachment(&owner, nth_attachment(100, 6), Some(95)).await,
        Ok(AttachmentOutcome::QuotaExceeded { used: 90 })
    );
    assert_eq!(directory.attachment(&owner, &nth_attachment(100, 6).path).await, Ok(None));
    assert_eq!(
        directory.commit_attachment(&owner, nth_attachment(100, 5), Some(95)).await,
        Ok(AttachmentOutcome::Stored)
    );
    // A lowered quota deletes nothing and admits nothing.
    assert_eq!(
        directory.commit_attachment(&owner, nth_attachment(101, 0), Some(10)).await,
        Ok(AttachmentOutcome::QuotaExceeded { used: 95 })
    );
    assert_eq!(
        directory.commit_attachment(&owner, nth_attachment(102, u64::MAX), Some(96)).await,
        Ok(AttachmentOutcome::QuotaExceeded { used: 95 })
    );
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(95));
}

pub async fn a_file_of_another_owner_does_not_exist(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other, row) = (test_user(), other_user(), nth_attachment(1, 7));
    directory.commit_attachment(&owner, row.clone(), None).await.unwrap();
    assert_eq!(directory.attachment(&other, &row.path).await, Ok(None));
    assert_eq!(directory.attachment_bytes_used(&other).await, Ok(0));
    assert_eq!(directory.delete_attachment(&other, &row.path).await, Ok(false));
    let theirs = AttachmentRow { name: "theirs".to_owned(), ..nth_attachment(1, 9) };
    assert_eq!(directory.commit_attachment(&other, theirs.clone(), Some(9)).await, Ok(AttachmentOutcome::Stored));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row.clone())));
    assert_eq!(directory.attachment(&other, &row.path).await, Ok(Some(theirs)));
}
