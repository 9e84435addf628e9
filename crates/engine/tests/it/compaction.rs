//! Compaction summarises old history and removes no record.

use crate::fixtures::{definitions, text_parts};
use crate::random_logs::append_log;
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use engine::StartedRun;
use model::definition::{Definitions, Price};
use model::event::Event;
use model::history::HistoryEntry;
use model::limits::{CostMicros, RunLimits};
use model::ports::{Clock as _, Day};
use model::task::TaskStatus;
use model::thread::{ThreadFold, ThreadReplay};
use model::usage::Usage;
use model::{Record, ThreadId};
use model_testing::invariants;

const COMPACTED: &str = "thread.history.compacted";

/// Two runs of an agent whose history is then compacted.
async fn two_runs(test_engine: &TestEngine, agent: &str) -> StartedRun {
    let first = test_engine.start_run_of(agent, None, "hello").await;
    test_engine.wait_settled(&first).await;
    let second = test_engine.start_run_of(agent, Some(&first.thread), "weather").await;
    assert_eq!(test_engine.wait_settled(&second).await.status, TaskStatus::Completed);
    second
}

fn replayed(log: &[Record]) -> ThreadReplay {
    let mut replay = ThreadReplay::default();
    log.iter().for_each(|record| replay.push(record));
    replay
}

async fn checkpoint(test_engine: &TestEngine, thread: &ThreadId) -> ThreadFold {
    let found = test_engine.engine.ports().directory.checkpoint(&test_engine.user, thread).await;
    let found = found.expect("readable").expect("there");
    ThreadReplay::from_checkpoint(&found.body, found.runs.iter().map(|run| run.body.as_str())).thread
}

/// Compaction starts after the terminal event, covers whole runs only, removes no record, and sends the model
/// everything that it needs: nothing has to be stored at the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_compacted_after_the_run_has_ended() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let second = two_runs(&test_engine, "compact").await;
        test_engine.wait_idle().await;
        let before = test_engine.read_log(&second.thread).await;
        assert_eq!(before.last().map(Record::event_type), Some(COMPACTED), "{kind:?}: after the terminal event");
        invariants::check_one_terminal_event(&before).expect("law 9");
        let asked = test_engine.models.last_request();
        assert_eq!((asked.model.as_str(), asked.history.len()), ("scripted/short", 3), "{kind:?}: the first run");

        let third = test_engine.start_run_of("compact", Some(&second.thread), "hello").await;
        test_engine.wait_settled(&third).await;
        let turn = test_engine.models.requests().into_iter().find(|asked| asked.task == third.task && asked.step == 1);
        let given = turn.expect("it was asked").history;
        let summary = HistoryEntry::Summary { text: "THE SUMMARY".to_owned() };
        let begins_with = [&summary, &HistoryEntry::User { content: text_parts("weather") }];
        assert_eq!(given.iter().take(2).collect::<Vec<_>>(), begins_with, "{kind:?}");
        invariants::check_history(&given).expect("law 12");
        test_engine.wait_idle().await;
        let after = test_engine.read_log(&second.thread).await;
        assert_eq!(after[..before.len()], before[..], "{kind:?}: nothing is removed");
        let own = test_engine.watch_to_end(&second, model::cursor::Cursor::START).await;
        assert!(
            crate::test_engine::utf8_lossy(own)
                .ends_with(&crate::test_engine::record_lines(&before[before.len() - 2..before.len() - 1]))
        );
        // The second summary covers the first one and the run after it.
        let summed = replayed(&after).thread.compacted.expect("summed up");
        assert_eq!(summed.run, second.task, "{kind:?}");
        let asked = test_engine.models.last_request().history;
        assert!(matches!(asked.iter().next(), Some(HistoryEntry::Summary { .. })), "{kind:?}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_folder_with_summaries_verifies_and_reopens() {
    let test_engine = TestEngine::new(StoreKind::Sqlite).await;
    let second = two_runs(&test_engine, "compact").await;
    test_engine.wait_idle().await;
    for _ in 0..3 {
        let next = test_engine.start_run_of("compact", Some(&second.thread), "hello").await;
        test_engine.wait_settled(&next).await;
        test_engine.wait_idle().await;
    }
    let log = test_engine.read_log(&second.thread).await;
    assert_eq!(log.iter().filter(|record| record.event_type() == COMPACTED).count(), 4);
    assert_eq!(log.last().map(Record::event_type), Some(COMPACTED), "also as the last record of all");
    let kept = checkpoint(&test_engine, &second.thread).await;
    let (test_env, clock) = test_engine.stop().await;
    let report = store::verify_data_folder(test_env.folder.path()).expect("it can be looked at");
    assert!(report.is_clean(), "{report}");
    let test_engine =
        TestEngine::start_in(test_env, crate::test_engine::TestSetup { clock, ..Default::default() }).await;
    assert_eq!(test_engine.read_log(&second.thread).await, log);
    let replay = replayed(&log);
    assert_eq!(replay.thread.fold_errors, 0);
    assert_eq!(replay.thread, kept, "the log says what the checkpoint says");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_opened_from_the_log_alone_has_the_same_history() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let second = two_runs(&test_engine, "compact").await;
        test_engine.wait_idle().await;
        let log = test_engine.read_log(&second.thread).await;
        // The same records in another engine, without the checkpoints.
        let bare = TestEngine::new(kind).await;
        append_log(&bare, &second.thread, &log, 1).await;
        let kept = bare.engine.ports().directory.checkpoint(&bare.user, &second.thread).await.expect("readable");
        assert!(kept.is_none(), "{kind:?}");
        let mut given = Vec::new();
        for test_engine in [&test_engine, &bare] {
            let next = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
            assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}");
            given.push(test_engine.models.last_request().history);
        }
        assert_eq!(given[0], given[1], "{kind:?}");
        assert!(matches!(given[1].iter().next(), Some(HistoryEntry::Summary { .. })), "{kind:?}");
    }
}

/// Compaction delays neither the end of a run nor the start of the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_does_not_wait_for_the_summary() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let second = two_runs(&test_engine, "slow_to_compact").await;
        while test_engine.models.live_streams() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(test_engine.models.last_request().model, "silent/model", "{kind:?}: it is being summed up");
        let third = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&third).await.status, TaskStatus::Completed, "{kind:?}");
        test_engine.wait_idle().await;
        assert_eq!(test_engine.models.live_streams(), 0, "{kind:?}: it was given up");
        assert!(!test_engine.event_types(&second.thread).await.contains(&COMPACTED.to_owned()), "{kind:?}");
        let given = test_engine.models.last_request().history;
        assert_eq!(
            given.iter().next(),
            Some(&HistoryEntry::User { content: text_parts("hello") }),
            "{kind:?}: the past as it was"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_fails_changes_nothing() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let second = two_runs(&test_engine, "bad_to_compact").await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.models.last_request().model, "nobody/model", "{kind:?}: it was tried");
        let log = test_engine.read_log(&second.thread).await;
        assert!(matches!(log.last().expect("records").event(), Event::Completed(_)), "{kind:?}");
        assert_eq!(checkpoint(&test_engine, &second.thread).await, replayed(&log).thread, "{kind:?}");
        let third = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&third).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(
            test_engine.models.last_request().history.iter().next(),
            Some(&HistoryEntry::User { content: text_parts("hello") }),
            "{kind:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_does_not_wait_for_the_summary() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let second = two_runs(&test_engine, "slow_to_compact").await;
        while test_engine.models.live_streams() == 0 {
            tokio::task::yield_now().await;
        }
        let stop = test_engine.engine.stop(std::time::Duration::from_secs(20));
        tokio::time::timeout(std::time::Duration::from_secs(5), stop).await.expect("it drains at once");
        assert_eq!(test_engine.engine.live_threads(), 0, "{kind:?}");
        let test_engine = test_engine.restart().await;
        let third = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&third).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

/// The tokens of a summary count for the owner's day, not for the run, and are in the record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_counts_for_the_day_and_not_for_the_run() {
    for kind in STORE_KINDS {
        let price = Price { input: 1_000_000.0, output: 1_000_000.0, ..Price::default() };
        let prices = [("scripted/short".to_owned(), price)].into();
        let test_engine = TestEngine::with_definitions(kind, Definitions { prices, ..definitions() }).await;
        let second = two_runs(&test_engine, "compact").await;
        test_engine.wait_idle().await;
        let log = test_engine.read_log(&second.thread).await;
        let Some(Event::HistoryCompacted(compacted)) = log.last().map(Record::event) else {
            panic!("{kind:?}: {log:?}")
        };
        let expected = serde_json::json!({
            "model": "scripted/short",
            "usage": { "input_tokens": 30, "cached_tokens": 0, "cache_write_tokens": 0, "output_tokens": 2, "reasoning_tokens": 0 },
            "cost": 32.0,
        });
        assert_eq!(serde_json::Value::Object(compacted.details.clone()), expected, "{kind:?}");
        let mut total = Usage { input_tokens: 30, output_tokens: 2, ..Usage::default() };
        for event in log.iter().map(Record::event) {
            match event {
                Event::StepDone(done) => total.add(done.usage),
                Event::Completed(done) => assert_eq!(done.usage, test_engine.task_object(&done.task_id).await.usage),
                _ => {}
            }
        }
        let day = Day::from_millis(test_engine.clock.now());
        let spent = test_engine.engine.ports().directory.daily_spend(&test_engine.user, day).await.expect("readable");
        assert_eq!((spent.usage, spent.cost), (total, CostMicros(32_000_000)), "{kind:?}");
        // The steps of the run, and nothing else.
        let steps = log.iter().filter(|record| record.run == second.task).filter_map(|record| match record.event() {
            Event::StepDone(done) => Some(done.usage),
            _ => None,
        });
        let own = steps.fold(Usage::default(), |mut sum, usage| {
            sum.add(usage);
            sum
        });
        assert_eq!(test_engine.task_object(&second.task).await.usage, own, "{kind:?}");
    }
}

/// A summary that exhausts the day's budget leaves nothing for the next run, before and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_counts_against_the_daily_budget() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        two_runs(&test_engine, "compact").await;
        test_engine.wait_idle().await;
        let day = Day::from_millis(test_engine.clock.now());
        let spent =
            test_engine.engine.ports().directory.daily_spend(&test_engine.user, day).await.expect("readable").usage;
        let limits =
            RunLimits { user_day_tokens_max: Some(spent.input_tokens + spent.output_tokens), ..RunLimits::default() };
        let test_engine = TestEngine::with_definitions(kind, Definitions { limits, ..definitions() }).await;
        let second = two_runs(&test_engine, "compact").await;
        test_engine.wait_for_event(&second.thread, COMPACTED).await;
        let next = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&next).await.reason.as_deref(), Some("budget"), "{kind:?}");
        let test_engine = test_engine.restart().await;
        let next = test_engine.start_run_of("demo", Some(&second.thread), "hello").await;
        assert_eq!(test_engine.wait_settled(&next).await.reason.as_deref(), Some("budget"), "{kind:?}");
    }
}
