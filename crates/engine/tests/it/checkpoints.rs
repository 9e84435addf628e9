//! Checkpoints: the end of a run writes that run, and the next turn need not read the others.

use crate::fake_ports::CheckpointSize;
use crate::fixtures::text_parts;
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use engine::{NewRun, StartedRun};
use model::ThreadId;
use model::task::TaskStatus;
use model::thread::{ThreadFold, ThreadReplay};
use rusqlite::Connection;
use std::path::Path;

/// A thread with this number of turns, each with the same input.
async fn thread_of_turns(test_engine: &TestEngine, turns: usize) -> ThreadId {
    let first = test_engine.start_run_of("demo", None, "hello").await;
    test_engine.wait_settled(&first).await;
    take_turns(test_engine, &first.thread, turns - 1).await;
    first.thread
}

async fn take_turns(test_engine: &TestEngine, thread: &ThreadId, turns: usize) {
    for _ in 0..turns {
        let run = test_engine.start_run_of("demo", Some(thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed);
    }
    test_engine.wait_idle().await;
}

/// The thread as its checkpoint has it, with the number of runs that have rows.
async fn read_checkpoint(test_engine: &TestEngine, thread: &ThreadId) -> (ThreadFold, usize) {
    let found = test_engine.engine.ports().directory.checkpoint(&test_engine.user, thread).await;
    let found = found.expect("readable").expect("there");
    let read = ThreadReplay::from_checkpoint(&found.body, found.runs.iter().map(|run| run.body.as_str()));
    (read.thread, read.stored_runs)
}

/// The thread as its log has it.
async fn replay_log(test_engine: &TestEngine, thread: &ThreadId) -> ThreadFold {
    let mut replay = ThreadReplay::default();
    test_engine.read_log(thread).await.iter().for_each(|record| replay.push(record));
    replay.thread
}

fn database(folder: &Path) -> Connection {
    Connection::open(folder.join("headwater.db")).expect("a database")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_run_writes_that_run_however_long_its_thread_is() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let thread = thread_of_turns(&test_engine, 2).await;
        let early = test_engine.journal.take_checkpoints();
        assert_eq!(early.iter().map(|written| written.runs).collect::<Vec<_>>(), [1, 1], "{kind:?}");
        take_turns(&test_engine, &thread, 100).await;
        let late: Vec<CheckpointSize> = test_engine.journal.take_checkpoints();
        let most = early.iter().map(|written| written.bytes).max().expect("two checkpoints");
        assert_eq!(late.len(), 100, "{kind:?}");
        for written in late {
            assert_eq!(written.runs, 1, "{kind:?}");
            assert!(written.bytes <= most + 16, "{kind:?}: {} bytes after {most}", written.bytes);
        }
        // Also by a process that has read the thread from its checkpoint.
        let test_engine = test_engine.restart().await;
        take_turns(&test_engine, &thread, 1).await;
        assert_eq!(test_engine.journal.take_checkpoints().iter().map(|written| written.runs).sum::<usize>(), 1);
        assert_eq!(read_checkpoint(&test_engine, &thread).await, (replay_log(&test_engine, &thread).await, 103));
    }
}

/// Data folders of older versions have all runs of a thread in the body of its checkpoint. They are read from there, and the
/// next end of a run gives each of them a row, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_an_older_version_is_read_and_divided_once() {
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let thread = thread_of_turns(&test_engine, 5).await;
    let kept = replay_log(&test_engine, &thread).await;
    let (env, _) = test_engine.stop().await;

    let mut old = serde_json::to_value(&kept).expect("JSON");
    old["runs"] = serde_json::to_value(&kept.runs).expect("JSON");
    let folder = database(env.folder.path());
    assert_eq!(folder.execute("UPDATE checkpoints SET body = ?1", [old.to_string()]).expect("SQL"), 1);
    let newer = "DROP TABLE checkpoint_runs; DROP TABLE condensed; DROP TABLE user_secrets; DROP TABLE mcp_pins;
        DROP TABLE records; CREATE TABLE records (
            pos INTEGER PRIMARY KEY, thread INTEGER NOT NULL, run INTEGER NOT NULL, seq INTEGER NOT NULL,
            at INTEGER NOT NULL, epoch INTEGER NOT NULL, v INTEGER NOT NULL, checksum INTEGER NOT NULL,
            public BLOB NOT NULL, private BLOB
        ) STRICT;
        PRAGMA user_version = 8;";
    folder.execute_batch(newer).expect("SQL");
    drop(folder);

    let test_engine = TestEngine::start_in(env, Default::default()).await;
    assert_eq!(read_checkpoint(&test_engine, &thread).await, (kept, 0));
    test_engine.journal.take_records_read();
    let run = test_engine.start_run_of("demo", Some(&thread), "hello").await;
    test_engine.wait_until(&run, |task| task.status == TaskStatus::Running || task.status.is_terminal()).await;
    assert_eq!(test_engine.models.last_request().history.len(), 11, "all five turns and this one");
    test_engine.wait_settled(&run).await;
    test_engine.wait_idle().await;
    take_turns(&test_engine, &thread, 1).await;
    let written: Vec<_> = test_engine.journal.take_checkpoints().iter().map(|written| written.runs).collect();
    assert_eq!(written, [6, 1]);
    assert_eq!(read_checkpoint(&test_engine, &thread).await, (replay_log(&test_engine, &thread).await, 7));
    let (env, _) = test_engine.stop().await;
    let report = store::verify_data_folder(env.folder.path()).expect("it can be looked at");
    assert!(report.is_clean(), "{report}");
}

/// A checkpoint is a cache: whatever is missing in it, the log has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_lacks_rows_is_written_again() {
    for damage in [
        "DELETE FROM checkpoint_runs WHERE idx = 1",
        "DELETE FROM checkpoint_runs WHERE idx = 4",
        "UPDATE checkpoint_runs SET body = '{' WHERE idx = 2",
        "UPDATE checkpoints SET body = 'nothing'",
        "DELETE FROM checkpoints",
    ] {
        let test_engine = TestEngine::new(StoreKind::Sqlite).await;
        let thread = thread_of_turns(&test_engine, 5).await;
        let (env, _) = test_engine.stop().await;
        assert_eq!(database(env.folder.path()).execute(damage, ()).expect("SQL"), 1, "{damage}");
        let test_engine = TestEngine::start_in(env, Default::default()).await;
        take_turns(&test_engine, &thread, 1).await;
        assert_eq!(test_engine.models.last_request().history.len(), 11, "{damage}");
        let expected = (replay_log(&test_engine, &thread).await, 6);
        assert_eq!(read_checkpoint(&test_engine, &thread).await, expected, "{damage}");
    }
}

/// The state of a thread that was just executed is still there: its next turn reads neither checkpoint nor log, and its
/// submission has claimed the thread. Without the state this would read the log, because there is no checkpoint any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_turn_of_a_recent_thread_reads_nothing() {
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let thread = thread_of_turns(&test_engine, 5).await;
    let folder = database(test_engine.env.folder.path());
    folder.busy_timeout(std::time::Duration::from_secs(10)).expect("a time-out");
    folder.execute_batch("DELETE FROM checkpoints; DELETE FROM checkpoint_runs;").expect("SQL");
    for turn in 6..9 {
        test_engine.journal.take_records_read();
        test_engine.journal.take_claims();
        let run = test_engine.start_run_of("demo", Some(&thread), "hello").await;
        test_engine.wait_idle().await;
        assert_eq!((test_engine.journal.take_records_read(), test_engine.journal.take_claims()), (0, 0), "turn {turn}");
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Completed);
        assert_eq!(test_engine.models.last_request().history.len(), 2 * turn - 1);
    }
}

/// An id can be used again after its thread was deleted. The new thread has nothing of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_is_created_again_knows_nothing_of_the_deleted_one() {
    for (kind, is_engine_told) in STORE_KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let test_engine = TestEngine::new(kind).await;
        let thread = thread_of_turns(&test_engine, 2).await;
        let deleted = if is_engine_told {
            test_engine.engine.delete_thread(&test_engine.user, &thread).await
        } else {
            // As if it was deleted just before its executor put it among the idle threads.
            let writer = test_engine.engine.ports().directory.writer(&test_engine.user).expect("writable");
            writer.delete_thread(&test_engine.user, &thread).await
        };
        assert!(deleted.expect("writable"));
        for turn in 1..=2 {
            let new = NewRun {
                agent: "demo".to_owned(),
                input: text_parts("secret"),
                thread: Some(thread.clone()),
                create_if_missing: true,
                ..NewRun::default()
            };
            let run: StartedRun = test_engine.engine.start(&test_engine.user, new).await.expect("the run is taken");
            assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
            test_engine.wait_idle().await;
            assert_eq!(test_engine.models.last_request().history.len(), 2 * turn - 1, "{kind:?}");
        }
    }
}
