//! Rows that somebody changed by hand, and texts that PostgreSQL cannot hold.

use super::{open_store, options};
use model::ports::{
    AliasData, AliasKind, AliasRow, AppendOutcome, AttachmentOutcome, AttachmentRow, AttachmentWriter as _,
    Attachments as _, Inbox as _, InboxWriter as _, Journal as _, PageLimit, PendingQuestions as _, StoreError,
    SubmitError, ThreadWriter as _, Threads as _,
};
use model::seq::Seq;
use model::{ApprovalKey, TaskId, ThreadId, UserId};
use store::PostgresStore;
use store_conformance::attachments::nth_attachment;
use store_conformance::fixtures::{
    LogWriter, cancel_command, nth_run, nth_thread, read_all_records, submission, test_node, test_user,
};

/// Reads a log in pages of this size, up to the first error.
async fn read_until_error(store: &PostgresStore, thread: &ThreadId, records_max: usize) -> (Vec<u64>, StoreError) {
    let limit = PageLimit { records_max, bytes_max: usize::MAX };
    let mut seqs = Vec::new();
    loop {
        let after = Seq(seqs.last().copied().unwrap_or_default());
        match store.read_page(&test_user(), thread, after, limit).await {
            Ok(page) => {
                assert!(!page.records.is_empty(), "the damage after {after} was not noticed");
                seqs.extend(page.records.iter().map(|record| record.seq.0));
            }
            Err(error) => return (seqs, error),
        }
    }
}

/// What is done to record 5 of a thread, and whether those after it are as they were.
const DAMAGE: [(&str, bool); 12] = [
    ("UPDATE headwater.records SET public = public || '\\x20' WHERE seq = 5", true),
    ("UPDATE headwater.records SET public = set_byte(public, 3, 0) WHERE seq = 5", true),
    ("UPDATE headwater.records SET private = '\\x00' WHERE seq = 5", true),
    ("UPDATE headwater.records SET checksum = checksum + 1 WHERE seq = 5", true),
    ("UPDATE headwater.records SET at = at + 1 WHERE seq = 5", true),
    ("UPDATE headwater.records SET epoch = epoch + 1 WHERE seq = 5", true),
    ("UPDATE headwater.records SET format = format + 1 WHERE seq = 5", true),
    ("UPDATE headwater.records SET run = 0 WHERE seq = 5", true),
    ("UPDATE headwater.records SET run = run - 1 WHERE seq = 5", true),
    ("DELETE FROM headwater.records WHERE seq = 5", true),
    ("DELETE FROM headwater.records WHERE seq >= 5", false),
    ("UPDATE headwater.records SET seq = 50 WHERE seq = 5", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_changed_or_deleted_is_named() {
    let (store, database) = open_store().await;
    let owner = test_user();
    // The first run of the database, so that every other one has one before it.
    LogWriter::new(&store, &store, 100).await;
    for (n, (damage, is_rest_intact)) in DAMAGE.into_iter().enumerate() {
        let mut writer = LogWriter::new(&store, &store, n).await;
        let known = writer.start_run().push_notes(8).must_append().await;
        let thread = &writer.thread;
        database.execute(&format!("{damage} AND thread = (SELECT num FROM headwater.threads WHERE id = '{thread}');"));
        let expected = StoreError::Corrupt { thread: thread.clone(), seq: Seq(5) };
        for records_max in [1, 3, 100] {
            let (seqs, error) = read_until_error(&store, thread, records_max).await;
            assert_eq!((&seqs[..], &error), (&[1, 2, 3, 4][..], &expected), "{damage}, pages of {records_max}");
        }
        let condensed =
            async |until| store.read_condensed_page(&owner, thread, Seq(4), Seq(until), PageLimit::WIDE).await;
        assert_eq!(condensed(8).await.unwrap_err(), expected, "{damage}");
        assert!(condensed(4).await.unwrap().records.is_empty(), "what is before the damage can be read");
        if is_rest_intact {
            let after = store.read_page(&owner, thread, Seq(5), PageLimit::WIDE).await.unwrap();
            assert_eq!(after.records, known[5..], "{damage}");
        }
    }
}

/// A log that ends elsewhere than its thread says is not overwritten.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_never_overwritten() {
    let (store, database) = open_store().await;
    let mut writer = LogWriter::new(&store, &store, 1).await;
    let known = writer.start_run().push_notes(3).must_append().await;
    database.execute("UPDATE headwater.threads SET head = 3;");
    writer.lease.head = Seq(3);
    let outcome = writer.push_notes(4).append().await;
    assert!(matches!(&outcome, AppendOutcome::Unknown(why) if why.contains("duplicate key")), "{outcome:?}");
    database.execute("UPDATE headwater.threads SET head = 5;");
    let log = read_all_records(&store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await.unwrap();
    assert_eq!(log, known);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_no_row_can_have_are_not_found() {
    let (store, _database) = open_store().await;
    let owner = test_user();
    LogWriter::new(&store, &store, 1).await.start_run().must_append().await;
    for id in ["thr_\0", "\0", "thr_ä", "thr_\u{1f600}", "", "thr_'; DROP TABLE headwater.threads; --"] {
        let (thread, run) = (ThreadId::from(id), TaskId::from(id));
        let is_missing = |error: &StoreError| *error == StoreError::ThreadNotFound;
        let page = store.read_page(&owner, &thread, Seq::ZERO, PageLimit::WIDE).await.unwrap_err();
        assert!(is_missing(&page), "{id:?}: {page}");
        let claimed = store.claim(&owner, &thread, &test_node()).await.unwrap_err();
        assert!(is_missing(&claimed), "{id:?}: {claimed}");
        let inbox = store.inbox(&owner, &thread).await.unwrap_err();
        assert!(is_missing(&inbox), "{id:?}: {inbox}");
        let submitted = store.submit(&owner, submission(&thread, cancel_command(&nth_run(1)))).await.unwrap_err();
        assert!(matches!(&submitted, SubmitError::Store(error) if is_missing(error)), "{id:?}: {submitted}");
        assert!(!is_unavailable(&store.thread(&owner, &thread).await), "{id:?}");
        assert!(!is_unavailable(&store.run(&owner, &run).await), "{id:?}");
        assert!(!is_unavailable(&store.approval(&owner, &ApprovalKey::from(id)).await), "{id:?}");
        assert!(!is_unavailable(&store.attachment(&owner, id).await), "{id:?}");
        assert!(!is_unavailable(&store.thread(&UserId::from(id), &nth_thread(1)).await), "{id:?}");
        assert!(
            !is_unavailable(&store.delete_thread(&owner, &thread).await.map(|is_deleted| is_deleted.then_some(()))),
            "{id:?}"
        );
    }
    assert!(store.thread(&owner, &nth_thread(1)).await.unwrap().is_some());
}

/// Whether something was found, or the caller would answer that the store is not available.
fn is_unavailable<T>(found: &Result<Option<T>, StoreError>) -> bool {
    !matches!(found, Ok(None) | Err(StoreError::ThreadNotFound))
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_users_are_kept_as_they_are() {
    let (store, database) = open_store().await;
    let owner = test_user();
    let names = ["with\0nul", "\0", "naïve", "\u{1f600}", "line\nbreak", "\u{202e}reversed", "quote's \"and\" \\"];
    for (n, name) in names.into_iter().enumerate() {
        let row = AliasRow { name: name.to_owned(), thread: nth_thread(n), data: AliasData::AgentRun, created_at: 1 };
        assert_eq!(store.create_alias(&owner, row.clone()).await.unwrap(), row);
        let file = AttachmentRow { name: name.to_owned(), ..nth_attachment(n, 7) };
        assert_eq!(store.commit_attachment(&owner, file, None).await.unwrap(), AttachmentOutcome::Stored);
    }
    store.close().await;
    let store = PostgresStore::open(options(&database)).await.unwrap();
    for (n, name) in names.into_iter().enumerate() {
        let alias = store.alias(&owner, AliasKind::AgentRun, name).await.unwrap().unwrap();
        assert_eq!((alias.name.as_str(), alias.thread), (name, nth_thread(n)));
        let file = store.attachment(&owner, &nth_attachment(n, 7).path).await.unwrap().unwrap();
        assert_eq!(file.name, name);
        assert!(store.delete_alias(&owner, AliasKind::AgentRun, name).await.unwrap());
    }
}
