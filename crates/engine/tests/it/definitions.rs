//! A run keeps the definitions that it started with.

use crate::fixtures::{definitions, with_agent, with_tool};
use crate::test_engine::{STORE_KINDS, TestEngine};
use model::definition::{ApprovalPolicy, Definitions};
use model::task::TaskStatus;

/// Other instructions, and nobody is asked before a trade.
fn others() -> Definitions {
    let changed = with_tool(definitions(), "trade", |tool| tool.approval = ApprovalPolicy::Never);
    let changed = with_agent(changed, "demo", |demo| demo.instructions = "Be brief.".to_owned());
    Definitions { digest: "second".to_owned(), ..changed }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_keeps_the_definitions_that_it_started_with() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "again and again").await;
        let first = house.wait_settled(&run).await;
        let house = house.restart_with(others()).await;
        house.approve(&first).await;
        let asked = |object: &model::task::TaskObject| object.pending.iter().any(|p| !first.pending.contains(p));
        let second = house.wait_until(&run, |object| object.status == TaskStatus::Paused && asked(object)).await;
        assert_eq!(house.models.last_request().instructions, "", "{kind:?}: its own words");
        // A run of today is not asked for, in the same process.
        let today = house.start_run(None, "again and again").await;
        assert_eq!(house.wait_settled(&today).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(house.models.last_request().instructions, "Be brief.", "{kind:?}");
        house.approve(&second).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.call_count("trade"), 4, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_of_a_thread_has_todays_definitions() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        let next = house.start_run(Some(&run.thread), "trade").await;
        let house = house.restart_with(others()).await;
        house.approve(&paused).await;
        assert_eq!(house.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}: nobody is asked");
        assert_eq!(house.task_object(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_definitions_cannot_be_read_goes_on_with_todays() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        house
            .engine
            .ports()
            .directory
            .writer(&model::UserId::from("operator"))
            .expect("a user")
            .put_definitions("gone", "{")
            .await
            .expect("kept");
        let house = house.restart_with(Definitions { digest: "gone".to_owned(), ..definitions() }).await;
        let run = house.start_run(None, "again and again").await;
        let paused = house.wait_settled(&run).await;
        let house = house.restart_with(others()).await;
        house.approve(&paused).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.call_count("trade"), 2, "{kind:?}: nobody is asked today");
    }
}
