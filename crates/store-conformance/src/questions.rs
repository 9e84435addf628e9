//! The directory's law on questions to people, sentence by sentence.

use super::words::{
    Author, decide, decide_as, keyed, no, question, run, somebody, start, steer, stranger, submission, thread, yes,
};
use futures_util::future::join_all;
use model::ApprovalKey;
use model::block::ContentPart;
use model::command::{AnswerBody, AnswerCommand, ClientToolResult, Command};
use model::event::{ApprovalDecision, ApprovalDecisionKind, Initiator};
use model::ports::{
    AppendOutcome, ApprovalAnswer, ApprovalRow, Directory, DirectoryChange, Journal, ListPage, StoreError, Submission,
    SubmitError, Submitted,
};
use model::seq::Millis;
use model_testing::{Rng, seeds};
use serde_json::json;

const ALL: ListPage = ListPage { before: None, limit: 1_000 };

fn decision_at(at: Millis, question: &ApprovalRow, decision: &ApprovalDecision) -> Submission {
    Submission { at, ..submission(&question.thread_id, decide(question, decision)) }
}

/// The clock decides: it says when.
fn timed_out(at: Millis, question: &ApprovalRow, decision: &ApprovalDecision) -> Submission {
    Submission { at, ..submission(&question.thread_id, decide_as(Initiator::Timeout, question, decision)) }
}

fn answered(question: &ApprovalRow, decision: &ApprovalDecision, by: Initiator, at: Millis) -> ApprovalRow {
    let answer = ApprovalAnswer { decision: decision.clone(), by, at };
    ApprovalRow { answer: Some(answer), ..question.clone() }
}

fn closed(question: &ApprovalRow, decision: &ApprovalDecision) -> DirectoryChange {
    DirectoryChange::ApprovalResolved {
        key: question.key.clone(),
        decision: decision.clone(),
        by: Initiator::Timeout,
        at: 7_000,
    }
}

fn repeated(question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    Ok(Submitted::Duplicate { task: question.run_id.clone(), thread: question.thread_id.clone() })
}

fn decided(question: &ApprovalRow) -> Result<Submitted, SubmitError> {
    Err(SubmitError::AlreadyDecided(Box::new(question.clone())))
}

/// Somebody whose run has asked its first question, and nothing waits in the inbox.
async fn asking<'a>(journal: &'a dyn Journal, directory: &dyn Directory, n: usize) -> (Author<'a>, ApprovalRow) {
    let mut author = Author::new(journal, directory, n).await;
    let row = directory.inbox(&author.owner, &author.thread).await.unwrap()[0].id;
    author.begin().changes.push(DirectoryChange::ConsumeInboxRow { row });
    let asked = author.ask(1);
    author.must_append().await;
    (author, asked)
}

async fn waiting(directory: &dyn Directory, n: usize) -> Vec<Command> {
    let rows = directory.inbox(&somebody(), &thread(n)).await.unwrap();
    rows.into_iter().map(|row| row.command).collect()
}

async fn found(directory: &dyn Directory, question: &ApprovalRow) -> Option<ApprovalRow> {
    directory.approval(&somebody(), &question.key).await.unwrap()
}

/// 6: open from the records that ask it until a submitted decision, or the records that close it.
pub async fn a_question_is_open_from_the_records_that_ask_it_until_an_answer(
    journal: &dyn Journal,
    directory: &dyn Directory,
) {
    let owner = somebody();
    let (mut author, first) = asking(journal, directory, 1).await;
    assert_eq!(found(directory, &first).await, Some(first.clone()));
    // Records that are not written ask nothing.
    let second = author.ask(2);
    author.changes.push(DirectoryChange::ConsumeInboxRow { row: 1_000_000 });
    assert!(matches!(author.append().await, AppendOutcome::Rejected(_)));
    assert_eq!(found(directory, &second).await, None);
    assert_eq!(author.ask(2), second);
    author.must_append().await;
    assert_eq!(directory.approvals(&owner, true, ALL).await, Ok(vec![second.clone(), first.clone()]));

    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &yes())).await, Ok(Submitted::Queued));
    assert_eq!(waiting(directory, 1).await, [decide(&first, &yes())]);
    author.changes.push(closed(&second, &no("nobody came")));
    author.must_append().await;
    let first = answered(&first, &yes(), Initiator::User, 5_000);
    let second = answered(&second, &no("nobody came"), Initiator::Timeout, 7_000);
    assert_eq!(found(directory, &first).await.as_ref(), Some(&first));
    assert_eq!(found(directory, &second).await.as_ref(), Some(&second));
    assert_eq!(directory.approvals(&owner, true, ALL).await, Ok(vec![]));
    assert_eq!(directory.approvals(&owner, false, ALL).await, Ok(vec![second.clone(), first]));
    // What records decided is decided for submissions too.
    assert_eq!(directory.submit(&owner, decision_at(8_000, &second, &yes())).await, decided(&second));
}

/// 6: the same decision again changes nothing, another one learns what was decided.
pub async fn the_first_decision_counts(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (_author, asked) = asking(journal, directory, 1).await;
    assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &yes())).await, Ok(Submitted::Queued));
    let row = answered(&asked, &yes(), Initiator::User, 5_000);
    assert_eq!(directory.submit(&owner, decision_at(6_000, &asked, &yes())).await, repeated(&asked));
    // Also when nobody could answer any more.
    assert_eq!(directory.submit(&owner, decision_at(2_000_000, &asked, &yes())).await, repeated(&asked));
    let always = ApprovalDecision { always: true, ..yes() };
    let edit = ApprovalDecision { kind: ApprovalDecisionKind::Edit, args: Some(json!({"shares": 2})), ..yes() };
    for other in [no("no"), always, edit] {
        assert_eq!(directory.submit(&owner, decision_at(6_000, &asked, &other)).await, decided(&row));
    }
    assert_eq!(waiting(directory, 1).await, [decide(&asked, &yes())]);
    assert_eq!(found(directory, &asked).await, Some(row));
}

/// 2 comes before 6: what a key was used for is what is said, whatever became of the question.
pub async fn a_key_is_looked_at_before_the_question(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (_author, asked) = asking(journal, directory, 1).await;
    let first = keyed(decision_at(5_000, &asked, &yes()), "key", "digest");
    assert_eq!(directory.submit(&owner, first.clone()).await, Ok(Submitted::Queued));
    assert_eq!(directory.submit(&owner, first.clone()).await, repeated(&asked));
    assert_eq!(directory.submit(&owner, keyed(first.clone(), "key", "another")).await, Err(SubmitError::KeyReused));
    // A key of which nothing came is not bound to anything.
    let late = keyed(decision_at(6_000, &asked, &no("no")), "late", "digest");
    assert!(matches!(directory.submit(&owner, late).await, Err(SubmitError::AlreadyDecided(_))));
    let other = keyed(submission(&thread(1), steer(&run(1), "hm")), "late", "another");
    assert_eq!(directory.submit(&owner, other).await, Ok(Submitted::Queued));
}

/// 6: … whoever comes first.
pub async fn fifty_opposite_decisions_at_once_have_one_winner(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (_author, asked) = asking(journal, directory, 1).await;
    let opposite = |n: u64| if n.is_multiple_of(2) { yes() } else { no("no") };
    let tries = (0..50).map(|n| directory.submit(&owner, decision_at(5_000 + n, &asked, &opposite(n))));
    let answers = join_all(tries).await;

    let row = found(directory, &asked).await.unwrap();
    let winner = row.answer.clone().unwrap();
    assert_eq!(waiting(directory, 1).await, [decide(&asked, &winner.decision)]);
    assert_eq!(winner.decision, opposite(winner.at - 5_000));
    for (n, answer) in (0..).zip(answers) {
        let expected = if winner.at == 5_000 + n {
            Ok(Submitted::Queued)
        } else if opposite(n) == winner.decision {
            repeated(&asked)
        } else {
            decided(&row)
        };
        assert_eq!(answer, expected, "decision {n} against {winner:?}");
    }
}

/// 6: a question that is not there, not in this thread, or not this user's.
pub async fn a_decision_of_a_question_that_is_not_there_is_refused(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (author, asked) = asking(journal, directory, 1).await;
    let (_other, elsewhere) = asking(journal, directory, 2).await;
    let theirs = Author::of(journal, directory, stranger(), 3).await;
    let none = Err(SubmitError::ApprovalNotFound);
    let never = question(&thread(1), &run(1), 9);
    assert_eq!(directory.submit(&owner, decision_at(5_000, &never, &yes())).await, none);
    let misplaced = submission(&author.thread, decide(&elsewhere, &yes()));
    assert_eq!(directory.submit(&owner, misplaced).await, none);
    let foreign = submission(&theirs.thread, decide(&asked, &yes()));
    assert_eq!(directory.submit(&theirs.owner, foreign).await, none);
    let no_thread = Err(SubmitError::Store(StoreError::ThreadNotFound));
    assert_eq!(directory.submit(&theirs.owner, decision_at(5_000, &asked, &yes())).await, no_thread);

    assert_eq!(waiting(directory, 1).await, []);
    assert_eq!(found(directory, &asked).await.as_ref(), Some(&asked));
    assert_eq!(found(directory, &elsewhere).await.as_ref(), Some(&elsewhere));
    // Deleted with its thread.
    assert_eq!(directory.delete_thread(&owner, &thread(1)).await, Ok(true));
    assert_eq!(found(directory, &asked).await, None);
    assert_eq!(directory.approvals(&owner, false, ALL).await, Ok(vec![elsewhere]));
    assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &yes())).await, no_thread);
}

/// From the moment at which its time is up a question waits for nobody but the records that say so.
pub async fn a_question_whose_time_is_up_cannot_be_decided(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (_author, asked) = asking(journal, directory, 1).await;
    for at in [asked.expires_at, asked.expires_at + 1] {
        assert_eq!(directory.submit(&owner, decision_at(at, &asked, &yes())).await, decided(&asked));
    }
    assert_eq!(waiting(directory, 1).await, []);
    let last = decision_at(asked.expires_at - 1, &asked, &yes());
    assert_eq!(directory.submit(&owner, last).await, Ok(Submitted::Queued));
}

/// Asked again, the question is open again, with the time that it now has.
pub async fn a_question_that_is_asked_again_is_open_again(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, asked) = asking(journal, directory, 1).await;
    directory.submit(&owner, decision_at(5_000, &asked, &yes())).await.unwrap();
    let again = ApprovalRow { expires_at: 3_000_000, ..asked.clone() };
    // An answer that comes with a question is none.
    let change = answered(&again, &yes(), Initiator::System, 1);
    author.changes.push(DirectoryChange::ApprovalRequested(Box::new(change)));
    author.must_append().await;
    assert_eq!(found(directory, &asked).await.as_ref(), Some(&again));
    assert_eq!(directory.approvals(&owner, true, ALL).await, Ok(vec![again.clone()]));
    assert_eq!(directory.submit(&owner, decision_at(2_999_999, &asked, &no("no"))).await, Ok(Submitted::Queued));
    assert_eq!(found(directory, &asked).await, Some(answered(&again, &no("no"), Initiator::User, 2_999_999)));
    assert_eq!(waiting(directory, 1).await, [decide(&asked, &yes()), decide(&asked, &no("no"))]);
}

/// 6: what the log says of a question is what its row says, in the end.
pub async fn records_have_the_last_word(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, first) = asking(journal, directory, 1).await;
    directory.submit(&owner, decision_at(5_000, &first, &yes())).await.unwrap();
    let (key, decision) = (first.key.clone(), yes());
    // Records that carry it out repeat it, and it stays as it came.
    author.changes.push(DirectoryChange::ApprovalResolved { key, decision, by: Initiator::User, at: 7_000 });
    author.must_append().await;
    assert_eq!(found(directory, &first).await, Some(answered(&first, &yes(), Initiator::User, 5_000)));
    // Those of a cancel do not.
    author.changes.push(closed(&first, &yes()));
    author.must_append().await;
    assert_eq!(found(directory, &first).await, Some(answered(&first, &yes(), Initiator::Timeout, 7_000)));
    // Asked and answered at once, and once more.
    let second = author.ask(2);
    author.changes.push(closed(&second, &no("first")));
    author.changes.push(closed(&second, &yes()));
    author.must_append().await;
    assert_eq!(found(directory, &second).await, Some(answered(&second, &yes(), Initiator::Timeout, 7_000)));
}

/// 6: the clock is one more who decides. Whichever is first, the other learns of it, and one row carries it out.
pub async fn a_decision_and_its_time_out_have_one_winner(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, first) = asking(journal, directory, 1).await;
    let late = first.expires_at + 1;
    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &yes())).await, Ok(Submitted::Queued));
    let row = answered(&first, &yes(), Initiator::User, 5_000);
    for clock in [no("late"), yes()] {
        assert_eq!(directory.submit(&owner, timed_out(late, &first, &clock)).await, decided(&row));
    }
    assert_eq!(found(directory, &first).await, Some(row));

    let second = author.ask(2);
    author.must_append().await;
    assert_eq!(directory.submit(&owner, timed_out(late, &second, &yes())).await, Ok(Submitted::Queued));
    let row = answered(&second, &yes(), Initiator::Timeout, late);
    // Said in time by its own clock, and late all the same; the same words do not make it the same decision.
    for person in [no("no"), yes()] {
        assert_eq!(directory.submit(&owner, decision_at(second.expires_at - 1, &second, &person)).await, decided(&row));
    }
    assert_eq!(directory.submit(&owner, timed_out(late + 1, &second, &yes())).await, repeated(&second));
    assert_eq!(found(directory, &second).await, Some(row));
    let rows = [decide(&first, &yes()), decide_as(Initiator::Timeout, &second, &yes())];
    assert_eq!(waiting(directory, 1).await, rows);

    for n in 3..23 {
        let asked = author.ask(n);
        author.must_append().await;
        let mut both = vec![decision_at(second.expires_at - 1, &asked, &yes()), timed_out(late, &asked, &no("late"))];
        if n % 2 == 0 {
            both.reverse();
        }
        let said = join_all(both.into_iter().map(|one| directory.submit(&owner, one))).await;
        let row = found(directory, &asked).await.unwrap();
        let by = row.answer.as_ref().unwrap().by;
        assert_eq!(said.iter().filter(|one| **one == Ok(Submitted::Queued)).count(), 1, "question {n}: {said:?}");
        assert_eq!(said.iter().filter(|one| **one == decided(&row)).count(), 1, "question {n}: {said:?}");
        let decision = row.answer.unwrap().decision;
        assert_eq!(waiting(directory, 1).await.last(), Some(&decide_as(by, &asked, &decision)), "question {n}");
    }
}

/// 4: what does not fit changes nothing, nor does anything that comes with it.
pub async fn questions_that_do_not_fit_change_nothing(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, asked) = asking(journal, directory, 1).await;
    let (_other, elsewhere) = asking(journal, directory, 2).await;
    let never = question(&thread(1), &run(1), 9);
    let of_no_run = question(&thread(1), &run(77), 1);
    let of_another_run = ApprovalRow { run_id: run(2), ..never.clone() };
    let taken = ApprovalRow { thread_id: thread(1), run_id: run(1), ..elsewhere.clone() };
    let misfits = [
        vec![closed(&never, &yes())],
        vec![closed(&elsewhere, &yes())],
        vec![closed(&never, &yes()), DirectoryChange::ApprovalRequested(Box::new(never.clone()))],
        vec![DirectoryChange::ApprovalRequested(Box::new(of_no_run))],
        vec![DirectoryChange::ApprovalRequested(Box::new(of_another_run))],
        vec![DirectoryChange::ApprovalRequested(Box::new(taken))],
        vec![DirectoryChange::ApprovalRequested(Box::new(elsewhere.clone()))],
    ];
    let log = author.read().await;
    for misfit in misfits {
        let shown = format!("{misfit:?}");
        author.note("in vain").changes.push(closed(&asked, &no("in vain")));
        author.changes.push(DirectoryChange::ScheduleWakeup { at: Some(9) });
        author.changes.extend(misfit);
        assert!(matches!(author.append().await, AppendOutcome::Rejected(_)), "{shown}");
    }
    assert_eq!(author.read().await, log);
    assert_eq!(directory.approvals(&owner, true, ALL).await, Ok(vec![elsewhere, asked]));
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![]));
}

/// A decision that was stored is compared with one that was not, and numbers are not to differ on the way.
pub async fn the_same_decision_is_the_same_whatever_numbers_are_in_it(
    journal: &dyn Journal,
    directory: &dyn Directory,
) {
    let owner = somebody();
    let seed = seeds().next().unwrap_or_default();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut author = asking(journal, directory, 1).await.0;
    for n in 2..40 {
        let asked = author.ask(n);
        author.must_append().await;
        #[expect(clippy::cast_precision_loss, reason = "any number will do")]
        let number = rng.bits() as f64 * 1e-15;
        let edit = ApprovalDecision { kind: ApprovalDecisionKind::Edit, args: Some(json!({"price": number})), ..yes() };
        assert_eq!(directory.submit(&owner, decision_at(5_000, &asked, &edit)).await, Ok(Submitted::Queued));
        assert_eq!(directory.submit(&owner, decision_at(6_000, &asked, &edit)).await, repeated(&asked), "{number}");
    }
}

/// A decision that finds no room has decided nothing; one that was taken before needs none.
pub async fn a_full_inbox_leaves_a_question_open(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, first) = asking(journal, directory, 1).await;
    let second = author.ask(2);
    author.must_append().await;
    directory.submit(&owner, decision_at(5_000, &first, &yes())).await.unwrap();
    let mut rows = 1;
    while rows < 100_000 {
        let more = (0..100).map(|_| directory.submit(&owner, submission(&thread(1), steer(&run(1), "more"))));
        let taken = join_all(more).await.iter().filter(|answer| answer.is_ok()).count();
        rows += taken;
        if taken < 100 {
            break;
        }
    }
    assert_eq!(directory.submit(&owner, decision_at(5_000, &second, &yes())).await, Err(SubmitError::InboxFull(rows)));
    assert_eq!(found(directory, &second).await.as_ref(), Some(&second));
    assert_eq!(directory.submit(&owner, decision_at(5_000, &first, &yes())).await, repeated(&first));
    // All that waits may wait for this very question to end.
    let late = second.expires_at;
    assert_eq!(directory.submit(&owner, timed_out(late, &second, &no("late"))).await, Ok(Submitted::Queued));
    assert_eq!(found(directory, &second).await, Some(answered(&second, &no("late"), Initiator::Timeout, late)));
}

/// A paused run waits for its answer, and an answer is work.
pub async fn a_decision_takes_a_paused_thread_up(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let (mut author, asked) = asking(journal, directory, 1).await;
    author.pause().changes.push(DirectoryChange::ScheduleWakeup { at: Some(asked.expires_at) });
    author.must_append().await;
    assert_eq!(directory.claimable_threads().await, Ok(vec![]));
    assert!(directory.submit(&owner, decision_at(asked.expires_at, &asked, &yes())).await.is_err());
    assert_eq!(directory.claimable_threads().await, Ok(vec![]));
    directory.submit(&owner, decision_at(5_000, &asked, &yes())).await.unwrap();
    assert_eq!(directory.claimable_threads().await, Ok(vec![(owner, thread(1))]));
}

/// What a client's tools gave is for the run to judge: no row beside the log knows those calls.
pub async fn what_a_clients_tools_gave_is_one_row_written_without_a_look(
    journal: &dyn Journal,
    directory: &dyn Directory,
) {
    let (_author, asked) = asking(journal, directory, 1).await;
    let result =
        ClientToolResult { call_id: asked.call_id.clone(), content: vec![ContentPart::text("42")], error: None };
    let to = AnswerBody::ClientTools { results: vec![result.clone(), result] };
    let gave = Command::Answer(AnswerCommand { task_id: run(1), body: to, request_echo: None });
    for _ in 0..2 {
        assert_eq!(directory.submit(&somebody(), submission(&thread(1), gave.clone())).await, Ok(Submitted::Queued));
    }
    assert_eq!(waiting(directory, 1).await, [gave.clone(), gave]);
    assert_eq!(found(directory, &asked).await.as_ref(), Some(&asked));
}

/// 7: by when they were asked, whatever is answered meanwhile.
pub async fn questions_are_listed_newest_first(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let mut authors = [Author::new(journal, directory, 1).await, Author::new(journal, directory, 2).await];
    for author in &mut authors {
        author.begin();
    }
    let mut all = Vec::new();
    for n in 1..=12 {
        // Some at the same moment; names alone would have the twelfth before the second.
        let author = &mut authors[n as usize % 2];
        let requested_at = 3_000 + u64::from(n / 3);
        let asked = ApprovalRow { requested_at, ..question(&author.thread, &author.run, n) };
        author.changes.push(DirectoryChange::ApprovalRequested(Box::new(asked.clone())));
        author.must_append().await;
        all.push(asked);
    }
    all.sort_by(|one, other| (other.requested_at, &other.key).cmp(&(one.requested_at, &one.key)));
    for limit in [1, 2, 5, 12, 13] {
        let mut listed: Vec<ApprovalRow> = Vec::new();
        loop {
            let before = listed.last().map(|last| last.key.as_str().to_owned());
            let page = directory.approvals(&owner, true, ListPage { before, limit }).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        assert_eq!(listed, all, "in pages of {limit}");
    }
    assert_eq!(directory.approvals(&owner, true, ListPage { before: None, limit: 0 }).await, Ok(vec![]));

    // An answered question still has its place.
    let place = all[5].clone();
    directory.submit(&owner, decision_at(5_000, &place, &yes())).await.unwrap();
    let after = ListPage { before: Some(place.key.as_str().to_owned()), limit: 100 };
    assert_eq!(directory.approvals(&owner, true, after.clone()).await, Ok(all[6..].to_vec()));
    // One that was deleted with its thread has none: what is left is listed from the newest on.
    assert_eq!(directory.delete_thread(&owner, &place.thread_id).await, Ok(true));
    all.retain(|left| left.thread_id != place.thread_id);
    assert_eq!(directory.approvals(&owner, true, after).await, Ok(all));
}

/// 5: another user's questions are not there, under the same name neither.
pub async fn another_users_questions_do_not_exist(journal: &dyn Journal, directory: &dyn Directory) {
    let (owner, other) = (somebody(), stranger());
    let (_author, mine) = asking(journal, directory, 1).await;
    assert_eq!(directory.approval(&other, &mine.key).await, Ok(None));
    assert_eq!(directory.approvals(&other, false, ALL).await, Ok(vec![]));
    assert_eq!(directory.approval(&owner, &ApprovalKey::from("apr_never")).await, Ok(None));

    // The same name in both worlds.
    let mut theirs = Author::of(journal, directory, other.clone(), 2).await;
    directory.submit(&other, submission(&thread(2), start(&run(1)))).await.unwrap();
    theirs.run = run(1);
    theirs.begin();
    let asked = theirs.ask(1);
    theirs.must_append().await;
    assert_eq!(asked.key, mine.key);
    directory.submit(&other, decision_at(5_000, &asked, &no("no"))).await.unwrap();
    assert_eq!(directory.approval(&owner, &mine.key).await, Ok(Some(mine.clone())));
    assert_eq!(directory.submit(&owner, decision_at(6_000, &mine, &yes())).await, Ok(Submitted::Queued));
    let row = answered(&asked, &no("no"), Initiator::User, 5_000);
    assert_eq!(directory.approval(&other, &asked.key).await, Ok(Some(row)));
}
