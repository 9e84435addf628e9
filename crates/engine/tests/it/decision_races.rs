//! Races between a decision and whatever else closes its approval: the log and the row agree, whichever came first.

use crate::fixtures::{definitions, with_tool};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, TestEnv, TestSetup};
use engine::StartedRun;
use model::command::{AnswerBody, AnswerCommand, Command};
use model::event::{ApprovalDecision, ApprovalDecisionKind, CancelMode, Event, Initiator};
use model::ports::{ApprovalFilter, ApprovalRow, ListPage, Submission, SubmitError, Submitted, ThreadMode};
use model::task::{TaskObject, TaskStatus};
use model::{ApprovalKey, Record};
use std::sync::Arc;
use std::time::Duration;

/// Longer than anything in this test takes.
const PATIENCE: Duration = Duration::from_secs(30);

async fn approval_row(test_engine: &TestEngine, key: &ApprovalKey) -> ApprovalRow {
    test_engine
        .engine
        .ports()
        .directory
        .approval(&test_engine.user, key)
        .await
        .expect("readable")
        .expect("it was asked")
}

/// Stores an approval at the last moment, without a wake-up.
async fn store_approval(test_engine: &TestEngine, question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    let decision = ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None };
    let to = AnswerBody::Approval { key: question.key.clone(), decision, by: Initiator::User };
    let command = Command::Answer(AnswerCommand {
        task_id: question.run_id.clone(),
        body: to,
        request_echo: None,
        update: None,
        client: None,
    });
    let (thread, at) = (question.thread_id.clone(), question.expires_at - 1);
    let submission = Submission {
        thread,
        thread_mode: ThreadMode::MustExist,
        at,
        command,
        idempotency_key: None,
        task_path: Vec::new(),
    };
    test_engine
        .engine
        .ports()
        .directory
        .writer(&test_engine.user)
        .expect("a user")
        .submit(&test_engine.user, submission)
        .await
}

/// Who closed the approval according to the log, which must agree with its row.
async fn closed_by(test_engine: &TestEngine, run: &StartedRun, key: &ApprovalKey) -> Initiator {
    let by = |record: &Record| match record.event() {
        Event::ApprovalResolved(resolved) if resolved.key == *key => {
            Some((resolved.by, resolved.decisions.first().cloned()))
        }
        _ => None,
    };
    let said: Vec<_> = test_engine.read_log(&run.thread).await.iter().filter_map(by).collect();
    let row = approval_row(test_engine, key).await.answer.expect("it is closed");
    assert_eq!(said, [(row.by, Some(row.decision))], "the log and the row");
    row.by
}

fn approval_key(object: &TaskObject) -> ApprovalKey {
    object.pending[0].key.clone().expect("a question")
}

#[tokio::test(start_paused = true)]
async fn a_stored_decision_wins_over_a_later_timer() {
    let test_engine = TestEngine::new(StoreKind::Memory).await;
    // A running tool keeps the actor alive, and with it the timer; nothing makes it read the inbox.
    let run = test_engine.start_run(None, "ask or hold").await;
    test_engine.wait_for_event(&run.thread, "task.tool.started").await;
    let page = ListPage { before: None, limit: 9 };
    let open = test_engine
        .engine
        .ports()
        .directory
        .approvals(&test_engine.user, ApprovalFilter::Pending, page)
        .await
        .expect("readable");
    assert_eq!(store_approval(&test_engine, &open[0]).await, Ok(Submitted::Queued));
    tokio::time::advance(Duration::from_secs(301)).await;
    test_engine.wait_for_event(&run.thread, "task.approval.resolved").await;
    assert_eq!(closed_by(&test_engine, &run, &open[0].key).await, Initiator::User);
    test_engine.tools.release.add_permits(1);
    test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
    assert_eq!(test_engine.tools.call_count("trade"), 1, "what was allowed ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_stored_before_the_deadline_and_applied_after_it_counts() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let key = approval_key(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        assert_eq!(
            store_approval(&test_engine, &approval_row(&test_engine, &key).await).await,
            Ok(Submitted::Queued),
            "{kind:?}"
        );
        let (test_env, clock) = test_engine.stop().await;
        clock.advance(301_000);
        let test_engine = TestEngine::start_in(test_env, TestSetup { clock, ..TestSetup::default() }).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&test_engine, &run, &key).await, Initiator::User, "{kind:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_during_the_append_of_the_time_out_is_too_late() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let key = approval_key(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        test_engine.engine.stop(Duration::ZERO).await;
        test_engine.clock.advance(301_000);
        let early = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        let undecided = matches!(&early, Err(SubmitError::AlreadyDecided(row)) if row.answer.is_none());
        assert!(undecided, "{kind:?}: its time is up before the clock has said what follows: {early:?}");
        let (test_env, clock) = test_engine.stop().await;
        let test_engine =
            TestEngine::start_in(test_env, TestSetup { clock, hold_appends: true, ..TestSetup::default() }).await;
        let timed_out = async {
            while approval_row(&test_engine, &key).await.answer.is_none() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, timed_out).await.expect("the clock says so");
        assert!(
            !test_engine.event_types(&run.thread).await.contains(&"task.approval.resolved".to_owned()),
            "{kind:?}: not yet"
        );
        let decided = approval_row(&test_engine, &key).await;
        let late = store_approval(&test_engine, &decided).await;
        assert_eq!(late, Err(SubmitError::AlreadyDecided(Box::new(decided))), "{kind:?}: it learns what was decided");
        test_engine.journal.release_appends(1_000);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&test_engine, &run, &key).await, Initiator::Timeout, "{kind:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_before_its_approval_is_durable_waits_for_the_append() {
    for kind in STORE_KINDS {
        let definitions = with_tool(definitions(), "trade", |tool| tool.approval_timeout_seconds = 0);
        let setup = TestSetup { definitions, hold_appends: true, ..TestSetup::default() };
        let test_engine = TestEngine::start_in(Arc::new(TestEnv::new(kind)), setup).await;
        let run = test_engine.start_run(None, "ask or hold").await;
        let asked = async {
            while test_engine.models.turn_count() == 0 || test_engine.models.live_streams() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the model has spoken");
        test_engine.journal.release_appends(1_000);
        test_engine.wait_for_event(&run.thread, "task.approval.resolved").await;
        test_engine.tools.release.add_permits(1);
        let object = test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let asked = test_engine.read_log(&run.thread).await.into_iter().find_map(|record| match record.event() {
            Event::ApprovalRequested(asked) => Some(asked.key.clone()),
            _ => None,
        });
        assert_eq!(
            closed_by(&test_engine, &run, &asked.expect("it asked")).await,
            Initiator::Timeout,
            "{kind:?}: {object:?}"
        );
        let lost = test_engine
            .read_log(&run.thread)
            .await
            .iter()
            .filter(|record| record.event_type() == "task.recovered")
            .count();
        assert_eq!((lost, test_engine.tools.call_count("trade")), (0, 0), "{kind:?}: nothing was folded anew for it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_behind_a_cancel_gets_the_outcome_of_the_cancel() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let key = approval_key(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        test_engine.engine.stop(Duration::ZERO).await;
        test_engine.cancel(&run.task, CancelMode::Immediate).await;
        let late = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        let Err(SubmitError::AlreadyDecided(told)) = late else { panic!("{kind:?}: {late:?}") };
        let told = told.answer.expect("the cancel has decided");
        assert_eq!((told.decision.kind, told.by), (ApprovalDecisionKind::Reject, Initiator::System), "{kind:?}");
        let test_engine = test_engine.restart().await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        assert_eq!(closed_by(&test_engine, &run, &key).await, Initiator::System, "{kind:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
    }
}

/// The run's own time is up, and its end is on the way to the disk: a decision that arrives now has come too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_at_the_deadline_of_its_run_is_told_what_the_log_says() {
    for kind in STORE_KINDS {
        let mut definitions = definitions();
        definitions.limits.run_deadline_ms = 60_000;
        let test_engine = TestEngine::with_definitions(kind, definitions.clone()).await;
        let (asked, called) = (test_engine.start_run(None, "trade").await, test_engine.start_run(None, "client").await);
        let key = approval_key(&test_engine.wait_settled(&asked).await);
        let call = test_engine.wait_settled(&called).await.pending[0].call_id.clone();
        test_engine.wait_idle().await;
        let (test_env, clock) = test_engine.stop().await;
        clock.advance(61_000);
        let setup = TestSetup { clock, definitions, hold_appends: true, ..TestSetup::default() };
        let test_engine = TestEngine::start_in(test_env, setup).await;
        let ending = async {
            while test_engine.journal.append_count() < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, ending).await.expect("both runs end");
        let told = test_engine.decide(&asked.task, &key, ApprovalDecisionKind::Approve).await;
        let result = test_engine.submit_result(&called.task, &call, "too late").await;
        test_engine.journal.release_appends(1_000);
        for run in [&asked, &called] {
            let ended = test_engine.wait_until(run, |object| object.status.is_terminal()).await;
            assert_eq!(ended.status, TaskStatus::Incomplete, "{kind:?}: {ended:?}");
        }
        let by = closed_by(&test_engine, &asked, &key).await;
        assert_eq!(told.is_ok(), by == Initiator::User, "{kind:?}: told {told:?}, closed by {by:?}");
        assert!(result.is_err(), "{kind:?}: the call was closed without it");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
    }
}

/// A cancel and a decision at once: the response to the decision agrees with the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_beside_a_cancel_is_told_what_the_log_says() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        for _ in 0..20 {
            let run = test_engine.start_run(None, "trade").await;
            let key = approval_key(&test_engine.wait_settled(&run).await);
            let cancel = test_engine.cancel(&run.task, CancelMode::Immediate);
            let decide = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve);
            let ((), told) = tokio::join!(cancel, decide);
            test_engine.wait_until(&run, |object| object.status.is_terminal()).await;
            let by = closed_by(&test_engine, &run, &key).await;
            assert_eq!(told.is_ok(), by == Initiator::User, "{kind:?}: told {told:?}, closed by {by:?}");
        }
    }
}

/// The clock was set forward while a run waited: a later decision is refused as expired, and the run goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_after_a_jump_of_the_clock_ends_the_wait() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let key = approval_key(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        test_engine.clock.advance(301_000);
        let late = test_engine.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        assert!(matches!(late, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {late:?}");
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&test_engine, &run, &key).await, Initiator::Timeout, "{kind:?}");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
    }
}

/// The same beside a tool that runs: the timer of a live actor counts by the monotonic clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_after_a_jump_of_the_clock_ends_the_wait_of_a_running_run() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "ask or hold").await;
        test_engine.wait_for_event(&run.thread, "task.tool.started").await;
        let page = ListPage { before: None, limit: 9 };
        let directory = &test_engine.engine.ports().directory;
        let open = directory.approvals(&test_engine.user, ApprovalFilter::Pending, page).await.expect("readable");
        test_engine.clock.advance(301_000);
        let late = test_engine.decide(&run.task, &open[0].key, ApprovalDecisionKind::Approve).await;
        assert!(matches!(late, Err(SubmitError::AlreadyDecided(_))), "{kind:?}: {late:?}");
        test_engine.wait_for_event(&run.thread, "task.approval.resolved").await;
        assert_eq!(closed_by(&test_engine, &run, &open[0].key).await, Initiator::Timeout, "{kind:?}");
        test_engine.tools.release.add_permits(1);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
    }
}

/// The clock was set back by a day while no process ran: an approval of 300 seconds does not wait for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_set_back_does_not_prolong_a_wait() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let key = approval_key(&test_engine.wait_settled(&run).await);
        test_engine.wait_idle().await;
        let (test_env, clock) = test_engine.stop().await;
        clock.set_back(24 * 60 * 60 * 1_000);
        let test_engine = TestEngine::start_in(test_env, TestSetup { clock, ..TestSetup::default() }).await;
        // Loaded for another reason, it waits on.
        test_engine.steer(&run, "hurry").await;
        test_engine.wait_idle().await;
        assert_eq!(test_engine.task_object(&run.task).await.status, TaskStatus::Paused, "{kind:?}");
        test_engine.clock.advance(301_000);
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&test_engine, &run, &key).await, Initiator::Timeout, "{kind:?}");
    }
}
