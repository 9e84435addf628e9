//! Laws 5, 7 and 8 while runs are live.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, line_view, record_lines, utf8_lossy};
use engine::NewRun;
use model::cursor::{Cursor, CursorError};
use model::ports::{AppendBatch, AppendOutcome};
use model::{NodeId, Record, Seq};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a viewer may wait for its next frame, on a slow machine too.
const NEXT_FRAME_MAX: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_5_resume_at_every_cursor_while_the_run_is_live() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "story 300").await;
        let mut live = Vec::new();
        // Viewers that attach at any moment and continue from where the previous one left.
        let mut cursor = Cursor::START;
        loop {
            let view = line_view(&run.task);
            let mut viewer =
                test_engine.engine.watch(&test_engine.user, &run.thread, view, &cursor).await.expect("it fits");
            let Some(bytes) = viewer.next().await.expect("the log can be read") else { break };
            live.extend_from_slice(&bytes);
            cursor = Cursor { seq: viewer.cursor(), checksum: None, frame: None };
            if utf8_lossy(bytes).contains("task.completed") {
                break;
            }
        }
        let log = test_engine.read_log(&run.thread).await;
        assert_eq!(utf8_lossy(live), record_lines(&log), "{kind:?}: taken over in the middle");
        for record in &log {
            let rest: Vec<Record> = log.iter().filter(|later| later.seq > record.seq).cloned().collect();
            if !rest.is_empty() {
                let seen = test_engine.watch_to_end(&run, Cursor::from(record)).await;
                assert_eq!(utf8_lossy(seen), record_lines(&rest), "{kind:?}: after {}", record.seq);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_7_nothing_is_shown_before_it_is_durable() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        test_engine.journal.hold_appends();
        let run = test_engine.start_run(None, "story 20").await;
        let view = line_view(&run.task);
        let mut viewer =
            test_engine.engine.watch(&test_engine.user, &run.thread, view, &Cursor::START).await.expect("it fits");
        let early = timeout(Duration::from_millis(200), viewer.next()).await;
        assert!(early.is_err(), "{kind:?}: a viewer was shown {early:?} while nothing was durable");
        assert!(test_engine.read_log(&run.thread).await.is_empty());
        let mut seen = String::new();
        while !seen.contains("task.completed") {
            test_engine.journal.release_appends(1);
            // A viewer that was woken too early has missed its wake-up: a bound turns that into a failure instead of a hang.
            let next = timeout(NEXT_FRAME_MAX, viewer.next()).await.expect("a commit wakes the viewer");
            let bytes = next.expect("the log can be read").expect("the run goes on");
            seen.push_str(&utf8_lossy(bytes));
            let durable = record_lines(&test_engine.read_log(&run.thread).await);
            assert!(durable.starts_with(&seen), "{kind:?}: shown {seen:?}, durable {durable:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_8_an_executor_that_lost_its_thread_appends_nothing() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hang").await;
        let mut viewer = test_engine
            .engine
            .watch(&test_engine.user, &run.thread, line_view(&run.task), &Cursor::START)
            .await
            .expect("it fits");
        let mut seen = String::new();
        while !seen.contains("task.text.delta") {
            seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
        }
        // Another node claims the thread without telling the executor here.
        let journal = &test_engine.engine.ports().journal;
        let before = test_engine.read_log(&run.thread).await;
        let old = before.last().expect("records").epoch;
        let lease = journal.claim(&test_engine.user, &run.thread, &NodeId::from("node-2")).await.expect("claimed");
        let lease = lease.lease().expect("nobody else holds it");
        assert!(lease.epoch > old, "{kind:?}");
        let batch = AppendBatch {
            owner: test_engine.user.clone(),
            thread: run.thread.clone(),
            epoch: old,
            head: lease.head,
            records: Arc::default(),
            changes: Arc::default(),
        };
        assert_eq!(journal.append(batch).await, AppendOutcome::Fenced, "{kind:?}");
        test_engine.cancel(&run.task, Default::default()).await;
        // Its append is refused; it folds the log again under a newer epoch, continues, and finds the cancel again.
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status.as_str(), "cancelled", "{kind:?}");
        let log = test_engine.read_log(&run.thread).await;
        let last = log.last().expect("records");
        assert!(last.epoch > lease.epoch, "{kind:?}: {:?} after {:?}", last.epoch, lease.epoch);
        assert_eq!(log[..before.len()], before[..], "{kind:?}: what was durable stays");
    }
}

#[tokio::test]
async fn invalid_cursors_are_refused() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hello").await;
        let other = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&run).await;
        test_engine.wait_settled(&other).await;
        let log = test_engine.read_log(&run.thread).await;
        let head = log.last().expect("records").seq;
        let refused = async |thread, cursor: Cursor| {
            let view = line_view(&run.task);
            match test_engine.engine.watch(&test_engine.user, thread, view, &cursor).await {
                Err(engine::WatchError::Cursor(error)) => error,
                _ => panic!("{cursor} was taken"),
            }
        };
        for asked in [head.next(), Seq(u64::MAX)] {
            let cursor = Cursor { seq: asked, checksum: None, frame: None };
            assert_eq!(refused(&run.thread, cursor).await, CursorError::Ahead { asked, head });
        }
        for record in &log {
            assert_eq!(refused(&other.thread, Cursor::from(record)).await, CursorError::Mismatch, "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_restart_and_a_fold_without_checkpoints_give_the_same_task_object() {
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let first = test_engine.start_run(None, "weather").await;
    let before = test_engine.wait_settled(&first).await;
    let test_engine = test_engine.restart().await;
    assert_eq!(test_engine.task_object(&first.task).await, before);
    let second = test_engine.start_run(Some(&first.thread), "weather").await;
    let after = test_engine.wait_settled(&second).await;
    assert_eq!(after.status.as_str(), "completed");
    let again = test_engine.engine.start(&test_engine.user, NewRun::default()).await;
    assert!(again.is_err(), "an agent without a name does not exist");
}
