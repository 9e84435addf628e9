//! Failures of the archive and of nodes at every step. Whatever happens, all records can be read, and in the end no object is
//! left that nobody refers to.

use super::memory_archive::{MemoryArchive, unavailable};
use super::{archive_options, count, open_archived, open_with, write_runs};
use crate::postgres::options;
use crate::postgres::writers::poll_until;
use model::ports::{PageLimit, RetentionWriter as _, StoreError, ThreadWriter as _};
use model::record::Record;
use postgres_testing::TestDatabase;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::{nth_thread, read_all_records, test_user};

async fn read_log(store: &PostgresStore) -> Vec<Record> {
    read_all_records(store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await.unwrap()
}

/// Time passes: claims expire, and notes are due.
fn pass_time(database: &TestDatabase) {
    database.execute(
        "UPDATE headwater.runs SET archive_claim = NULL; UPDATE headwater.archive_objects SET due_at = '-infinity';",
    );
}

/// Archives, sweeps, and checks that nothing is missing and nothing is left over.
async fn check_recovery(store: &PostgresStore, (database, archive): (&TestDatabase, &MemoryArchive), log: &[Record]) {
    assert_eq!(read_log(store).await, log);
    pass_time(database);
    store.sweep_archive().await.unwrap();
    store.archive_ended_runs().await.unwrap();
    assert_eq!(read_log(store).await, log);
    assert_eq!(count(database, "headwater.runs WHERE ended_at IS NOT NULL AND NOT is_archived"), 0);
    assert_eq!(count(database, "headwater.records"), 5, "those of the run that has not ended");
    assert_eq!(count(database, "headwater.archive_objects"), 0);
    assert_eq!(archive.names().len(), count(database, "headwater.segments"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_fails_is_repeated() {
    for stores in [false, true] {
        for failing in 0..6 {
            let (store, database, archive) = open_archived().await;
            let log = write_runs(&store, 1, 3).await;
            let puts = AtomicUsize::new(0);
            let fail_nth = move |_: &str| {
                if puts.fetch_add(1, Ordering::Relaxed) == failing { unavailable() } else { Ok(()) }
            };
            if stores {
                archive.after_put(fail_nth);
            } else {
                archive.before_put(fail_nth);
            }
            let error = store.archive_ended_runs().await.unwrap_err();
            assert_eq!(error, StoreError::Unavailable("the archive: gone fishing".to_owned()));
            assert_eq!(count(&database, "headwater.archive_objects"), 1, "the upload's note");
            archive.heal();
            check_recovery(&store, (&database, &archive), &log).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_while_it_uploads_is_replaced() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 3).await;
    archive.hang_after_put();
    let store = Arc::new(store);
    let dying = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.archive_ended_runs().await }
    });
    poll_until("objects are stored", || archive.puts() >= 3).await;
    dying.abort();
    let _aborted = dying.await;
    archive.heal();
    let options =
        PostgresOptions { node: "other".into(), archive: Some(archive_options(&archive)), ..options(&database) };
    let other = PostgresStore::open(options).await.unwrap();
    assert_eq!(other.archive_ended_runs().await.unwrap(), 0, "the runs are claimed");
    assert_eq!(other.sweep_archive().await.unwrap(), 0, "the uploads may be in progress");
    check_recovery(&other, (&database, &archive), &log).await;
}

/// What happens between an upload and its commit: a sweep takes the note, or has already removed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_comes_too_late_changes_nothing() {
    for meanwhile in [
        "UPDATE headwater.archive_objects SET is_upload = false, due_at = 'infinity';",
        "DELETE FROM headwater.archive_objects;",
    ] {
        let (store, database, archive) = open_archived().await;
        let log = write_runs(&store, 1, 2).await;
        let database = Arc::new(database);
        let (hooked, uploads) = (Arc::clone(&database), AtomicUsize::new(0));
        archive.after_put(move |_| {
            if uploads.fetch_add(1, Ordering::Relaxed) == 0 {
                hooked.execute(meanwhile);
            }
            Ok(())
        });
        store.archive_ended_runs().await.unwrap();
        assert!(archive.puts() > count(&database, "headwater.segments"), "{meanwhile}: an object in vain");
        archive.heal();
        check_recovery(&store, (&database, &archive), &log).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_never_takes_an_object_that_is_referred_to() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 3).await;
    let database = Arc::new(database);
    let hooked = Arc::clone(&database);
    // As if every upload took longer than an hour, while another node sweeps.
    let other =
        PostgresOptions { node: "other".into(), archive: Some(archive_options(&archive)), ..options(&database) };
    let other = Arc::new(PostgresStore::open(other).await.unwrap());
    let (sweeping, runtime) = (Arc::clone(&other), tokio::runtime::Handle::current());
    let uploads = AtomicUsize::new(0);
    archive.after_put(move |_| {
        if uploads.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            hooked.execute("UPDATE headwater.archive_objects SET due_at = '-infinity';");
            runtime.block_on(sweeping.sweep_archive()).unwrap();
        }
        Ok(())
    });
    for _ in 0..20 {
        store.archive_ended_runs().await.unwrap();
        assert_eq!(read_log(&store).await, log);
        assert_eq!(read_log(&other).await, log);
        pass_time(&database);
    }
    archive.heal();
    check_recovery(&store, (&database, &archive), &log).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_deleted_while_it_is_archived_leaves_nothing() {
    let (store, database, archive) = open_archived().await;
    write_runs(&store, 1, 3).await;
    let store = Arc::new(store);
    let (deleting, runtime) = (Arc::clone(&store), tokio::runtime::Handle::current());
    let uploads = AtomicUsize::new(0);
    archive.after_put(move |_| {
        if uploads.fetch_add(1, Ordering::Relaxed) == 3 {
            assert!(runtime.block_on(deleting.delete_thread(&test_user(), &nth_thread(1))).unwrap());
        }
        Ok(())
    });
    // Runs are archived at the same time, so one or two may be done when the fourth upload deletes the thread.
    assert!(store.archive_ended_runs().await.unwrap() < 3);
    assert_eq!(archive.names(), [""; 0]);
    for table in ["segments", "records", "runs", "archive_objects"] {
        assert_eq!(count(&database, &format!("headwater.{table}")), 0, "{table}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_thread_is_gone_from_the_archive() {
    let (store, database, archive) = open_archived().await;
    // Numbers that begin alike must not be confused.
    for n in 1..=11 {
        write_runs(&store, n, 2).await;
    }
    store.archive_ended_runs().await.unwrap();
    let all = archive.names().len();
    assert!(store.delete_thread(&test_user(), &nth_thread(1)).await.unwrap());
    assert!(archive.names().iter().all(|name| !name.starts_with("1/")), "{:?}", archive.names());
    assert_eq!(count(&database, "headwater.archive_objects"), 0);
    assert_eq!(archive.names().len(), count(&database, "headwater.segments"));
    assert!(archive.names().len() > all / 2);
    // Retention deletes in the same way.
    database.execute("DELETE FROM headwater.inbox; UPDATE headwater.runs SET ended_at = 1 WHERE ended_at IS NULL;");
    for n in 2..=11 {
        assert!(store.delete_idle_thread(&test_user(), &nth_thread(n), u64::MAX >> 1).await.unwrap());
    }
    assert_eq!(archive.names(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_archive_does_not_keep_anybody_from_deleting() {
    let (store, database, archive) = open_archived().await;
    write_runs(&store, 1, 3).await;
    store.archive_ended_runs().await.unwrap();
    let objects = archive.names();
    archive.fail();
    assert!(store.delete_thread(&test_user(), &nth_thread(1)).await.unwrap());
    assert_eq!(
        read_all_records(&store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await,
        Err(StoreError::ThreadNotFound)
    );
    assert_eq!((archive.names(), count(&database, "headwater.archive_objects")), (objects.clone(), objects.len()));
    store.close().await;
    // One that cannot be deleted does not keep the others.
    archive.heal();
    let stubborn = objects[0].clone();
    archive.before_delete(move |name| if name == stubborn { unavailable() } else { Ok(()) });
    pass_time(&database);
    let store = open_with(&database, archive_options(&archive)).await;
    store.sweep_archive().await.unwrap_err();
    assert_eq!((archive.names(), count(&database, "headwater.archive_objects")), (objects[..1].to_vec(), 1));
    archive.heal();
    assert_eq!(store.sweep_archive().await.unwrap(), 0, "it is not tried again at once");
    pass_time(&database);
    assert_eq!(store.sweep_archive().await.unwrap(), 1);
    assert_eq!(archive.names(), [""; 0]);
    assert_eq!(count(&database, "headwater.archive_objects"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_run_stays_in_the_database() {
    for damage in ["DELETE FROM headwater.records WHERE seq = 5", "UPDATE headwater.records SET at = 0 WHERE seq = 5"] {
        let (store, database, archive) = open_archived().await;
        let log = write_runs(&store, 1, 2).await;
        database.execute(&format!("{damage};"));
        assert_eq!(store.archive_ended_runs().await.unwrap(), 1, "the other one");
        assert_eq!(store.archive_stats().unwrap().failures, 1);
        let error = read_all_records(&store, (&test_user(), &nth_thread(1)), PageLimit::WIDE).await.unwrap_err();
        assert_eq!(error, StoreError::Corrupt { thread: nth_thread(1), seq: model::seq::Seq(5) });
        assert!(log.len() > archive.names().len());
        assert_eq!(store.archive_ended_runs().await.unwrap(), 0, "it is not tried again at once");
        assert_eq!(archive.names().len(), count(&database, "headwater.segments"));
    }
}
