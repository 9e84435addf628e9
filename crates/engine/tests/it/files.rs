//! Files in a user's input are read before the model is called.

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

/// The first user message of the model's request.
fn first_user_text(test_engine: &TestEngine) -> Vec<ContentPart> {
    let Some(HistoryEntry::User { content }) = test_engine.models.last_request().history.iter().next().cloned() else {
        panic!("a user spoke")
    };
    content
}

fn note(url: &str, why: &str) -> ContentPart {
    ContentPart::text(format!("[The file {url} could not be read: {why}]"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_is_called_after_all_files_and_a_failed_file_fails_nothing() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let said = "hello https://a.example/slow https://a.example/gone";
        let run = test_engine.start_run(None, said).await;
        let failed = |object: &TaskObject| object.output.len() == 1 && files(object)[1].status == FileStatus::Failed;
        test_engine.wait_until(&run, failed).await;
        assert!(test_engine.models.requests().is_empty(), "{kind:?}: it does not know what is in them");
        test_engine.env.documents.release.add_permits(1);
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        let statuses: Vec<_> = files(&object).iter().map(|file| file.status).collect();
        assert_eq!(statuses, [FileStatus::Completed, FileStatus::Failed], "{kind:?}");
        let read = ContentPart::text("what https://a.example/slow says");
        let given = [text_parts(said), vec![read, note("https://a.example/gone", "Nobody is there.")]].concat();
        assert_eq!(first_user_text(&test_engine), given, "{kind:?}");
        let next = test_engine.start_run(Some(&run.thread), "hello").await;
        test_engine.wait_settled(&next).await;
        assert_eq!(first_user_text(&test_engine), given, "{kind:?}: the next run knows it, too");
        let test_engine = test_engine.restart().await;
        let next = test_engine.start_run(Some(&run.thread), "hello").await;
        test_engine.wait_settled(&next).await;
        assert_eq!(first_user_text(&test_engine), given, "{kind:?}: also from the log");
        assert_eq!(test_engine.env.documents.requested_urls().len(), 2, "{kind:?}: each is read once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_interrupted_by_a_crash_is_read_again() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "hello https://a.example/1 https://a.example/slow").await;
        test_engine
            .wait_until(&run, |object| !object.output.is_empty() && files(object)[0].status == FileStatus::Completed)
            .await;
        let test_engine = test_engine.restart().await;
        test_engine.env.documents.release.add_permits(1);
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        let asked = ["https://a.example/1", "https://a.example/slow", "https://a.example/slow"];
        assert_eq!(test_engine.env.documents.requested_urls(), asked, "{kind:?}");
        let kinds = test_engine.event_types(&run.thread).await;
        assert!(!kinds.iter().any(|kind| kind == "task.recovered"), "{kind:?}: {kinds:?}");
        let says = |url: &str| ContentPart::text(format!("what {url} says"));
        assert_eq!(first_user_text(&test_engine)[1..], [says(asked[0]), says(asked[1])], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_stops_reading_files() {
    for kind in STORE_KINDS {
        for mode in [CancelMode::Immediate, CancelMode::AfterTurn] {
            let test_engine = TestEngine::new(kind).await;
            let run = test_engine.start_run(None, "hello https://a.example/slow").await;
            test_engine.wait_until(&run, |object| !object.output.is_empty()).await;
            test_engine.cancel(&run.task, mode).await;
            let object = test_engine.wait_settled(&run).await;
            assert_eq!(object.status, TaskStatus::Cancelled, "{kind:?}, {mode:?}");
            let Some(Item::FileProcessing(item)) = object.output.first() else { panic!("{object:?}") };
            assert_eq!(item.reason, Some(IncompleteReason::Cancelled), "{kind:?}, {mode:?}");
            test_engine.wait_idle().await;
            assert_eq!(test_engine.env.documents.active_reads(), 0, "{kind:?}, {mode:?}: it was dropped");
            assert!(test_engine.models.requests().is_empty(), "{kind:?}, {mode:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_file_reader_the_model_gets_a_note() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let ports = Ports { documents: Arc::new(NoDocuments), ..test_engine.engine.ports().clone() };
        let test_engine = TestEngine { engine: Engine::new(ports), ..test_engine };
        let run = test_engine.start_run(None, "hello https://a.example/1").await;
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(
            first_user_text(&test_engine)[1..],
            [note("https://a.example/1", "This server reads no files.")],
            "{kind:?}"
        );
    }
}
