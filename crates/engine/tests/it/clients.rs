//! Client tools: their results reach the run exactly once.

use crate::test_engine::{STORE_KINDS, TestEngine, TestSetup};
use engine::AnswerError;
use futures_util::future::join_all;
use model::CallId;
use model::event::{CancelMode, Event};
use model::item::{CallKind, Item};
use model::ports::{IdempotencyKey, SubmitError};
use model::task::{TaskObject, TaskStatus};

fn pending_call_ids(object: &TaskObject) -> Vec<CallId> {
    object.pending.iter().map(|pending| pending.call_id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_results_resume_the_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let paused = test_engine.wait_settled(&run).await;
        let calls = pending_call_ids(&paused);
        assert_eq!((paused.status, calls.len()), (TaskStatus::Paused, 2), "{kind:?}");
        test_engine.wait_idle().await;
        test_engine.submit_results(&run.task, &[&calls[1]]).await.expect("taken");
        let half = test_engine
            .wait_until(&run, |object| object.status == TaskStatus::Paused && object.pending.len() == 1)
            .await;
        assert_eq!(pending_call_ids(&half), calls[..1], "{kind:?}");
        let test_engine = test_engine.restart().await;
        test_engine.submit_results(&run.task, &[&calls[0]]).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert!(
            format!("{:?}", test_engine.models.last_request().history).contains("this one"),
            "{kind:?}: the model reads it"
        );
        assert!(test_engine.tools.requests().is_empty(), "{kind:?}: the server runs nothing of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unexpected_result_rejects_the_whole_request() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        let before = test_engine.read_log(&run.thread).await;
        let strange = CallId::from("call_nobody");
        let refused = test_engine.submit_results(&run.task, &[&calls[0], &strange]).await;
        assert!(matches!(refused, Err(AnswerError::NotPending(call)) if call == strange), "{kind:?}");
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: nothing of it was taken");
        test_engine.submit_results(&run.task, &[&calls[0], &calls[1]]).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let after = test_engine.read_log(&run.thread).await;
        test_engine.submit_results(&run.task, &[&calls[0]]).await.expect("the run has this result");
        let twice = test_engine.submit_result(&run.task, &calls[0], "another").await;
        assert!(matches!(twice, Err(AnswerError::NotPending(call)) if call == calls[0]), "{kind:?}: another result");
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, after, "{kind:?}: nothing was taken twice");
    }
}

/// A retry is recognised by its key, also when the run has already applied the results and waits for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_sent_twice_with_their_key_count_once() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        let calls: Vec<&CallId> = calls.iter().collect();
        let key = |digest: &str| Some(IdempotencyKey { key: "k".to_owned(), request_digest: digest.to_owned() });
        test_engine.submit_results_with_key(&run.task, &calls, key("same")).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        test_engine.wait_idle().await;
        let before = test_engine.read_log(&run.thread).await;
        test_engine.submit_results_with_key(&run.task, &calls, key("same")).await.expect("known");
        let reused = test_engine.submit_results_with_key(&run.task, &calls, key("other")).await;
        assert!(matches!(reused, Err(AnswerError::Submit(SubmitError::KeyReused))), "{kind:?}: {reused:?}");
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: nothing was taken twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_of_one_request_are_one_input() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "many client calls").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        assert_eq!(calls.len(), 25, "{kind:?}: so many that somebody woken by the first would miss the last");
        test_engine.wait_idle().await;
        test_engine.submit_results(&run.task, &calls.iter().collect::<Vec<_>>()).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let log = test_engine.read_log(&run.thread).await;
        let resumed = log.iter().filter(|record| matches!(record.event(), Event::Resumed(_))).count();
        assert_eq!(resumed, 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_sent_twice_in_one_request_counts_once() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        // No actor is live: both requests see the run in the same state.
        test_engine.engine.stop(std::time::Duration::ZERO).await;
        for _ in 0..2 {
            test_engine.submit_results(&run.task, &[&calls[0], &calls[1]]).await.expect("taken");
        }
        let waiting = test_engine.read_inbox(&run.thread).await;
        assert_eq!(
            waiting.len(),
            1,
            "{kind:?}: a request is a row, however much it brings, and its repetition is none"
        );
        let (test_env, clock) = test_engine.stop().await;
        let test_engine = TestEngine::start_in(test_env, TestSetup { clock, ..TestSetup::default() }).await;
        let object = test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(object.output.len(), 5, "{kind:?}: two calls, two results, a message");
        test_engine.wait_idle().await;
        assert!(test_engine.read_inbox(&run.thread).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_accepted_while_other_tools_of_the_run_work() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client beside a tool").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        let running = test_engine.task_object(&run.task).await;
        assert_eq!((running.status, running.pending.len()), (TaskStatus::Running, 0), "{kind:?}: it does not wait");
        let calls: Vec<CallId> = running.output.iter().filter_map(client_call).collect();
        assert_eq!(calls.len(), 2, "{kind:?}");
        test_engine.submit_results(&run.task, &[&calls[1]]).await.expect("taken");
        test_engine.wait_until(&run, |object| results(object) == 1).await;
        let twice = test_engine.submit_results(&run.task, &[&calls[0], &calls[1]]).await;
        assert!(matches!(twice, Err(AnswerError::NotPending(call)) if call == calls[1]), "{kind:?}: it has that one");
        test_engine.submit_results(&run.task, &[&calls[0]]).await.expect("taken");
        test_engine.wait_until(&run, |object| results(object) == 2).await;
        test_engine.tools.release.add_permits(1);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert!(
            !test_engine.event_types(&run.thread).await.contains(&"task.paused".to_owned()),
            "{kind:?}: it never waited"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_results_of_one_call_exactly_one_is_accepted() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        let texts: Vec<String> = (0..20).map(|n| format!("result {n}")).collect();
        let tries = texts.iter().map(|text| test_engine.submit_result(&run.task, &calls[0], text));
        let told = join_all(tries).await;
        let accepted: Vec<&String> =
            texts.iter().zip(&told).filter(|(_, told)| told.is_ok()).map(|(text, _)| text).collect();
        assert_eq!(accepted.len(), 1, "{kind:?}: {told:?}");
        test_engine.submit_results(&run.task, &[&calls[1]]).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let read = format!("{:?}", test_engine.models.last_request().history);
        assert!(read.contains(accepted[0].as_str()), "{kind:?}: the model reads {accepted:?}: {read}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_beside_a_cancel_is_told_what_the_log_says() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        for n in 0..20 {
            let run = test_engine.start_run(None, "client").await;
            let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
            let text = format!("result {n}");
            let cancel = test_engine.cancel(&run.task, CancelMode::Immediate);
            let ((), told) = tokio::join!(cancel, test_engine.submit_result(&run.task, &calls[0], &text));
            let object = test_engine.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
            let is_its = |item: &&Item| matches!(item, Item::ToolResult(result) if result.call_id == calls[0]);
            let result = format!("{:?}", object.output.iter().find(is_its));
            assert_eq!(told.is_ok(), result.contains(&text), "{kind:?}: told {told:?}, the log has {result}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_behind_a_cancel_is_refused() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "client").await;
        let calls = pending_call_ids(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        // No actor is live: the cancel waits in the inbox.
        test_engine.engine.stop(std::time::Duration::ZERO).await;
        test_engine.cancel(&run.task, CancelMode::AfterTurn).await;
        let late = test_engine.submit_results(&run.task, &[&calls[0]]).await;
        assert!(matches!(late, Err(AnswerError::NotPending(call)) if call == calls[0]), "{kind:?}");
    }
}

fn client_call(item: &Item) -> Option<CallId> {
    match item {
        Item::ToolCall(call) if call.kind == Some(CallKind::Client) => Some(call.call_id.clone()),
        _ => None,
    }
}

fn results(object: &TaskObject) -> usize {
    object.output.iter().filter(|item| matches!(item, Item::ToolResult(_))).count()
}
