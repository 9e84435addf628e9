//! The directory's law on the names of threads.

use super::fixtures::{LogWriter, new_thread_submission, nth_run, nth_thread, other_user, start_command, test_user};
use futures_util::future::join_all;
use model::ports::{AliasRow, Directory, Journal, SubmitError};

/// A name of the `n`-th thread.
#[must_use]
pub fn nth_alias(protocol: &str, name: &str, n: usize) -> AliasRow {
    let (protocol, name) = (protocol.to_owned(), name.to_owned());
    AliasRow { protocol, name, thread: nth_thread(n), note: format!("note {n}"), created_at: n as u64 }
}

/// 8: a name belongs to whoever gave it first, and who gives it again learns what it stands for.
pub async fn a_name_stands_for_what_it_was_first_given_to(_: &dyn Journal, directory: &dyn Directory) {
    let owner = test_user();
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    let first = nth_alias("p", "mine", 1);
    assert_eq!(directory.create_alias(&owner, first.clone()).await, Ok(first.clone()));
    assert_eq!(directory.create_alias(&owner, nth_alias("p", "mine", 2)).await, Ok(first.clone()));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(first)));
    // A thread may have several, and a name may be any text.
    for name in ["", "Mine", "mine ", "日本 \u{0} \"quoted\"", &"long".repeat(1_000)] {
        let row = nth_alias("p", name, 1);
        assert_eq!(directory.alias(&owner, "p", name).await, Ok(None), "{name}");
        assert_eq!(directory.create_alias(&owner, row.clone()).await, Ok(row.clone()), "{name}");
        assert_eq!(directory.alias(&owner, "p", name).await, Ok(Some(row)), "{name}");
    }
}

/// 8: … whoever comes first.
pub async fn a_name_given_many_times_at_once_stands_for_one_thread(_: &dyn Journal, directory: &dyn Directory) {
    let owner = test_user();
    let gifts = (1..=20).map(|n| directory.create_alias(&owner, nth_alias("p", "mine", n)));
    let rows: Vec<AliasRow> = join_all(gifts).await.into_iter().map(Result::unwrap).collect();
    let there = directory.alias(&owner, "p", "mine").await.unwrap().unwrap();
    assert!(rows.iter().all(|row| *row == there), "{rows:?}");
    assert!((1..=20).any(|n| there == nth_alias("p", "mine", n)), "{there:?}");
}

/// 8: names are their owner's and their protocol's.
pub async fn a_name_is_its_owners_and_its_protocols(_: &dyn Journal, directory: &dyn Directory) {
    let (owner, other) = (test_user(), other_user());
    for (who, protocol, n) in [(&owner, "p", 1), (&owner, "q", 2), (&other, "p", 3)] {
        assert_eq!(
            directory.create_alias(who, nth_alias(protocol, "mine", n)).await,
            Ok(nth_alias(protocol, "mine", n))
        );
    }
    assert_eq!(directory.alias(&other, "q", "mine").await, Ok(None));
    assert_eq!(directory.update_alias(&other, "q", "mine", "theirs".to_owned()).await, Ok(false));
    assert_eq!(directory.delete_alias(&other, "q", "mine").await, Ok(false));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(true));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "q", "mine").await, Ok(Some(nth_alias("q", "mine", 2))));
    assert_eq!(directory.alias(&other, "p", "mine").await, Ok(Some(nth_alias("p", "mine", 3))));
}

/// 8: what is noted beside a name can change, what it stands for only when it was free in between.
pub async fn a_note_can_change_and_a_name_can_be_freed(_: &dyn Journal, directory: &dyn Directory) {
    let owner = test_user();
    assert_eq!(directory.update_alias(&owner, "p", "mine", "new".to_owned()).await, Ok(false));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    directory.create_alias(&owner, nth_alias("p", "mine", 1)).await.unwrap();
    directory.create_alias(&owner, nth_alias("p", "other", 1)).await.unwrap();
    assert_eq!(directory.update_alias(&owner, "p", "mine", "new".to_owned()).await, Ok(true));
    let noted = AliasRow { note: "new".to_owned(), ..nth_alias("p", "mine", 1) };
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(noted.clone())));
    assert_eq!(directory.create_alias(&owner, nth_alias("p", "mine", 2)).await, Ok(noted));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(true));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(false));
    assert_eq!(directory.create_alias(&owner, nth_alias("p", "mine", 2)).await, Ok(nth_alias("p", "mine", 2)));
    assert_eq!(directory.alias(&owner, "p", "other").await, Ok(Some(nth_alias("p", "other", 1))));
}

/// 8: a name may be older than its thread, and goes with it; what others call it is theirs.
pub async fn a_name_may_be_older_than_its_thread_and_goes_with_it(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = test_user();
    for (protocol, name, n) in [("p", "mine", 1), ("q", "mine", 1), ("p", "other", 2)] {
        directory.create_alias(&owner, nth_alias(protocol, name, n)).await.unwrap();
    }
    directory.create_alias(&other_user(), nth_alias("p", "theirs", 1)).await.unwrap();
    assert_eq!(directory.thread(&owner, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(nth_alias("p", "mine", 1))));

    LogWriter::new(journal, directory, 1).await.start_run().complete_run().must_append().await;
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(nth_alias("p", "mine", 1))));
    assert_eq!(directory.delete_thread(&other_user(), &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(nth_alias("p", "mine", 1))));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "q", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "p", "other").await, Ok(Some(nth_alias("p", "other", 2))));
    assert_eq!(directory.alias(&other_user(), "p", "theirs").await, Ok(Some(nth_alias("p", "theirs", 1))));
}

/// 1: who is to make a thread that is theirs already learns that; of another's they learn nothing but that the name is not
/// to be had.
pub async fn a_thread_is_made_once_and_its_owner_is_told(_: &dyn Journal, directory: &dyn Directory) {
    let owner = test_user();
    let tries =
        (1..=10).map(|n| directory.submit(&owner, new_thread_submission(&nth_thread(1), start_command(&nth_run(n)))));
    let answers = join_all(tries).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(SubmitError::ThreadExists)).count(), 9);
    let theirs =
        directory.submit(&other_user(), new_thread_submission(&nth_thread(1), start_command(&nth_run(11)))).await;
    assert!(matches!(theirs, Err(SubmitError::Store(_))), "{theirs:?}");
    assert_eq!(directory.inbox(&owner, &nth_thread(1)).await.unwrap().len(), 1);
}
