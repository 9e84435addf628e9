//! A connection that breaks during a COMMIT: the caller is told what happened, and nothing happens twice.

use super::options;
use super::proxy::{Effect, Fault, Proxy};
use super::writers::{in_time, poll_until};
use model::UserId;
use model::command::Command;
use model::limits::CostMicros;
use model::ports::{
    AppendOutcome, ApprovalRow, Day, DirectoryChange, Inbox as _, InboxWriter as _, PendingQuestions as _, Spend,
    StoreError, Submission, SubmitError, Submitted, Threads as _, UsageLedger as _,
};
use postgres_testing::{PostgresServer, TestDatabase};
use std::sync::Arc;
use std::time::Duration;
use store::{PostgresOptions, PostgresStore};
use store_conformance::fixtures::{
    LogWriter, approve, decide_command, new_thread_submission, nth_run, nth_thread, start_command, steer_command,
    submission, test_user, with_idempotency_key,
};
use tokio::task::block_in_place;

const DELAY: Effect = Effect::Delay(Duration::from_millis(600));
const TODAY: Day = Day(20_000);

struct ProxiedStore {
    store: Arc<PostgresStore>,
    proxy: Proxy,
    _database: TestDatabase,
}

async fn open_through_proxy() -> ProxiedStore {
    let database = TestDatabase::create();
    open_on(database, postgres_testing::shared()).await
}

async fn open_on(database: TestDatabase, server: &PostgresServer) -> ProxiedStore {
    let proxy = Proxy::start(server.port()).await;
    let url = proxy.url(database.name()).parse().unwrap();
    let store = PostgresStore::open(PostgresOptions { url, ..options(&database) }).await.unwrap();
    ProxiedStore { store: Arc::new(store), proxy, _database: database }
}

impl ProxiedStore {
    /// Waits until the effect of the `count`th fault is over.
    async fn wait_for_fault(&self, count: usize) {
        poll_until("the fault happens", || self.proxy.faults_done() >= count).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_commit_is_lost_is_applied_once() {
    let proxied = open_through_proxy().await;
    let store = &*proxied.store;
    let mut writer = LogWriter::new(store, store, 1).await;
    let mut known = writer.start_run().must_append().await;
    let mut appends = 0;
    for effect in [Effect::LoseRequest, Effect::LoseAnswer, DELAY] {
        for notes in [3, 0] {
            proxied.proxy.inject(Fault { after: "UPDATE headwater.threads", at: "COMMIT", effect });
            let spent = Spend { cost: CostMicros(1), ..Spend::default() };
            writer.changes.push(DirectoryChange::AddSpend { day: TODAY, spent });
            writer.push_notes(notes);
            let records = writer.records.clone();
            assert_eq!(in_time(writer.append()).await, AppendOutcome::Durable, "{effect:?} with {notes} records");
            known.extend(records);
            appends += 1;
            proxied.wait_for_fault(appends).await;
            assert_eq!(writer.read_all().await, known, "{effect:?} with {notes} records");
            let spent = store.daily_spend(&test_user(), TODAY).await.unwrap().cost;
            assert_eq!(spent, CostMicros(appends as u64), "{effect:?} with {notes} records");
            assert_eq!(store.stats().failures, appends as u64);
        }
    }
    writer.push_notes(1).must_append().await;
}

/// One that fails for good does not hide what was committed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_of_several_threads_tells_each_its_outcome() {
    let proxied = open_through_proxy().await;
    let store = &*proxied.store;
    let mut writers = Vec::new();
    for n in 1..=8 {
        let mut writer = LogWriter::new(store, store, n).await;
        writer.start_run().must_append().await;
        writers.push(writer);
    }
    for (round, effect) in [Effect::LoseRequest, Effect::LoseAnswer, DELAY].into_iter().enumerate() {
        // The first append occupies the writer, so that the others are committed together.
        proxied.proxy.inject(Fault { after: "INSERT INTO headwater.records", at: "COMMIT", effect });
        writers[7].lease.epoch = model::seq::Epoch(u64::MAX >> 1);
        let batches: Vec<_> = writers.iter_mut().map(|writer| writer.push_notes(2).batch()).collect();
        let appends: Vec<_> = batches.into_iter().map(|batch| model::ports::Journal::append(store, batch)).collect();
        for (n, append) in appends.into_iter().enumerate() {
            let expected = if n == 7 { AppendOutcome::Fenced } else { AppendOutcome::Durable };
            assert_eq!(in_time(append).await, expected, "{effect:?}, thread {}", n + 1);
        }
        proxied.wait_for_fault(round + 1).await;
        for writer in &mut writers {
            let records = std::mem::take(&mut writer.records);
            let head = 2 + 2 * (round as u64 + 1);
            let log = writer.read_all().await;
            if writer.thread == nth_thread(8) {
                assert_eq!(log.len(), 2);
            } else {
                writer.lease.head = model::seq::Seq(head);
                assert_eq!((log.len() as u64, &log[log.len() - 2..]), (head, &records[..]), "{effect:?}");
            }
        }
    }
}

/// A submission, and whether it took place.
struct Case {
    name: &'static str,
    submission: Submission,
    thread: usize,
}

async fn inbox_rows(store: &PostgresStore, thread: usize) -> usize {
    match store.inbox(&test_user(), &nth_thread(thread)).await {
        Ok(rows) => rows.len(),
        Err(StoreError::ThreadNotFound) => 0,
        Err(error) => panic!("{error}"),
    }
}

/// A thread whose run waits for a decision.
async fn request_approval(store: &PostgresStore, n: usize) -> ApprovalRow {
    let mut writer = LogWriter::new(store, store, n).await;
    let row = store.inbox(&test_user(), &nth_thread(n)).await.unwrap()[0].id;
    writer.changes.push(DirectoryChange::ConsumeInboxRow { row });
    writer.start_run();
    let question = writer.request_approval(1);
    writer.pause_run().must_append().await;
    question
}

/// Threads `n` to `n + 3`.
async fn submission_cases(store: &PostgresStore, n: usize) -> (Vec<Case>, ApprovalRow) {
    let start = |n: usize| new_thread_submission(&nth_thread(n), start_command(&nth_run(n)));
    let question = request_approval(store, n + 2).await;
    let decision = submission(&nth_thread(n + 2), decide_command(&question, &approve()));
    request_approval(store, n + 3).await;
    let steer: Command = steer_command(&nth_run(n + 3), "more");
    let cases = vec![
        Case { name: "start", submission: start(n), thread: n },
        Case {
            name: "start with key",
            submission: with_idempotency_key(start(n + 1), &format!("key {n}"), "digest"),
            thread: n + 1,
        },
        Case { name: "decision", submission: decision, thread: n + 2 },
        Case { name: "steer", submission: submission(&nth_thread(n + 3), steer), thread: n + 3 },
    ];
    (cases, question)
}

fn is_accepted(submitted: &Result<Submitted, SubmitError>) -> bool {
    matches!(submitted, Ok(Submitted::Claimed { .. } | Submitted::Queued))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_whose_commit_is_lost_tells_the_truth() {
    let proxied = open_through_proxy().await;
    let store = &*proxied.store;
    let mut faults = 0;
    let token = "headwater.commit_tokens";
    for (round, (at, effect, is_committed)) in [
        ("COMMIT", Effect::LoseRequest, false),
        ("COMMIT", Effect::LoseAnswer, true),
        // The lookup waits for the transaction.
        ("COMMIT", DELAY, true),
        // The lookup comes before the transaction's last statements.
        (token, DELAY, false),
        (token, Effect::LoseRequest, false),
    ]
    .into_iter()
    .enumerate()
    {
        let (cases, question) = submission_cases(store, 10 * (round + 1)).await;
        for Case { name, submission, thread } in cases {
            let context = format!("{name}: {effect:?} at {at}");
            proxied.proxy.inject(Fault { after: "INSERT INTO headwater.inbox", at, effect });
            let submitted = in_time(store.submit(&test_user(), submission.clone())).await;
            assert_eq!(is_accepted(&submitted), is_committed, "{context}: {submitted:?}");
            if let Err(error) = &submitted {
                assert!(matches!(error, SubmitError::Store(StoreError::Unavailable(_))), "{context}: {error}");
            }
            faults += 1;
            proxied.wait_for_fault(faults).await;
            assert_eq!(inbox_rows(store, thread).await, usize::from(is_committed), "{context}");
            if !is_committed {
                let again = store.submit(&test_user(), submission).await;
                assert!(is_accepted(&again), "{context}: {again:?}");
            } else if name == "start with key" {
                let again = store.submit(&test_user(), submission).await;
                assert!(matches!(again, Ok(Submitted::Duplicate { .. })), "{context}: {again:?}");
            }
            assert_eq!(inbox_rows(store, thread).await, 1, "{context}");
        }
        let decided = store.approval(&test_user(), &question.key).await.unwrap().unwrap();
        assert_eq!(decided.answer.unwrap().decision, approve());
    }
}

/// A server that crashes gives the ids of forgotten transactions to new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_submission_that_a_crash_has_undone_is_not_confirmed() {
    let mut server = PostgresServer::start();
    // Only a commit writes what the server has to remember of a transaction.
    server.set("wal_writer_delay", "10s");
    let proxied = open_on(TestDatabase::create_on(&server), &server).await;
    let owner: UserId = test_user();
    proxied.proxy.inject(Fault { after: "INSERT INTO headwater.inbox", at: "COMMIT", effect: Effect::Hold });
    let start = new_thread_submission(&nth_thread(1), start_command(&nth_run(1)));
    let submitting = tokio::spawn({
        let (store, owner) = (Arc::clone(&proxied.store), owner.clone());
        async move { store.submit(&owner, start).await }
    });
    proxied.proxy.wait_until_held().await;
    block_in_place(|| {
        server.crash();
        server.start_again();
        server.execute("postgres", &"SELECT pg_current_xact_id();".repeat(100));
    });
    proxied.proxy.release();
    let submitted = in_time(submitting).await.unwrap();
    assert!(matches!(submitted, Err(SubmitError::Store(StoreError::Unavailable(_)))), "{submitted:?}");
    assert_eq!(proxied.store.thread(&owner, &nth_thread(1)).await.unwrap(), None);
}
