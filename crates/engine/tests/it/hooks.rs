//! Before a run starts, its agent's hook may rewrite what the model will receive.

use crate::fake_ports::HookBehavior;
use crate::fixtures::text_parts;
use crate::test_engine::{STORE_KINDS, TestEngine, line_view, utf8_lossy};
use model::Seq;
use model::event::Event;
use model::history::HistoryEntry;
use model::task::TaskStatus;

fn set_hook_behavior(test_engine: &TestEngine, will: HookBehavior) {
    *test_engine.hooks.behavior.lock().expect("nobody panicked") = will;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_input_as_rewritten_by_a_hook_is_logged() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        set_hook_behavior(&test_engine, HookBehavior::ReplaceInput("weather"));
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.wait_settled(&run).await;
        let log = test_engine.read_log(&run.thread).await;
        let Event::Created(created) = log[0].event() else { panic!("{kind:?}: {}", log[0].event_type()) };
        assert_eq!(created.task.input[0].content, text_parts("weather"), "{kind:?}");
        assert_eq!(test_engine.tools.call_count("get_weather"), 1, "{kind:?}: the model read it");
        assert_eq!(test_engine.hooks.requests()[0].input, text_parts("hello"), "{kind:?}: the hook read what was said");
        // The hook of the next run receives the whole history.
        set_hook_behavior(&test_engine, HookBehavior::Keep);
        let next = test_engine.start_run_of("hooked", Some(&run.thread), "hello").await;
        test_engine.wait_settled(&next).await;
        let past = test_engine.hooks.requests().pop().expect("asked").history;
        assert_eq!(past.first(), Some(&HistoryEntry::User { content: text_parts("weather") }), "{kind:?}");
        assert_eq!(test_engine.hooks.requests().len(), 2, "{kind:?}: each run asks once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_history_as_rewritten_by_a_hook_reaches_the_model_also_after_a_crash() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.wait_settled(&first).await;
        let past = HistoryEntry::User { content: text_parts("another past") };
        set_hook_behavior(&test_engine, HookBehavior::ReplaceHistory(vec![past.clone()]));
        let run = test_engine.start_run_of("hooked", Some(&first.thread), "hang").await;
        let given = [past, HistoryEntry::User { content: text_parts("hang") }];
        let mut viewer = test_engine.engine.watch_from(&test_engine.user, &run.thread, line_view(&run.task), Seq::ZERO);
        let mut seen = String::new();
        while !seen.contains("task.text.delta") {
            seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
        }
        drop(viewer);
        assert_eq!(test_engine.models.last_request().history, given.to_vec().into(), "{kind:?}");
        let asked = test_engine.hooks.requests().len();
        let test_engine = test_engine.restart().await;
        test_engine.wait_for_event(&run.thread, "task.recovered").await;
        while test_engine.models.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(test_engine.models.last_request().history, given.to_vec().into(), "{kind:?}: from the log");
        assert_eq!(
            test_engine.hooks.requests().len(),
            asked,
            "{kind:?}: the hook is not asked for a run that has begun"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_hook_fails_the_run_before_the_model_is_called() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        set_hook_behavior(&test_engine, HookBehavior::Fail);
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Failed, "{kind:?}");
        assert_eq!(object.error.map(|error| error.code).as_deref(), Some("hook_failed"), "{kind:?}");
        assert!(test_engine.models.requests().is_empty(), "{kind:?}");
        set_hook_behavior(&test_engine, HookBehavior::Keep);
        let next = test_engine.start_run_of("hooked", Some(&run.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_during_the_hook_drops_the_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        set_hook_behavior(&test_engine, HookBehavior::Hang);
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.hooks.request_received.notified().await;
        let next = test_engine.start_run(Some(&run.thread), "hello").await;
        test_engine.cancel(&run.task, Default::default()).await;
        assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}: the way is free");
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        let log = test_engine.read_log(&run.thread).await;
        assert!(log.iter().all(|record| record.run == next.task), "{kind:?}: it left no record");
        test_engine.wait_idle().await;
        assert!(test_engine.read_inbox(&run.thread).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_during_the_hook_calls_it_again() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        set_hook_behavior(&test_engine, HookBehavior::Hang);
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.hooks.request_received.notified().await;
        assert!(test_engine.read_log(&run.thread).await.is_empty(), "{kind:?}: nothing is recorded so far");
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Queued, "{kind:?}");
        set_hook_behavior(&test_engine, HookBehavior::Keep);
        let test_engine = test_engine.restart().await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(test_engine.hooks.requests().len(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_during_the_hook_does_not_start_the_run_twice() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        // The hook is slow enough that the next request arrives while it is running.
        set_hook_behavior(&test_engine, HookBehavior::Hang);
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.hooks.request_received.notified().await;
        set_hook_behavior(&test_engine, HookBehavior::WaitForRelease);
        let test_engine = test_engine.restart().await;
        test_engine.hooks.request_received.notified().await;
        let next = test_engine.start_run(Some(&run.thread), "hello").await;
        test_engine.hooks.release.add_permits(1);
        for run in [&run, &next] {
            assert_eq!(test_engine.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        test_engine.wait_idle().await;
        assert_eq!(test_engine.hooks.requests().len(), 2, "{kind:?}: once in each process");
        assert_eq!(test_engine.models.requests().len(), 2, "{kind:?}: one turn of each run");
        let epochs: Vec<_> = test_engine.read_log(&run.thread).await.iter().map(|record| record.epoch).collect();
        assert!(epochs.windows(2).all(|pair| pair[0] == pair[1]), "{kind:?}: no term was lost on the way");
    }
}

/// Cancelling twice before the first event is harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cancels_of_a_queued_run_are_one() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        set_hook_behavior(&test_engine, HookBehavior::Hang);
        let run = test_engine.start_run_of("hooked", None, "hello").await;
        test_engine.hooks.request_received.notified().await;
        test_engine.cancel(&run.task, Default::default()).await;
        test_engine.cancel(&run.task, Default::default()).await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        assert_eq!(test_engine.hooks.requests().len(), 1, "{kind:?}");
    }
}
