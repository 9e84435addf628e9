//! Before a run begins its agent's hook may rewrite what the model will see.

use crate::cast::words;
use crate::house::{House, KINDS, lines, shown};
use crate::ports::Will;
use model::Seq;
use model::event::Event;
use model::history::HistoryEntry;
use model::task::TaskStatus;

fn tell(house: &House, will: Will) {
    *house.hooks.will.lock().expect("nobody panicked") = will;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hook_makes_of_the_input_is_what_is_logged() {
    for kind in KINDS {
        let house = House::new(kind).await;
        tell(&house, Will::Input("weather"));
        let run = house.ask_agent("hooked", None, "hello").await;
        house.settled(&run).await;
        let log = house.log(&run.thread).await;
        let Event::Created(created) = log[0].event() else { panic!("{kind:?}: {}", log[0].event_type()) };
        assert_eq!(created.task.input[0].content, words("weather"), "{kind:?}");
        assert_eq!(house.tools.count("get_weather"), 1, "{kind:?}: the model read it");
        assert_eq!(house.hooks.asked()[0].input, words("hello"), "{kind:?}: the hook read what was said");
        // The next run's hook is given what was said and done.
        tell(&house, Will::Keep);
        let next = house.ask_agent("hooked", Some(&run.thread), "hello").await;
        house.settled(&next).await;
        let past = house.hooks.asked().pop().expect("asked").history;
        assert_eq!(past.first(), Some(&HistoryEntry::User { content: words("weather") }), "{kind:?}");
        assert_eq!(house.hooks.asked().len(), 2, "{kind:?}: each run asks once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_hook_makes_of_the_past_is_what_the_model_is_given_also_after_a_crash() {
    for kind in KINDS {
        let house = House::new(kind).await;
        let first = house.ask_agent("hooked", None, "hello").await;
        house.settled(&first).await;
        let past = HistoryEntry::User { content: words("another past") };
        tell(&house, Will::History(vec![past.clone()]));
        let run = house.ask_agent("hooked", Some(&first.thread), "hang").await;
        let given = [past, HistoryEntry::User { content: words("hang") }];
        let mut viewer = house.engine.watch_from(&house.user, &run.thread, lines(&run.task), Seq::ZERO);
        let mut seen = String::new();
        while !seen.contains("task.text.delta") {
            seen.push_str(&shown(viewer.next().await.expect("readable").expect("it goes on")));
        }
        drop(viewer);
        assert_eq!(*house.models.last().history, given, "{kind:?}");
        let asked = house.hooks.asked().len();
        let house = house.restarted().await;
        house.logged(&run.thread, "task.recovered").await;
        while house.models.asked().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*house.models.last().history, given, "{kind:?}: from the log");
        assert_eq!(house.hooks.asked().len(), asked, "{kind:?}: the hook is not asked for a run that has begun");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_fails_the_run_before_a_model_is_asked() {
    for kind in KINDS {
        let house = House::new(kind).await;
        tell(&house, Will::Fail);
        let run = house.ask_agent("hooked", None, "hello").await;
        let object = house.settled(&run).await;
        assert_eq!(object.status, TaskStatus::Failed, "{kind:?}");
        assert_eq!(object.error.map(|error| error.code).as_deref(), Some("hook_failed"), "{kind:?}");
        assert!(house.models.asked().is_empty(), "{kind:?}");
        tell(&house, Will::Keep);
        let next = house.ask_agent("hooked", Some(&run.thread), "hello").await;
        assert_eq!(house.settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_while_the_hook_is_asked_drops_the_run() {
    for kind in KINDS {
        let house = House::new(kind).await;
        tell(&house, Will::Hang);
        let run = house.ask_agent("hooked", None, "hello").await;
        house.hooks.was_asked.notified().await;
        let next = house.ask(Some(&run.thread), "hello").await;
        house.cancel(&run.task, Default::default()).await;
        assert_eq!(house.settled(&next).await.status, TaskStatus::Completed, "{kind:?}: the way is free");
        assert_eq!(house.object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        let log = house.log(&run.thread).await;
        assert!(log.iter().all(|record| record.run == next.task), "{kind:?}: it left no record");
        house.idle().await;
        assert!(house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_while_the_hook_is_asked_asks_it_again() {
    for kind in KINDS {
        let house = House::new(kind).await;
        tell(&house, Will::Hang);
        let run = house.ask_agent("hooked", None, "hello").await;
        house.hooks.was_asked.notified().await;
        assert!(house.log(&run.thread).await.is_empty(), "{kind:?}: nothing is recorded so far");
        assert_eq!(house.object(&run.task).await.status, TaskStatus::Queued, "{kind:?}");
        tell(&house, Will::Keep);
        let house = house.restarted().await;
        assert_eq!(house.settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(house.hooks.asked().len(), 2, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_the_hook_is_asked_does_not_begin_the_run_twice() {
    for kind in KINDS {
        let house = House::new(kind).await;
        // The hook is slow enough that the next request finds it being asked.
        tell(&house, Will::Hang);
        let run = house.ask_agent("hooked", None, "hello").await;
        house.hooks.was_asked.notified().await;
        tell(&house, Will::Slow);
        let house = house.restarted().await;
        house.hooks.was_asked.notified().await;
        let next = house.ask(Some(&run.thread), "hello").await;
        house.hooks.go_on.add_permits(1);
        for run in [&run, &next] {
            assert_eq!(house.settled(run).await.status, TaskStatus::Completed, "{kind:?}");
        }
        house.idle().await;
        assert_eq!(house.hooks.asked().len(), 2, "{kind:?}: once in each process");
        assert_eq!(house.models.asked().len(), 2, "{kind:?}: one turn of each run");
        let epochs: Vec<_> = house.log(&run.thread).await.iter().map(|record| record.epoch).collect();
        assert!(epochs.windows(2).all(|pair| pair[0] == pair[1]), "{kind:?}: no term was lost on the way");
    }
}

/// Cancelling twice before there is anything to see is harmless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_cancels_of_a_run_that_has_not_begun_are_one() {
    for kind in KINDS {
        let house = House::new(kind).await;
        tell(&house, Will::Hang);
        let run = house.ask_agent("hooked", None, "hello").await;
        house.hooks.was_asked.notified().await;
        house.cancel(&run.task, Default::default()).await;
        house.cancel(&run.task, Default::default()).await;
        house.idle().await;
        assert_eq!(house.object(&run.task).await.status, TaskStatus::Cancelled, "{kind:?}");
        assert_eq!(house.hooks.asked().len(), 1, "{kind:?}");
    }
}
