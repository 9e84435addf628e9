//! What a user may use up on one day, over all threads.

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

/// Each `hello` is fifteen tokens, which cost a million each.
fn limited(limits: RunLimits) -> Definitions {
    let price = Price { input: 1_000_000.0, output: 1_000_000.0, ..Price::default() };
    Definitions { limits, prices: [("scripted/demo".to_owned(), price)].into(), ..definitions() }
}

async fn spends(house: &TestEngine) {
    let first = house.start_run(None, "hello").await;
    assert_eq!(house.wait_settled(&first).await.status, TaskStatus::Completed);
    let spent = house
        .engine
        .ports()
        .directory
        .daily_spend(&house.user, Day::from_millis(house.clock.now()))
        .await
        .expect("readable");
    assert_eq!((spent.usage.input_tokens, spent.usage.output_tokens), (10, 5));
    assert_eq!(spent.cost, CostMicros(15_000_000));
    // In a thread of its own, and in the same one.
    let elsewhere = house.start_run(None, "hello").await;
    let here = house.start_run(Some(&first.thread), "hello").await;
    for run in [elsewhere, here] {
        let object = house.wait_settled(&run).await;
        assert_eq!((object.status, object.reason.as_deref()), (TaskStatus::Incomplete, Some("budget")));
    }
    // Another user has a day of their own.
    let other = UserId::from("other");
    let new = NewRun { agent: "demo".to_owned(), input: text_parts("hello"), ..NewRun::default() };
    let started = house.engine.start(&other, new).await.expect("taken");
    house.engine.wait_settled(&other, &started.task, &started.thread).await.expect("readable");
    let object = house.engine.task_object(&other, &started.task).await.expect("readable").expect("there");
    assert_eq!(object.status, TaskStatus::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_day_are_one_users_own() {
    for kind in STORE_KINDS {
        let limits = RunLimits { user_day_tokens_max: Some(15), ..RunLimits::default() };
        let house = TestEngine::with_definitions(kind, limited(limits)).await;
        spends(&house).await;
        // Also after a restart, until the day is over.
        let house = house.restart().await;
        let again = house.start_run(None, "hello").await;
        assert_eq!(house.wait_settled(&again).await.status, TaskStatus::Incomplete, "{kind:?}");
        house.clock.advance(DAY_MS);
        let tomorrow = house.start_run(None, "hello").await;
        assert_eq!(house.wait_settled(&tomorrow).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_of_a_day_is_one_users_own() {
    for kind in STORE_KINDS {
        let limits = RunLimits { user_day_cost_max: Some(CostMicros(15_000_000)), ..RunLimits::default() };
        spends(&TestEngine::with_definitions(kind, limited(limits)).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_taken_up_again_does_not_count_its_own_twice() {
    for kind in STORE_KINDS {
        // A trade's two turns need less than this, but its first turn counted twice would need more.
        let measure = TestEngine::new(kind).await;
        let run = measure.start_run(None, "trade").await;
        let first = measure.wait_settled(&run).await;
        let used = first.usage.input_tokens + first.usage.output_tokens;
        assert!(used > 0, "{kind:?}");
        let limits = RunLimits { user_day_tokens_max: Some(used * 2), ..RunLimits::default() };
        let house = TestEngine::with_definitions(kind, limited(limits)).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        let house = house.restart().await;
        house.approve(&paused).await;
        let object = house.wait_until(&run, |object| object.status.is_terminal()).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
    }
}
