//! The law of [`model::ports::PendingQuestions`].

use super::TestStore;
use super::fixtures::{
    LogWriter, approve, cancel_command, decide_command, decide_command_as, nth_run, nth_thread, other_user,
    pending_approval, reject, start_command, steer_command, submission, test_user, with_idempotency_key,
};
use futures_util::future::join_all;
use model::command::{AnswerBody, AnswerCommand, ClientToolResult, Command};
use model::content::ContentPart;
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use model::ports::{
    AppendOutcome, ApprovalAnswer, ApprovalFilter, ApprovalRow, DirectoryChange, Journal, ListPage, StoreError,
    Submission, SubmitError, Submitted,
};
use model::seq::Millis;
use model::{ApprovalKey, CallId, TaskId};
use model_testing::{Rng, test_seeds};
use serde_json::json;

const ALL_ROWS: ListPage = ListPage { before: None, limit: 1_000 };

fn decision_at(at: Millis, question: &ApprovalRow, decision: &ApprovalDecision) -> Submission {
    Submission { at, ..submission(&question.thread_id, decide_command(question, decision)) }
}

fn timeout_at(at: Millis, question: &ApprovalRow, decision: &ApprovalDecision) -> Submission {
    Submission { at, ..submission(&question.thread_id, decide_command_as(Initiator::Timeout, question, decision)) }
}

fn with_answer(question: &ApprovalRow, decision: &ApprovalDecision, by: Initiator, at: Millis) -> ApprovalRow {
    let answer = ApprovalAnswer { decision: decision.clone(), by, at };
    ApprovalRow { answer: Some(answer), ..question.clone() }
}

fn answered_change(question: &ApprovalRow, decision: &ApprovalDecision) -> DirectoryChange {
    DirectoryChange::ApprovalResolved {
        key: question.key.clone(),
        decision: decision.clone(),
        by: Initiator::Timeout,
        at: 7_000,
    }
}

fn repeated_result(question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    Ok(Submitted::Duplicate { task: question.run_id.clone(), thread: question.thread_id.clone() })
}

fn decided_error(question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    Err(SubmitError::AlreadyDecided(Box::new(question.clone())))
}

/// A thread whose run has requested its first approval, with an empty inbox.
async fn thread_with_approval<'a>(
    journal: &'a dyn Journal,
    directory: &dyn TestStore,
    n: usize,
) -> (LogWriter<'a>, ApprovalRow) {
    let mut author = LogWriter::new(journal, directory, n).await;
    let row = directory.inbox(&author.owner, &author.thread).await.unwrap()[0].id;
    author.start_run().changes.push(DirectoryChange::ConsumeInboxRow { row });
    let asked = author.request_approval(1);
    author.must_append().await;
    (author, asked)
}

async fn inbox_commands(directory: &dyn TestStore, n: usize) -> Vec<Command> {
    let rows = directory.inbox(&test_user(), &nth_thread(n)).await.unwrap();
    rows.into_iter().map(|row| row.command).collect()
}

async fn find_approval(directory: &dyn TestStore, question: &ApprovalRow) -> Option<ApprovalRow> {
    directory.approval(&test_user(), &question.key).await.unwrap()
}

/// 1: an approval is pending from the records that request it until a submitted decision or records that resolve it.
pub async fn an_approval_is_pending_from_its_record_until_an_answer(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, first) = thread_with_approval(journal, directory, 1).await;
    assert_eq!(find_approval(directory, &first).await, Some(first.clone()));
    // Records that are not appended request nothing.
    let second = author.request_approval(2);
    author.changes.push(DirectoryChange::ConsumeInboxRow { row: 1_000_000 });
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(find_approval(directory, &second).await, None);
    assert_eq!(author.request_approval(2), second);
    author.must_append().await;
    assert_eq!(
        directory.approvals(&owner, ApprovalFilter::Pending, ALL_ROWS).await,
        Ok(vec![second.clone(), first.clone()])
    );

    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &approve())).await, Ok(Submitted::Queued));
    assert_eq!(inbox_commands(directory, 1).await, [decide_command(&first, &approve())]);
    author.changes.push(answered_change(&second, &reject("nobody came")));
    author.must_append().await;
    let first = with_answer(&first, &approve(), Initiator::User, 5_000);
    let second = with_answer(&second, &reject("nobody came"), Initiator::Timeout, 7_000);
    assert_eq!(find_approval(directory, &first).await.as_ref(), Some(&first));
    assert_eq!(find_approval(directory, &second).await.as_ref(), Some(&second));
    assert_eq!(directory.approvals(&owner, ApprovalFilter::Pending, ALL_ROWS).await, Ok(vec![]));
    assert_eq!(directory.approvals(&owner, ApprovalFilter::All, ALL_ROWS).await, Ok(vec![second.clone(), first]));
    // A decision in the records also binds later submissions.
    assert_eq!(directory.submit(&owner, decision_at(8_000, &second, &approve())).await, decided_error(&second));
}

/// 2: repeating the decision changes nothing; a different one fails with the earlier decision.
pub async fn the_first_decision_counts(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (_author, asked) = thread_with_approval(journal, directory, 1).await;
    assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &approve())).await, Ok(Submitted::Queued));
    let row = with_answer(&asked, &approve(), Initiator::User, 5_000);
    assert_eq!(directory.submit(&owner, decision_at(6_000, &asked, &approve())).await, repeated_result(&asked));
    // Also after the approval would have expired.
    assert_eq!(directory.submit(&owner, decision_at(2_000_000, &asked, &approve())).await, repeated_result(&asked));
    let always = ApprovalDecision { always: true, ..approve() };
    let edit =
        ApprovalDecision { kind: ApprovalDecisionKind::Edit, args: Some(json!({"shares": 2}).into()), ..approve() };
    for other in [reject("no"), always, edit] {
        assert_eq!(directory.submit(&owner, decision_at(6_000, &asked, &other)).await, decided_error(&row));
    }
    assert_eq!(inbox_commands(directory, 1).await, [decide_command(&asked, &approve())]);
    assert_eq!(find_approval(directory, &asked).await, Some(row));
}

/// Rule 2 before rule 6: the idempotency key is checked before the state of the approval.
pub async fn the_idempotency_key_is_checked_before_the_approval(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (_author, asked) = thread_with_approval(journal, directory, 1).await;
    let first = with_idempotency_key(decision_at(5_000, &asked, &approve()), "key", "digest");
    assert_eq!(directory.submit(&owner, first.clone()).await, Ok(Submitted::Queued));
    assert_eq!(directory.submit(&owner, first.clone()).await, repeated_result(&asked));
    assert_eq!(
        directory.submit(&owner, with_idempotency_key(first.clone(), "key", "another")).await,
        Err(SubmitError::KeyReused)
    );
    // The key of a rejected submission stays unused.
    let late = with_idempotency_key(decision_at(6_000, &asked, &reject("no")), "late", "digest");
    assert!(matches!(directory.submit(&owner, late).await, Err(SubmitError::AlreadyDecided(_))));
    let other = with_idempotency_key(submission(&nth_thread(1), steer_command(&nth_run(1), "hm")), "late", "another");
    assert_eq!(directory.submit(&owner, other).await, Ok(Submitted::Queued));
}

/// 2, under concurrency.
pub async fn fifty_opposite_decisions_at_once_have_one_winner(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (_author, asked) = thread_with_approval(journal, directory, 1).await;
    let opposite = |n: u64| if n.is_multiple_of(2) { approve() } else { reject("no") };
    let tries = (0..50).map(|n| directory.submit(&owner, decision_at(5_000 + n, &asked, &opposite(n))));
    let answers = join_all(tries).await;

    let row = find_approval(directory, &asked).await.unwrap();
    let winner = row.answer.clone().unwrap();
    assert_eq!(inbox_commands(directory, 1).await, [decide_command(&asked, &winner.decision)]);
    assert_eq!(winner.decision, opposite(winner.at - 5_000));
    for (n, answer) in (0..).zip(answers) {
        let expected = if winner.at == 5_000 + n {
            Ok(Submitted::Queued)
        } else if opposite(n) == winner.decision {
            repeated_result(&asked)
        } else {
            decided_error(&row)
        };
        assert_eq!(answer, expected, "decision {n} against {winner:?}");
    }
}

/// 2: the approval does not exist, or belongs to another thread or user.
pub async fn a_decision_of_a_missing_approval_is_refused(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (author, asked) = thread_with_approval(journal, directory, 1).await;
    let (_other, elsewhere) = thread_with_approval(journal, directory, 2).await;
    let theirs = LogWriter::for_owner(journal, directory, other_user(), 3).await;
    let none = Err(SubmitError::ApprovalNotFound);
    let never = pending_approval(&nth_thread(1), &nth_run(1), 9);
    assert_eq!(directory.submit(&owner, decision_at(5_000, &never, &approve())).await, none);
    let misplaced = submission(&author.thread, decide_command(&elsewhere, &approve()));
    assert_eq!(directory.submit(&owner, misplaced).await, none);
    let foreign = submission(&theirs.thread, decide_command(&asked, &approve()));
    assert_eq!(directory.submit(&theirs.owner, foreign).await, none);
    let no_thread = Err(SubmitError::Store(StoreError::ThreadNotFound));
    assert_eq!(directory.submit(&theirs.owner, decision_at(5_000, &asked, &approve())).await, no_thread);

    assert_eq!(inbox_commands(directory, 1).await, []);
    assert_eq!(find_approval(directory, &asked).await.as_ref(), Some(&asked));
    assert_eq!(find_approval(directory, &elsewhere).await.as_ref(), Some(&elsewhere));
    // Deleted with its thread.
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(find_approval(directory, &asked).await, None);
    assert_eq!(directory.approvals(&owner, ApprovalFilter::All, ALL_ROWS).await, Ok(vec![elsewhere]));
    assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &approve())).await, no_thread);
}

/// From `expires_at` on, users can no longer decide.
pub async fn an_expired_approval_cannot_be_decided(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (_author, asked) = thread_with_approval(journal, directory, 1).await;
    for at in [asked.expires_at, asked.expires_at + 1] {
        assert_eq!(directory.submit(&owner, decision_at(at, &asked, &approve())).await, decided_error(&asked));
    }
    assert_eq!(inbox_commands(directory, 1).await, []);
    let last = decision_at(asked.expires_at - 1, &asked, &approve());
    assert_eq!(directory.submit(&owner, last).await, Ok(Submitted::Queued));
}

/// A repeated request makes the approval pending again, with its new expiry.
pub async fn an_approval_requested_again_is_pending_again(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, asked) = thread_with_approval(journal, directory, 1).await;
    directory.submit(&owner, decision_at(5_000, &asked, &approve())).await.unwrap();
    let again = ApprovalRow { expires_at: 3_000_000, ..asked.clone() };
    // An answer inside the request is ignored.
    let change = with_answer(&again, &approve(), Initiator::System, 1);
    author.changes.push(DirectoryChange::ApprovalRequested(Box::new(change)));
    author.must_append().await;
    assert_eq!(find_approval(directory, &asked).await.as_ref(), Some(&again));
    assert_eq!(directory.approvals(&owner, ApprovalFilter::Pending, ALL_ROWS).await, Ok(vec![again.clone()]));
    assert_eq!(directory.submit(&owner, decision_at(2_999_999, &asked, &reject("no"))).await, Ok(Submitted::Queued));
    assert_eq!(
        find_approval(directory, &asked).await,
        Some(with_answer(&again, &reject("no"), Initiator::User, 2_999_999))
    );
    assert_eq!(
        inbox_commands(directory, 1).await,
        [decide_command(&asked, &approve()), decide_command(&asked, &reject("no"))]
    );
}

/// 5: the log takes precedence over a submitted decision.
pub async fn records_override_stored_decisions(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, first) = thread_with_approval(journal, directory, 1).await;
    directory.submit(&owner, decision_at(5_000, &first, &approve())).await.unwrap();
    let (key, decision) = (first.key.clone(), approve());
    // Records that repeat the submitted decision keep its time.
    author.changes.push(DirectoryChange::ApprovalResolved { key, decision, by: Initiator::User, at: 7_000 });
    author.must_append().await;
    assert_eq!(find_approval(directory, &first).await, Some(with_answer(&first, &approve(), Initiator::User, 5_000)));
    // Records with another initiator replace it.
    author.changes.push(answered_change(&first, &approve()));
    author.must_append().await;
    assert_eq!(
        find_approval(directory, &first).await,
        Some(with_answer(&first, &approve(), Initiator::Timeout, 7_000))
    );
    // Requested and resolved twice in one batch.
    let second = author.request_approval(2);
    author.changes.push(answered_change(&second, &reject("first")));
    author.changes.push(answered_change(&second, &approve()));
    author.must_append().await;
    assert_eq!(
        find_approval(directory, &second).await,
        Some(with_answer(&second, &approve(), Initiator::Timeout, 7_000))
    );
}

/// 2: of a user's decision and the time-out's the first wins, the other fails, and the inbox gets one row.
pub async fn a_decision_and_its_time_out_have_one_winner(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, first) = thread_with_approval(journal, directory, 1).await;
    let late = first.expires_at + 1;
    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &approve())).await, Ok(Submitted::Queued));
    let row = with_answer(&first, &approve(), Initiator::User, 5_000);
    for clock in [reject("late"), approve()] {
        assert_eq!(directory.submit(&owner, timeout_at(late, &first, &clock)).await, decided_error(&row));
    }
    assert_eq!(find_approval(directory, &first).await, Some(row));

    let second = author.request_approval(2);
    author.must_append().await;
    assert_eq!(directory.submit(&owner, timeout_at(late, &second, &approve())).await, Ok(Submitted::Queued));
    let row = with_answer(&second, &approve(), Initiator::Timeout, late);
    // In time by its own clock, but second; an equal decision by another initiator is no repetition.
    for person in [reject("no"), approve()] {
        assert_eq!(
            directory.submit(&owner, decision_at(second.expires_at - 1, &second, &person)).await,
            decided_error(&row)
        );
    }
    assert_eq!(directory.submit(&owner, timeout_at(late + 1, &second, &approve())).await, repeated_result(&second));
    assert_eq!(find_approval(directory, &second).await, Some(row));
    let rows = [decide_command(&first, &approve()), decide_command_as(Initiator::Timeout, &second, &approve())];
    assert_eq!(inbox_commands(directory, 1).await, rows);

    for n in 3..23 {
        let asked = author.request_approval(n);
        author.must_append().await;
        let mut both =
            vec![decision_at(second.expires_at - 1, &asked, &approve()), timeout_at(late, &asked, &reject("late"))];
        if n % 2 == 0 {
            both.reverse();
        }
        let said = join_all(both.into_iter().map(|one| directory.submit(&owner, one))).await;
        let row = find_approval(directory, &asked).await.unwrap();
        let by = row.answer.as_ref().unwrap().by;
        assert_eq!(said.iter().filter(|one| **one == Ok(Submitted::Queued)).count(), 1, "question {n}: {said:?}");
        assert_eq!(said.iter().filter(|one| **one == decided_error(&row)).count(), 1, "question {n}: {said:?}");
        let decision = row.answer.unwrap().decision;
        assert_eq!(
            inbox_commands(directory, 1).await.last(),
            Some(&decide_command_as(by, &asked, &decision)),
            "question {n}"
        );
    }
}

/// An invalid change rejects its whole batch.
pub async fn invalid_approvals_change_nothing(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, asked) = thread_with_approval(journal, directory, 1).await;
    let (_other, elsewhere) = thread_with_approval(journal, directory, 2).await;
    let never = pending_approval(&nth_thread(1), &nth_run(1), 9);
    let of_no_run = pending_approval(&nth_thread(1), &nth_run(77), 1);
    let of_another_run = ApprovalRow { run_id: nth_run(2), ..never.clone() };
    let taken = ApprovalRow { thread_id: nth_thread(1), run_id: nth_run(1), ..elsewhere.clone() };
    let misfits = [
        vec![answered_change(&never, &approve())],
        vec![answered_change(&elsewhere, &approve())],
        vec![answered_change(&never, &approve()), DirectoryChange::ApprovalRequested(Box::new(never.clone()))],
        vec![DirectoryChange::ApprovalRequested(Box::new(of_no_run))],
        vec![DirectoryChange::ApprovalRequested(Box::new(of_another_run))],
        vec![DirectoryChange::ApprovalRequested(Box::new(taken))],
        vec![DirectoryChange::ApprovalRequested(Box::new(elsewhere.clone()))],
    ];
    let log = author.read_all().await;
    for misfit in misfits {
        let shown = format!("{misfit:?}");
        author.push_note("in vain").changes.push(answered_change(&asked, &reject("in vain")));
        author.changes.push(DirectoryChange::ScheduleWakeup { at: Some(9) });
        author.changes.extend(misfit);
        assert!(matches!(author.append().await, AppendOutcome::Rejected(_)), "{shown}");
    }
    assert_eq!(author.read_all().await, log);
    assert_eq!(directory.approvals(&owner, ApprovalFilter::Pending, ALL_ROWS).await, Ok(vec![elsewhere, asked]));
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![]));
}

/// Numbers survive storage exactly, because a stored decision is compared with a submitted one.
pub async fn decisions_with_equal_numbers_are_equal(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let seed = test_seeds().next().unwrap_or_default();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut author = thread_with_approval(journal, directory, 1).await.0;
    for n in 2..40 {
        let asked = author.request_approval(n);
        author.must_append().await;
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        let number = rng.next_u64() as f64 * 1e-15;
        let edit = ApprovalDecision {
            kind: ApprovalDecisionKind::Edit,
            args: Some(json!({"price": number}).into()),
            ..approve()
        };
        assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &edit)).await, Ok(Submitted::Queued));
        assert_eq!(
            directory.submit(&owner, decision_at(6_000, &asked, &edit)).await,
            repeated_result(&asked),
            "{number}"
        );
    }
}

/// A decision that a full inbox rejects decides nothing; repeating an earlier decision needs no space.
pub async fn a_full_inbox_leaves_an_approval_pending(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, first) = thread_with_approval(journal, directory, 1).await;
    let second = author.request_approval(2);
    author.must_append().await;
    directory.submit(&owner, decision_at(5_000, &first, &approve())).await.unwrap();
    let mut rows = 1;
    while rows < 100_000 {
        let more =
            (0..100).map(|_| directory.submit(&owner, submission(&nth_thread(1), steer_command(&nth_run(1), "more"))));
        let taken = join_all(more).await.iter().filter(|answer| answer.is_ok()).count();
        rows += taken;
        if taken < 100 {
            break;
        }
    }
    assert_eq!(
        directory.submit(&owner, decision_at(5_000, &second, &approve())).await,
        Err(SubmitError::InboxFull(rows))
    );
    assert_eq!(find_approval(directory, &second).await.as_ref(), Some(&second));
    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &approve())).await, repeated_result(&first));
    // Time-outs bypass the limit, because the queued rows may wait for this approval.
    let late = second.expires_at;
    assert_eq!(directory.submit(&owner, timeout_at(late, &second, &reject("late"))).await, Ok(Submitted::Queued));
    assert_eq!(
        find_approval(directory, &second).await,
        Some(with_answer(&second, &reject("late"), Initiator::Timeout, late))
    );
}

/// A decision makes a paused thread claimable.
pub async fn a_decision_makes_a_paused_thread_claimable(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, asked) = thread_with_approval(journal, directory, 1).await;
    author.pause_run().changes.push(DirectoryChange::ScheduleWakeup { at: Some(asked.expires_at) });
    author.must_append().await;
    assert_eq!(directory.claimable_threads().await, Ok(vec![]));
    assert!(directory.submit(&owner, decision_at(asked.expires_at, &asked, &approve())).await.is_err());
    assert_eq!(directory.claimable_threads().await, Ok(vec![]));
    directory.submit(&owner, decision_at(5_000, &asked, &approve())).await.unwrap();
    assert_eq!(directory.claimable_threads().await, Ok(vec![(owner, nth_thread(1))]));
}

/// A result as a client sends it.
fn client_result(call: &CallId, text: &str) -> ClientToolResult {
    ClientToolResult {
        call_id: call.clone(),
        content: vec![ContentPart::text(text)],
        error: None,
        acknowledged_checks: Vec::new(),
    }
}

fn results_submission(question: &ApprovalRow, results: &[ClientToolResult]) -> Submission {
    let body = AnswerBody::ClientTools { results: results.to_vec() };
    let task_id = question.run_id.clone();
    let answer = AnswerCommand { task_id, body, request_echo: None, update: None, client: None };
    Submission { task_path: vec![question.task_id.clone()], ..submission(&question.thread_id, Command::Answer(answer)) }
}

fn call_closed(call: &CallId) -> Result<Submitted, SubmitError> {
    Err(SubmitError::CallClosed(call.clone()))
}

/// 6: the first result of a client's call counts. The store knows the calls by their results alone.
pub async fn the_first_result_of_a_client_call_counts(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, asked) = thread_with_approval(journal, directory, 1).await;
    let [one, other, third] = ["call_1", "call_2", "call_3"].map(CallId::from);
    let first = results_submission(&asked, &[client_result(&one, "42"), client_result(&one, "42")]);
    assert_eq!(directory.submit(&owner, first.clone()).await, Ok(Submitted::Queued));
    assert_eq!(directory.submit(&owner, first.clone()).await, repeated_result(&asked));
    let different = results_submission(&asked, &[client_result(&one, "43")]);
    assert_eq!(directory.submit(&owner, different).await, call_closed(&one));
    // All or none: the other call stays open.
    let mixed = results_submission(&asked, &[client_result(&other, "1"), client_result(&one, "42")]);
    assert_eq!(directory.submit(&owner, mixed).await, call_closed(&one));
    assert_eq!(inbox_commands(directory, 1).await, [first.command]);
    // Records that repeat a result change nothing; others close the call.
    for call in [&one, &third] {
        author.changes.push(DirectoryChange::ClientCallClosed { call: call.clone() });
    }
    author.must_append().await;
    let again = results_submission(&asked, &[client_result(&one, "42")]);
    assert_eq!(directory.submit(&owner, again).await, repeated_result(&asked));
    let late = results_submission(&asked, &[client_result(&third, "")]);
    assert_eq!(directory.submit(&owner, late).await, call_closed(&third));
    let stored = async |result| directory.has_client_result(&owner, &nth_thread(1), &result).await.unwrap();
    assert!(stored(client_result(&one, "42")).await);
    assert!(!stored(client_result(&one, "43")).await && !stored(client_result(&third, "")).await);
    assert_eq!(
        directory.submit(&owner, results_submission(&asked, &[client_result(&other, "1")])).await,
        Ok(Submitted::Queued)
    );
    assert_eq!(find_approval(directory, &asked).await.as_ref(), Some(&asked));
    // Deleted with its thread.
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert!(!stored(client_result(&one, "42")).await);
}

/// 6, under concurrency.
pub async fn twenty_results_of_one_call_have_one_winner(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (_author, asked) = thread_with_approval(journal, directory, 1).await;
    let call = CallId::from("call_1");
    let tries = (0..20).map(|n| results_submission(&asked, &[client_result(&call, &n.to_string())]));
    let outcomes = join_all(tries.map(|submission| directory.submit(&owner, submission))).await;
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(Submitted::Queued)).count(), 1);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == call_closed(&call)).count(), 19);
    assert_eq!(inbox_commands(directory, 1).await.len(), 1);
}

/// 4: a cancel in the inbox has closed the questions of its task and of those below it, and no others.
pub async fn a_waiting_cancel_closes_the_questions_of_its_tasks(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let (mut author, asked) = thread_with_approval(journal, directory, 1).await;
    let (parent, sub_agent) = (TaskId::from("call_parent"), TaskId::from("call_child"));
    let child = ApprovalRow { task_id: sub_agent.clone(), ..pending_approval(&nth_thread(1), &nth_run(1), 2) };
    author.changes.push(DirectoryChange::ApprovalRequested(Box::new(child.clone())));
    author.must_append().await;
    let of_child = |submission: Submission| Submission {
        task_path: vec![sub_agent.clone(), parent.clone(), nth_run(1)],
        ..submission
    };
    let cancelled = |question: &ApprovalRow, at| {
        let decision =
            ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: None, args: None };
        decided_error(&with_answer(question, &decision, Initiator::System, at))
    };
    // A cancel of somebody else's task, one of the task above the child, and a decision that came before.
    for task in [&TaskId::from("call_other"), &parent] {
        let cancel = Submission { at: 4_000, ..submission(&nth_thread(1), cancel_command(task)) };
        assert_eq!(directory.submit(&owner, cancel).await, Ok(Submitted::Queued));
    }
    for late in [of_child(decision_at(5_000, &child, &approve())), of_child(timeout_at(5_000, &child, &approve()))] {
        assert_eq!(directory.submit(&owner, late).await, cancelled(&child, 4_000));
    }
    let result = results_submission(&child, &[client_result(&CallId::from("call_1"), "42")]);
    assert_eq!(directory.submit(&owner, of_child(result.clone())).await, call_closed(&CallId::from("call_1")));
    assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &approve())).await, Ok(Submitted::Queued));
    let rows = directory.inbox(&owner, &nth_thread(1)).await.unwrap();
    assert_eq!(rows.len(), 3);
    // Consumed, it closes what its records close.
    author.changes.extend(rows.iter().map(|row| DirectoryChange::ConsumeInboxRow { row: row.id }));
    author.must_append().await;
    assert_eq!(directory.submit(&owner, of_child(result)).await, Ok(Submitted::Queued));

    // A cancel of the run closes them all, also a question that is asked after it.
    let cancel = Submission { at: 6_000, ..submission(&nth_thread(1), cancel_command(&nth_run(1))) };
    assert_eq!(directory.submit(&owner, cancel).await, Ok(Submitted::Queued));
    let third = author.request_approval(3);
    author.must_append().await;
    for question in [&child, &third] {
        let late = decision_at(7_000, question, &approve());
        assert_eq!(directory.submit(&owner, late).await, cancelled(question, 6_000));
    }
    // The decision that came before it counts, and may be repeated.
    assert_eq!(directory.submit(&owner, decision_at(7_000, &asked, &approve())).await, repeated_result(&asked));
}

/// 7: sorted by request time, and stable while approvals are decided.
pub async fn approvals_are_listed_newest_first(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let mut authors = [LogWriter::new(journal, directory, 1).await, LogWriter::new(journal, directory, 2).await];
    for author in &mut authors {
        author.start_run();
    }
    let mut all = Vec::new();
    for n in 1..=12 {
        // Some share a timestamp; by key alone the twelfth would sort before the second.
        let author = &mut authors[n as usize % 2];
        let requested_at = 3_000 + u64::from(n / 3);
        let asked = ApprovalRow { requested_at, ..pending_approval(&author.thread, &author.run, n) };
        author.changes.push(DirectoryChange::ApprovalRequested(Box::new(asked.clone())));
        author.must_append().await;
        all.push(asked);
    }
    all.sort_by(|one, other| (other.requested_at, &other.key).cmp(&(one.requested_at, &one.key)));
    for limit in [1, 2, 5, 12, 13] {
        let mut listed: Vec<ApprovalRow> = Vec::new();
        loop {
            let before = listed.last().map(|last| last.key.as_str().to_owned());
            let page = directory.approvals(&owner, ApprovalFilter::Pending, ListPage { before, limit }).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        assert_eq!(listed, all, "in pages of {limit}");
    }
    assert_eq!(
        directory.approvals(&owner, ApprovalFilter::Pending, ListPage { before: None, limit: 0 }).await,
        Ok(vec![])
    );

    // A decided approval is still a valid page position.
    let place = all[5].clone();
    directory.submit(&owner, decision_at(5_000, &place, &approve())).await.unwrap();
    let after = ListPage { before: Some(place.key.as_str().to_owned()), limit: 100 };
    assert_eq!(directory.approvals(&owner, ApprovalFilter::Pending, after.clone()).await, Ok(all[6..].to_vec()));
    // A deleted one is not: the listing restarts at the newest.
    assert_eq!(directory.delete_thread(&owner, &place.thread_id).await, Ok(true));
    all.retain(|left| left.thread_id != place.thread_id);
    assert_eq!(directory.approvals(&owner, ApprovalFilter::Pending, after).await, Ok(all));
}

/// Another user's approvals do not exist, even under the same key.
pub async fn approvals_of_another_user_do_not_exist(journal: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other) = (test_user(), other_user());
    let (_author, mine) = thread_with_approval(journal, directory, 1).await;
    assert_eq!(directory.approval(&other, &mine.key).await, Ok(None));
    assert_eq!(directory.approvals(&other, ApprovalFilter::All, ALL_ROWS).await, Ok(vec![]));
    assert_eq!(directory.approval(&owner, &ApprovalKey::from("apr_never")).await, Ok(None));

    // Both users have an approval with this key.
    let mut theirs = LogWriter::for_owner(journal, directory, other.clone(), 2).await;
    directory.submit(&other, submission(&nth_thread(2), start_command(&nth_run(1)))).await.unwrap();
    theirs.run = nth_run(1);
    theirs.start_run();
    let asked = theirs.request_approval(1);
    theirs.must_append().await;
    assert_eq!(asked.key, mine.key);
    directory.submit(&other, decision_at(5_000, &asked, &reject("no"))).await.unwrap();
    assert_eq!(directory.approval(&owner, &mine.key).await, Ok(Some(mine.clone())));
    assert_eq!(directory.submit(&owner, decision_at(6_000, &mine, &approve())).await, Ok(Submitted::Queued));
    let row = with_answer(&asked, &reject("no"), Initiator::User, 5_000);
    assert_eq!(directory.approval(&other, &asked.key).await, Ok(Some(row)));
}
