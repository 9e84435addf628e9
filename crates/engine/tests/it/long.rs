//! Much of everything: long threads stay quick to open, and many cancels leave nothing behind.

use crate::house::{House, KINDS, Kind};
use model::event::CancelMode;
use model::task::TaskStatus;
use model::thread::ThreadReplay;

async fn a_thread_opens_by_its_last_run_alone(kind: Kind, turns: usize) {
    let house = House::new(kind).await;
    let first = house.ask_agent("forgetful", None, "hello").await;
    house.settled(&first).await;
    // Some at a time, so that the thread is not opened for each of them.
    for batch in (1..turns).collect::<Vec<_>>().chunks(37) {
        let mut last = None;
        for _ in batch {
            last = Some(house.ask_agent("forgetful", Some(&first.thread), "hello").await);
        }
        let last = last.expect("a batch is not empty");
        assert_eq!(house.settled(&last).await.status, TaskStatus::Completed);
    }
    house.idle().await;
    let log = house.log(&first.thread).await;
    let mut replay = ThreadReplay::default();
    log.iter().for_each(|record| replay.push(record));
    assert_eq!(replay.thread.runs.len(), turns);
    let directory = &house.engine.ports().directory;
    let kept = directory.checkpoint(&house.user, &first.thread).await.expect("readable").expect("there");
    assert_eq!(kept.body, serde_json::to_string(&replay.thread).expect("JSON"), "the log alone says the same");

    // Behind the checkpoint stands nothing, or the run that has not ended.
    let house = house.restarted().await;
    house.gate.take_records_read();
    let run = house.ask(Some(&first.thread), "trade").await;
    house.idle().await;
    assert_eq!(house.gate.take_records_read(), 0, "everything before is in the checkpoint");
    let paused = house.settled(&run).await;
    let own = house.log(&first.thread).await.len() - log.len();
    let house = house.restarted().await;
    house.gate.take_records_read();
    house.approve(&paused).await;
    house.idle().await;
    let read = house.gate.take_records_read();
    assert!((1..=own).contains(&read), "{read} records were read for a run of {own}");
    assert_eq!(house.object(&run.task).await.status, TaskStatus::Completed);
    assert_eq!(house.models.last().history.len(), 2 * turns + 4, "and yet the model knows it all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_thread_in_memory_opens_by_its_last_run_alone() {
    a_thread_opens_by_its_last_run_alone(Kind::Memory, 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_of_a_thousand_turns_opens_by_its_last_run_alone() {
    a_thread_opens_by_its_last_run_alone(Kind::Sqlite, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_cancels_of_a_silent_model_leave_nothing_behind() {
    for kind in KINDS {
        let house = House::new(kind).await;
        let mut runs = Vec::new();
        for place in 0..1_000 {
            let run = house.ask_agent("silent", None, "hello").await;
            if place % 2 == 0 {
                // Half of them are being listened to by now, the others may not even have begun.
                while house.object(&run.task).await.status == TaskStatus::Queued {
                    tokio::task::yield_now().await;
                }
            }
            house.cancel(&run.task, CancelMode::Immediate).await;
            runs.push(run);
        }
        house.idle().await;
        assert_eq!(house.models.live(), 0, "{kind:?}: no stream is left");
        assert!(house.models.turns() >= 500, "{kind:?}");
        for run in &runs {
            assert_eq!(house.object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        }
        // Only what wakes threads is left, and it goes with the process.
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        assert!(tasks <= 2, "{kind:?}: {tasks} tasks are alive");
        house.stopped().await;
    }
}
