//! The directory's law on the names of threads.

use super::words::{Author, first_submission, run, somebody, start, stranger, thread};
use futures_util::future::join_all;
use model::ports::{AliasRow, Directory, Journal, SubmitError};

/// A name of the `n`-th thread.
#[must_use]
pub fn named(protocol: &str, name: &str, n: usize) -> AliasRow {
    let (protocol, name) = (protocol.to_owned(), name.to_owned());
    AliasRow { protocol, name, thread: thread(n), note: format!("note {n}"), created_at: n as u64 }
}

/// 8: a name belongs to whoever gave it first, and who gives it again learns what it stands for.
pub async fn a_name_stands_for_what_it_was_first_given_to(_: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    let first = named("p", "mine", 1);
    assert_eq!(directory.create_alias(&owner, first.clone()).await, Ok(first.clone()));
    assert_eq!(directory.create_alias(&owner, named("p", "mine", 2)).await, Ok(first.clone()));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(first)));
    // A thread may have several, and a name may be any text.
    for name in ["", "Mine", "mine ", "日本 \u{0} \"quoted\"", &"long".repeat(1_000)] {
        let row = named("p", name, 1);
        assert_eq!(directory.alias(&owner, "p", name).await, Ok(None), "{name}");
        assert_eq!(directory.create_alias(&owner, row.clone()).await, Ok(row.clone()), "{name}");
        assert_eq!(directory.alias(&owner, "p", name).await, Ok(Some(row)), "{name}");
    }
}

/// 8: … whoever comes first.
pub async fn a_name_given_many_times_at_once_stands_for_one_thread(_: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let gifts = (1..=20).map(|n| directory.create_alias(&owner, named("p", "mine", n)));
    let rows: Vec<AliasRow> = join_all(gifts).await.into_iter().map(Result::unwrap).collect();
    let there = directory.alias(&owner, "p", "mine").await.unwrap().unwrap();
    assert!(rows.iter().all(|row| *row == there), "{rows:?}");
    assert!((1..=20).any(|n| there == named("p", "mine", n)), "{there:?}");
}

/// 8: names are their owner's and their protocol's.
pub async fn a_name_is_its_owners_and_its_protocols(_: &dyn Journal, directory: &dyn Directory) {
    let (owner, other) = (somebody(), stranger());
    for (who, protocol, n) in [(&owner, "p", 1), (&owner, "q", 2), (&other, "p", 3)] {
        assert_eq!(directory.create_alias(who, named(protocol, "mine", n)).await, Ok(named(protocol, "mine", n)));
    }
    assert_eq!(directory.alias(&other, "q", "mine").await, Ok(None));
    assert_eq!(directory.update_alias(&other, "q", "mine", "theirs".to_owned()).await, Ok(false));
    assert_eq!(directory.delete_alias(&other, "q", "mine").await, Ok(false));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(true));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "q", "mine").await, Ok(Some(named("q", "mine", 2))));
    assert_eq!(directory.alias(&other, "p", "mine").await, Ok(Some(named("p", "mine", 3))));
}

/// 8: what is noted beside a name can change, what it stands for only when it was free in between.
pub async fn a_note_can_change_and_a_name_can_be_freed(_: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    assert_eq!(directory.update_alias(&owner, "p", "mine", "new".to_owned()).await, Ok(false));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    directory.create_alias(&owner, named("p", "mine", 1)).await.unwrap();
    directory.create_alias(&owner, named("p", "other", 1)).await.unwrap();
    assert_eq!(directory.update_alias(&owner, "p", "mine", "new".to_owned()).await, Ok(true));
    let noted = AliasRow { note: "new".to_owned(), ..named("p", "mine", 1) };
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(noted.clone())));
    assert_eq!(directory.create_alias(&owner, named("p", "mine", 2)).await, Ok(noted));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(true));
    assert_eq!(directory.delete_alias(&owner, "p", "mine").await, Ok(false));
    assert_eq!(directory.create_alias(&owner, named("p", "mine", 2)).await, Ok(named("p", "mine", 2)));
    assert_eq!(directory.alias(&owner, "p", "other").await, Ok(Some(named("p", "other", 1))));
}

/// 8: a name may be older than its thread, and goes with it; what others call it is theirs.
pub async fn a_name_may_be_older_than_its_thread_and_goes_with_it(journal: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    for (protocol, name, n) in [("p", "mine", 1), ("q", "mine", 1), ("p", "other", 2)] {
        directory.create_alias(&owner, named(protocol, name, n)).await.unwrap();
    }
    directory.create_alias(&stranger(), named("p", "theirs", 1)).await.unwrap();
    assert_eq!(directory.thread(&owner, &thread(1)).await, Ok(None));
    assert_eq!(directory.delete_thread(&owner, &thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(named("p", "mine", 1))));

    Author::new(journal, directory, 1).await.begin().end().must_append().await;
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(named("p", "mine", 1))));
    assert_eq!(directory.delete_thread(&stranger(), &thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(Some(named("p", "mine", 1))));
    assert_eq!(directory.delete_thread(&owner, &thread(1)).await, Ok(true));
    assert_eq!(directory.alias(&owner, "p", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "q", "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, "p", "other").await, Ok(Some(named("p", "other", 2))));
    assert_eq!(directory.alias(&stranger(), "p", "theirs").await, Ok(Some(named("p", "theirs", 1))));
}

/// 1: who is to make a thread that is theirs already learns that; of another's they learn nothing but that the name is not
/// to be had.
pub async fn a_thread_is_made_once_and_its_owner_is_told(_: &dyn Journal, directory: &dyn Directory) {
    let owner = somebody();
    let tries = (1..=10).map(|n| directory.submit(&owner, first_submission(&thread(1), start(&run(n)))));
    let answers = join_all(tries).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(SubmitError::ThreadExists)).count(), 9);
    let theirs = directory.submit(&stranger(), first_submission(&thread(1), start(&run(11)))).await;
    assert!(matches!(theirs, Err(SubmitError::Store(_))), "{theirs:?}");
    assert_eq!(directory.inbox(&owner, &thread(1)).await.unwrap().len(), 1);
}
