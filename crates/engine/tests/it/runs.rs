//! Queues, cancels, restarts.

use crate::test_engine::{STORE_KINDS, TestEngine, line_view, utf8_lossy};
use engine::{NewRun, OnBusy, RunPredecessor, StartError, StartedRun};
use model::content::ContentPart;
use model::cursor::Cursor;
use model::ports::IdempotencyKey;
use model::task::TaskStatus;
use model::{Seq, TaskId, ThreadId};
use model_testing::invariants;
use std::time::Duration;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_runs_and_the_model_continues() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "what is the weather?").await;
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(object.output.len(), 4, "{kind:?}: thought, call, result, message");
        invariants::check_one_terminal_event(&test_engine.read_log(&run.thread).await).expect("law 9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_of_one_thread_never_overlap() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run(None, "story 50").await;
        let mut runs = vec![first.clone()];
        for _ in 0..5 {
            runs.push(test_engine.start_run(Some(&first.thread), "story 20").await);
        }
        for run in &runs {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed);
        }
        let log = test_engine.read_log(&first.thread).await;
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
async fn a_cancel_stops_a_silent_provider_and_keeps_the_partial_text() {
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
        let queued = test_engine.start_run(Some(&run.thread), "hello").await;
        let dropped = test_engine.start_run(Some(&run.thread), "hello").await;
        for victim in [&dropped, &run] {
            test_engine.cancel(&victim.task, Default::default()).await;
        }
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Cancelled, "{kind:?}");
        let text = serde_json::to_string(&object.output).expect("JSON");
        assert!(text.contains("Once upon ") && text.contains("incomplete"), "{kind:?}: {text}");
        assert_eq!(
            test_engine.wait_settled(&queued).await.status,
            TaskStatus::Completed,
            "{kind:?}: the next one goes on"
        );
        assert_eq!(test_engine.task_object(&dropped.task).await.status, TaskStatus::Cancelled, "{kind:?}: never began");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_run_continues_after_a_restart_and_fails_after_three() {
    for kind in STORE_KINDS {
        let mut test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hang").await;
        let waiting = test_engine.start_run(Some(&run.thread), "hello").await;
        for attempt in 1..=3 {
            let said = |lines: &str| lines.matches("task.text.delta").count() == attempt;
            let mut viewer =
                test_engine.engine.watch_from(&test_engine.user, &run.thread, line_view(&run.task), Seq::ZERO);
            let mut seen = String::new();
            while !said(&seen) {
                seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
            }
            drop(viewer);
            test_engine = test_engine.restart().await;
        }
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Failed, "{kind:?}");
        assert_eq!(object.error.map(|error| error.code).as_deref(), Some("interrupted"), "{kind:?}");
        assert_eq!(
            test_engine.wait_settled(&waiting).await.status,
            TaskStatus::Completed,
            "{kind:?}: it is not forgotten"
        );
        let log = test_engine.read_log(&run.thread).await;
        invariants::check_one_terminal_event(&log).expect("law 9");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.recovered").count(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_busy_rejects_interrupts_or_steers() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hang").await;
        let mut viewer = test_engine
            .engine
            .watch(&test_engine.user, &run.thread, line_view(&run.task), &Cursor::START)
            .await
            .expect("it fits");
        viewer.next().await.expect("readable").expect("it began");
        let new = |on_busy| NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text("hello")],
            thread: Some(run.thread.clone()),
            on_busy,
            ..NewRun::default()
        };
        let rejected = test_engine.engine.start(&test_engine.user, new(OnBusy::Reject)).await;
        assert!(matches!(rejected, Err(StartError::Busy(busy)) if busy == run.task), "{kind:?}");
        let steered = test_engine.engine.start(&test_engine.user, new(OnBusy::Steer)).await.expect("heard");
        let heard = StartedRun::earlier(run.task.clone(), run.thread.clone());
        assert_eq!(steered, heard, "{kind:?}: said to the run that goes on");
        let next = test_engine.engine.start(&test_engine.user, new(OnBusy::Interrupt)).await.expect("taken");
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Cancelled, "{kind:?}");
        assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
        let log = test_engine.read_log(&run.thread).await;
        let began = log.iter().find(|record| record.run == next.task).expect("it began").seq;
        assert!(next.after.is_some_and(|after| Seq::ZERO < after && after < began), "{kind:?}: {next:?}, {began}");
        let kinds: Vec<String> = log.iter().map(|r| r.event_type().to_owned()).collect();
        assert!(kinds.contains(&"task.input.added".to_owned()), "{kind:?}: {kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_steer_starts_the_next_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&run).await;
        let said = test_engine
            .engine
            .steer(&test_engine.user, &run.thread, run.task.clone(), vec![ContentPart::text("hello")], None)
            .await;
        said.expect("taken");
        let ended = async {
            while test_engine.read_log(&run.thread).await.iter().filter(|r| r.event_type() == "task.completed").count()
                < 2
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the next run ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_first_runs_of_a_thread_share_it() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        // Several times: whether two requests find the thread missing at once is a matter of chance.
        for _ in 0..8 {
            let thread = ThreadId::from_uuid(Uuid::now_v7());
            let new = || NewRun {
                agent: "demo".to_owned(),
                input: vec![ContentPart::text("hello")],
                thread: Some(thread.clone()),
                create_if_missing: true,
                ..NewRun::default()
            };
            let begin = || test_engine.engine.start(&test_engine.user, new());
            let (one, two, three) = tokio::join!(begin(), begin(), begin());
            for started in [one, two, three] {
                let started = started.expect("taken");
                assert_eq!(started.thread, thread, "{kind:?}");
                assert_eq!(test_engine.wait_settled(&started).await.status, TaskStatus::Completed, "{kind:?}");
            }
            let log = test_engine.read_log(&thread).await;
            assert_eq!(log.iter().filter(|record| record.event_type() == "task.created").count(), 3, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_the_request_has_made_is_created_and_never_continued() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let thread = ThreadId::from_uuid(Uuid::now_v7());
        let new = NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text("hello")],
            thread: Some(thread.clone()),
            create_if_missing: true,
            is_new_thread: true,
            ..NewRun::default()
        };
        let started = test_engine.engine.start(&test_engine.user, new.clone()).await.expect("taken");
        assert_eq!((&started.thread, started.after), (&thread, Some(Seq::ZERO)), "{kind:?}");
        assert_eq!(test_engine.wait_settled(&started).await.status, TaskStatus::Completed, "{kind:?}");
        let log = test_engine.read_log(&thread).await;
        assert!(test_engine.engine.start(&test_engine.user, new).await.is_err(), "{kind:?}: the id is taken");
        assert_eq!(test_engine.read_log(&thread).await, log, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_key_gives_the_same_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let new = |digest: &str| NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text("hello")],
            idempotency: Some(IdempotencyKey { key: "k".to_owned(), request_digest: digest.to_owned() }),
            ..NewRun::default()
        };
        let first = test_engine.engine.start(&test_engine.user, new("a")).await.expect("taken");
        let again = test_engine.engine.start(&test_engine.user, new("a")).await.expect("taken");
        assert_eq!(first.after, Some(Seq::ZERO), "{kind:?}: in a new thread");
        assert_eq!(again, StartedRun::earlier(first.task.clone(), first.thread.clone()), "{kind:?}");
        assert!(test_engine.engine.start(&test_engine.user, new("b")).await.is_err(), "{kind:?}: another body");
        test_engine.wait_settled(&first).await;
        assert_eq!(
            test_engine.read_log(&first.thread).await.iter().filter(|r| r.event_type() == "task.created").count(),
            1
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_thread_ends_its_streams_and_its_records() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hang").await;
        let mut viewer = test_engine
            .engine
            .watch(&test_engine.user, &run.thread, line_view(&run.task), &Cursor::START)
            .await
            .expect("it fits");
        viewer.next().await.expect("readable").expect("it began");
        assert!(test_engine.engine.delete_thread(&test_engine.user, &run.thread).await.expect("deleted"), "{kind:?}");
        while let Ok(Some(_)) = viewer.next().await {}
        assert!(
            test_engine.engine.task_object(&test_engine.user, &run.task).await.expect("readable").is_none(),
            "{kind:?}"
        );
        let gone = async {
            while test_engine.engine.live_threads() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("its executor goes");
    }
}

/// A thread's chain begins anew with a run that continues none, and a run in progress is its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_chain_of_a_thread_leads_to_its_last_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let (engine, user) = (&test_engine.engine, &test_engine.user);
        let first = test_engine.start_run_of("demo", None, "hello").await;
        let new = |previous: RunPredecessor, text: &str| NewRun {
            agent: "demo".to_owned(),
            input: vec![ContentPart::text(text)],
            thread: Some(first.thread.clone()),
            previous,
            ..NewRun::default()
        };
        let mut runs = vec![first.task.clone()];
        test_engine.wait_settled(&first).await;
        for previous in [RunPredecessor::Latest, RunPredecessor::After(first.task.clone()), RunPredecessor::None] {
            let run = engine.start(user, new(previous, "hello")).await.expect("the run is taken");
            test_engine.wait_settled(&run).await;
            runs.push(run.task);
            let expected = match runs.len() {
                3 => vec![runs[0].clone(), runs[2].clone()],
                4 => vec![runs[3].clone()],
                _ => runs.clone(),
            };
            assert_eq!(engine.runs_of_chain(user, &first.thread, Seq::MAX).await, Ok(expected), "{kind:?}");
        }
        assert_eq!(test_engine.models.last_request().history.len(), 1, "{kind:?}");
        let unknown = engine.start(user, new(RunPredecessor::After(TaskId::no_run()), "hello")).await;
        assert!(matches!(unknown, Err(StartError::UnknownPrevious(_))), "{kind:?}: {unknown:?}");
    }
}
