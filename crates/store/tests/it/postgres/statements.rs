//! A commit takes the same number of statements and round trips whether one thread appends or many.

use super::options;
use super::proxy::Proxy;
use super::writers::in_time;
use futures_util::future::join_all;
use model::CallId;
use model::limits::CostMicros;
use model::ports::{AppendBatch, AppendOutcome, Day, DirectoryChange, Inbox as _, Journal as _, Spend};
use postgres_testing::TestDatabase;
use std::time::Duration;
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::{LogWriter, nth_checkpoint, nth_run, test_user};

const THREADS: usize = 200;

/// A batch that needs every statement.
async fn prepare_batch(store: &PostgresStore, n: usize) -> AppendBatch {
    let mut writer = LogWriter::new(store, store, n).await;
    let row = store.inbox(&test_user(), &writer.thread).await.unwrap()[0].id;
    writer.start_run();
    writer.request_approval(1);
    writer.complete_run();
    // This run was not queued.
    writer.run = nth_run(1_000 + n);
    writer.start_run();
    let spent = Spend { cost: CostMicros(1), ..Spend::default() };
    writer.changes.extend([
        DirectoryChange::ConsumeInboxRow { row },
        DirectoryChange::Checkpoint(nth_checkpoint(1, &[0])),
        DirectoryChange::ClientCallClosed { call: CallId::from("call") },
        DirectoryChange::AddSpend { day: Day(20_000), spent },
        DirectoryChange::ScheduleWakeup { at: Some(1_000_000) },
    ]);
    writer.batch()
}

/// The statements of each transaction that appended, without those of other connections.
fn append_transactions(statements: &[String]) -> Vec<Vec<String>> {
    let transactions = statements.split_inclusive(|statement| statement == "COMMIT");
    let appends = transactions.filter(|statements| statements.iter().any(|one| one.contains("headwater.records")));
    appends.map(<[String]>::to_vec).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_many_threads_takes_as_many_statements_as_one_of_a_single_thread() {
    let database = TestDatabase::create();
    let proxy = Proxy::start(postgres_testing::shared().port()).await;
    let url = proxy.url(database.name()).parse().unwrap();
    // No renewal comes in between.
    let options = PostgresOptions { url, lease: Duration::from_secs(3_600), ..options(&database) };
    let store = PostgresStore::open(options).await.unwrap();
    let first = prepare_batch(&store, 0).await;
    let batches = join_all((1..=THREADS).map(|n| prepare_batch(&store, n))).await;

    proxy.take_statements();
    assert_eq!(in_time(store.append(first)).await, AppendOutcome::Durable);
    let single = append_transactions(&proxy.take_statements());
    let [single] = &single[..] else { panic!("{} transactions for one append", single.len()) };
    for table in ["runs", "inbox", "checkpoints", "checkpoint_runs", "approvals", "client_results", "spent", "threads"]
    {
        assert!(single.iter().any(|statement| statement.contains(&format!("headwater.{table}"))), "{table}");
    }

    // While the first of them is committed, the others queue up.
    proxy.delay_answers(Duration::from_millis(100));
    let outcomes = in_time(join_all(batches.into_iter().map(|batch| store.append(batch)))).await;
    assert_eq!(outcomes, vec![AppendOutcome::Durable; THREADS]);
    let groups = append_transactions(&proxy.take_statements());
    assert!(groups.len() <= 3, "{} commits: the threads were not committed together", groups.len());
    assert!(store.stats().commits <= 4);
    for group in groups {
        assert_eq!(&group, single);
    }
}
