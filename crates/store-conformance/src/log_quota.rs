//! The quota of logs ([`model::ports::Threads`], rule 5). A backend is opened with a maximum for this.

use super::TestStore;
use super::fixtures::{
    LogWriter, approve, cancel_command, decide_command, new_thread_submission, nth_run, nth_thread, other_user,
    start_command, steer_command, submission, test_user, with_idempotency_key,
};
use model::Record;
use model::ports::{Journal, SubmitError, Submitted};

fn size(records: &[Record]) -> u64 {
    records.iter().map(|record| record.size_bytes() as u64).sum()
}

/// A user whose log is full starts nothing, but whatever ends or answers a run is accepted. Deleting a thread makes room.
/// `max` is the backend's maximum; a run with twice as many bytes must fit a batch.
pub async fn a_full_log_accepts_answers_and_nothing_new(journal: &dyn Journal, directory: &dyn TestStore, max: u64) {
    let owner = test_user();
    let mut small = LogWriter::new(journal, directory, 1).await;
    let kept = size(&small.start_run().push_notes(2).complete_run().must_append().await);
    assert!(kept < max, "{kept}");
    let first = with_idempotency_key(new_thread_submission(&nth_thread(2), start_command(&nth_run(2))), "key", "d");
    assert!(matches!(directory.submit(&owner, first.clone()).await, Ok(Submitted::Claimed { .. })));
    let lease = super::fixtures::claim_thread(journal, &owner, &nth_thread(2)).await;
    let mut long = LogWriter::with_lease(journal, owner.clone(), 2, lease);
    let text = "x".repeat(usize::try_from(max).unwrap());
    // A run that is under way is not cut.
    let mut used = kept + size(&long.start_run().push_note(&text).must_append().await);
    let question = long.request_approval(1);
    used += size(&long.push_note(&text).pause_run().must_append().await);
    assert_eq!(directory.log_bytes_used(&owner).await, Ok(used));

    let full = Err(SubmitError::LogQuotaExceeded { used, max });
    assert_eq!(directory.submit(&owner, new_thread_submission(&nth_thread(3), start_command(&nth_run(3)))).await, full);
    assert_eq!(directory.submit(&owner, submission(&nth_thread(1), start_command(&nth_run(3)))).await, full);
    assert_eq!(directory.submit(&owner, submission(&nth_thread(2), steer_command(&nth_run(2), "more"))).await, full);
    assert_eq!(directory.thread(&owner, &nth_thread(3)).await, Ok(None));
    // The first request, sent again, is no new one.
    let repeated = Submitted::Duplicate { task: nth_run(2), thread: nth_thread(2) };
    assert_eq!(directory.submit(&owner, first).await, Ok(repeated));
    let decision = submission(&nth_thread(2), decide_command(&question, &approve()));
    assert_eq!(directory.submit(&owner, decision).await, Ok(Submitted::Queued));
    assert_eq!(
        directory.submit(&owner, submission(&nth_thread(2), cancel_command(&nth_run(2)))).await,
        Ok(Submitted::Queued)
    );
    let other = new_thread_submission(&nth_thread(4), start_command(&nth_run(4)));
    assert!(directory.submit(&other_user(), other).await.is_ok(), "of another user");

    assert_eq!(directory.delete_thread(&owner, &nth_thread(2)).await, Ok(true));
    assert_eq!(directory.log_bytes_used(&owner).await, Ok(kept));
    assert!(directory.submit(&owner, submission(&nth_thread(1), start_command(&nth_run(3)))).await.is_ok());
}
