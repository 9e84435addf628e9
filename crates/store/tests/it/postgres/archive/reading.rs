//! What readers of archived records see.

use super::memory_archive::MemoryArchive;
use super::{archive_options, count, open_archived, open_with, write_runs};
use model::ThreadId;
use model::ports::{Cluster as _, Journal as _, PageLimit, RecordPage, StoreError, TailRequest, ThreadWriter as _};
use model::record::Record;
use model::seq::Seq;
use postgres_testing::TestDatabase;
use std::sync::Arc;
use store::{ArchiveOptions, ArchivePlace, PostgresClient, PostgresCluster, PostgresStore, VerifyReport};
use store_conformance::fixtures::{LogWriter, nth_run, nth_thread, read_all_records, test_user};

async fn read_page(store: &PostgresStore, after: u64, limit: PageLimit) -> Result<RecordPage, StoreError> {
    store.read_page(&test_user(), &nth_thread(1), Seq(after), limit).await
}

async fn read_all(store: &PostgresStore, limit: PageLimit) -> Result<Vec<Record>, StoreError> {
    read_all_records(store, (&test_user(), &nth_thread(1)), limit).await
}

fn corrupt(seq: u64) -> StoreError {
    StoreError::Corrupt { thread: nth_thread(1), seq: Seq(seq) }
}

async fn open_client(database: &TestDatabase, archive: &Arc<MemoryArchive>) -> PostgresClient {
    let place = ArchivePlace { archive: Arc::clone(archive) as _, identity: "memory".to_owned() };
    let client = PostgresClient::open_for_reading(&database.url().parse().unwrap()).await.unwrap();
    client.with_archive(Some(&place)).await.unwrap()
}

async fn verify(database: &TestDatabase, archive: &Arc<MemoryArchive>) -> VerifyReport {
    open_client(database, archive).await.verify().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cursor_reads_the_same_records_as_before() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 6).await;
    let bytes = database.execute("SELECT log_bytes FROM headwater.threads");
    assert_eq!(store.archive_ended_runs().await.unwrap(), 6);
    assert!(archive.names().len() > 12, "several segments per run: {:?}", archive.names());
    assert_eq!(count(&database, "headwater.records"), 5, "those of the run that has not ended");
    assert_eq!(database.execute("SELECT log_bytes FROM headwater.threads"), bytes, "they still count");
    for after in 0..=log.len() {
        for (records_max, bytes_max) in [(1, usize::MAX), (5, usize::MAX), (4096, 700), (4096, 1 << 20)] {
            let page = read_page(&store, after as u64, PageLimit { records_max, bytes_max }).await.unwrap();
            assert_eq!(page.head, Seq(log.len() as u64));
            assert!(page.records.len() <= records_max && page.records.is_empty() == (after == log.len()));
            let before_last = page.records.iter().rev().skip(1).map(Record::size_bytes).sum::<usize>();
            assert!(before_last < bytes_max, "{before_last} bytes before the last record");
            assert_eq!(page.records, log[after..after + page.records.len()]);
        }
        let (owner, thread) = (test_user(), nth_thread(1));
        let until = Seq((after + 3).min(log.len()) as u64);
        let page = store.read_condensed_page(&owner, &thread, Seq(after as u64), until, PageLimit::WIDE).await.unwrap();
        assert!(page.records.iter().all(|record| record.seq <= until));
        assert_eq!(page.records.is_empty(), after == log.len());
    }
    for beyond in [log.len() as u64 + 1, i64::MAX as u64, u64::MAX] {
        let page = read_page(&store, beyond, PageLimit::WIDE).await.unwrap();
        assert_eq!((page.records.len(), page.head), (0, Seq(log.len() as u64)), "after {beyond}");
    }
    let stranger = store.read_page(&"stranger".into(), &nth_thread(1), Seq::ZERO, PageLimit::WIDE).await;
    assert_eq!(stranger.unwrap_err(), StoreError::ThreadNotFound);
    assert_eq!(verify(&database, &archive).await.problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_goes_on_behind_its_archived_runs() {
    let (store, _database, _archive) = open_archived().await;
    let mut writer = LogWriter::new(&store, &store, 1).await;
    let mut log = Vec::new();
    for n in 1..=4 {
        writer.run = nth_run(100 + n);
        log.extend(writer.start_run().push_notes(20).complete_run().must_append().await);
        assert_eq!(store.archive_ended_runs().await.unwrap(), 1);
        assert_eq!(read_all(&store, PageLimit::WIDE).await.unwrap(), log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_is_fetched_once_for_all_its_pages_and_memory_is_bounded() {
    let (database, archive) = (TestDatabase::create(), Arc::<MemoryArchive>::default());
    let large = ArchiveOptions { segment_bytes_max: 1 << 20, cache_bytes_max: 40_000, ..archive_options(&archive) };
    let store = open_with(&database, large).await;
    let mut writer = LogWriter::new(&store, &store, 1).await;
    for n in 1..=4 {
        writer.run = nth_run(100 + n);
        writer.start_run().push_notes(100).complete_run().must_append().await;
    }
    let log = writer.read_all().await;
    assert_eq!(store.archive_ended_runs().await.unwrap(), 4);
    assert_eq!(archive.names().len(), 4);
    let small = PageLimit { records_max: 3, bytes_max: usize::MAX };
    assert_eq!(read_all(&store, small).await.unwrap(), log);
    assert_eq!(archive.gets(), 4);
    // About 15 kB each, so not all of them fit.
    assert_eq!(read_all(&store, small).await.unwrap(), log);
    let gets = archive.gets();
    assert!(gets > 4, "all segments were kept");
    assert_eq!(store.archive_stats().unwrap().reads, gets as u64);
    read_page(&store, 405, small).await.unwrap();
    assert_eq!(archive.gets(), gets, "the last one is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_archive_fails_only_the_reads_that_need_it() {
    let (store, _database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 2).await;
    store.archive_ended_runs().await.unwrap();
    archive.fail();
    let error = read_page(&store, 0, PageLimit::WIDE).await.unwrap_err();
    assert_eq!(error, StoreError::Unavailable("the archive: gone fishing".to_owned()));
    let live = log.len() as u64 - 5;
    assert_eq!(read_page(&store, live, PageLimit::WIDE).await.unwrap().records, log[log.len() - 5..]);
    write_runs(&store, 2, 1).await;
    assert!(matches!(store.archive_ended_runs().await, Err(StoreError::Unavailable(_))));
    archive.heal();
    assert_eq!(read_all(&store, PageLimit::WIDE).await.unwrap(), log);
    assert_eq!(store.archive_ended_runs().await.unwrap(), 1);
}

/// What becomes of an object.
type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;

/// An object of the first run, and the first record in it.
fn find_object(database: &TestDatabase) -> (String, u64) {
    let row =
        database.execute("SELECT object, first_seq FROM headwater.segments WHERE first_seq > 5 ORDER BY 2 LIMIT 1");
    let (name, first) = row.trim().split_once('|').unwrap();
    (name.to_owned(), first.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_damaged_object_is_named_at_its_first_record() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 2).await;
    store.archive_ended_runs().await.unwrap();
    let (name, first) = find_object(&database);
    let mut intact = Vec::new();
    archive.tamper(&name, |object| {
        intact.clone_from(&object);
        Some(object)
    });
    let damages: [Damage; 5] = [
        |_| None,
        |_| Some(Vec::new()),
        |object| Some(object[..object.len() / 2].to_vec()),
        |object| Some(vec![0; object.len() * 9]),
        |mut object| {
            object[0] += 1;
            Some(object)
        },
    ];
    for damage in damages {
        archive.tamper(&name, damage);
        // Another store: this one may still have it in memory.
        let client = verify(&database, &archive).await;
        assert_eq!(client.problems.len(), 1, "{:?}", client.problems);
        assert!(client.problems[0].contains(&name) && client.problems[0].contains(&format!("at record {first}")));
        let fresh = open_with(&database, archive_options(&archive)).await;
        assert_eq!(read_all(&fresh, PageLimit::WIDE).await.unwrap_err(), corrupt(first));
        let before = read_page(&fresh, 0, PageLimit::WIDE).await.unwrap();
        assert_eq!(before.records, log[..before.records.len()]);
        // A restored object is readable without a restart.
        archive.insert(&name);
        archive.tamper(&name, |_| Some(intact.clone()));
        assert_eq!(read_all(&fresh, PageLimit::WIDE).await.unwrap(), log);
        fresh.close().await;
    }
}

/// One bit of a record: the records before it are read.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_wrong_checksum_is_named() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 2).await;
    store.archive_ended_runs().await.unwrap();
    let name = archive.names()[0].clone();
    let mut found = Vec::new();
    for at in 0..60 {
        archive.tamper(&name, |mut object| {
            object[5 + at] ^= 1;
            Some(object)
        });
        let fresh = open_with(&database, archive_options(&archive)).await;
        match read_all(&fresh, PageLimit::ONE).await {
            Err(StoreError::Corrupt { seq, .. }) => found.push(seq.0),
            Err(error) => panic!("{error}"),
            // Compressed bytes may say the same in several ways.
            Ok(read) => assert_eq!(read, log),
        }
        fresh.close().await;
        archive.tamper(&name, |mut object| {
            object[5 + at] ^= 1;
            Some(object)
        });
    }
    assert!(found.len() > 30 && found.iter().all(|seq| (1..=9).contains(seq)), "{found:?}");
    assert_eq!(read_all(&store, PageLimit::ONE).await.unwrap(), log);
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_have_no_gap_where_records_were_archived() {
    let (store, database, _archive) = open_archived().await;
    let cluster = PostgresCluster::start(&store, &database.url().parse().unwrap()).unwrap();
    let log = write_runs(&store, 1, 3).await;
    store.archive_ended_runs().await.unwrap();
    let live = log.len() - 5;
    for after in 0..=log.len() {
        let tail = TailRequest { thread: nth_thread(1), after: Seq(after as u64) };
        let pages = cluster.read_tails(&[tail]).await.unwrap();
        let expected = if after < live { &[][..] } else { &log[after..] };
        // An empty page below the head tells viewers to read the log themselves.
        assert_eq!((&pages[0].records[..], pages[0].head), (expected, Seq(log.len() as u64)), "after {after}");
    }
}

/// A thread is deleted between a reader's statement and its look into the archive.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_a_thread_that_is_deleted_meanwhile_is_told_so() {
    let (store, database, archive) = open_archived().await;
    write_runs(&store, 1, 1).await;
    store.archive_ended_runs().await.unwrap();
    let store = Arc::new(store);
    let (deleting, runtime) = (Arc::clone(&store), tokio::runtime::Handle::current());
    archive.before_get(move |_| {
        runtime.block_on(deleting.delete_thread(&test_user(), &nth_thread(1))).unwrap();
        Ok(())
    });
    assert_eq!(read_page(&store, 0, PageLimit::WIDE).await.unwrap_err(), StoreError::ThreadNotFound);
    assert_eq!(archive.names(), [""; 0]);
    archive.heal();
    assert_eq!(verify(&database, &archive).await.problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_tells_a_thread_that_is_deleted_meanwhile_from_damage() {
    let (store, database, archive) = open_archived().await;
    write_runs(&store, 1, 1).await;
    store.archive_ended_runs().await.unwrap();
    let runtime = tokio::runtime::Handle::current();
    archive.before_get(move |_| {
        runtime.block_on(store.delete_thread(&test_user(), &nth_thread(1))).unwrap();
        Ok(())
    });
    assert_eq!(verify(&database, &archive).await.problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_logged_run_is_replayed_from_the_archive_and_orphans_are_found() {
    let (store, database, archive) = open_archived().await;
    let log = write_runs(&store, 1, 3).await;
    store.archive_ended_runs().await.unwrap();
    let client = open_client(&database, &archive).await;
    let run = client.find_logged_run(&nth_run(1_002)).await.unwrap().unwrap();
    let (mut records, mut read) = (run.records(), Vec::new());
    while let Some(record) = records.next().await {
        read.push(record.unwrap());
    }
    let expected: Vec<Record> = log.iter().filter(|record| record.run == nth_run(1_002)).cloned().collect();
    assert_eq!(read, expected);
    // Nobody refers to these; an upload that has begun does to its object.
    archive.insert("1/1-9-0000000000000000");
    archive.insert("foreign");
    archive.insert("9/1-9-0000000000000000");
    database.execute("INSERT INTO headwater.archive_objects VALUES ('9/1-9-0000000000000000', 'infinity', true);");
    let known = |name: &str| format!("the archive has an object that nobody refers to: {name}");
    assert_eq!(verify(&database, &archive).await.problems, [known("1/1-9-0000000000000000"), known("foreign")]);
    // Without the archive nothing is reported as damaged that is not.
    let client = PostgresClient::open_for_reading(&database.url().parse().unwrap()).await.unwrap();
    let refused = client.with_archive(None).await.unwrap_err().to_string();
    assert!(refused.contains("set [database] archive"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_read_in_one_statement_when_nothing_is_archived() {
    let database = TestDatabase::create();
    let proxy = super::super::proxy::Proxy::start(postgres_testing::shared().port()).await;
    let url = proxy.url(database.name()).parse().unwrap();
    let archive = Arc::<MemoryArchive>::default();
    let options = store::PostgresOptions {
        url,
        lease: std::time::Duration::from_secs(3_600),
        archive: Some(archive_options(&archive)),
        ..super::options(&database)
    };
    let store = PostgresStore::open(options).await.unwrap();
    write_runs(&store, 1, 1).await;
    proxy.take_statements();
    read_page(&store, 0, PageLimit::WIDE).await.unwrap();
    assert_eq!(proxy.take_statements().len(), 1);
    let thread: ThreadId = nth_thread(1);
    store.delete_thread(&test_user(), &thread).await.unwrap();
    let statements = proxy.take_statements();
    assert!(!statements.iter().any(|one| one.contains("SKIP LOCKED")), "no objects, no sweep: {statements:?}");
}
