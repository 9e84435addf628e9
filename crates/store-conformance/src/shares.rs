//! The law of [`model::ports::ThreadShares`].

use super::TestStore;
use super::fixtures::{LogWriter, nth_thread, other_user, test_user};
use model::ports::{Journal, ShareRow, StoreError};
use model::seq::Seq;

/// A share of the `n`-th thread, valid from 10 to 20.
#[must_use]
pub fn nth_share(id: &str, n: usize) -> ShareRow {
    ShareRow {
        id: id.to_owned(),
        thread: nth_thread(n),
        owner: test_user(),
        digest: format!("digest of {id}"),
        until_seq: None,
        created_at: 10,
        expires_at: 20,
        revoked_at: None,
    }
}

/// 1: a share needs an existing thread of its owner and a unique id.
pub async fn a_share_needs_an_existing_thread(journal: &dyn Journal, directory: &dyn TestStore) {
    assert_eq!(directory.create_share(nth_share("share_1", 1)).await, Err(StoreError::ThreadNotFound));
    LogWriter::new(journal, directory, 1).await.start_run().complete_run().must_append().await;
    let theirs = ShareRow { owner: other_user(), ..nth_share("share_1", 1) };
    assert_eq!(directory.create_share(theirs).await, Err(StoreError::ThreadNotFound));
    assert_eq!(directory.shares(&test_user(), &nth_thread(1)).await, Ok(Vec::new()));
    let frozen = ShareRow { until_seq: Some(Seq(2)), created_at: 11, ..nth_share("share_1", 1) };
    directory.create_share(frozen.clone()).await.unwrap();
    directory.create_share(nth_share("share_2", 1)).await.unwrap();
    let again = directory.create_share(nth_share("share_1", 1)).await;
    assert!(matches!(again, Err(StoreError::Unavailable(_))), "{again:?}");
    assert_eq!(directory.shares(&test_user(), &nth_thread(1)).await, Ok(vec![nth_share("share_2", 1), frozen]));
}

/// 2: only the owner can list and revoke a share, and only under its own thread.
pub async fn a_share_belongs_to_its_owner(journal: &dyn Journal, directory: &dyn TestStore) {
    for n in 1..=2 {
        LogWriter::new(journal, directory, n).await.start_run().complete_run().must_append().await;
    }
    directory.create_share(nth_share("share_1", 1)).await.unwrap();
    assert_eq!(directory.shares(&other_user(), &nth_thread(1)).await, Ok(Vec::new()));
    assert_eq!(directory.shares(&test_user(), &nth_thread(2)).await, Ok(Vec::new()));
    assert_eq!(directory.revoke_share(&other_user(), &nth_thread(1), "share_1", 12).await, Ok(false));
    assert_eq!(directory.revoke_share(&test_user(), &nth_thread(2), "share_1", 12).await, Ok(false));
    assert_eq!(directory.revoke_share(&test_user(), &nth_thread(1), "share_2", 12).await, Ok(false));
    assert_eq!(directory.shares(&test_user(), &nth_thread(1)).await, Ok(vec![nth_share("share_1", 1)]));
}

/// 2, 3: a revoked or expired share is not open but still listed, and revocation is final.
pub async fn an_expired_or_revoked_share_is_not_open(journal: &dyn Journal, directory: &dyn TestStore) {
    LogWriter::new(journal, directory, 1).await.start_run().complete_run().must_append().await;
    let (first, second) = (nth_share("share_1", 1), ShareRow { expires_at: 30, ..nth_share("share_2", 1) });
    directory.create_share(first.clone()).await.unwrap();
    directory.create_share(second.clone()).await.unwrap();
    assert_eq!(directory.active_shares(19).await, Ok(vec![first.clone(), second.clone()]));
    assert_eq!(directory.active_shares(20).await, Ok(vec![second.clone()]));
    assert_eq!(directory.active_shares(30).await, Ok(Vec::new()));
    for at in [15, 16] {
        assert_eq!(directory.revoke_share(&test_user(), &nth_thread(1), "share_2", at).await, Ok(true));
    }
    assert_eq!(directory.active_shares(11).await, Ok(vec![first.clone()]));
    let revoked = ShareRow { revoked_at: Some(15), ..second };
    assert_eq!(directory.shares(&test_user(), &nth_thread(1)).await, Ok(vec![first, revoked]));
}

/// 1: deleting a thread deletes its shares.
pub async fn a_share_is_deleted_with_its_thread(journal: &dyn Journal, directory: &dyn TestStore) {
    for n in 1..=2 {
        LogWriter::new(journal, directory, n).await.start_run().complete_run().must_append().await;
        directory.create_share(nth_share(&format!("share_{n}"), n)).await.unwrap();
    }
    assert_eq!(directory.delete_thread(&other_user(), &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.active_shares(10).await, Ok(vec![nth_share("share_1", 1), nth_share("share_2", 2)]));
    assert_eq!(directory.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.active_shares(10).await, Ok(vec![nth_share("share_2", 2)]));
    assert_eq!(directory.shares(&test_user(), &nth_thread(1)).await, Ok(Vec::new()));
}
