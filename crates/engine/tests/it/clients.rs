//! Tools that the client runs: what it gives goes into the run, once.

use crate::test_engine::{STORE_KINDS, TestEngine, TestSetup};
use engine::AnswerError;
use model::CallId;
use model::event::Event;
use model::item::{CallKind, Item};
use model::ports::{IdempotencyKey, SubmitError};
use model::task::{TaskObject, TaskStatus};

fn waits_for(object: &TaskObject) -> Vec<CallId> {
    object.pending.iter().map(|pending| pending.call_id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_the_client_go_on_where_the_run_waited() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "client").await;
        let paused = house.wait_settled(&run).await;
        let calls = waits_for(&paused);
        assert_eq!((paused.status, calls.len()), (TaskStatus::Paused, 2), "{kind:?}");
        house.wait_idle().await;
        house.submit_results(&run.task, &[&calls[1]]).await.expect("taken");
        let half =
            house.wait_until(&run, |object| object.status == TaskStatus::Paused && object.pending.len() == 1).await;
        assert_eq!(waits_for(&half), calls[..1], "{kind:?}");
        let house = house.restart().await;
        house.submit_results(&run.task, &[&calls[0]]).await.expect("taken");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert!(
            format!("{:?}", house.models.last_request().history).contains("this one"),
            "{kind:?}: the model reads it"
        );
        assert!(house.tools.requests().is_empty(), "{kind:?}: the server runs nothing of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_nobody_waits_for_is_refused_with_all_beside_it() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "client").await;
        let calls = waits_for(&house.wait_settled(&run).await);
        house.wait_idle().await;
        let before = house.read_log(&run.thread).await;
        let strange = CallId::from("call_nobody");
        let refused = house.submit_results(&run.task, &[&calls[0], &strange]).await;
        assert!(matches!(refused, Err(AnswerError::NotPending(call)) if call == strange), "{kind:?}");
        house.wait_idle().await;
        assert_eq!(house.read_log(&run.thread).await, before, "{kind:?}: nothing of it was taken");
        house.submit_results(&run.task, &[&calls[0], &calls[1]]).await.expect("taken");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let twice = house.submit_results(&run.task, &[&calls[0]]).await;
        assert!(matches!(twice, Err(AnswerError::NotPending(call)) if call == calls[0]), "{kind:?}: a second time");
    }
}

/// A retry is known by its key, also when the run has applied the results meanwhile and waits for nothing any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_that_are_sent_twice_with_their_key_are_taken_once() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "client").await;
        let calls = waits_for(&house.wait_settled(&run).await);
        let calls: Vec<&CallId> = calls.iter().collect();
        let key = |digest: &str| Some(IdempotencyKey { key: "k".to_owned(), request_digest: digest.to_owned() });
        house.submit_results_with_key(&run.task, &calls, key("same")).await.expect("taken");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        house.wait_idle().await;
        let before = house.read_log(&run.thread).await;
        house.submit_results_with_key(&run.task, &calls, key("same")).await.expect("known");
        let reused = house.submit_results_with_key(&run.task, &calls, key("other")).await;
        assert!(matches!(reused, Err(AnswerError::Submit(SubmitError::KeyReused))), "{kind:?}: {reused:?}");
        house.wait_idle().await;
        assert_eq!(house.read_log(&run.thread).await, before, "{kind:?}: nothing was taken twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_of_one_request_are_one_input() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "many client calls").await;
        let calls = waits_for(&house.wait_settled(&run).await);
        assert_eq!(calls.len(), 25, "{kind:?}: so many that somebody woken by the first would miss the last");
        house.wait_idle().await;
        house.submit_results(&run.task, &calls.iter().collect::<Vec<_>>()).await.expect("taken");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let log = house.read_log(&run.thread).await;
        let resumed = log.iter().filter(|record| matches!(record.event(), Event::Resumed(_))).count();
        assert_eq!(resumed, 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_sent_twice_in_one_breath_counts_once() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "client").await;
        let calls = waits_for(&house.wait_settled(&run).await);
        house.wait_idle().await;
        // Nobody lives: both requests find the run as it was.
        house.engine.stop(std::time::Duration::ZERO).await;
        for _ in 0..2 {
            house.submit_results(&run.task, &[&calls[0], &calls[1]]).await.expect("taken");
        }
        let waiting = house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable");
        assert_eq!(waiting.len(), 2, "{kind:?}: a request is a row, however much it brings");
        let (ground, clock) = house.stop().await;
        let house = TestEngine::start_in(ground, TestSetup { clock, ..TestSetup::default() }).await;
        let object = house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(object.output.len(), 5, "{kind:?}: two calls, two results, a message");
        house.wait_idle().await;
        assert!(house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_are_taken_while_other_work_of_the_run_goes_on() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "client beside a tool").await;
        house.wait_for_event(&run.thread, "task.tool.started").await;
        let running = house.task_object(&run.task).await;
        assert_eq!((running.status, running.pending.len()), (TaskStatus::Running, 0), "{kind:?}: it does not wait");
        let calls: Vec<CallId> = running.output.iter().filter_map(client_call).collect();
        assert_eq!(calls.len(), 2, "{kind:?}");
        house.submit_results(&run.task, &[&calls[1]]).await.expect("taken");
        house.wait_until(&run, |object| results(object) == 1).await;
        let twice = house.submit_results(&run.task, &[&calls[0], &calls[1]]).await;
        assert!(matches!(twice, Err(AnswerError::NotPending(call)) if call == calls[1]), "{kind:?}: it has that one");
        house.submit_results(&run.task, &[&calls[0]]).await.expect("taken");
        house.wait_until(&run, |object| results(object) == 2).await;
        house.tools.release.add_permits(1);
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert!(!house.event_types(&run.thread).await.contains(&"task.paused".to_owned()), "{kind:?}: it never waited");
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
