//! A thread's queue: what waits keeps its order, and can be taken out of it.

use crate::test_engine::{STORE_KINDS, TestEngine};
use engine::{NewRun, OnBusy, StartError};
use model::content::ContentPart;
use model::event::{CancelMode, Event};
use model::task::TaskStatus;

/// The runs that began, in their order, each with what was said first.
async fn begun(house: &TestEngine, thread: &model::ThreadId) -> Vec<(model::TaskId, String)> {
    let log = house.read_log(thread).await;
    let created = log.iter().filter_map(|record| match record.event() {
        Event::Created(created) => {
            Some((record.run.clone(), serde_json::to_string(&created.task.input).expect("JSON")))
        }
        _ => None,
    });
    created.collect()
}

async fn ended(house: &TestEngine, thread: &model::ThreadId, runs: usize) {
    let all = async {
        loop {
            let log = house.read_log(thread).await;
            if log.iter().filter(|record| record.event().is_terminal()).count() >= runs {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), all).await.expect("they end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_starts_one_is_taken_out_and_the_order_is_kept() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let first = house.start_run(None, "held").await;
        house.wait_for_event(&first.thread, "task.tool.started").await;
        let mut waiting = Vec::new();
        for word in ["one", "two", "three"] {
            waiting.push(house.start_run(Some(&first.thread), word).await);
        }
        assert_eq!(house.task_object(&waiting[1].task).await.status, TaskStatus::Queued, "{kind:?}");
        house.cancel(&waiting[1].task, CancelMode::Immediate).await;
        while house.task_object(&waiting[1].task).await.status != TaskStatus::Cancelled {
            tokio::task::yield_now().await;
        }
        house.tools.release.add_permits(1);
        for run in [&first, &waiting[0], &waiting[2]] {
            assert_eq!(house.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        let order: Vec<_> = begun(&house, &first.thread).await.into_iter().map(|(run, _)| run).collect();
        assert_eq!(order, [&first, &waiting[0], &waiting[2]].map(|run| run.task.clone()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_run_that_is_in_the_way_is_found_behind_a_long_queue() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let first = house.start_run(None, "held").await;
        house.wait_for_event(&first.thread, "task.tool.started").await;
        for _ in 0..150 {
            house.start_run(Some(&first.thread), "more").await;
        }
        let new = NewRun { agent: "demo".to_owned(), thread: Some(first.thread.clone()), ..NewRun::default() };
        let new = NewRun { input: vec![ContentPart::text("now")], on_busy: OnBusy::Reject, ..new };
        let refused = house.engine.start(&house.user, new).await;
        assert!(matches!(refused, Err(StartError::Busy(busy)) if busy == first.task), "{kind:?}");
        house.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_behind_a_paused_run_survives_a_restart() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let first = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&first).await;
        let mut waiting = Vec::new();
        for word in ["one", "two"] {
            waiting.push(house.start_run(Some(&first.thread), word).await);
        }
        house.wait_idle().await;
        let house = house.restart().await;
        house.wait_idle().await;
        assert_eq!(house.task_object(&waiting[0].task).await.status, TaskStatus::Queued, "{kind:?}");
        house.approve(&paused).await;
        for run in &waiting {
            assert_eq!(house.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        let order: Vec<_> = begun(&house, &first.thread).await.into_iter().map(|(run, _)| run).collect();
        assert_eq!(order, [&first, &waiting[0], &waiting[1]].map(|run| run.task.clone()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_a_run_that_stops_begins_the_next_one() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "held").await;
        house.wait_for_event(&run.thread, "task.tool.started").await;
        house.cancel(&run.task, CancelMode::AfterTurn).await;
        house.wait_for_event(&run.thread, "task.cancelling").await;
        house.steer(&run, "said too late").await;
        house.tools.release.add_permits(1);
        ended(&house, &run.thread, 2).await;
        assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        let begun = begun(&house, &run.thread).await;
        assert!(begun[1].1.contains("said too late"), "{kind:?}: {begun:?}");
        assert!(!house.event_types(&run.thread).await.contains(&"task.input.added".to_owned()), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_a_paused_run_waits_and_begins_the_next_one() {
    for kind in STORE_KINDS {
        for restart in [false, true] {
            let mut house = TestEngine::new(kind).await;
            let run = house.start_run(None, "trade").await;
            let paused = house.wait_settled(&run).await;
            house.steer(&run, "by the way").await;
            house.wait_idle().await;
            if restart {
                house = house.restart().await;
                house.wait_idle().await;
            }
            house.approve(&paused).await;
            ended(&house, &run.thread, 2).await;
            let begun = begun(&house, &run.thread).await;
            assert!(begun[1].1.contains("by the way"), "{kind:?}: {begun:?}");
            assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
            let kinds = house.event_types(&run.thread).await;
            assert!(!kinds.contains(&"task.input.added".to_owned()), "{kind:?}: {kinds:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_to_a_run_that_goes_on_is_heard_there() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "held").await;
        house.wait_for_event(&run.thread, "task.tool.started").await;
        house.steer(&run, "by the way").await;
        house.wait_for_event(&run.thread, "task.input.added").await;
        house.tools.release.add_permits(1);
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert!(format!("{:?}", house.models.last_request().history).contains("by the way"), "{kind:?}");
        assert_eq!(begun(&house, &run.thread).await.len(), 1, "{kind:?}");
    }
}
