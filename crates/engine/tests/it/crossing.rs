//! A decision and what else closes its question, on their way at the same time: the log and the row say the same, whichever
//! was first.

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

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn row(house: &TestEngine, key: &ApprovalKey) -> ApprovalRow {
    house.engine.ports().directory.approval(&house.user, key).await.expect("readable").expect("it was asked")
}

/// Writes a yes down in the last moment. Nobody is told of it.
async fn write_yes(house: &TestEngine, question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    let decision = ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None };
    let to = AnswerBody::Approval { key: question.key.clone(), decision, by: Initiator::User };
    let command =
        Command::Answer(AnswerCommand { task_id: question.run_id.clone(), body: to, request_echo: None, update: None });
    let (thread, at) = (question.thread_id.clone(), question.expires_at - 1);
    let submission = Submission { thread, thread_mode: ThreadMode::MustExist, at, command, idempotency_key: None };
    house.engine.ports().directory.writer(&house.user).expect("a user").submit(&house.user, submission).await
}

/// Who closed the question: what the log says, which is what its row says.
async fn closed_by(house: &TestEngine, run: &StartedRun, key: &ApprovalKey) -> Initiator {
    let by = |record: &Record| match record.event() {
        Event::ApprovalResolved(resolved) if resolved.key == *key => {
            Some((resolved.by, resolved.decisions.first().cloned()))
        }
        _ => None,
    };
    let said: Vec<_> = house.read_log(&run.thread).await.iter().filter_map(by).collect();
    let row = row(house, key).await.answer.expect("it is closed");
    assert_eq!(said, [(row.by, Some(row.decision))], "the log and the row");
    row.by
}

fn question(object: &TaskObject) -> ApprovalKey {
    object.pending[0].key.clone().expect("a question")
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_was_written_down_first_wins_over_a_timer_that_knows_nothing_of_it() {
    let house = TestEngine::new(StoreKind::Memory).await;
    // A tool keeps the run alive, and with it the timer; nobody looks into the inbox.
    let run = house.start_run(None, "ask or hold").await;
    house.wait_for_event(&run.thread, "task.tool.started").await;
    let page = ListPage { before: None, limit: 9 };
    let open =
        house.engine.ports().directory.approvals(&house.user, ApprovalFilter::Pending, page).await.expect("readable");
    assert_eq!(write_yes(&house, &open[0]).await, Ok(Submitted::Queued));
    tokio::time::advance(Duration::from_secs(301)).await;
    house.wait_for_event(&run.thread, "task.approval.resolved").await;
    assert_eq!(closed_by(&house, &run, &open[0].key).await, Initiator::User);
    house.tools.release.add_permits(1);
    house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
    assert_eq!(house.tools.call_count("trade"), 1, "what was allowed ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_nobody_carried_out_before_the_time_was_up_still_counts() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let key = question(&house.wait_settled(&run).await);
        house.wait_idle().await;
        assert_eq!(write_yes(&house, &row(&house, &key).await).await, Ok(Submitted::Queued), "{kind:?}");
        let (ground, clock) = house.stop().await;
        clock.advance(301_000);
        let house = TestEngine::start_in(ground, TestSetup { clock, ..TestSetup::default() }).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&house, &run, &key).await, Initiator::User, "{kind:?}");
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_that_comes_while_the_time_out_is_on_its_way_to_the_log_is_too_late() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let key = question(&house.wait_settled(&run).await);
        house.wait_idle().await;
        house.engine.stop(Duration::ZERO).await;
        house.clock.advance(301_000);
        let early = house.decide(&run.task, &key, ApprovalDecisionKind::Approve).await;
        let undecided = matches!(&early, Err(SubmitError::AlreadyDecided(row)) if row.answer.is_none());
        assert!(undecided, "{kind:?}: its time is up before the clock has said what follows: {early:?}");
        let (ground, clock) = house.stop().await;
        let house = TestEngine::start_in(ground, TestSetup { clock, hold_appends: true, ..TestSetup::default() }).await;
        let timed_out = async {
            while row(&house, &key).await.answer.is_none() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, timed_out).await.expect("the clock says so");
        assert!(
            !house.event_types(&run.thread).await.contains(&"task.approval.resolved".to_owned()),
            "{kind:?}: not yet"
        );
        let decided = row(&house, &key).await;
        let late = write_yes(&house, &decided).await;
        assert_eq!(late, Err(SubmitError::AlreadyDecided(Box::new(decided))), "{kind:?}: it learns what was decided");
        house.journal.release_appends(1_000);
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(closed_by(&house, &run, &key).await, Initiator::Timeout, "{kind:?}");
        assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_that_is_up_before_its_question_is_durable_waits_for_that() {
    for kind in STORE_KINDS {
        let definitions = with_tool(definitions(), "trade", |tool| tool.approval_timeout_seconds = 0);
        let setup = TestSetup { definitions, hold_appends: true, ..TestSetup::default() };
        let house = TestEngine::start_in(Arc::new(TestEnv::new(kind)), setup).await;
        let run = house.start_run(None, "ask or hold").await;
        let asked = async {
            while house.models.turn_count() == 0 || house.models.live_streams() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("the model has spoken");
        house.journal.release_appends(1_000);
        house.wait_for_event(&run.thread, "task.approval.resolved").await;
        house.tools.release.add_permits(1);
        let object = house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        let asked = house.read_log(&run.thread).await.into_iter().find_map(|record| match record.event() {
            Event::ApprovalRequested(asked) => Some(asked.key.clone()),
            _ => None,
        });
        assert_eq!(
            closed_by(&house, &run, &asked.expect("it asked")).await,
            Initiator::Timeout,
            "{kind:?}: {object:?}"
        );
        let lost =
            house.read_log(&run.thread).await.iter().filter(|record| record.event_type() == "task.recovered").count();
        assert_eq!((lost, house.tools.call_count("trade")), (0, 0), "{kind:?}: nothing was folded anew for it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_behind_a_cancel_is_what_the_cancel_made_of_it() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let key = question(&house.wait_settled(&run).await);
        house.wait_idle().await;
        house.engine.stop(Duration::ZERO).await;
        house.cancel(&run.task, CancelMode::Immediate).await;
        house.decide(&run.task, &key, ApprovalDecisionKind::Approve).await.expect("it is still open");
        let house = house.restart().await;
        house.wait_until(&run, |object| object.status == TaskStatus::Cancelled).await;
        assert_eq!(closed_by(&house, &run, &key).await, Initiator::System, "{kind:?}");
        assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
    }
}
