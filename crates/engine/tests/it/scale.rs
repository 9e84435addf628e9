//! Scale: long threads open quickly, and many cancels leave nothing behind.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use model::event::CancelMode;
use model::task::TaskStatus;
use model::thread::ThreadReplay;
use std::time::Duration;

async fn opening_a_thread_reads_only_its_last_run(kind: StoreKind, turns: usize) {
    let test_engine = TestEngine::new(kind).await;
    let first = test_engine.start_run_of("forgetful", None, "hello").await;
    test_engine.wait_settled(&first).await;
    // Several at a time, so that the thread is not opened for each of them.
    for batch in (1..turns).collect::<Vec<_>>().chunks(37) {
        let mut last = None;
        for _ in batch {
            last = Some(test_engine.start_run_of("forgetful", Some(&first.thread), "hello").await);
        }
        let last = last.expect("a batch is not empty");
        assert_eq!(test_engine.wait_settled(&last).await.status, TaskStatus::Completed);
    }
    test_engine.wait_idle().await;
    let log = test_engine.read_log(&first.thread).await;
    let mut replay = ThreadReplay::default();
    log.iter().for_each(|record| replay.push(record));
    assert_eq!(replay.thread.runs.len(), turns);
    let directory = &test_engine.engine.ports().directory;
    let kept = directory.checkpoint(&test_engine.user, &first.thread).await.expect("readable").expect("there");
    let rows = kept.runs.iter().map(|run| run.body.as_str());
    let kept = ThreadReplay::from_checkpoint(&kept.body, rows);
    assert_eq!((kept.thread, kept.stored_runs), (replay.thread, turns), "the log alone says the same");

    // After the checkpoint there is nothing but the run that has not ended.
    let test_engine = test_engine.restart().await;
    test_engine.journal.take_records_read();
    let run = test_engine.start_run(Some(&first.thread), "trade").await;
    test_engine.wait_idle().await;
    assert_eq!(test_engine.journal.take_records_read(), 0, "everything before is in the checkpoint");
    let paused = test_engine.wait_settled(&run).await;
    let own = test_engine.read_log(&first.thread).await.len() - log.len();
    let test_engine = test_engine.restart().await;
    test_engine.journal.take_records_read();
    test_engine.approve(&paused).await;
    test_engine.wait_idle().await;
    let read = test_engine.journal.take_records_read();
    assert!((1..=own).contains(&read), "{read} records were read for a run of {own}");
    assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Completed);
    assert_eq!(test_engine.models.last_request().history.len(), 2 * turns + 4, "and yet the model knows it all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_a_long_thread_in_memory_reads_only_its_last_run() {
    opening_a_thread_reads_only_its_last_run(StoreKind::Memory, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_a_thread_of_a_thousand_turns_reads_only_its_last_run() {
    opening_a_thread_reads_only_its_last_run(StoreKind::Sqlite, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_the_disk_is_bounded_for_all_runs_together() {
    const RUNS: usize = 300;
    const DELTAS: usize = 200;
    // Four without a permit, and what else the first poll finds; 64 each with one of the 32 permits.
    let bound = RUNS * 6 + 32 * 64;
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        test_engine.journal.hold_appends();
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(test_engine.start_run(None, &format!("story {DELTAS}")).await);
        }
        test_engine.wait_for(|| test_engine.models.events_read() >= RUNS * 4 + 32 * 32).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let read = test_engine.models.events_read();
        assert!(read <= bound, "{kind:?}: {read} deltas of {RUNS} runs wait for the disk, not {bound}");

        test_engine.journal.release_appends(RUNS * DELTAS);
        for run in &runs {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        assert!(test_engine.models.events_read() >= RUNS * DELTAS, "{kind:?}: all of them were read in turn");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancels_of_a_silent_model_leave_nothing_behind() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let mut runs = Vec::new();
        for place in 0..1_000 {
            let run = test_engine.start_run_of("silent", None, "hello").await;
            if place % 2 == 0 {
                // Half of them have a live model stream by now; the others may not have started.
                while test_engine.task_object(&run.task).await.status == TaskStatus::Queued {
                    tokio::task::yield_now().await;
                }
            }
            test_engine.cancel(&run.task, CancelMode::Immediate).await;
            runs.push(run);
        }
        test_engine.wait_idle().await;
        assert_eq!(test_engine.models.live_streams(), 0, "{kind:?}: no stream is left");
        assert!(test_engine.models.turn_count() >= 500, "{kind:?}");
        for run in &runs {
            assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        }
        // Only the wake-up schedule is left, and it ends with the process.
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(tasks <= 2, "{kind:?}: {tasks} tasks are alive");
        test_engine.stop().await;
    }
}

/// Who waits for a run reads its row and nothing of the log, however long that is, and is woken when the run has settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_waiters_in_a_long_thread_read_no_record() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run_of("forgetful", None, "hello").await;
        for _ in 0..20 {
            test_engine.start_run_of("forgetful", Some(&first.thread), "hello").await;
        }
        test_engine.wait_idle().await;
        let active = test_engine.start_run_of("silent", Some(&first.thread), "hello").await;
        test_engine.wait_until(&active, |task| task.status == TaskStatus::Running).await;
        let mut runs = vec![active.clone(), active];
        for _ in 0..198 {
            runs.push(test_engine.start_run_of("silent", Some(&first.thread), "hello").await);
        }
        test_engine.journal.take_records_read();
        let waits = runs.iter().map(|run| test_engine.engine.wait_settled(&test_engine.user, &run.task, &run.thread));
        let mut waits = std::pin::pin!(futures_util::future::join_all(waits));
        let while_nothing_happens = tokio::time::timeout(Duration::from_millis(300), waits.as_mut()).await;
        assert!(while_nothing_happens.is_err(), "{kind:?}: nothing has settled");
        // The queued ones leave no record, and still their waiters are told.
        for run in runs.iter().rev() {
            test_engine.cancel(&run.task, CancelMode::Immediate).await;
        }
        let woken = tokio::time::timeout(Duration::from_secs(30), waits).await.expect("all are woken");
        assert!(woken.iter().all(Result::is_ok), "{kind:?}");
        assert_eq!(test_engine.journal.take_records_read(), 0, "{kind:?}: waiting reads nothing");
        for run in &runs {
            assert_eq!(test_engine.run_row(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_thread_and_a_halt_end_the_wait() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        for deletes in [true, false] {
            let run = test_engine.start_run_of("silent", None, "hello").await;
            let (engine, user) = (test_engine.engine.clone(), test_engine.user.clone());
            let waited = run.clone();
            let wait = tokio::spawn(async move { engine.wait_settled(&user, &waited.task, &waited.thread).await });
            test_engine.wait_until(&run, |task| task.status == TaskStatus::Running).await;
            match deletes {
                true => assert!(test_engine.engine.delete_thread(&test_engine.user, &run.thread).await.unwrap()),
                false => test_engine.engine.stop(Duration::ZERO).await,
            }
            let ended = tokio::time::timeout(Duration::from_secs(30), wait).await;
            ended.expect("it ends").expect("no panic").expect("readable");
        }
    }
}
