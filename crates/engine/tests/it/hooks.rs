//! Before a run begins its agent's hook may rewrite what the model will see.

use crate::fake_ports::HookBehavior;
use crate::fixtures::text_parts;
use crate::test_engine::{STORE_KINDS, TestEngine, line_view, utf8_lossy};
use model::Seq;
use model::event::Event;
use model::history::HistoryEntry;
use model::task::TaskStatus;

fn tell(house: &TestEngine, will: HookBehavior) {
    *house.hooks.behavior.lock().expect("nobody panicked") = will;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hook_makes_of_the_input_is_what_is_logged() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        tell(&house, HookBehavior::ReplaceInput("weather"));
        let run = house.start_run_of("hooked", None, "hello").await;
        house.wait_settled(&run).await;
        let log = house.read_log(&run.thread).await;
        let Event::Created(created) = log[0].event() else { panic!("{kind:?}: {}", log[0].event_type()) };
        assert_eq!(created.task.input[0].content, text_parts("weather"), "{kind:?}");
        assert_eq!(house.tools.call_count("get_weather"), 1, "{kind:?}: the model read it");
        assert_eq!(house.hooks.requests()[0].input, text_parts("hello"), "{kind:?}: the hook read what was said");
        // The next run's hook is given what was said and done.
        tell(&house, HookBehavior::Keep);
        let next = house.start_run_of("hooked", Some(&run.thread), "hello").await;
        house.wait_settled(&next).await;
        let past = house.hooks.requests().pop().expect("asked").history;
        assert_eq!(past.first(), Some(&HistoryEntry::User { content: text_parts("weather") }), "{kind:?}");
        assert_eq!(house.hooks.requests().len(), 2, "{kind:?}: each run asks once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hook_makes_of_the_past_is_what_the_model_is_given_also_after_a_crash() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let first = house.start_run_of("hooked", None, "hello").await;
        house.wait_settled(&first).await;
        let past = HistoryEntry::User { content: text_parts("another past") };
        tell(&house, HookBehavior::ReplaceHistory(vec![past.clone()]));
        let run = house.start_run_of("hooked", Some(&first.thread), "hang").await;
        let given = [past, HistoryEntry::User { content: text_parts("hang") }];
        let mut viewer = house.engine.watch_from(&house.user, &run.thread, line_view(&run.task), Seq::ZERO);
        let mut seen = String::new();
        while !seen.contains("task.text.delta") {
            seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
        }
        drop(viewer);
        assert_eq!(*house.models.last_request().history, given, "{kind:?}");
        let asked = house.hooks.requests().len();
        let house = house.restart().await;
        house.wait_for_event(&run.thread, "task.recovered").await;
        while house.models.requests().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*house.models.last_request().history, given, "{kind:?}: from the log");
        assert_eq!(house.hooks.requests().len(), asked, "{kind:?}: the hook is not asked for a run that has begun");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_fails_the_run_before_a_model_is_asked() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        tell(&house, HookBehavior::Fail);
        let run = house.start_run_of("hooked", None, "hello").await;
        let object = house.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Failed, "{kind:?}");
        assert_eq!(object.error.map(|error| error.code).as_deref(), Some("hook_failed"), "{kind:?}");
        assert!(house.models.requests().is_empty(), "{kind:?}");
        tell(&house, HookBehavior::Keep);
        let next = house.start_run_of("hooked", Some(&run.thread), "hello").await;
        assert_eq!(house.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_while_the_hook_is_asked_drops_the_run() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        tell(&house, HookBehavior::Hang);
        let run = house.start_run_of("hooked", None, "hello").await;
        house.hooks.request_received.notified().await;
        let next = house.start_run(Some(&run.thread), "hello").await;
        house.cancel(&run.task, Default::default()).await;
        assert_eq!(house.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}: the way is free");
        assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        let log = house.read_log(&run.thread).await;
        assert!(log.iter().all(|record| record.run == next.task), "{kind:?}: it left no record");
        house.wait_idle().await;
        assert!(house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_the_hook_is_asked_asks_it_again() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        tell(&house, HookBehavior::Hang);
        let run = house.start_run_of("hooked", None, "hello").await;
        house.hooks.request_received.notified().await;
        assert!(house.read_log(&run.thread).await.is_empty(), "{kind:?}: nothing is recorded so far");
        assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Queued, "{kind:?}");
        tell(&house, HookBehavior::Keep);
        let house = house.restart().await;
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(house.hooks.requests().len(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_the_hook_is_asked_does_not_begin_the_run_twice() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        // The hook is slow enough that the next request finds it being asked.
        tell(&house, HookBehavior::Hang);
        let run = house.start_run_of("hooked", None, "hello").await;
        house.hooks.request_received.notified().await;
        tell(&house, HookBehavior::WaitForRelease);
        let house = house.restart().await;
        house.hooks.request_received.notified().await;
        let next = house.start_run(Some(&run.thread), "hello").await;
        house.hooks.release.add_permits(1);
        for run in [&run, &next] {
            assert_eq!(house.wait_settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        house.wait_idle().await;
        assert_eq!(house.hooks.requests().len(), 2, "{kind:?}: once in each process");
        assert_eq!(house.models.requests().len(), 2, "{kind:?}: one turn of each run");
        let epochs: Vec<_> = house.read_log(&run.thread).await.iter().map(|record| record.epoch).collect();
        assert!(epochs.windows(2).all(|pair| pair[0] == pair[1]), "{kind:?}: no term was lost on the way");
    }
}

/// Cancelling twice before there is anything to see is harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cancels_of_a_run_that_has_not_begun_are_one() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        tell(&house, HookBehavior::Hang);
        let run = house.start_run_of("hooked", None, "hello").await;
        house.hooks.request_received.notified().await;
        house.cancel(&run.task, Default::default()).await;
        house.cancel(&run.task, Default::default()).await;
        house.wait_idle().await;
        assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        assert_eq!(house.hooks.requests().len(), 1, "{kind:?}");
    }
}
