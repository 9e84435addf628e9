//! Several nodes on one database: who holds a thread, until when, and what happens to a node that is too late.
//!
//! All times are the database's. There is no test of a node with a wrong clock, because no statement has a time of the node's.

use super::proxy::{Effect, Fault, Proxy};
use super::writers::{PROGRESS_MAX, in_time, poll_until};
use super::{create_thread, options};
use model::NodeId;
use model::ports::{AppendOutcome, ClaimOutcome, Cluster as _, Inbox as _, Journal as _, Lease};
use model::seq::Millis;
use postgres_testing::{TestDatabase, shared};
use std::time::{Duration, Instant};
use store::{PostgresCluster, PostgresOptions, PostgresStore};
use store_conformance::fixtures::{LogWriter, nth_thread, test_user};

const SHORT: Duration = Duration::from_millis(1_500);

fn node(name: &str) -> NodeId {
    NodeId::from(name)
}

async fn open_node(database: &TestDatabase, name: &str, lease: Duration) -> PostgresStore {
    PostgresStore::open(PostgresOptions { node: node(name), lease, ..options(database) }).await.unwrap()
}

/// A node whose connections go through a proxy.
async fn open_node_behind(proxy: &Proxy, database: &TestDatabase, name: &str, lease: Duration) -> PostgresStore {
    let url = proxy.url(database.name()).parse().unwrap();
    PostgresStore::open(PostgresOptions { url, node: node(name), lease, ..options(database) }).await.unwrap()
}

fn database_time(database: &TestDatabase) -> Millis {
    database.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").parse().unwrap()
}

fn lease_until(database: &TestDatabase, name: &str) -> Millis {
    let sql =
        format!("SELECT (extract(epoch FROM lease_until) * 1000)::bigint FROM headwater.nodes WHERE id = '{name}'");
    database.execute(&sql).parse().unwrap()
}

async fn claim(store: &PostgresStore, n: usize, name: &str) -> ClaimOutcome {
    store.claim(&test_user(), &nth_thread(n), &node(name)).await.unwrap()
}

/// Claims until the other node's lease has expired. Returns the last expiry that was named, and the lease.
async fn claim_when_expired(store: &PostgresStore, n: usize, name: &str) -> (Option<Millis>, Lease) {
    let begun = Instant::now();
    let mut last = None;
    loop {
        match claim(store, n, name).await {
            ClaimOutcome::Granted(lease) => return (last, lease),
            ClaimOutcome::Held { until, .. } => last = Some(until),
        }
        assert!(begun.elapsed() < PROGRESS_MAX, "the lease does not expire");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_names_the_holder_and_the_expiry_by_the_clock_of_the_database() {
    let database = TestDatabase::create();
    let first = open_node(&database, "first", PostgresOptions::LEASE).await;
    let second = open_node(&database, "second", PostgresOptions::LEASE).await;
    let mut writer = create_thread(&first, 1).await;
    let before = lease_until(&database, "first");
    let ClaimOutcome::Held { node: holder, until } = claim(&second, 1, "second").await else {
        panic!("a valid lease was ignored")
    };
    assert_eq!(holder, node("first"));
    assert!((before..=lease_until(&database, "first")).contains(&until), "{until} is not the expiry in the database");
    assert!(until > database_time(&database));
    writer.start_run().push_notes(2).must_append().await;
    // A lease is renewed while the node runs.
    poll_until("the lease is renewed", || lease_until(&database, "first") > until).await;
    assert!(matches!(claim(&second, 1, "second").await, ClaimOutcome::Held { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_loses_its_threads_and_is_fenced() {
    let database = TestDatabase::create();
    let proxy = Proxy::start(shared().port()).await;
    let first = open_node_behind(&proxy, &database, "first", SHORT).await;
    let cluster = PostgresCluster::start(&first, &proxy.url(database.name()).parse().unwrap()).unwrap();
    let second = open_node(&database, "second", SHORT).await;
    let mut writer = create_thread(&first, 1).await;
    let known = writer.start_run().must_append().await;
    assert!(cluster.holds_leases());

    proxy.set_frozen(true);
    let (until, lease) = claim_when_expired(&second, 1, "second").await;
    assert!(!cluster.holds_leases(), "a node knows that others may take its threads over");
    assert!(until.is_none_or(|until| database_time(&database) >= until), "the lease was taken over too early");
    assert!(lease.epoch > writer.lease.epoch && lease.head == writer.lease.head);
    let waiting = first.append(writer.push_notes(3).batch());
    let mut successor = LogWriter::with_lease(&second, test_user(), 1, lease);
    let more = successor.push_notes(1).must_append().await;

    proxy.set_frozen(false);
    assert_eq!(in_time(waiting).await, AppendOutcome::Fenced);
    assert_eq!(successor.read_all().await, [known, more].concat());
    poll_until("the node has a lease again", || cluster.holds_leases()).await;
    assert_eq!(first.append(writer.batch()).await, AppendOutcome::Fenced, "a renewed lease gives no thread back");
    assert!(
        matches!(claim(&first, 1, "first").await, ClaimOutcome::Held { node: holder, .. } if holder == node("second"))
    );
    create_thread(&first, 2).await.start_run().must_append().await;
}

/// The server ends the transaction of a node that fell silent, so that the lock of the thread is free.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_comes_after_the_takeover_changes_nothing() {
    let database = TestDatabase::create();
    let proxy = Proxy::start(shared().port()).await;
    let first = open_node_behind(&proxy, &database, "first", SHORT).await;
    let second = open_node(&database, "second", SHORT).await;
    let mut writer = create_thread(&first, 1).await;
    let known = writer.start_run().must_append().await;
    proxy.inject(Fault { after: "INSERT INTO headwater.records", at: "COMMIT", effect: Effect::Hold });
    let waiting = first.append(writer.push_notes(3).batch());
    proxy.wait_until_held().await;
    proxy.set_frozen(true);
    // Before the lock is free, a claim fails.
    let begun = Instant::now();
    let lease = loop {
        match second.claim(&test_user(), &nth_thread(1), &node("second")).await {
            Ok(ClaimOutcome::Granted(lease)) => break lease,
            Ok(ClaimOutcome::Held { .. }) | Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(begun.elapsed() < PROGRESS_MAX, "the lock is never free");
    };
    proxy.release();
    proxy.set_frozen(false);
    assert_eq!(in_time(waiting).await, AppendOutcome::Fenced);
    let mut successor = LogWriter::with_lease(&second, test_user(), 1, lease);
    let more = successor.push_notes(1).must_append().await;
    assert_eq!(successor.read_all().await, [known, more].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_gives_the_threads_up_at_once() {
    let database = TestDatabase::create();
    let hour = Duration::from_secs(3_600);
    let first = open_node(&database, "first", hour).await;
    let second = open_node(&database, "second", hour).await;
    create_thread(&first, 1).await.start_run().must_append().await;
    assert!(matches!(claim(&second, 1, "second").await, ClaimOutcome::Held { .. }));
    first.close().await;
    assert!(matches!(claim(&second, 1, "second").await, ClaimOutcome::Granted(_)));
}

/// A process that ended without closing, and its successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_node_need_not_wait_for_its_own_lease() {
    let database = TestDatabase::create();
    let hour = Duration::from_secs(3_600);
    let first = open_node(&database, "node-1/a", hour).await;
    create_thread(&first, 1).await.start_run().must_append().await;
    drop(first);
    let other = open_node(&database, "node-11/a", hour).await;
    assert!(matches!(claim(&other, 1, "node-11/a").await, ClaimOutcome::Held { .. }));
    let options = PostgresOptions {
        node: node("node-1/b"),
        predecessors: Some("node-1/".to_owned()),
        lease: hour,
        ..options(&database)
    };
    let restarted = PostgresStore::open(options).await.unwrap();
    assert!(matches!(claim(&restarted, 1, "node-1/b").await, ClaimOutcome::Granted(_)));
    create_thread(&other, 2).await;
    assert!(
        matches!(claim(&restarted, 2, "node-1/b").await, ClaimOutcome::Held { node: holder, .. } if holder == node("node-11/a"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_another_node_holds_are_not_claimable() {
    let database = TestDatabase::create();
    let first = open_node(&database, "first", PostgresOptions::LEASE).await;
    let second = open_node(&database, "second", PostgresOptions::LEASE).await;
    for n in 1..=2 {
        create_thread(&first, n).await;
    }
    create_thread(&second, 3).await;
    let threads = async |store: &PostgresStore| {
        let claimable = store.claimable_threads().await.unwrap();
        claimable.into_iter().map(|(_, thread)| thread).collect::<Vec<_>>()
    };
    assert_eq!(threads(&first).await, [nth_thread(1), nth_thread(2)]);
    assert_eq!(threads(&second).await, [nth_thread(3)]);
    first.close().await;
    assert_eq!(threads(&second).await, [nth_thread(1), nth_thread(2), nth_thread(3)]);
}
