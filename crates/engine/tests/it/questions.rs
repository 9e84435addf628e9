//! Questions of tools: a run whose tool has ended costs nothing while people think; one whose tool waits keeps its actor.

use crate::fixtures::{definitions, with_tool};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use model::definition::OnCrash;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Event, Initiator, PendingKind};
use model::json::ExactValue;
use model::question::QuestionAnswer;
use model::task::{TaskObject, TaskStatus};
use serde_json::json;

fn content() -> ExactValue {
    json!({"n": 7}).into()
}

async fn answer(test_engine: &TestEngine, paused: &TaskObject) {
    let pending = &paused.pending[0];
    let run = test_engine.run_row(&paused.task_id).await;
    let (kind, args) = (ApprovalDecisionKind::Approve, Some(content()));
    let decision = ApprovalDecision { kind, always: false, message: None, args };
    let key = pending.key.clone().expect("a question has a key");
    test_engine.engine.decide_approval(&test_engine.user, &run, key, decision, None).await.expect("it is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_ended_with_a_question_is_called_again_after_a_restart() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "survey").await;
        let paused = test_engine.wait_settled(&run).await;
        assert_eq!((paused.status, paused.pending[0].kind), (TaskStatus::Paused, PendingKind::Question), "{kind:?}");
        test_engine.wait_idle().await;
        assert_eq!(test_engine.tools.call_count("survey"), 1);
        let before = test_engine.read_log(&run.thread).await;
        let test_engine = test_engine.restart().await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: nothing happens without an answer");
        answer(&test_engine, &paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let requests = test_engine.tools.requests();
        let request = requests.last().expect("it was called again");
        let told = request.answers.as_ref().map(|answers| &answers.answers["q"]);
        assert_eq!((request.attempt, told), (1, Some(&QuestionAnswer::Accepted(content()))), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_waits_for_an_answer_keeps_its_run_and_gets_the_answer() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "interview").await;
        let paused = test_engine.wait_settled(&run).await;
        assert_eq!(paused.pending[0].kind, PendingKind::Question, "{kind:?}");
        assert_eq!(test_engine.engine.live_threads(), 1, "{kind:?}");
        // Another run is not held up.
        let other = test_engine.start_run(None, "weather").await;
        test_engine.wait_until(&other, |object| object.status == TaskStatus::Completed).await;
        answer(&test_engine, &paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let answers = test_engine.tools.answers.lock().expect("nobody panicked").clone();
        let told = (paused.pending[0].call_id.clone(), "q".to_owned(), QuestionAnswer::Accepted(content()));
        assert_eq!((answers, test_engine.tools.call_count("interview")), (vec![told], 1), "{kind:?}");
        test_engine.wait_idle().await;
    }
}

/// Nobody has to answer first, or wait for the time-out: the next process sees that the tool is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_of_a_tool_that_died_with_its_process_is_withdrawn_at_once() {
    for kind in STORE_KINDS {
        for (on_crash, status) in [(OnCrash::Unknown, TaskStatus::Completed), (OnCrash::Ask, TaskStatus::Paused)] {
            let definitions = with_tool(definitions(), "interview", |tool| tool.on_crash = on_crash);
            let test_engine = TestEngine::with_definitions(kind, definitions.clone()).await;
            let run = test_engine.start_run(None, "interview").await;
            let asked = test_engine.wait_settled(&run).await;
            let test_engine = test_engine.restart_with(definitions).await;
            let key = asked.pending[0].key.clone();
            let after = test_engine
                .wait_until(&run, |object| {
                    object.status == status && object.pending.first().and_then(|pending| pending.key.clone()) != key
                })
                .await;
            let log = test_engine.read_log(&run.thread).await;
            let by = log.iter().find_map(|record| match record.event() {
                Event::ApprovalResolved(resolved) => Some(resolved.by),
                _ => None,
            });
            assert_eq!(by, Some(Initiator::System), "{kind:?}");
            assert_eq!(test_engine.tools.call_count("interview"), 1, "{kind:?}: it is not called again");
            assert!(after.pending.iter().all(|pending| pending.kind == PendingKind::Approval), "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_people() {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    let run = test_engine.start_run(None, "interview").await;
    test_engine.wait_settled(&run).await;
    test_engine.engine.stop(std::time::Duration::from_secs(60)).await;
    assert_eq!(test_engine.engine.live_threads(), 0);
}
