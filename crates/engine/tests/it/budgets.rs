//! The daily budget of a user, over all threads.

use crate::fixtures::{definitions, text_parts};
use crate::test_engine::{STORE_KINDS, TestEngine};
use engine::NewRun;
use model::UserId;
use model::definition::{Definitions, Price};
use model::limits::{CostMicros, RunLimits};
use model::ports::Clock as _;
use model::ports::Day;
use model::task::TaskStatus;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Each `hello` uses fifteen tokens, which cost a million each.
fn definitions_with_limits(limits: RunLimits) -> Definitions {
    let price = Price { input: 1_000_000.0, output: 1_000_000.0, ..Price::default() };
    Definitions { limits, prices: [("scripted/demo".to_owned(), price)].into(), ..definitions() }
}

async fn check_daily_budget(test_engine: &TestEngine) {
    let first = test_engine.start_run(None, "hello").await;
    assert_eq!(test_engine.wait_settled(&first).await.status, TaskStatus::Completed);
    let spent = test_engine
        .engine
        .ports()
        .directory
        .daily_spend(&test_engine.user, Day::from_millis(test_engine.clock.now()))
        .await
        .expect("readable");
    assert_eq!((spent.usage.input_tokens, spent.usage.output_tokens), (10, 5));
    assert_eq!(spent.cost, CostMicros(15_000_000));
    // In a new thread, and in the same one.
    let elsewhere = test_engine.start_run(None, "hello").await;
    let here = test_engine.start_run(Some(&first.thread), "hello").await;
    for run in [elsewhere, here] {
        let object = test_engine.wait_settled(&run).await;
        assert_eq!((object.status, object.reason.as_deref()), (TaskStatus::Incomplete, Some("budget")));
    }
    // Another user has a separate budget.
    let other = UserId::from("other");
    let new = NewRun { agent: "demo".to_owned(), input: text_parts("hello"), ..NewRun::default() };
    let started = test_engine.engine.start(&other, new).await.expect("taken");
    test_engine.engine.wait_settled(&other, &started.task, &started.thread).await.expect("readable");
    let object = test_engine.engine.task_object(&other, &started.task).await.expect("readable").expect("there");
    assert_eq!(object.status, TaskStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daily_token_budget_is_per_user() {
    for kind in STORE_KINDS {
        let limits = RunLimits { user_day_tokens_max: Some(15), ..RunLimits::default() };
        let test_engine = TestEngine::with_definitions(kind, definitions_with_limits(limits)).await;
        check_daily_budget(&test_engine).await;
        // The budget survives a restart, until the day is over.
        let test_engine = test_engine.restart().await;
        let again = test_engine.start_run(None, "hello").await;
        assert_eq!(test_engine.wait_settled(&again).await.status, TaskStatus::Incomplete, "{kind:?}");
        test_engine.clock.advance(DAY_MS);
        let tomorrow = test_engine.start_run(None, "hello").await;
        assert_eq!(test_engine.wait_settled(&tomorrow).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daily_cost_budget_is_per_user() {
    for kind in STORE_KINDS {
        let limits = RunLimits { user_day_cost_max: Some(CostMicros(15_000_000)), ..RunLimits::default() };
        check_daily_budget(&TestEngine::with_definitions(kind, definitions_with_limits(limits)).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_run_does_not_count_its_own_usage_twice() {
    for kind in STORE_KINDS {
        // The two turns of a trade need less than this, but its first turn counted twice would need more.
        let measure = TestEngine::new(kind).await;
        let run = measure.start_run(None, "trade").await;
        let first = measure.wait_settled(&run).await;
        let used = first.usage.input_tokens + first.usage.output_tokens;
        assert!(used > 0, "{kind:?}");
        let limits = RunLimits { user_day_tokens_max: Some(used * 2), ..RunLimits::default() };
        let test_engine = TestEngine::with_definitions(kind, definitions_with_limits(limits)).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        let test_engine = test_engine.restart().await;
        test_engine.approve(&paused).await;
        let object = test_engine.wait_until(&run, |object| object.status.is_terminal()).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
    }
}

/// A run that waits, for a tool or for a person, goes on under the limit as it is by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daily_budget_counts_what_other_threads_spent_meanwhile() {
    for kind in STORE_KINDS {
        let measure = TestEngine::new(kind).await;
        let run = measure.start_run(None, "trade").await;
        let paused = measure.wait_settled(&run).await;
        let first_turn = paused.usage.input_tokens + paused.usage.output_tokens;
        // Enough for the first turn of both, and for the fifteen tokens of another thread, of which one is needed.
        let limits = RunLimits { user_day_tokens_max: Some(first_turn * 2 + 15), ..RunLimits::default() };
        let test_engine = TestEngine::with_definitions(kind, definitions_with_limits(limits)).await;
        let asking = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&asking).await;
        let working = test_engine.start_run(None, "held").await;
        test_engine.wait_for_event(&working.thread, "task.tool.started").await;
        let other = test_engine.start_run(None, "hello").await;
        assert_eq!(test_engine.wait_settled(&other).await.status, TaskStatus::Completed, "{kind:?}");
        let more = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&more).await;
        test_engine.tools.release.add_permits(1);
        test_engine.approve(&paused).await;
        for run in [&asking, &working] {
            let object = test_engine.wait_until(run, |object| object.status.is_terminal()).await;
            let ended = (object.status, object.reason.as_deref());
            assert_eq!(ended, (TaskStatus::Incomplete, Some("budget")), "{kind:?}");
        }
    }
}
