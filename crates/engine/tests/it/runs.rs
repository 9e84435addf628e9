//! Queues, cancels, restarts.

use crate::test_engine::{STORE_KINDS, TestEngine, line_view, utf8_lossy};
use engine::{NewRun, OnBusy, StartError};
use model::content::ContentPart;
use model::cursor::Cursor;
use model::ports::IdempotencyKey;
use model::task::TaskStatus;
use model::{Seq, ThreadId};
use model_testing::invariants;
use std::time::Duration;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_runs_and_the_model_goes_on() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "what is the weather?").await;
        let object = house.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(object.output.len(), 4, "{kind:?}: thought, call, result, message");
        invariants::check_one_terminal_event(&house.read_log(&run.thread).await).expect("law 9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_one_thread_wait_for_each_other_and_never_overlap() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let first = house.start_run(None, "story 50").await;
        let mut runs = vec![first.clone()];
        for _ in 0..5 {
            runs.push(house.start_run(Some(&first.thread), "story 20").await);
        }
        for run in &runs {
            assert_eq!(house.wait_settled(run).await.status, TaskStatus::Completed);
        }
        let log = house.read_log(&first.thread).await;
        let mut order: Vec<&str> = log.iter().map(|record| record.run.as_str()).collect();
        order.dedup();
        let asked: Vec<&str> = runs.iter().map(|run| run.task.as_str()).collect();
        assert_eq!(order, asked, "{kind:?}: contiguous, in the order in which they were asked for");
        let seqs: Vec<u64> = log.iter().map(|record| record.seq.0).collect();
        assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>(), "{kind:?}: gap-free");
        invariants::check_one_terminal_event(&log).expect("law 9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_stops_a_silent_provider_and_keeps_what_was_said() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hang").await;
        let mut viewer =
            house.engine.watch(&house.user, &run.thread, line_view(&run.task), &Cursor::START).await.expect("it fits");
        let mut seen = String::new();
        while !seen.contains("task.text.delta") {
            seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
        }
        let queued = house.start_run(Some(&run.thread), "hello").await;
        let dropped = house.start_run(Some(&run.thread), "hello").await;
        for victim in [&dropped, &run] {
            house.cancel(&victim.task, Default::default()).await;
        }
        let object = house.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Cancelled, "{kind:?}");
        let text = serde_json::to_string(&object.output).expect("JSON");
        assert!(text.contains("Once upon ") && text.contains("incomplete"), "{kind:?}: {text}");
        assert_eq!(house.wait_settled(&queued).await.status, TaskStatus::Completed, "{kind:?}: the next one goes on");
        assert_eq!(house.task_object(&dropped.task).await.status, TaskStatus::Cancelled, "{kind:?}: never began");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_a_restart_cut_goes_on_and_after_three_says_that_it_was_interrupted() {
    for kind in STORE_KINDS {
        let mut house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hang").await;
        let waiting = house.start_run(Some(&run.thread), "hello").await;
        for attempt in 1..=3 {
            let said = |lines: &str| lines.matches("task.text.delta").count() == attempt;
            let mut viewer = house.engine.watch_from(&house.user, &run.thread, line_view(&run.task), Seq::ZERO);
            let mut seen = String::new();
            while !said(&seen) {
                seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
            }
            drop(viewer);
            house = house.restart().await;
        }
        let object = house.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Failed, "{kind:?}");
        assert_eq!(object.error.map(|error| error.code).as_deref(), Some("interrupted"), "{kind:?}");
        assert_eq!(house.wait_settled(&waiting).await.status, TaskStatus::Completed, "{kind:?}: it is not forgotten");
        let log = house.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.recovered").count(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_busy_rejects_interrupts_or_steers() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hang").await;
        let mut viewer =
            house.engine.watch(&house.user, &run.thread, line_view(&run.task), &Cursor::START).await.expect("it fits");
        viewer.next().await.expect("readable").expect("it began");
        let new = |on_busy| NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text("hello")],
            thread: Some(run.thread.clone()),
            on_busy,
            ..NewRun::default()
        };
        let rejected = house.engine.start(&house.user, new(OnBusy::Reject)).await;
        assert!(matches!(rejected, Err(StartError::Busy(busy)) if busy == run.task), "{kind:?}");
        let steered = house.engine.start(&house.user, new(OnBusy::Steer)).await.expect("heard");
        assert_eq!(steered, run, "{kind:?}: said to the run that goes on");
        let next = house.engine.start(&house.user, new(OnBusy::Interrupt)).await.expect("taken");
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Cancelled, "{kind:?}");
        assert_eq!(house.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
        let kinds: Vec<String> = house.read_log(&run.thread).await.iter().map(|r| r.event_type().to_owned()).collect();
        assert!(kinds.contains(&"task.input.added".to_owned()), "{kind:?}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_steer_that_comes_too_late_begins_the_next_run() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hello").await;
        house.wait_settled(&run).await;
        let said = house
            .engine
            .steer(&house.user, &run.thread, run.task.clone(), vec![ContentPart::text("hello")], None)
            .await;
        said.expect("taken");
        let ended = async {
            while house.read_log(&run.thread).await.iter().filter(|r| r.event_type() == "task.completed").count() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the next run ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_a_promised_thread_at_once_with_others_is_in_it_with_them() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        // Several times: whether two find the thread missing at once is chance.
        for _ in 0..8 {
            let thread = ThreadId::from_uuid(Uuid::now_v7());
            let new = || NewRun {
                agent: "demo".to_owned(),
                input: vec![ContentPart::text("hello")],
                thread: Some(thread.clone()),
                create_if_missing: true,
                ..NewRun::default()
            };
            let begin = || house.engine.start(&house.user, new());
            let (one, two, three) = tokio::join!(begin(), begin(), begin());
            for started in [one, two, three] {
                let started = started.expect("taken");
                assert_eq!(started.thread, thread, "{kind:?}");
                assert_eq!(house.wait_settled(&started).await.status, TaskStatus::Completed, "{kind:?}");
            }
            let log = house.read_log(&thread).await;
            assert_eq!(log.iter().filter(|record| record.event_type() == "task.created").count(), 3, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_gives_the_same_run() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let new = |digest: &str| NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text("hello")],
            idempotency: Some(IdempotencyKey { key: "k".to_owned(), request_digest: digest.to_owned() }),
            ..NewRun::default()
        };
        let first = house.engine.start(&house.user, new("a")).await.expect("taken");
        let again = house.engine.start(&house.user, new("a")).await.expect("taken");
        assert_eq!(first, again, "{kind:?}");
        assert!(house.engine.start(&house.user, new("b")).await.is_err(), "{kind:?}: another body");
        house.wait_settled(&first).await;
        assert_eq!(house.read_log(&first.thread).await.iter().filter(|r| r.event_type() == "task.created").count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_thread_lets_its_viewers_go_and_records_nothing_more() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hang").await;
        let mut viewer =
            house.engine.watch(&house.user, &run.thread, line_view(&run.task), &Cursor::START).await.expect("it fits");
        viewer.next().await.expect("readable").expect("it began");
        assert!(house.engine.delete_thread(&house.user, &run.thread).await.expect("deleted"), "{kind:?}");
        while let Ok(Some(_)) = viewer.next().await {}
        assert!(house.engine.task_object(&house.user, &run.task).await.expect("readable").is_none(), "{kind:?}");
        let gone = async {
            while house.engine.live_threads() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("its executor goes");
    }
}
