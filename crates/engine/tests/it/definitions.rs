//! A run keeps the definitions that it started with.

use crate::cast::{definitions, with_agent, with_tool};
use crate::house::{House, KINDS};
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
    for kind in KINDS {
        let house = House::new(kind).await;
        let run = house.ask(None, "again and again").await;
        let first = house.settled(&run).await;
        let house = house.restarted_with(others()).await;
        house.approve(&first).await;
        let asked = |object: &model::task::TaskObject| object.pending.iter().any(|p| !first.pending.contains(p));
        let second = house.until(&run, |object| object.status == TaskStatus::Paused && asked(object)).await;
        assert_eq!(house.models.last().instructions, "", "{kind:?}: its own words");
        // A run of today is not asked for, in the same process.
        let today = house.ask(None, "again and again").await;
        assert_eq!(house.settled(&today).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(house.models.last().instructions, "Be brief.", "{kind:?}");
        house.approve(&second).await;
        house.until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.count("trade"), 4, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_run_of_a_thread_has_todays_definitions() {
    for kind in KINDS {
        let house = House::new(kind).await;
        let run = house.ask(None, "trade").await;
        let paused = house.settled(&run).await;
        let next = house.ask(Some(&run.thread), "trade").await;
        let house = house.restarted_with(others()).await;
        house.approve(&paused).await;
        assert_eq!(house.settled(&next).await.status, TaskStatus::Completed, "{kind:?}: nobody is asked");
        assert_eq!(house.object(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_definitions_cannot_be_read_goes_on_with_todays() {
    for kind in KINDS {
        let house = House::new(kind).await;
        house.engine.ports().directory.put_definitions("gone", "{").await.expect("kept");
        let house = house.restarted_with(Definitions { digest: "gone".to_owned(), ..definitions() }).await;
        let run = house.ask(None, "again and again").await;
        let paused = house.settled(&run).await;
        let house = house.restarted_with(others()).await;
        house.approve(&paused).await;
        house.until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.count("trade"), 2, "{kind:?}: nobody is asked today");
    }
}
