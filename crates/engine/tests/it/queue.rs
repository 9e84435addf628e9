//! A thread's queue: runs keep their order and can be removed.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use engine::{NewRun, OnBusy, StartError};
use model::content::ContentPart;
use model::event::{CancelMode, Event};
use model::task::TaskStatus;

/// The runs in the order in which they started, each with its first input.
async fn started_runs(test_engine: &TestEngine, thread: &model::ThreadId) -> Vec<(model::TaskId, String)> {
    let log = test_engine.read_log(thread).await;
    let created = log.iter().filter_map(|record| match record.event() {
        Event::Created(created) => {
            Some((record.run.clone(), serde_json::to_string(&created.task.input).expect("JSON")))
        }
        _ => None,
    });
    created.collect()
}

async fn wait_all_ended(test_engine: &TestEngine, thread: &model::ThreadId, runs: usize) {
    let all = async {
        loop {
            let log = test_engine.read_log(thread).await;
            if log.iter().filter(|record| record.event().is_terminal()).count() >= runs {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), all).await.expect("they end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removing_one_of_three_queued_runs_keeps_the_order() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&first.thread, "task.tool.started").await;
        let mut waiting = Vec::new();
        for word in ["one", "two", "three"] {
            waiting.push(test_engine.start_run(Some(&first.thread), word).await);
        }
        assert_eq!(test_engine.task_object(&waiting[1].task).await.status, TaskStatus::Queued, "{kind:?}");
        test_engine.cancel(&waiting[1].task, CancelMode::Immediate).await;
        while test_engine.task_object(&waiting[1].task).await.status != TaskStatus::Cancelled {
            tokio::task::yield_now().await;
        }
        test_engine.tools.release.add_permits(1);
        for run in [&first, &waiting[0], &waiting[2]] {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        let order: Vec<_> = started_runs(&test_engine, &first.thread).await.into_iter().map(|(run, _)| run).collect();
        assert_eq!(order, [&first, &waiting[0], &waiting[2]].map(|run| run.task.clone()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_active_run_is_found_behind_a_long_queue() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&first.thread, "task.tool.started").await;
        for _ in 0..150 {
            test_engine.start_run(Some(&first.thread), "more").await;
        }
        let new = NewRun { agent: "demo".to_owned(), thread: Some(first.thread.clone()), ..NewRun::default() };
        let new = NewRun { input: vec![ContentPart::text("now")], on_busy: OnBusy::Reject, ..new };
        let refused = test_engine.engine.start(&test_engine.user, new).await;
        assert!(matches!(refused, Err(StartError::Busy(busy)) if busy == first.task), "{kind:?}");
        test_engine.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_behind_a_paused_run_survives_a_restart() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&first).await;
        let mut waiting = Vec::new();
        for word in ["one", "two"] {
            waiting.push(test_engine.start_run(Some(&first.thread), word).await);
        }
        test_engine.wait_idle().await;
        let test_engine = test_engine.restart().await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.task_object(&waiting[0].task).await.status, TaskStatus::Queued, "{kind:?}");
        test_engine.approve(&paused).await;
        for run in &waiting {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        let order: Vec<_> = started_runs(&test_engine, &first.thread).await.into_iter().map(|(run, _)| run).collect();
        assert_eq!(order, [&first, &waiting[0], &waiting[1]].map(|run| run.task.clone()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steer_to_a_stopping_run_starts_the_next_one() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        test_engine.cancel(&run.task, CancelMode::AfterTurn).await;
        test_engine.wait_for_event(&run.thread, "task.cancelling").await;
        test_engine.steer(&run, "said too late").await;
        test_engine.tools.release.add_permits(1);
        wait_all_ended(&test_engine, &run.thread, 2).await;
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        let begun = started_runs(&test_engine, &run.thread).await;
        assert!(begun[1].1.contains("said too late"), "{kind:?}: {begun:?}");
        assert!(!test_engine.event_types(&run.thread).await.contains(&"task.input.added".to_owned()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steer_to_a_paused_run_is_read_in_its_next_turn() {
    for kind in STORE_KINDS {
        for restart in [false, true] {
            let mut test_engine = TestEngine::new(kind).await;
            let run = test_engine.start_run(None, "trade").await;
            let paused = test_engine.wait_settled(&run).await;
            test_engine.steer(&run, "by the way").await;
            test_engine.wait_idle().await;
            if restart {
                test_engine = test_engine.restart().await;
                test_engine.wait_idle().await;
            }
            test_engine.approve(&paused).await;
            test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
            assert!(format!("{:?}", test_engine.models.last_request().history).contains("by the way"), "{kind:?}");
            assert_eq!(started_runs(&test_engine, &run.thread).await.len(), 1, "{kind:?}");
            let kinds = test_engine.event_types(&run.thread).await;
            assert!(kinds.contains(&"task.input.added".to_owned()), "{kind:?}: {kinds:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steer_to_a_resumed_run_reaches_it() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        test_engine.steer(&run, "by the way").await;
        test_engine.wait_for_event(&run.thread, "task.input.added").await;
        test_engine.tools.release.add_permits(1);
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert!(format!("{:?}", test_engine.models.last_request().history).contains("by the way"), "{kind:?}");
        assert_eq!(started_runs(&test_engine, &run.thread).await.len(), 1, "{kind:?}");
    }
}

/// A row that waits is in memory: what arrives after it is read without it. The rows in the database are damaged once they
/// have been read, so decoding one of them again would fail, and the cancel would never be handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_wait_are_decoded_once() {
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let active = test_engine.start_run_of("silent", None, "hello").await;
    test_engine.wait_until(&active, |task| task.status == TaskStatus::Running).await;
    let mut queued = Vec::new();
    for _ in 0..70 {
        queued.push(test_engine.start_run_of("silent", Some(&active.thread), "hello").await);
    }
    // This one is handled at once, so all rows before it have been read.
    let last = queued.pop().expect("there are many");
    test_engine.cancel(&last.task, CancelMode::Immediate).await;
    test_engine.wait_settled(&last).await;
    let folder = rusqlite::Connection::open(test_engine.env.folder.path().join("headwater.db")).expect("a database");
    folder.busy_timeout(std::time::Duration::from_secs(10)).expect("a time-out");
    assert_eq!(folder.execute("UPDATE inbox SET command = '{'", ()).expect("SQL"), queued.len());

    test_engine.cancel(&active.task, CancelMode::Immediate).await;
    assert_eq!(test_engine.wait_settled(&active).await.status, TaskStatus::Cancelled);
    let next = &queued[0];
    test_engine.wait_until(next, |task| task.status == TaskStatus::Running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_takes_its_place_among_the_live_threads_before_it_is_stored() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let held = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&held.thread, "task.tool.started").await;
        let idle = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&idle).await;
        test_engine.wait_for(|| test_engine.engine.live_threads() == 1).await;
        let reserve = async |thread: Option<&model::ThreadId>| {
            test_engine.engine.reserve_start(&test_engine.user, thread, 3).await.expect("the store can be read")
        };
        let new = reserve(None).await.expect("the second place");
        // Several starts in one thread wait for each other, so they take one place.
        let same = [reserve(Some(&idle.thread)).await, reserve(Some(&idle.thread)).await];
        assert!(same.iter().all(Option::is_some), "{kind:?}");
        assert!(reserve(None).await.is_none(), "{kind:?}: all places are taken");
        assert!(reserve(Some(&held.thread)).await.is_some(), "{kind:?}: a run in a live thread is queued");
        drop(new);
        let other = reserve(None).await.expect("a start that failed leaves its place");
        drop(same);
        // From here its thread is counted, and not the start.
        let started = test_engine.start_run(None, "held").await;
        drop(other);
        assert!(reserve(None).await.is_some(), "{kind:?}: two of three");
        test_engine.tools.release.add_permits(2);
        for run in [&held, &started] {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
    }
}
