//! A full disk: tools keep running, their results wait in memory until the disk has room, and no tool runs twice.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use engine::{NewRun, StartError};
use model::event::CancelMode;
use model::ports::{RecoveryAttempts as _, StorageSpace, StoreError, SubmitError};
use model::task::TaskStatus;
use model_testing::invariants;
use std::time::Duration;

/// The types of the events of a run that nothing disturbs.
async fn undisturbed() -> Vec<String> {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    test_engine.tools.release.add_permits(1);
    let run = test_engine.start_run(None, "held").await;
    assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed);
    test_engine.wait_idle().await;
    test_engine.event_types(&run.thread).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_come_while_the_disk_is_full_are_logged_later() {
    let expected = undisturbed().await;
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        test_engine.wait_for(|| test_engine.tools.call_count("hold") == 1).await;
        let before = test_engine.read_log(&run.thread).await;

        test_engine.env.set_space(StorageSpace::Full);
        test_engine.tools.release.add_permits(1);
        // The run reads the result and asks the model, though neither is on the disk.
        test_engine.wait_for(|| test_engine.models.turn_count() == 2).await;
        let refused = test_engine.engine.start(&test_engine.user, new_run()).await;
        assert!(
            matches!(refused, Err(StartError::Submit(SubmitError::Store(StoreError::NoSpace)))),
            "{kind:?}: {refused:?}"
        );
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: nothing is shown that is not durable");

        test_engine.env.set_space(StorageSpace::Available);
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        test_engine.wait_idle().await;
        let log = test_engine.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        assert_eq!(log[..before.len()], before);
        assert_eq!(test_engine.event_types(&run.thread).await, expected, "{kind:?}");
        assert_eq!((test_engine.tools.call_count("hold"), test_engine.models.turn_count()), (1, 2), "{kind:?}");
    }
}

fn new_run() -> NewRun {
    let input = crate::fixtures::text_parts("hello");
    NewRun { agent: "demo".to_owned(), input, ..NewRun::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_can_be_cancelled_while_the_disk_is_full() {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    let run = test_engine.start_run(None, "hang").await;
    test_engine.wait_for(|| test_engine.models.live_streams() == 1).await;
    test_engine.env.set_space(StorageSpace::Full);
    test_engine.cancel(&run.task, CancelMode::Immediate).await;
    test_engine.wait_for(|| test_engine.models.live_streams() == 0).await;
    test_engine.env.set_space(StorageSpace::Available);
    assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Cancelled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_stops_and_starts_while_the_disk_is_full() {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    let run = test_engine.start_run(None, "weather").await;
    let waiting = test_engine.start_run(None, "held").await;
    test_engine.wait_for(|| test_engine.tools.call_count("hold") == 1).await;
    test_engine.env.set_space(StorageSpace::Full);
    test_engine.tools.release.add_permits(1);
    test_engine.wait_for(|| test_engine.models.turn_count() >= 3).await;
    let stopping = tokio::time::timeout(Duration::from_secs(25), test_engine.restart()).await;
    let test_engine = stopping.expect("it stops although an append waits");

    // Recovery waits as well, and does not count as an attempt.
    assert_eq!((test_engine.engine.live_threads(), test_engine.models.turn_count()), (0, 0));
    assert!(test_engine.env.recovery_attempts.load().await.unwrap().is_empty());
    test_engine.env.set_space(StorageSpace::Available);
    for run in [&run, &waiting] {
        test_engine.wait_until(run, |object| object.status.is_terminal()).await;
    }
    test_engine.wait_idle().await;
    invariants::check_one_terminal_event(&test_engine.read_log(&waiting.thread).await).expect("law 9");
    assert_eq!(test_engine.tools.call_count("hold"), 1, "it is not idempotent");
}
