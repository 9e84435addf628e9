//! Files that users point at are read before the model is asked.

use crate::fixtures::text_parts;
use crate::test_engine::{STORE_KINDS, TestEngine};
use engine::{Engine, NoDocuments, Ports};
use model::content::ContentPart;
use model::event::CancelMode;
use model::history::HistoryEntry;
use model::item::{FileStatus, IncompleteReason, Item, ProcessedFile};
use model::task::{TaskObject, TaskStatus};
use std::sync::Arc;

fn files(object: &TaskObject) -> &[ProcessedFile] {
    let Some(Item::FileProcessing(item)) = object.output.first() else { panic!("{:?}", object.output) };
    &item.files
}

/// What the model was told by the user first.
fn told(house: &TestEngine) -> Vec<ContentPart> {
    let Some(HistoryEntry::User { content }) = house.models.last_request().history.first().cloned() else {
        panic!("a user spoke")
    };
    content
}

fn note(url: &str, why: &str) -> ContentPart {
    ContentPart::text(format!("[The file {url} could not be read: {why}]"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_asked_when_the_files_are_read_and_one_that_fails_fails_nothing() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let said = "hello https://a.example/slow https://a.example/gone";
        let run = house.start_run(None, said).await;
        let failed = |object: &TaskObject| object.output.len() == 1 && files(object)[1].status == FileStatus::Failed;
        house.wait_until(&run, failed).await;
        assert!(house.models.requests().is_empty(), "{kind:?}: it does not know what is in them");
        house.env.documents.release.add_permits(1);
        let object = house.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        let statuses: Vec<_> = files(&object).iter().map(|file| file.status).collect();
        assert_eq!(statuses, [FileStatus::Completed, FileStatus::Failed], "{kind:?}");
        let read = ContentPart::text("what https://a.example/slow says");
        let given = [text_parts(said), vec![read, note("https://a.example/gone", "Nobody is there.")]].concat();
        assert_eq!(told(&house), given, "{kind:?}");
        let next = house.start_run(Some(&run.thread), "hello").await;
        house.wait_settled(&next).await;
        assert_eq!(told(&house), given, "{kind:?}: the next run knows it, too");
        let house = house.restart().await;
        let next = house.start_run(Some(&run.thread), "hello").await;
        house.wait_settled(&next).await;
        assert_eq!(told(&house), given, "{kind:?}: also from the log");
        assert_eq!(house.env.documents.requested_urls().len(), 2, "{kind:?}: each is read once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_being_read_when_the_process_died_is_read_again() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "hello https://a.example/1 https://a.example/slow").await;
        house
            .wait_until(&run, |object| !object.output.is_empty() && files(object)[0].status == FileStatus::Completed)
            .await;
        let house = house.restart().await;
        house.env.documents.release.add_permits(1);
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        let asked = ["https://a.example/1", "https://a.example/slow", "https://a.example/slow"];
        assert_eq!(house.env.documents.requested_urls(), asked, "{kind:?}");
        let kinds = house.event_types(&run.thread).await;
        assert!(!kinds.iter().any(|kind| kind == "task.recovered"), "{kind:?}: {kinds:?}");
        let says = |url: &str| ContentPart::text(format!("what {url} says"));
        assert_eq!(told(&house)[1..], [says(asked[0]), says(asked[1])], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_cancelled_reads_no_further() {
    for kind in STORE_KINDS {
        for mode in [CancelMode::Immediate, CancelMode::AfterTurn] {
            let house = TestEngine::new(kind).await;
            let run = house.start_run(None, "hello https://a.example/slow").await;
            house.wait_until(&run, |object| !object.output.is_empty()).await;
            house.cancel(&run.task, mode).await;
            let object = house.wait_settled(&run).await;
            assert_eq!(object.status, TaskStatus::Cancelled, "{kind:?}, {mode:?}");
            let Some(Item::FileProcessing(item)) = object.output.first() else { panic!("{object:?}") };
            assert_eq!(item.reason, Some(IncompleteReason::Cancelled), "{kind:?}, {mode:?}");
            house.wait_idle().await;
            assert_eq!(house.env.documents.active_reads(), 0, "{kind:?}, {mode:?}: it was dropped");
            assert!(house.models.requests().is_empty(), "{kind:?}, {mode:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_reads_files_the_model_is_told_so() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let ports = Ports { documents: Arc::new(NoDocuments), ..house.engine.ports().clone() };
        let house = TestEngine { engine: Engine::new(ports), ..house };
        let run = house.start_run(None, "hello https://a.example/1").await;
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(told(&house)[1..], [note("https://a.example/1", "This server reads no files.")], "{kind:?}");
    }
}
