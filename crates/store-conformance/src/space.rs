//! The law of [`model::ports::SpaceWatch`]. A backend's own tests fill it up, so these are not in `conformance!`.

use super::TestStore;
use super::fixtures::{
    LogWriter, cancel_command, new_thread_submission, nth_run, nth_thread, start_command, submission, test_node,
    test_user,
};
use futures_util::FutureExt as _;
use model::UserId;
use model::ports::{AccessKeyRow, AppendOutcome, Journal, StorageSpace, StoreError, SubmitError};

/// 1 to 3. `set_full` fills the backend, or makes room again; the state may follow a little later.
pub async fn a_full_store_refuses_new_data_and_nothing_else(
    journal: &dyn Journal,
    directory: &dyn TestStore,
    set_full: impl AsyncFn(bool),
) {
    let owner = test_user();
    let key = |id: &str| AccessKeyRow {
        id: id.to_owned(),
        user: UserId::from("ann"),
        digest: id.to_owned(),
        created_at: 1,
        revoked_at: None,
    };
    directory.create_access_key(key("key_1")).await.unwrap();
    let mut other = LogWriter::new(journal, directory, 2).await;
    other.start_run().must_append().await;
    let mut author = LogWriter::new(journal, directory, 1).await;
    let known = author.start_run().must_append().await;
    let batch = author.push_notes(3).batch();

    set_full(true).await;
    let waiting = journal.space_changed(StorageSpace::Full);
    for _ in 0..3 {
        assert_eq!(journal.append(batch.clone()).await, AppendOutcome::NoSpace);
        assert_eq!(journal.space(), StorageSpace::Full);
    }
    let start = new_thread_submission(&nth_thread(9), start_command(&nth_run(9)));
    let refused = directory.submit(&owner, start.clone()).await;
    assert_eq!(refused, Err(SubmitError::Store(StoreError::NoSpace)));
    assert_eq!(directory.thread(&owner, &nth_thread(9)).await.unwrap(), None, "nothing changed");
    assert_eq!(author.read_all().await, known, "what was durable can be read");

    let cancel = submission(&author.thread, cancel_command(&nth_run(1)));
    directory.submit(&owner, cancel).await.unwrap();
    assert!(directory.revoke_access_key("key_1", 5).await.unwrap());
    directory.create_access_key(key("key_2")).await.unwrap();
    assert!(directory.delete_thread(&owner, &other.thread).await.unwrap());
    journal.claim(&owner, &nth_thread(8), &test_node()).await.unwrap_err();

    set_full(false).await;
    waiting.await;
    assert_eq!(journal.space(), StorageSpace::Available);
    assert!(journal.space_changed(StorageSpace::Available).now_or_never().is_none());
    assert_eq!(journal.append(batch.clone()).await, AppendOutcome::Durable, "the same batch, once");
    assert_eq!(author.read_all().await.len(), known.len() + batch.records.len());
    directory.submit(&owner, start).await.unwrap();
}
