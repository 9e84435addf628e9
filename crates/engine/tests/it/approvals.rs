//! Runs that wait for people: they cost nothing meanwhile, and go on whoever lives when the answer comes.

use crate::fixtures::{definitions, with_tool};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, TestEnv, TestSetup};
use model::definition::OnCrash;
use model::event::{ApprovalDecisionKind, Event, Initiator};
use model::ports::{ApprovalFilter, ListPage, SubmitError};
use model::task::TaskStatus;
use model::{ApprovalKey, Record};
use model_testing::invariants;
use std::sync::Arc;

/// Who answered, in the order of the log.
fn answered_by(log: &[Record]) -> Vec<Initiator> {
    let by = |record: &Record| match record.event() {
        Event::ApprovalResolved(resolved) => Some(resolved.by),
        _ => None,
    };
    log.iter().filter_map(by).collect()
}

fn count(kinds: &[String], kind: &str) -> usize {
    kinds.iter().filter(|found| *found == kind).count()
}

/// A tool that needs a yes does not run before it has one, and then once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_is_nobody_until_it_is_answered() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        assert_eq!(paused.status, TaskStatus::Paused, "{kind:?}");
        house.wait_idle().await;
        assert_eq!((house.tools.call_count("trade"), house.models.live_streams()), (0, 0), "{kind:?}");
        let open = house
            .engine
            .ports()
            .directory
            .approvals(&house.user, ApprovalFilter::Pending, ListPage { before: None, limit: 9 })
            .await;
        assert_eq!(open.expect("readable").len(), 1, "{kind:?}");
        house.approve(&paused).await;
        let object = house.wait_until(&run, |object| object.status.is_terminal()).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}");
        assert_eq!(answered_by(&house.read_log(&run.thread).await), [Initiator::User], "{kind:?}");
        invariants::check_one_terminal_event(&house.read_log(&run.thread).await).expect("law 9");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_survives_a_restart() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        let before = house.read_log(&run.thread).await;
        let house = house.restart().await;
        house.wait_idle().await;
        assert_eq!(house.read_log(&run.thread).await, before, "{kind:?}: a paused run notices nothing");
        house.approve(&paused).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_came_while_nobody_lived_is_heard() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        house.wait_idle().await;
        // Whoever has stopped still writes down what comes, and nobody carries it out.
        house.engine.stop(std::time::Duration::ZERO).await;
        house.approve(&paused).await;
        assert_eq!(house.engine.live_threads(), 0, "{kind:?}");
        let house = house.restart().await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_questions_one_may_be_answered_first() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "two trades").await;
        let paused = house.wait_settled(&run).await;
        let keys: Vec<ApprovalKey> = paused.pending.iter().filter_map(|pending| pending.key.clone()).collect();
        assert_eq!(keys.len(), 2, "{kind:?}");
        house.decide(&run.task, &keys[1], ApprovalDecisionKind::Approve).await.expect("taken");
        let half =
            house.wait_until(&run, |object| object.status == TaskStatus::Paused && object.pending.len() == 1).await;
        assert_eq!(half.pending[0].key.as_ref(), Some(&keys[0]), "{kind:?}");
        assert_eq!((house.tools.call_count("trade"), house.tools.call_count("other_trade")), (0, 1), "{kind:?}");
        house.wait_idle().await;
        house.decide(&run.task, &keys[0], ApprovalDecisionKind::Reject).await.expect("taken");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            (house.tools.call_count("trade"), house.tools.call_count("other_trade")),
            (0, 1),
            "{kind:?}: no is no"
        );
        let kinds = house.event_types(&run.thread).await;
        assert_eq!((count(&kinds, "task.paused"), count(&kinds, "task.resumed")), (2, 2), "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_answers_that_waited_are_one_append() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "two trades").await;
        let paused = house.wait_settled(&run).await;
        house.wait_idle().await;
        house.engine.stop(std::time::Duration::ZERO).await;
        house.approve(&paused).await;
        let (ground, clock) = house.stop().await;
        let house = TestEngine::start_in(ground, TestSetup { clock, hold_appends: true, ..TestSetup::default() }).await;
        house.journal.release_appends(1);
        house.wait_until(&run, |object| object.status == TaskStatus::Running).await;
        let log = house.read_log(&run.thread).await;
        assert_eq!(answered_by(&log), [Initiator::User; 2], "{kind:?}: both are in it");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.resumed").count(), 1, "{kind:?}: one input");
        assert_eq!(log.iter().filter(|record| record.event_type() == "task.tool.started").count(), 2, "{kind:?}");
        assert!(house.engine.ports().directory.inbox(&house.user, &run.thread).await.expect("readable").is_empty());
        assert!(house.journal.append_count() <= 2, "{kind:?}: the second one waits");
        house.journal.release_appends(1_000);
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!((house.tools.call_count("trade"), house.tools.call_count("other_trade")), (1, 1), "{kind:?}");
    }
}

/// Two who go on from the same pause do not both go on: the second is given the first one's result, or is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_once() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        let key = paused.pending[0].key.clone().expect("a question");
        let strange = ApprovalKey::from("apr_nobody");
        let none = house.decide(&run.task, &strange, ApprovalDecisionKind::Approve).await;
        assert!(matches!(none, Err(SubmitError::ApprovalNotFound)), "{kind:?}: {none:?}");
        house.decide(&run.task, &key, ApprovalDecisionKind::Approve).await.expect("taken");
        house.decide(&run.task, &key, ApprovalDecisionKind::Approve).await.expect("the same once more");
        let other = house.decide(&run.task, &key, ApprovalDecisionKind::Reject).await;
        assert!(matches!(other, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {other:?}");
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let late = house.decide(&run.task, &key, ApprovalDecisionKind::Reject).await;
        assert!(matches!(late, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {late:?}");
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn whoever_waits_for_a_run_that_went_on_waits_for_its_next_pause() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "again and again").await;
        let first = house.wait_settled(&run).await;
        house.approve(&first).await;
        let asked = |object: &model::task::TaskObject| object.pending.iter().any(|p| !first.pending.contains(p));
        let second = house.wait_until(&run, |object| object.status == TaskStatus::Paused && asked(object)).await;
        // The row says where it is now: the pause before does not count.
        house.journal.hold_appends();
        house.approve(&second).await;
        house.journal.release_appends(1);
        house.wait_until(&run, |object| object.status == TaskStatus::Running).await;
        house.journal.release_appends(1_000);
        assert_eq!(house.wait_settled(&run).await.status, TaskStatus::Completed, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_answers_in_time_while_the_run_is_nobody() {
    let house = TestEngine::new(StoreKind::Memory).await;
    let run = house.start_run(None, "trade").await;
    house.wait_settled(&run).await;
    house.wait_idle().await;
    let object = house.wait_until_unbounded(&run, |object| object.status.is_terminal()).await;
    assert_eq!(object.status, TaskStatus::Completed, "the model is told, and goes on");
    assert_eq!(house.tools.call_count("trade"), 0);
    let log = house.read_log(&run.thread).await;
    assert_eq!(answered_by(&log), [Initiator::Timeout]);
    let (asked, resolved) = moments(&log);
    assert!((300_000..301_000).contains(&(resolved - asked)), "{asked} {resolved}");
}

fn moments(log: &[Record]) -> (u64, u64) {
    let at = |kind: &str| log.iter().find(|record| record.event_type() == kind).expect("it is there").at;
    (at("task.approval.requested"), at("task.approval.resolved"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_out_comes_also_in_real_time_and_after_a_restart() {
    for kind in STORE_KINDS {
        let quick = with_tool(definitions(), "trade", |tool| tool.approval_timeout_seconds = 1);
        let house = TestEngine::with_definitions(kind, quick).await;
        let run = house.start_run(None, "trade").await;
        house.wait_settled(&run).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(answered_by(&house.read_log(&run.thread).await), [Initiator::Timeout], "{kind:?}");

        let run = house.start_run(None, "two trades").await;
        house.wait_settled(&run).await;
        house.wait_idle().await;
        let (ground, clock) = house.stop().await;
        clock.advance(1_000_000);
        let house = TestEngine::start_in(ground, TestSetup { clock, ..TestSetup::default() }).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(
            answered_by(&house.read_log(&run.thread).await),
            [Initiator::Timeout; 2],
            "{kind:?}: while nobody lived"
        );
        assert_eq!(house.tools.requests().len(), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_that_was_open_before_a_crash_still_has_its_time_after_two() {
    for kind in STORE_KINDS {
        // A question is open while another tool runs; the process goes, the tool's outcome is unknown, the run pauses.
        let forgetful = with_tool(definitions(), "hold", |tool| tool.on_crash = OnCrash::Unknown);
        let house = TestEngine::with_definitions(kind, forgetful).await;
        let run = house.start_run(None, "ask or hold").await;
        house.wait_for_event(&run.thread, "task.tool.started").await;
        let house = house.restart().await;
        let paused = house.wait_settled(&run).await;
        assert_eq!((paused.status, paused.pending.len()), (TaskStatus::Paused, 1), "{kind:?}");
        house.wait_idle().await;
        // The process after that knows of it from the directory alone.
        let (ground, clock) = house.stop().await;
        clock.advance(301_000);
        let house = TestEngine::start_in(ground, TestSetup { clock, ..TestSetup::default() }).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(answered_by(&house.read_log(&run.thread).await), [Initiator::Timeout], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_run_can_be_cancelled() {
    for kind in STORE_KINDS {
        let house = TestEngine::start_in(Arc::new(TestEnv::new(kind)), TestSetup::default()).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        house.wait_idle().await;
        house.cancel(&run.task, Default::default()).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        let key = paused.pending[0].key.clone().expect("a question");
        let late = house.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        assert!(late.is_err(), "{kind:?}: nobody waits for it any more");
        assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
        invariants::check_one_terminal_event(&house.read_log(&run.thread).await).expect("law 9");
    }
}
