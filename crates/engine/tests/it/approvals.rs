//! Runs that wait for approval: they cost nothing while paused, and resume in whichever process receives the answer.

use crate::fixtures::{definitions, with_tool};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, TestEnv, TestSetup};
use model::definition::OnCrash;
use model::event::{ApprovalDecisionKind, Event, Initiator};
use model::ports::{ApprovalFilter, ListPage, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, Record};
use model_testing::invariants;
use std::sync::Arc;

/// Who answered each request, in log order.
fn answer_initiators(log: &[Record]) -> Vec<Initiator> {
    let by = |record: &Record| match record.event() {
        Event::ApprovalResolved(resolved) => Some(resolved.by),
        _ => None,
    };
    log.iter().filter_map(by).collect()
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|found| *found == kind).count()
}

/// A tool that needs approval runs once, and only after the approval.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_has_no_actor_until_it_is_answered() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        assert_eq!(paused.status, TaskStatus::Paused, "{kind:?}");
        test_engine.wait_idle().await;
        assert_eq!((test_engine.tools.call_count("trade"), test_engine.models.live_streams()), (0, 0), "{kind:?}");
        let open = test_engine
            .engine
            .ports()
            .directory
            .approvals(&test_engine.user, ApprovalFilter::Pending, ListPage { before: None, limit: 9 })
            .await;
        assert_eq!(open.expect("readable").len(), 1, "{kind:?}");
        test_engine.approve(&paused).await;
        let object = test_engine.wait_until(&run, |object| object.status.is_terminal()).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}");
        assert_eq!(answer_initiators(&test_engine.read_log(&run.thread).await), [Initiator::User], "{kind:?}");
        invariants::check_one_terminal_event(&test_engine.read_log(&run.thread).await).expect("law 9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_survives_a_restart() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        let before = test_engine.read_log(&run.thread).await;
        let test_engine = test_engine.restart().await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: a paused run notices nothing");
        test_engine.approve(&paused).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_stored_while_no_actor_was_live_is_applied() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        // A stopped engine still stores the answer, but does not apply it.
        test_engine.engine.stop(std::time::Duration::ZERO).await;
        test_engine.approve(&paused).await;
        assert_eq!(test_engine.engine.live_threads(), 0, "{kind:?}");
        let test_engine = test_engine.restart().await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_approvals_can_be_answered_one_at_a_time() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "two trades").await;
        let paused = test_engine.wait_settled(&run).await;
        let keys: Vec<ApprovalKey> = paused.pending.iter().filter_map(|pending| pending.key.clone()).collect();
        assert_eq!(keys.len(), 2, "{kind:?}");
        test_engine.decide(&run.task, &keys[1], ApprovalDecisionKind::Approve).await.expect("taken");
        let half = test_engine
            .wait_until(&run, |object| object.status == TaskStatus::Paused && object.pending.len() == 1)
            .await;
        assert_eq!(half.pending[0].key.as_ref(), Some(&keys[0]), "{kind:?}");
        assert_eq!(
            (test_engine.tools.call_count("trade"), test_engine.tools.call_count("other_trade")),
            (0, 1),
            "{kind:?}"
        );
        test_engine.wait_idle().await;
        test_engine.decide(&run.task, &keys[0], ApprovalDecisionKind::Reject).await.expect("taken");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            (test_engine.tools.call_count("trade"), test_engine.tools.call_count("other_trade")),
            (0, 1),
            "{kind:?}: no is no"
        );
        let kinds = test_engine.event_types(&run.thread).await;
        assert_eq!((count(&kinds, "task.paused"), count(&kinds, "task.resumed")), (2, 2), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_answers_are_applied_in_one_append() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "two trades").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        test_engine.engine.stop(std::time::Duration::ZERO).await;
        test_engine.approve(&paused).await;
        let (test_env, clock) = test_engine.stop().await;
        let test_engine =
            TestEngine::start_in(test_env, TestSetup { clock, hold_appends: true, ..TestSetup::default() }).await;
        test_engine.journal.release_appends(1);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Running).await;
        let log = test_engine.read_log(&run.thread).await;
        assert_eq!(answer_initiators(&log), [Initiator::User; 2], "{kind:?}: both are in it");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.resumed").count(), 1, "{kind:?}: one input");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.tool.started").count(), 2, "{kind:?}");
        assert!(test_engine.read_inbox(&run.thread).await.is_empty());
        assert!(test_engine.journal.append_count() <= 2, "{kind:?}: the second one waits");
        test_engine.journal.release_appends(1_000);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            (test_engine.tools.call_count("trade"), test_engine.tools.call_count("other_trade")),
            (1, 1),
            "{kind:?}"
        );
    }
}

/// Two requests that resume the same pause do not both resume it: the second gets the result of the first, or is
/// refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_decided_once() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        let key = paused.pending[0].key.clone().expect("a question");
        let strange = ApprovalKey::from("apr_nobody");
        let none = test_engine.decide(&run.task, &strange, ApprovalDecisionKind::Approve).await;
        assert!(matches!(none, Err(SubmitError::ApprovalNotFound)), "{kind:?}: {none:?}");
        test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await.expect("taken");
        test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await.expect("the same once more");
        let other = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Reject).await;
        assert!(matches!(other, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {other:?}");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let late = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Reject).await;
        assert!(matches!(late, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {late:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn waiting_on_a_resumed_run_waits_for_its_next_pause() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "again and again").await;
        let first = test_engine.wait_settled(&run).await;
        test_engine.approve(&first).await;
        let asked = |object: &model::task::TaskObject| object.pending.iter().any(|p| !first.pending.contains(p));
        let second = test_engine.wait_until(&run, |object| object.status == TaskStatus::Paused && asked(object)).await;
        // The row has the current pause: the one before it does not count.
        test_engine.journal.hold_appends();
        test_engine.approve(&second).await;
        test_engine.journal.release_appends(1);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Running).await;
        test_engine.journal.release_appends(1_000);
        assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_times_out_while_the_run_has_no_actor() {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    let run = test_engine.start_run(None, "trade").await;
    test_engine.wait_settled(&run).await;
    test_engine.wait_idle().await;
    let object = test_engine.wait_until_unbounded(&run, |object| object.status.is_terminal()).await;
    assert_eq!(object.status, TaskStatus::Completed, "the model is told, and goes on");
    assert_eq!(test_engine.tools.call_count("trade"), 0);
    let log = test_engine.read_log(&run.thread).await;
    assert_eq!(answer_initiators(&log), [Initiator::Timeout]);
    let (asked, resolved) = approval_times(&log);
    assert!((300_000..301_000).contains(&(resolved - asked)), "{asked} {resolved}");
}

fn approval_times(log: &[Record]) -> (u64, u64) {
    let at = |kind: &str| log.iter().find(|record| record.event_type() == kind).expect("it is there").at;
    (at("task.approval.requested"), at("task.approval.resolved"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_times_out_in_real_time_and_after_a_restart() {
    for kind in STORE_KINDS {
        let quick = with_tool(definitions(), "trade", |tool| tool.approval_timeout_seconds = 1);
        let test_engine = TestEngine::with_definitions(kind, quick).await;
        let run = test_engine.start_run(None, "trade").await;
        test_engine.wait_settled(&run).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(answer_initiators(&test_engine.read_log(&run.thread).await), [Initiator::Timeout], "{kind:?}");

        let run = test_engine.start_run(None, "two trades").await;
        test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        let (test_env, clock) = test_engine.stop().await;
        clock.advance(1_000_000);
        let test_engine = TestEngine::start_in(test_env, TestSetup { clock, ..TestSetup::default() }).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            answer_initiators(&test_engine.read_log(&run.thread).await),
            [Initiator::Timeout; 2],
            "{kind:?}: while nobody lived"
        );
        assert_eq!(test_engine.tools.requests().len(), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pending_approval_keeps_its_deadline_after_two_crashes() {
    for kind in STORE_KINDS {
        // An approval is pending while another tool runs; after the crash the tool's outcome is unknown and the run
        // pauses.
        let forgetful = with_tool(definitions(), "hold", |tool| tool.on_crash = OnCrash::Unknown);
        let test_engine = TestEngine::with_definitions(kind, forgetful).await;
        let run = test_engine.start_run(None, "ask or hold").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        let test_engine = test_engine.restart().await;
        let paused = test_engine.wait_settled(&run).await;
        assert_eq!((paused.status, paused.pending.len()), (TaskStatus::Paused, 1), "{kind:?}");
        test_engine.wait_idle().await;
        // The next process knows of it from the directory alone.
        let (test_env, clock) = test_engine.stop().await;
        clock.advance(301_000);
        let test_engine = TestEngine::start_in(test_env, TestSetup { clock, ..TestSetup::default() }).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(answer_initiators(&test_engine.read_log(&run.thread).await), [Initiator::Timeout], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_can_be_cancelled() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::start_in(Arc::new(TestEnv::new(kind)), TestSetup::default()).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        test_engine.cancel(&run.task, Default::default()).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        let key = paused.pending[0].key.clone().expect("a question");
        let late = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        assert!(late.is_err(), "{kind:?}: nobody waits for it any more");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
        invariants::check_one_terminal_event(&test_engine.read_log(&run.thread).await).expect("law 9");
    }
}
