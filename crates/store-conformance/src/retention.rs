//! The law of [`model::ports::Retention`].

use super::TestStore;
use super::attachments::nth_attachment;
use super::blobs::nth_blob;
use super::fixtures::{
    LogWriter, new_thread_submission, nth_run, nth_thread, other_user, start_command, submission, test_user,
};
use model::ThreadId;
use model::ports::{Journal, Submission};

async fn idle(directory: &dyn TestStore, since: u64) -> Vec<ThreadId> {
    directory.idle_threads(since, None, 100).await.unwrap().into_iter().map(|(_, thread)| thread).collect()
}

/// 1: a thread is idle when all of its runs have ended.
pub async fn only_threads_without_work_are_idle(journal: &dyn Journal, directory: &dyn TestStore) {
    let mut ended = LogWriter::for_owner(journal, directory, other_user(), 1).await;
    ended.start_run().complete_run().must_append().await;
    let mut running = LogWriter::new(journal, directory, 2).await;
    running.start_run().must_append().await;
    let mut paused = LogWriter::new(journal, directory, 3).await;
    paused.start_run().pause_run().must_append().await;
    let queued = new_thread_submission(&nth_thread(4), start_command(&nth_run(4)));
    directory.submit(&test_user(), queued).await.unwrap();
    // The command of the ended run is still in the inbox: these writers consume no rows.
    assert_eq!(idle(directory, u64::MAX >> 1).await, Vec::<ThreadId>::new());
    let consume = async |author: &mut LogWriter<'_>| {
        let rows = directory.inbox(&author.owner, &author.thread).await.unwrap();
        author.changes.extend(rows.iter().map(|row| model::ports::DirectoryChange::ConsumeInboxRow { row: row.id }));
        author.must_append().await;
    };
    for author in [&mut ended, &mut running, &mut paused] {
        consume(author).await;
    }
    assert_eq!(idle(directory, u64::MAX >> 1).await, [nth_thread(1)]);
    let last = directory.thread(&other_user(), &nth_thread(1)).await.unwrap().unwrap().updated_at;
    assert_eq!(directory.newest_activity().await.unwrap(), Some(last));
    assert_eq!((idle(directory, last).await.len(), idle(directory, last + 1).await.len()), (0, 1));
    for (author, wanted) in [(&mut running, 2), (&mut paused, 3)] {
        author.complete_run().must_append().await;
        assert_eq!(idle(directory, u64::MAX >> 1).await.len(), wanted);
    }
    // Page by page, in the order of the ids.
    let second = directory.idle_threads(u64::MAX >> 1, Some(&nth_thread(1)), 1).await.unwrap();
    assert_eq!(second, [(test_user(), nth_thread(2))]);
}

/// 3: what is deleted is checked again.
pub async fn a_thread_that_is_used_again_is_not_deleted(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    for n in 1..=2 {
        let mut author = LogWriter::new(journal, directory, n).await;
        let rows = directory.inbox(&owner, &author.thread).await.unwrap();
        author.changes.extend(rows.iter().map(|row| model::ports::DirectoryChange::ConsumeInboxRow { row: row.id }));
        author.start_run().complete_run().must_append().await;
    }
    let later = Submission { at: 9_000, ..submission(&nth_thread(1), start_command(&nth_run(9))) };
    directory.submit(&owner, later).await.unwrap();
    assert_eq!(directory.delete_idle_thread(&owner, &nth_thread(1), 8_000).await, Ok(false));
    assert_eq!(directory.delete_idle_thread(&other_user(), &nth_thread(2), 8_000).await, Ok(false));
    assert_eq!(directory.delete_idle_thread(&owner, &nth_thread(2), 1).await, Ok(false));
    assert_eq!(directory.delete_idle_thread(&owner, &nth_thread(2), 8_000).await, Ok(true));
    assert_eq!(directory.delete_idle_thread(&owner, &nth_thread(2), 8_000).await, Ok(false));
    assert_eq!(directory.thread(&owner, &nth_thread(2)).await, Ok(None));
    assert!(directory.thread(&owner, &nth_thread(1)).await.unwrap().is_some());
}

/// 2: an upload that no thread uses, and no other file.
pub async fn only_files_that_no_thread_uses_are_unused(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    for n in 1..=3 {
        directory.commit_attachment(&owner, nth_attachment(n, 5), None).await.unwrap();
    }
    directory.reserve_attachment(&owner, "files/4", 1).await.unwrap();
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(5, 5, 5), None).await.unwrap();
    directory.link_attachment(&owner, &nth_thread(1), &nth_attachment(1, 5).path).await.unwrap();
    // The third one is not old enough.
    assert_eq!(directory.unused_files(3, None, 10).await, Ok(vec![(owner.clone(), nth_attachment(2, 5).path)]));
    for (path, released) in [("files/1", false), ("files/3", false), ("files/2", true), ("files/2", false)] {
        assert_eq!(directory.release_unused_file(&owner, path, 3).await, Ok(released), "{path}");
    }
    assert_eq!(directory.release_unused_file(&other_user(), "files/3", 9).await, Ok(false));
    assert_eq!(directory.attachment(&owner, "files/2").await, Ok(None));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(15));
    assert_eq!(directory.unreferenced_attachments().await, Ok(vec![(owner.clone(), "files/2".to_owned())]));
    let last = (owner, "files/3".to_owned());
    assert_eq!(directory.unused_files(u64::MAX >> 1, None, 10).await, Ok(vec![last.clone()]));
    assert_eq!(directory.unused_files(u64::MAX >> 1, Some(&last), 10).await, Ok(Vec::new()));
}

/// 4.
pub async fn the_retention_time_is_kept(_: &dyn Journal, directory: &dyn TestStore) {
    assert_eq!(directory.retention_time().await, Ok(None));
    for at in [7, 9, 3] {
        directory.set_retention_time(at).await.unwrap();
        assert_eq!(directory.retention_time().await, Ok(Some(at)));
    }
    assert_eq!(directory.newest_activity().await, Ok(None));
}
