//! A database beside its nodes: keys, logged runs, and what `headwater verify` finds.

use crate::logged::{long_run, read_some, read_to_error};
use crate::postgres::options;
use model::event::{Event, StateSnapshot};
use model::ports::{
    AccessKeyRow, Accounts as _, AliasKind, AttachmentWriter as _, InboxWriter as _, StoreError, ThreadWriter as _,
};
use model::record::Record;
use model_testing::{Rng, test_seeds};
use postgres_testing::TestDatabase;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::{DatabaseUrl, LoggedRun, PostgresClient, PostgresStore};
use store_conformance::attachments::nth_attachment;
use store_conformance::blobs::{nth_blob, nth_hash};
use store_conformance::fixtures::{
    LogWriter, approve, decide_command, new_thread_submission, nth_checkpoint, nth_run, nth_thread, other_user,
    start_command, submission, test_user,
};
use store_conformance::random_log::RandomLogWriter;
use store_conformance::restart::write_before_restart;
use store_conformance::threads::nth_alias;

async fn open() -> (PostgresStore, TestDatabase) {
    let database = TestDatabase::create();
    (PostgresStore::open(options(&database)).await.unwrap(), database)
}

fn url(database: &TestDatabase) -> DatabaseUrl {
    database.url().parse().unwrap()
}

async fn reader(database: &TestDatabase) -> PostgresClient {
    PostgresClient::open_for_reading(&url(database)).await.unwrap()
}

async fn records(run: &LoggedRun) -> Vec<Record> {
    read_some(&mut run.records(), usize::MAX).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_no_node_and_creates_the_schema_only_when_asked() {
    let database = TestDatabase::create();
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'";
    for error in [
        PostgresClient::open(&url(&database)).await.unwrap_err(),
        PostgresClient::open_for_reading(&url(&database)).await.unwrap_err(),
    ] {
        let place = url(&database).place();
        let said =
            format!("the database at {place} has no data of Headwater: check the URL, or start a server with it first");
        assert_eq!(error.to_string(), said);
    }
    assert_eq!(database.execute(schema).trim(), "0");

    let client = PostgresClient::open_or_create(&url(&database)).await.unwrap();
    let key = AccessKeyRow {
        id: "key_1".to_owned(),
        user: test_user(),
        digest: "digest".to_owned(),
        created_at: 1,
        revoked_at: None,
    };
    client.create_access_key(key.clone()).await.unwrap();
    assert_eq!(database.execute("SELECT count(*) FROM headwater.nodes").trim(), "0");
    let store = PostgresStore::open(options(&database)).await.unwrap();
    assert_eq!(store.access_keys().await.unwrap(), [key]);
    assert!(PostgresClient::open(&url(&database)).await.unwrap().revoke_access_key("key_1", 7).await.unwrap());
    assert_eq!(store.access_keys().await.unwrap()[0].revoked_at, Some(7));
    assert_eq!(database.execute("SELECT count(*) FROM headwater.nodes").trim(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_readable_while_active_and_after_its_end() {
    let (store, database) = open().await;
    let client = reader(&database).await;
    let (mut author, mut all) = long_run(&store).await;
    let active = client.find_logged_run(&nth_run(1)).await.unwrap().unwrap();
    assert_eq!((&active.owner, &active.thread, active.has_ended), (&other_user(), &nth_thread(1), false));
    let mut reading = active.records();
    let half = read_some(&mut reading, 2_000).await;
    let before = all.len();
    all.extend(author.complete_run().must_append().await);
    let rest = read_some(&mut reading, usize::MAX).await;
    assert_eq!([half, rest].concat(), all[..before], "as far as it was when it was asked for");

    let ended = client.find_logged_run(&nth_run(1)).await.unwrap().unwrap();
    assert!(ended.has_ended);
    assert_eq!(records(&ended).await, all);
    store.close().await;
    assert_eq!(records(&ended).await, all, "without a node, too");

    assert!(client.find_logged_run(&nth_run(9)).await.unwrap().is_none());
    database.execute("UPDATE headwater.records SET public = '{}' WHERE seq = 4990");
    let (read, error) = read_to_error(&ended).await;
    assert!(matches!(error, StoreError::Corrupt { seq: model::Seq(4990), .. }), "{error}");
    assert_eq!(read, all[..4989]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_run_has_no_records_and_a_run_sees_the_blobs_of_its_owner_only() {
    let (store, database) = open().await;
    let client = reader(&database).await;
    store.submit(&test_user(), new_thread_submission(&nth_thread(1), start_command(&nth_run(1)))).await.unwrap();
    let queued = client.find_logged_run(&nth_run(1)).await.unwrap().unwrap();
    assert_eq!((queued.has_ended, queued.seq_range), (false, None));
    assert!(queued.records().next().await.is_none());
    for (owner, n) in [(test_user(), 1), (other_user(), 2)] {
        store.commit_blob(&owner, &nth_thread(1), nth_blob(n, n, 7), None).await.unwrap();
    }
    assert_eq!(queued.find_blob(&nth_hash(1)).await, Ok(Some(nth_blob(1, 1, 7))));
    assert_eq!(queued.find_blob(&nth_hash(2)).await, Ok(None));
    store.delete_thread(&test_user(), &nth_thread(1)).await.unwrap();
    assert_eq!(queued.find_blob(&nth_hash(1)).await, Ok(None), "no thread uses it any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_database_verifies_and_stays_as_it_is() {
    let (store, database) = open().await;
    write_before_restart(&store, &store).await;
    store.close().await;
    let dump = |table: &str| database.execute(&format!("SELECT * FROM headwater.{table} ORDER BY 1, 2"));
    let before = ["threads", "runs", "records", "attachments"].map(dump);
    let report = reader(&database).await.verify().await.unwrap();
    assert_eq!(report.problems, [""; 0]);
    assert_eq!((report.threads, report.runs), (6, 7));
    assert_eq!(["threads", "runs", "records", "attachments"].map(dump), before);
    let files = reader(&database).await.stored_files().await.unwrap();
    let unfinished = [nth_blob(2, 2, 20).path, "expected".to_owned()].map(|path| (test_user(), path));
    assert_eq!(files.stale, unfinished);
    assert_eq!(files.committed, [nth_blob(1, 1, 10), nth_attachment(1, 7)].map(|row| (test_user(), row)));
    assert_eq!(files.unlinked, 0);
}

/// Two threads, of which one has ended, a question, an answer, an alias, a checkpoint and files.
async fn write_some_of_everything(store: &PostgresStore) {
    for n in 1..=2 {
        let mut author = LogWriter::new(store, store, n).await;
        author.start_run().push_notes(3).must_append().await;
        if n == 1 {
            author.changes.push(model::ports::DirectoryChange::Checkpoint(nth_checkpoint(3, &[0])));
            author.complete_run().must_append().await;
        } else {
            let asked = author.request_approval(1);
            author.request_approval(2);
            author.must_append().await;
            let decision = submission(&nth_thread(2), decide_command(&asked, &approve()));
            store.submit(&test_user(), decision).await.unwrap();
        }
    }
    store.create_alias(&test_user(), nth_alias(AliasKind::Conversation, "older than its thread", 9)).await.unwrap();
    store.commit_blob(&test_user(), &nth_thread(1), nth_blob(1, 1, 10), None).await.unwrap();
    store.commit_attachment(&test_user(), nth_attachment(1, 7), None).await.unwrap();
    store.link_attachment(&test_user(), &nth_thread(1), &nth_attachment(1, 7).path).await.unwrap();
}

/// A change of one row, and a part of the problem that it is.
const LIES: [(&str, &str); 38] = [
    ("UPDATE records SET public = '{}' WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("UPDATE records SET private = '{}' WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("UPDATE records SET at = at + 1 WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("UPDATE records SET epoch = epoch - 1 WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("UPDATE records SET run = 99 WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("DELETE FROM records WHERE thread = 1 AND seq = 4", "is damaged at record 4"),
    ("DELETE FROM records WHERE thread = 1 AND seq = 6", "is damaged at record 6"),
    ("UPDATE records SET thread = 99 WHERE thread = 2 AND seq = 7", "1 rows of records belong to no thread"),
    ("UPDATE threads SET head = head - 1 WHERE num = 1", "its row says that it has 5 records, but they are 1 to 6"),
    ("UPDATE records SET seq = 0 WHERE thread = 2 AND seq = 7", "is damaged at record 7"),
    (
        "INSERT INTO records SELECT thread, 9, run, at, epoch, format, checksum, public, private FROM records
      WHERE thread = 1 AND seq = 6",
        "its row says that it has 6 records, but they are 1 to 9",
    ),
    ("UPDATE threads SET log_bytes = log_bytes + 1 WHERE num = 1", "its row says that its records have"),
    ("UPDATE threads SET appends = 0 WHERE num = 1", "its row counts no appends, but it has records"),
    ("UPDATE threads SET epoch = 0 WHERE num = 1", "its last record has a newer epoch than its row"),
    ("UPDATE checkpoints SET seq = 7", "its checkpoint is of record 7, but it has 6 records"),
    ("DELETE FROM checkpoints", "it has runs of a checkpoint, but no checkpoint"),
    ("UPDATE runs SET ended_at = NULL WHERE status = 'completed'", "the row of run"),
    ("UPDATE runs SET first_seq = 2 WHERE status = 'completed'", "the row of run"),
    ("UPDATE runs SET status = 'paused' WHERE status = 'running'", "the row of run"),
    ("UPDATE runs SET status = 'completed', ended_at = 1 WHERE status = 'running'", "the row of run"),
    ("UPDATE runs SET status = 'asleep' WHERE status = 'running'", "has no state that there is: asleep"),
    ("UPDATE inbox SET thread = 99 WHERE id = 1", "1 rows of inbox belong to no thread"),
    ("UPDATE inbox SET command = '{}' WHERE id = 1", "inbox row 1 is not a command"),
    ("INSERT INTO checkpoint_runs VALUES (99, 0, '{}')", "1 rows of checkpoint_runs belong to no thread"),
    ("INSERT INTO shares VALUES ('share_1', 99, '', NULL, 1, 2, NULL)", "1 rows of shares belong to no thread"),
    ("UPDATE approvals SET thread = 1 WHERE answer IS NULL", "is asked by no run of its thread"),
    ("UPDATE approvals SET owner = 'stranger' WHERE answer IS NULL", "is asked by no run of its thread"),
    ("UPDATE approvals SET action = '{}' WHERE answer IS NULL", "does not say what would be done"),
    ("UPDATE approvals SET answer = '{}' WHERE answer IS NOT NULL", "has an answer that is none"),
    ("UPDATE aliases SET thread = 'nothing'", "stands for no thread that there can be"),
    ("UPDATE attachment_sums SET bytes = bytes + 1", "the files of somebody are summed up wrongly"),
    ("UPDATE attachments SET hash = 'abc' WHERE hash IS NOT NULL", "has no hash that there can be"),
    (
        "INSERT INTO attachments SELECT owner, 'again', '', '', 0, 1, hash, false FROM attachments WHERE hash IS NOT NULL",
        "has it twice",
    ),
    ("UPDATE attachments SET released = true WHERE hash IS NOT NULL", "is there, and is not"),
    ("DELETE FROM attachment_links WHERE path LIKE 'blobs/%'", "no thread uses the blob blobs/0001"),
    ("DELETE FROM attachments WHERE path = 'files/1'", "uses a file that is not there"),
    ("UPDATE attachments SET bytes = 8 WHERE path = 'files/1'", "the files of somebody are summed up wrongly"),
    ("DELETE FROM runs WHERE status = 'completed'", "is damaged at record 1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn verify_detects_rows_that_contradict_the_log() {
    for (lie, problem) in LIES {
        let (store, database) = open().await;
        write_some_of_everything(&store).await;
        let client = reader(&database).await;
        let report = client.verify().await.unwrap();
        assert_eq!(report.to_string(), "2 threads, 2 runs, 13 records\nno damage found");
        store.close().await;
        let lie = format!(
            "SET search_path = headwater; DROP INDEX blobs_of_owner;
             DO $$ DECLARE changed int; BEGIN {lie}; GET DIAGNOSTICS changed = ROW_COUNT;
             IF changed <> 1 THEN RAISE EXCEPTION 'changed % rows', changed; END IF; END $$"
        );
        database.execute(&lie);
        let report = client.verify().await.unwrap();
        assert!(report.problems.iter().any(|line| line.contains(problem)), "{lie}: {report}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_detects_records_that_do_not_fit_each_other() {
    let (store, database) = open().await;
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().complete_run().must_append().await;
    let again = store_conformance::fixtures::completed_event(&author.run);
    author.push_event(again).must_append().await;
    let mut other = LogWriter::new(&store, &store, 2).await;
    other.start_run();
    let image = format!("/v1/blobs/{}", nth_hash(1));
    let state = serde_json::json!({ "no image": image });
    other.push_event(Event::StateSnapshot(StateSnapshot { task_id: other.run.clone(), state })).must_append().await;
    let report = reader(&database).await.verify().await.unwrap();
    assert_eq!(report.problems, [format!("{}: record 4 is of a task, but no run goes on", nth_thread(1))]);
}

/// Threads grow, end and are deleted while they are checked.
#[tokio::test(flavor = "multi_thread")]
async fn verify_raises_no_false_alarm_beside_a_busy_node() {
    let (store, database) = open().await;
    let client = reader(&database).await;
    let is_done = AtomicBool::new(false);
    let seeds: Vec<u64> = test_seeds().step_by(12).collect();
    let working = async {
        for &seed in &seeds {
            println!("seed {seed}");
            let mut rng = Rng::new(seed);
            let mut log = RandomLogWriter::new(&store, &store, seed).await;
            let mut author = LogWriter::for_owner(&store, &store, other_user(), 1).await;
            author.start_run();
            let blob = usize::try_from(seed).unwrap();
            store.commit_blob(&other_user(), &nth_thread(1), nth_blob(blob, blob, 7), None).await.unwrap();
            while log.appended_len() < log.records.len() {
                log.append(rng.between(1, 40) as usize).await;
                author.push_notes(3).must_append().await;
            }
            author.complete_run().must_append().await;
            store.delete_thread(&other_user(), &nth_thread(1)).await.unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    };
    let checking = async {
        let mut checks = 0;
        loop {
            let is_last = is_done.load(Ordering::Relaxed) && checks > 2;
            let report = client.verify().await.unwrap();
            assert_eq!(report.problems, [""; 0], "check {checks}");
            checks += 1;
            if is_last {
                return report;
            }
        }
    };
    let ((), report) = tokio::join!(working, checking);
    assert_eq!(report.threads, seeds.len() as u64, "{report}");
}

/// A snapshot must not outlast the command that was killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_leaves_no_transaction_behind() {
    let (store, database) = open().await;
    write_before_restart(&store, &store).await;
    let client = reader(&database).await;
    client.verify().await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
    assert_eq!(database.execute(open).trim(), "0");
    {
        let mut half = Box::pin(client.verify());
        let _cut = tokio::time::timeout(Duration::from_millis(5), &mut half).await;
    }
    let began = tokio::time::Instant::now();
    while database.execute(open).trim() != "0" {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
