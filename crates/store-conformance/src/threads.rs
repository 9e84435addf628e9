//! The law of [`model::ports::Threads`].

use super::TestStore;
use super::fixtures::{
    LogWriter, nth_checkpoint, nth_run, nth_thread, other_user, start_command, submission, test_user,
    with_idempotency_key,
};
use futures_util::future::join_all;
use model::json::ExactValue;
use model::ports::AliasKind::{AgUiThread, AgentRun, BlockSession, Conversation, DeletedResponse, UiChat};
use model::ports::{
    AliasData, AliasKind, AliasRow, AliasUpdate, AppendOutcome, ConversationData, DirectoryChange, Journal, PageLimit,
    StoreError, SubmitError,
};
use model::seq::Seq;
use serde_json::json;

/// An alias of the `n`-th thread. Conversations have data that depends on `n`.
#[must_use]
pub fn nth_alias(kind: AliasKind, name: &str, n: usize) -> AliasRow {
    let data = match kind {
        Conversation => AliasData::Conversation(conversation_data(&format!("note {n}"))),
        AgentRun | BlockSession | DeletedResponse | AgUiThread | UiChat => AliasData::from_stored(kind, ""),
    };
    AliasRow { name: name.to_owned(), thread: nth_thread(n), data, created_at: n as u64 }
}

/// The data of a conversation with this text in it.
#[must_use]
pub fn conversation_data(text: &str) -> ConversationData {
    let mut data = ConversationData { items: vec![json!({ "text": text, "n": 0.1 })], ..ConversationData::default() };
    data.metadata.insert("note".to_owned(), ExactValue::from(json!(text)));
    data
}

#[must_use]
pub fn with_conversation_data(row: AliasRow, text: &str) -> AliasRow {
    AliasRow { data: AliasData::Conversation(conversation_data(text)), ..row }
}

/// 2: the first `create_alias` wins, and a later one returns the existing row.
pub async fn an_alias_keeps_its_first_target(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(None));
    let first = nth_alias(Conversation, "mine", 1);
    assert_eq!(directory.create_alias(&owner, first.clone()).await, Ok(first.clone()));
    assert_eq!(directory.create_alias(&owner, nth_alias(Conversation, "mine", 2)).await, Ok(first.clone()));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(first)));
    // A thread may have several aliases, with any text as the name.
    for name in ["", "Mine", "mine ", "日本 \u{0} \"quoted\"", &"long".repeat(1_000)] {
        let row = nth_alias(Conversation, name, 1);
        assert_eq!(directory.alias(&owner, Conversation, name).await, Ok(None), "{name}");
        assert_eq!(directory.create_alias(&owner, row.clone()).await, Ok(row.clone()), "{name}");
        assert_eq!(directory.alias(&owner, Conversation, name).await, Ok(Some(row)), "{name}");
    }
}

/// 2, under concurrency.
pub async fn concurrent_creations_of_an_alias_have_one_winner(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let creations = (1..=20).map(|n| directory.create_alias(&owner, nth_alias(Conversation, "mine", n)));
    let rows: Vec<AliasRow> = join_all(creations).await.into_iter().map(Result::unwrap).collect();
    let stored = directory.alias(&owner, Conversation, "mine").await.unwrap().unwrap();
    assert!(rows.iter().all(|row| *row == stored), "{rows:?}");
    assert!((1..=20).any(|n| stored == nth_alias(Conversation, "mine", n)), "{stored:?}");
}

/// 2: an alias belongs to its owner and its kind.
pub async fn an_alias_is_scoped_to_owner_and_protocol(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other) = (test_user(), other_user());
    for (user, kind, n) in [
        (&owner, Conversation, 1),
        (&owner, AgentRun, 2),
        (&owner, BlockSession, 4),
        (&owner, DeletedResponse, 5),
        (&owner, AgUiThread, 6),
        (&owner, UiChat, 7),
        (&other, Conversation, 3),
    ] {
        assert_eq!(directory.create_alias(user, nth_alias(kind, "mine", n)).await, Ok(nth_alias(kind, "mine", n)));
    }
    assert_eq!(directory.alias(&other, AgentRun, "mine").await, Ok(None));
    assert_eq!(directory.delete_alias(&other, AgentRun, "mine").await, Ok(false));
    let foreign = nth_alias(Conversation, "mine", 1);
    let update = directory.update_conversation(&other, &foreign, conversation_data("theirs")).await;
    assert_eq!(update, Ok(AliasUpdate::Conflict), "the other user's row of this name is another row");
    assert_eq!(directory.delete_alias(&owner, Conversation, "mine").await, Ok(true));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(None));
    for (user, kind, n) in [(&owner, AgentRun, 2), (&owner, BlockSession, 4), (&other, Conversation, 3)] {
        assert_eq!(directory.alias(user, kind, "mine").await, Ok(Some(nth_alias(kind, "mine", n))));
    }
}

/// 2, 4: the data of a conversation can change, the thread of an alias only after the alias was deleted.
pub async fn conversation_data_can_change_and_an_alias_can_be_deleted(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let first = nth_alias(Conversation, "mine", 1);
    assert_eq!(
        directory.update_conversation(&owner, &first, conversation_data("new")).await,
        Ok(AliasUpdate::NotFound)
    );
    assert_eq!(directory.delete_alias(&owner, Conversation, "mine").await, Ok(false));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(None));
    directory.create_alias(&owner, first.clone()).await.unwrap();
    directory.create_alias(&owner, nth_alias(Conversation, "other", 1)).await.unwrap();
    assert_eq!(directory.update_conversation(&owner, &first, conversation_data("new")).await, Ok(AliasUpdate::Updated));
    let updated = with_conversation_data(first, "new");
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(updated.clone())));
    assert_eq!(directory.create_alias(&owner, nth_alias(Conversation, "mine", 2)).await, Ok(updated));
    assert_eq!(directory.delete_alias(&owner, Conversation, "mine").await, Ok(true));
    assert_eq!(directory.delete_alias(&owner, Conversation, "mine").await, Ok(false));
    let second = nth_alias(Conversation, "mine", 2);
    assert_eq!(directory.create_alias(&owner, second.clone()).await, Ok(second));
    let other = nth_alias(Conversation, "other", 1);
    assert_eq!(directory.alias(&owner, Conversation, "other").await, Ok(Some(other)));
}

/// 4: of two changes that start from the same row, one is applied.
pub async fn a_conversation_changes_only_from_the_row_that_was_read(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    let first = nth_alias(Conversation, "mine", 1);
    directory.create_alias(&owner, first.clone()).await.unwrap();
    assert_eq!(directory.update_conversation(&owner, &first, conversation_data("a")).await, Ok(AliasUpdate::Updated));
    assert_eq!(directory.update_conversation(&owner, &first, conversation_data("b")).await, Ok(AliasUpdate::Conflict));
    let second = with_conversation_data(first, "a");
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(second.clone())));
    // A row that was deleted and created again for another thread is another row.
    let moved = AliasRow { thread: nth_thread(2), ..second.clone() };
    assert_eq!(directory.delete_alias(&owner, Conversation, "mine").await, Ok(true));
    directory.create_alias(&owner, moved.clone()).await.unwrap();
    assert_eq!(directory.update_conversation(&owner, &second, conversation_data("c")).await, Ok(AliasUpdate::Conflict));
    assert_eq!(directory.update_conversation(&owner, &moved, conversation_data("c")).await, Ok(AliasUpdate::Updated));

    // Twenty concurrent writers that retry lose no update.
    let add_item = async |n: usize| loop {
        let row = directory.alias(&owner, Conversation, "mine").await.unwrap().unwrap();
        let AliasData::Conversation(mut data) = row.data.clone() else { panic!("{row:?}") };
        data.items.push(json!(n));
        match directory.update_conversation(&owner, &row, data).await.unwrap() {
            AliasUpdate::Updated => break,
            AliasUpdate::Conflict => {}
            AliasUpdate::NotFound => panic!("the row is gone"),
        }
    };
    join_all((1..=20).map(add_item)).await;
    let row = directory.alias(&owner, Conversation, "mine").await.unwrap().unwrap();
    let AliasData::Conversation(data) = row.data else { panic!("{row:?}") };
    let mut added: Vec<u64> = data.items.iter().filter_map(serde_json::Value::as_u64).collect();
    added.sort_unstable();
    assert!(added.into_iter().eq(1..=20), "{:?}", data.items);
}

/// 1, 3: an alias may be older than its thread, and is deleted with it; another user's is not.
pub async fn an_alias_may_precede_its_thread_and_is_deleted_with_it(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    for (protocol, name, n) in [(Conversation, "mine", 1), (AgentRun, "mine", 1), (Conversation, "other", 2)] {
        directory.create_alias(&owner, nth_alias(protocol, name, n)).await.unwrap();
    }
    directory.create_alias(&other_user(), nth_alias(Conversation, "theirs", 1)).await.unwrap();
    assert_eq!(directory.thread(&owner, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(nth_alias(Conversation, "mine", 1))));

    LogWriter::new(journal, directory, 1).await.start_run().complete_run().must_append().await;
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(nth_alias(Conversation, "mine", 1))));
    assert_eq!(directory.delete_thread(&other_user(), &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(Some(nth_alias(Conversation, "mine", 1))));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.alias(&owner, Conversation, "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, AgentRun, "mine").await, Ok(None));
    assert_eq!(directory.alias(&owner, Conversation, "other").await, Ok(Some(nth_alias(Conversation, "other", 2))));
    assert_eq!(
        directory.alias(&other_user(), Conversation, "theirs").await,
        Ok(Some(nth_alias(Conversation, "theirs", 1)))
    );
}

/// 1: a thread is deleted with everything that belongs to it.
pub async fn deleting_a_thread_removes_all_of_its_rows(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut author = LogWriter::new(journal, directory, 1).await;
    let owner = author.owner.clone();
    let mut other = LogWriter::new(journal, directory, 2).await;
    let kept = other.start_run().push_notes(2).must_append().await;
    author.start_run().complete_run().must_append().await;
    let again = with_idempotency_key(submission(&nth_thread(1), start_command(&nth_run(3))), "key", "digest");
    directory.submit(&owner, again.clone()).await.unwrap();
    author.run = nth_run(3);
    author.start_run().changes.push(DirectoryChange::Checkpoint(nth_checkpoint(4, &[0, 1])));
    author.changes.push(DirectoryChange::ScheduleWakeup { at: Some(9) });
    let asked = author.request_approval(1);
    author.must_append().await;

    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.thread(&owner, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.run(&owner, &nth_run(1)).await, Ok(None));
    assert_eq!(directory.run(&owner, &nth_run(3)).await, Ok(None));
    assert_eq!(directory.checkpoint(&owner, &nth_thread(1)).await, Ok(None));
    assert_eq!(directory.approval(&owner, &asked.key).await, Ok(None));
    assert_eq!(directory.scheduled_wakeups().await, Ok(vec![]));
    let read = journal.read_page(&owner, &nth_thread(1), Seq(0), PageLimit::WIDE).await;
    assert_eq!(read.map(|page| page.records), Err(StoreError::ThreadNotFound));
    assert!(matches!(author.push_notes(1).append().await, AppendOutcome::Rejected(_)));
    assert_eq!(directory.submit(&owner, again).await, Err(SubmitError::Store(StoreError::ThreadNotFound)));
    assert_eq!(other.read_all().await, kept);

    // A new thread with the same id starts empty.
    let mut author = LogWriter::new(journal, directory, 1).await;
    assert_eq!(author.lease.head, Seq::ZERO);
    assert_eq!(author.read_all().await, []);
    let fresh = author.start_run().must_append().await;
    assert_eq!(author.read_all().await, fresh);
}

/// Every backend grants write access to every user.
pub async fn a_backend_accepts_writes_of_every_user(_: &dyn Journal, directory: &dyn TestStore) {
    let row = nth_alias(AgentRun, "mine", 1);
    let writer = directory.writer(&other_user()).unwrap();
    assert_eq!(writer.create_alias(&other_user(), row.clone()).await, Ok(row.clone()));
    assert_eq!(directory.alias(&other_user(), AgentRun, "mine").await, Ok(Some(row)));
}
