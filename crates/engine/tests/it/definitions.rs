//! A run keeps the definitions that it started with.

use crate::fixtures::{definitions, with_agent, with_tool};
use crate::test_engine::{STORE_KINDS, TestEngine};
use model::definition::{ApprovalPolicy, Definitions};
use model::reference::REFERENCE_INSTRUCTIONS;
use model::task::TaskStatus;

/// Other instructions, and trades without approval.
fn other_definitions() -> Definitions {
    let changed = with_tool(definitions(), "trade", |tool| tool.approval = ApprovalPolicy::Never);
    let changed = with_agent(changed, "demo", |demo| demo.instructions = "Be brief.".to_owned());
    Definitions { digest: "second".to_owned(), ..changed }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_keeps_its_original_definitions() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "again and again").await;
        let first = test_engine.wait_settled(&run).await;
        let test_engine = test_engine.restart_with(other_definitions()).await;
        test_engine.approve(&first).await;
        let asked = |object: &model::task::TaskObject| object.pending.iter().any(|p| !first.pending.contains(p));
        let second = test_engine.wait_until(&run, |object| object.status == TaskStatus::Paused && asked(object)).await;
        let told = || test_engine.models.last_request().instructions;
        assert_eq!(told(), REFERENCE_INSTRUCTIONS, "{kind:?}: its own words");
        // A new run in the same process does not ask for approval.
        let today = test_engine.start_run(None, "again and again").await;
        assert_eq!(test_engine.wait_settled(&today).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(told(), format!("Be brief.\n\n{REFERENCE_INSTRUCTIONS}"), "{kind:?}");
        test_engine.approve(&second).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(test_engine.tools.call_count("trade"), 4, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_of_a_thread_uses_the_current_definitions() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        let next = test_engine.start_run(Some(&run.thread), "trade").await;
        let test_engine = test_engine.restart_with(other_definitions()).await;
        test_engine.approve(&paused).await;
        assert_eq!(test_engine.wait_settled(&next).await.status, TaskStatus::Completed, "{kind:?}: nobody is asked");
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_definitions_are_unreadable_continues_with_the_current_ones() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        test_engine
            .engine
            .ports()
            .directory
            .writer(&model::UserId::from("operator"))
            .expect("a user")
            .put_definitions("gone", "{")
            .await
            .expect("kept");
        let test_engine = test_engine.restart_with(Definitions { digest: "gone".to_owned(), ..definitions() }).await;
        let run = test_engine.start_run(None, "again and again").await;
        let paused = test_engine.wait_settled(&run).await;
        let test_engine = test_engine.restart_with(other_definitions()).await;
        test_engine.approve(&paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(test_engine.tools.call_count("trade"), 2, "{kind:?}: nobody is asked today");
    }
}
