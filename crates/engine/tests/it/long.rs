//! Much of everything: long threads stay quick to open, and many cancels leave nothing behind.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use model::event::CancelMode;
use model::task::TaskStatus;
use model::thread::ThreadReplay;

async fn a_thread_opens_by_its_last_run_alone(kind: StoreKind, turns: usize) {
    let house = TestEngine::new(kind).await;
    let first = house.start_run_of("forgetful", None, "hello").await;
    house.wait_settled(&first).await;
    // Some at a time, so that the thread is not opened for each of them.
    for batch in (1..turns).collect::<Vec<_>>().chunks(37) {
        let mut last = None;
        for _ in batch {
            last = Some(house.start_run_of("forgetful", Some(&first.thread), "hello").await);
        }
        let last = last.expect("a batch is not empty");
        assert_eq!(house.wait_settled(&last).await.status, TaskStatus::Completed);
    }
    house.wait_idle().await;
    let log = house.read_log(&first.thread).await;
    let mut replay = ThreadReplay::default();
    log.iter().for_each(|record| replay.push(record));
    assert_eq!(replay.thread.runs.len(), turns);
    let directory = &house.engine.ports().directory;
    let kept = directory.checkpoint(&house.user, &first.thread).await.expect("readable").expect("there");
    assert_eq!(kept.body, serde_json::to_string(&replay.thread).expect("JSON"), "the log alone says the same");

    // Behind the checkpoint stands nothing, or the run that has not ended.
    let house = house.restart().await;
    house.journal.take_records_read();
    let run = house.start_run(Some(&first.thread), "trade").await;
    house.wait_idle().await;
    assert_eq!(house.journal.take_records_read(), 0, "everything before is in the checkpoint");
    let paused = house.wait_settled(&run).await;
    let own = house.read_log(&first.thread).await.len() - log.len();
    let house = house.restart().await;
    house.journal.take_records_read();
    house.approve(&paused).await;
    house.wait_idle().await;
    let read = house.journal.take_records_read();
    assert!((1..=own).contains(&read), "{read} records were read for a run of {own}");
    assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Completed);
    assert_eq!(house.models.last_request().history.len(), 2 * turns + 4, "and yet the model knows it all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_thread_in_memory_opens_by_its_last_run_alone() {
    a_thread_opens_by_its_last_run_alone(StoreKind::Memory, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_of_a_thousand_turns_opens_by_its_last_run_alone() {
    a_thread_opens_by_its_last_run_alone(StoreKind::Sqlite, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancels_of_a_silent_model_leave_nothing_behind() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let mut runs = Vec::new();
        for place in 0..1_000 {
            let run = house.start_run_of("silent", None, "hello").await;
            if place % 2 == 0 {
                // Half of them are being listened to by now, the others may not even have begun.
                while house.task_object(&run.task).await.status == TaskStatus::Queued {
                    tokio::task::yield_now().await;
                }
            }
            house.cancel(&run.task, CancelMode::Immediate).await;
            runs.push(run);
        }
        house.wait_idle().await;
        assert_eq!(house.models.live_streams(), 0, "{kind:?}: no stream is left");
        assert!(house.models.turn_count() >= 500, "{kind:?}");
        for run in &runs {
            assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        }
        // Only what wakes threads is left, and it goes with the process.
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(tasks <= 2, "{kind:?}: {tasks} tasks are alive");
        house.stop().await;
    }
}
