//! What a node reads of the threads of others, and how it gives its own away.

use super::writers::poll_until;
use super::{create_thread, open_store, options};
use model::NodeId;
use model::ports::{ClaimOutcome, Cluster as _, Journal as _, TailPage, TailRequest};
use model::record::Record;
use model::seq::Seq;
use postgres_testing::TestDatabase;
use store::{PostgresCluster, PostgresOptions, PostgresStore};
use store_conformance::fixtures::{LogWriter, nth_thread, test_user};

fn start_cluster(store: &PostgresStore, database: &TestDatabase) -> PostgresCluster {
    PostgresCluster::start(store, &database.url().parse().unwrap()).unwrap()
}

fn tail(n: usize, after: u64) -> TailRequest {
    TailRequest { thread: nth_thread(n), after: Seq(after) }
}

/// The pages in the order of the threads.
async fn read_tails(cluster: &PostgresCluster, tails: &[TailRequest]) -> Vec<TailPage> {
    let mut pages = cluster.read_tails(tails).await.unwrap();
    pages.sort_by(|one, other| one.thread.cmp(&other.thread));
    pages
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq.0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tails_of_several_threads_are_read_at_once() {
    let (store, database) = open_store().await;
    let cluster = start_cluster(&store, &database);
    let mut known = Vec::new();
    for n in 1..=3 {
        known.push(LogWriter::new(&store, &store, n).await.start_run().push_notes(n).must_append().await);
    }
    let pages = read_tails(&cluster, &[tail(3, 0), tail(1, 2), tail(9, 0), tail(2, u64::MAX)]).await;
    let found: Vec<_> = pages.iter().map(|page| (&page.thread, page.head.0, &page.records[..])).collect();
    assert_eq!(
        found,
        [(&nth_thread(1), 3, &known[0][2..]), (&nth_thread(2), 4, &[][..]), (&nth_thread(3), 5, &known[2][..])],
        "a thread that does not exist is missing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_is_read_in_parts_without_a_gap() {
    let (store, database) = open_store().await;
    let cluster = start_cluster(&store, &database);
    let mut writer = LogWriter::new(&store, &store, 1).await;
    writer.start_run().push_notes(600);
    for _ in 0..20 {
        writer.push_note(&"word ".repeat(20_000));
    }
    let known = writer.must_append().await;
    let (mut read, mut pages) = (Vec::new(), 0);
    while read.len() < known.len() {
        let after = read.last().map_or(0, |record: &Record| record.seq.0);
        let [page] = &read_tails(&cluster, &[tail(1, after)]).await[..] else { panic!("one page") };
        assert!(!page.records.is_empty() && page.records.len() <= 256, "{} records", page.records.len());
        let bytes: usize = page.records.iter().map(Record::size_bytes).sum();
        assert!(page.records.len() == 1 || bytes < 400_000, "{bytes} bytes");
        read.extend(page.records.iter().cloned());
        pages += 1;
    }
    assert_eq!(read, known);
    assert!(pages > 20, "{pages} pages: the limit of bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_ends_a_tail() {
    let (store, database) = open_store().await;
    let cluster = start_cluster(&store, &database);
    for (n, damage) in [
        "DELETE FROM headwater.records WHERE seq = 4",
        "UPDATE headwater.records SET at = 0 WHERE seq = 4",
        "UPDATE headwater.records SET run = 0 WHERE seq = 4",
    ]
    .into_iter()
    .enumerate()
    {
        LogWriter::new(&store, &store, n).await.start_run().push_notes(6).must_append().await;
        database.execute(&format!("{damage} AND thread = (SELECT max(num) FROM headwater.threads);"));
        for (after, expected) in [(0, &[1, 2, 3][..]), (3, &[]), (4, &[5, 6, 7, 8])] {
            let pages = read_tails(&cluster, &[tail(n, after)]).await;
            assert_eq!(seqs(&pages[0].records), expected, "{damage}, after {after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_thread_can_be_claimed_at_once() {
    let database = TestDatabase::create();
    let open = async |name: &str| {
        PostgresStore::open(PostgresOptions { node: NodeId::from(name), ..options(&database) }).await.unwrap()
    };
    let (first, second) = (open("first").await, open("second").await);
    let _cluster = start_cluster(&first, &database);
    let old = create_thread(&first, 1).await.lease;
    let claim = async |store: &PostgresStore, name: &str| {
        store.claim(&test_user(), &nth_thread(1), &NodeId::from(name)).await.unwrap()
    };
    let ClaimOutcome::Granted(lease) = claim(&first, "first").await else { panic!("its own thread") };
    // A lease that is not the newest any more gives nothing away.
    first.release(&nth_thread(1), old);
    let other = create_thread(&first, 2).await.lease;
    first.release(&nth_thread(2), other);
    poll_until("the other thread is released", || {
        database.execute("SELECT count(*) FROM headwater.threads WHERE node IS NULL") == "1"
    })
    .await;
    assert!(matches!(claim(&second, "second").await, ClaimOutcome::Held { .. }));
    first.release(&nth_thread(1), lease);
    poll_until("the thread is released", || {
        database.execute("SELECT count(*) FROM headwater.threads WHERE node IS NULL") == "2"
    })
    .await;
    assert!(matches!(claim(&second, "second").await, ClaimOutcome::Granted(_)));
}
