//! The law of [`model::ports::Attachments`] on blobs and on links from threads, rules 6 and 7.

use super::TestStore;
use super::attachments::nth_attachment;
use super::fixtures::{LogWriter, nth_thread, other_user, test_user};
use futures_util::future::{BoxFuture, join_all};
use model::ports::{AttachmentOutcome, AttachmentRow, Journal};
use model::{ThreadId, UserId};
use model_testing::{Rng, test_seeds};

#[must_use]
pub fn nth_hash(n: usize) -> String {
    format!("{n:064x}")
}

/// A blob with the `n`-th hash and `bytes` bytes, at the `place`-th path.
#[must_use]
pub fn nth_blob(place: usize, n: usize, bytes: u64) -> AttachmentRow {
    AttachmentRow { path: format!("blobs/{place:04}"), hash: Some(nth_hash(n)), ..nth_attachment(place, bytes) }
}

/// 6: a blob exists from the moment that a thread uses it, and is then a file like any other.
pub async fn a_blob_exists_from_its_first_use(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, row) = (test_user(), nth_blob(1, 1, 7));
    directory.reserve_attachment(&owner, &row.path, 1).await.unwrap();
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.link_blob(&owner, &nth_thread(1), &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.commit_blob(&owner, &nth_thread(1), row.clone(), None).await, Ok(AttachmentOutcome::Stored));
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(Some(row.clone())));
    assert_eq!(directory.blob(&owner, Some(&nth_thread(1)), &nth_hash(1)).await, Ok(Some(row.clone())));
    assert_eq!(directory.blob(&owner, Some(&nth_thread(2)), &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.blob(&owner, None, &nth_hash(2)).await, Ok(None));
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row.clone())));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
    assert_eq!(directory.stale_attachments().await, Ok(Vec::new()));
    // Another thread links it by hash or by path.
    assert_eq!(directory.link_blob(&owner, &nth_thread(2), &nth_hash(1)).await, Ok(Some(row.clone())));
    assert_eq!(directory.link_attachment(&owner, &nth_thread(3), &row.path).await, Ok(Some(row.clone())));
    for n in 2..=3 {
        assert_eq!(directory.blob(&owner, Some(&nth_thread(n)), &nth_hash(1)).await, Ok(Some(row.clone())), "{n}");
    }
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
}

/// 6: twenty concurrent commits of the same bytes make one blob, which counts once and which all threads use.
pub async fn concurrent_puts_of_the_same_bytes_make_one_blob(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    for n in 1..=20 {
        directory.reserve_attachment(&owner, &nth_blob(n, 1, 7).path, 1).await.unwrap();
    }
    let threads: Vec<ThreadId> = (1..=20).map(nth_thread).collect();
    let puts = (1..=20).zip(&threads).map(|(n, of)| directory.commit_blob(&owner, of, nth_blob(n, 1, 7), Some(7)));
    let kept: Vec<AttachmentOutcome> = join_all(puts).await.into_iter().map(Result::unwrap).collect();
    let there = directory.blob(&owner, None, &nth_hash(1)).await.unwrap().unwrap();
    assert_eq!(kept.iter().filter(|kept| **kept == AttachmentOutcome::Stored).count(), 1, "{kept:?}");
    assert_eq!(
        kept.iter().filter(|kept| **kept == AttachmentOutcome::Duplicate(there.clone())).count(),
        19,
        "{kept:?}"
    );
    for of in &threads {
        assert_eq!(directory.blob(&owner, Some(of), &nth_hash(1)).await, Ok(Some(there.clone())));
    }
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
    // The other paths stay reserved.
    let unfinished = directory.stale_attachments().await.unwrap();
    assert_eq!(unfinished.len(), 19);
    assert!(unfinished.iter().all(|(_, path)| *path != there.path), "{unfinished:?}");
    assert_eq!(directory.unreferenced_attachments().await, Ok(Vec::new()));
    // A repeated commit returns the same outcome.
    assert_eq!(directory.commit_blob(&owner, &nth_thread(1), there, Some(0)).await, Ok(AttachmentOutcome::Stored));
}

/// 3: blobs and other files share one quota. A commit above it changes nothing; a duplicate needs no quota.
pub async fn blobs_count_towards_the_quota(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    directory.commit_attachment(&owner, nth_attachment(1, 40), Some(95)).await.unwrap();
    let threads: Vec<ThreadId> = (1..=20).map(nth_thread).collect();
    let puts = (1..=20).zip(&threads).map(|(n, of)| directory.commit_blob(&owner, of, nth_blob(n, n, 10), Some(95)));
    let kept: Vec<AttachmentOutcome> = join_all(puts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(kept.iter().filter(|kept| **kept == AttachmentOutcome::Stored).count(), 5, "{kept:?}");
    assert!(
        kept.iter()
            .all(|kept| matches!(kept, AttachmentOutcome::Stored | AttachmentOutcome::QuotaExceeded { used: 90 })),
        "{kept:?}"
    );
    let over = (1..=20).zip(&kept).find(|(_, kept)| **kept != AttachmentOutcome::Stored).unwrap().0;
    assert_eq!(directory.blob(&owner, None, &nth_hash(over)).await, Ok(None));
    assert_eq!(directory.link_blob(&owner, &nth_thread(over), &nth_hash(over)).await, Ok(None));
    let there = (1..=20).zip(&kept).find(|(_, kept)| **kept == AttachmentOutcome::Stored).unwrap().0;
    let again = directory.commit_blob(&owner, &nth_thread(99), nth_blob(99, there, 10), Some(0)).await;
    assert_eq!(again, Ok(AttachmentOutcome::Duplicate(nth_blob(there, there, 10))));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(90));
    // A rejected commit links nothing, so deleting its thread releases nothing.
    assert_eq!(directory.delete_thread(&owner, &nth_thread(over)).await, Ok(false));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(90));
}

/// 5: knowing a hash gives no access to another owner's blob.
pub async fn a_blob_of_another_owner_does_not_exist(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, other) = (test_user(), other_user());
    let (mine, theirs) = (nth_blob(1, 1, 7), nth_blob(1, 1, 9));
    directory.commit_blob(&owner, &nth_thread(1), mine.clone(), None).await.unwrap();
    assert_eq!(directory.blob(&other, None, &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.blob(&other, Some(&nth_thread(1)), &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.link_blob(&other, &nth_thread(2), &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.link_attachment(&other, &nth_thread(2), &mine.path).await, Ok(None));
    assert_eq!(
        directory.commit_blob(&other, &nth_thread(2), theirs.clone(), Some(9)).await,
        Ok(AttachmentOutcome::Stored)
    );
    assert_eq!(directory.blob(&other, None, &nth_hash(1)).await, Ok(Some(theirs.clone())));
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(Some(mine.clone())));
    // Another user's thread with the same id is independent.
    directory.link_blob(&other, &nth_thread(1), &nth_hash(1)).await.unwrap();
    assert_eq!(directory.delete_thread(&other, &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.blob(&owner, Some(&nth_thread(1)), &nth_hash(1)).await, Ok(Some(mine)));
    assert_eq!(directory.blob(&other, Some(&nth_thread(2)), &nth_hash(1)).await, Ok(Some(theirs)));
    assert_eq!(directory.unreferenced_attachments().await, Ok(Vec::new()));
}

/// 2: linking a missing file fails and leaves no link.
pub async fn a_missing_blob_cannot_be_used(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, row) = (test_user(), nth_attachment(1, 7));
    assert_eq!(directory.link_attachment(&owner, &nth_thread(1), &row.path).await, Ok(None));
    directory.reserve_attachment(&owner, &row.path, 1).await.unwrap();
    assert_eq!(directory.link_attachment(&owner, &nth_thread(1), &row.path).await, Ok(None));
    directory.commit_attachment(&owner, row.clone(), None).await.unwrap();
    directory.delete_thread(&owner, &nth_thread(1)).await.unwrap();
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row)));
}

/// 6: a commit with a hash needs a thread, and a commit with a thread needs a hash.
pub async fn a_blob_has_a_hash_and_a_thread(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    assert!(directory.commit_blob(&owner, &nth_thread(1), nth_attachment(1, 7), None).await.is_err());
    assert!(directory.commit_attachment(&owner, nth_blob(2, 2, 7), None).await.is_err());
    directory.commit_attachment(&owner, nth_attachment(3, 5), None).await.unwrap();
    let elsewhere = AttachmentRow { hash: Some(nth_hash(3)), ..nth_attachment(3, 5) };
    assert!(directory.commit_blob(&owner, &nth_thread(1), elsewhere, None).await.is_err());
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(5));
    assert_eq!(directory.stale_attachments().await, Ok(Vec::new()));
    for n in 1..=3 {
        assert_eq!(directory.blob(&owner, None, &nth_hash(n)).await, Ok(None));
    }
}

/// 7: deleting a thread releases exactly the files that no other thread uses.
pub async fn deleting_a_thread_releases_the_blobs_that_only_it_used(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    for n in 1..=2 {
        LogWriter::new(journal, directory, n).await.start_run().complete_run().must_append().await;
    }
    directory.reserve_attachment(&owner, "expected", 1).await.unwrap();
    for (n, bytes) in [(1, 1), (2, 2), (3, 4)] {
        directory.commit_attachment(&owner, nth_attachment(n, bytes), None).await.unwrap();
    }
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(11, 1, 8), None).await.unwrap();
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(12, 2, 16), None).await.unwrap();
    directory.commit_blob(&owner, &nth_thread(2), nth_blob(13, 3, 32), None).await.unwrap();
    for (n, path) in [(1, nth_attachment(1, 0).path), (1, nth_attachment(2, 0).path), (2, nth_attachment(2, 0).path)] {
        assert!(directory.link_attachment(&owner, &nth_thread(n), &path).await.unwrap().is_some());
    }
    // Links are idempotent.
    for _ in 0..2 {
        directory.link_blob(&owner, &nth_thread(2), &nth_hash(2)).await.unwrap();
        directory.link_blob(&owner, &nth_thread(1), &nth_hash(1)).await.unwrap();
    }
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(63));
    assert_eq!(directory.delete_thread(&other_user(), &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(63));

    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    let released = vec![(owner.clone(), nth_blob(11, 0, 0).path), (owner.clone(), nth_attachment(1, 0).path)];
    assert_eq!(directory.unreferenced_attachments().await, Ok(released.clone()));
    let mut unfinished = released.clone();
    unfinished.insert(1, (owner.clone(), "expected".to_owned()));
    assert_eq!(directory.stale_attachments().await, Ok(unfinished));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(63 - 8 - 1));
    for (_, path) in &released {
        assert_eq!(directory.attachment(&owner, path).await, Ok(None));
        assert_eq!(directory.link_attachment(&owner, &nth_thread(2), path).await, Ok(None));
    }
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.link_blob(&owner, &nth_thread(2), &nth_hash(1)).await, Ok(None));
    // Files of other threads and files that were never linked still exist.
    assert_eq!(directory.blob(&owner, Some(&nth_thread(2)), &nth_hash(2)).await, Ok(Some(nth_blob(12, 2, 16))));
    assert_eq!(directory.blob(&owner, Some(&nth_thread(1)), &nth_hash(2)).await, Ok(None));
    for (n, bytes) in [(2, 2), (3, 4)] {
        assert_eq!(directory.attachment(&owner, &nth_attachment(n, 0).path).await, Ok(Some(nth_attachment(n, bytes))));
    }

    assert_eq!(directory.delete_thread(&owner, &nth_thread(2)).await, Ok(true));
    assert_eq!(directory.unreferenced_attachments().await.unwrap().len(), 5);
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(4));
    for (_, path) in directory.unreferenced_attachments().await.unwrap() {
        assert_eq!(directory.delete_attachment(&owner, &path).await, Ok(true));
        assert_eq!(directory.delete_attachment(&owner, &path).await, Ok(false));
    }
    assert_eq!(directory.stale_attachments().await, Ok(vec![(owner.clone(), "expected".to_owned())]));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(4));
}

/// 7: deleting a thread that was never created releases its files.
pub async fn blobs_of_a_thread_that_was_never_created_can_be_released(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(1, 1, 7), None).await.unwrap();
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(false));
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(None));
    assert_eq!(directory.unreferenced_attachments().await, Ok(vec![(owner.clone(), nth_blob(1, 1, 7).path)]));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(0));
}

/// 7: a link may precede its thread, and does not carry over to a later thread with the same id.
pub async fn a_blob_may_be_used_before_its_thread_exists(journal: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(1, 1, 7), None).await.unwrap();
    let mut author = LogWriter::new(journal, directory, 1).await;
    author.start_run().complete_run().must_append().await;
    assert_eq!(directory.blob(&owner, Some(&nth_thread(1)), &nth_hash(1)).await, Ok(Some(nth_blob(1, 1, 7))));
    assert_eq!(directory.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(None));
    // A new thread with the same id has no links.
    LogWriter::new(journal, directory, 1).await.start_run().complete_run().must_append().await;
    directory.commit_blob(&owner, &nth_thread(2), nth_blob(2, 1, 7), None).await.unwrap();
    assert_eq!(directory.blob(&owner, Some(&nth_thread(1)), &nth_hash(1)).await, Ok(None));
}

/// 7: released bytes may be committed again at another path, before and after the old row is deleted.
pub async fn a_released_blob_can_be_stored_again(_: &dyn Journal, directory: &dyn TestStore) {
    let owner = test_user();
    directory.commit_blob(&owner, &nth_thread(1), nth_blob(1, 1, 7), None).await.unwrap();
    directory.delete_thread(&owner, &nth_thread(1)).await.unwrap();
    // The old path is closed to commits, because its bytes are being deleted.
    directory.reserve_attachment(&owner, &nth_blob(1, 1, 7).path, 1).await.unwrap();
    assert!(directory.commit_blob(&owner, &nth_thread(2), nth_blob(1, 1, 7), None).await.is_err());
    let no_blob = AttachmentRow { hash: None, ..nth_blob(1, 1, 7) };
    assert!(directory.commit_attachment(&owner, no_blob, None).await.is_err());
    assert_eq!(directory.unreferenced_attachments().await, Ok(vec![(owner.clone(), nth_blob(1, 1, 7).path)]));
    assert_eq!(
        directory.commit_blob(&owner, &nth_thread(2), nth_blob(2, 1, 7), Some(7)).await,
        Ok(AttachmentOutcome::Stored)
    );
    assert_eq!(directory.blob(&owner, None, &nth_hash(1)).await, Ok(Some(nth_blob(2, 1, 7))));
    assert_eq!(directory.delete_attachment(&owner, &nth_blob(1, 1, 7).path).await, Ok(true));
    assert_eq!(directory.blob(&owner, Some(&nth_thread(2)), &nth_hash(1)).await, Ok(Some(nth_blob(2, 1, 7))));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(7));
    assert_eq!(directory.stale_attachments().await, Ok(Vec::new()));
}

/// Deleting a file deletes its links, so an old thread cannot release a new file at the same path.
pub async fn a_forgotten_file_has_no_users(_: &dyn Journal, directory: &dyn TestStore) {
    let (owner, row) = (test_user(), nth_attachment(1, 7));
    directory.commit_attachment(&owner, row.clone(), None).await.unwrap();
    directory.link_attachment(&owner, &nth_thread(1), &row.path).await.unwrap();
    assert_eq!(directory.delete_attachment(&owner, &row.path).await, Ok(true));
    assert_eq!(directory.attachment_bytes_used(&owner).await, Ok(0));
    directory.commit_attachment(&owner, row.clone(), None).await.unwrap();
    directory.delete_thread(&owner, &nth_thread(1)).await.unwrap();
    assert_eq!(directory.attachment(&owner, &row.path).await, Ok(Some(row)));
    assert_eq!(directory.unreferenced_attachments().await, Ok(Vec::new()));
}

/// 7: with concurrent links and deletions, a file that a live thread linked successfully is never released.
pub async fn used_blobs_exist_under_random_thread_changes(_: &dyn Journal, directory: &dyn TestStore) {
    let (mut rounds, mut stayed, mut went) = (0, 0, 0);
    for (n, seed) in test_seeds().take(40).enumerate() {
        println!("seed {seed}");
        let round = UseRace {
            directory,
            owner: test_user(),
            seed,
            first_path: n * 10,
            threads: (0..8).map(nth_thread).collect(),
        };
        let did = round.run().await;
        stayed += round.check(&did).await;
        went += directory.unreferenced_attachments().await.unwrap().len();
        round.clean_up().await;
        rounds += 1;
    }
    assert!(rounds == 1 || stayed > 0 && went > 0, "nobody met anybody: {stayed}, {went}");
}

enum RaceStep {
    Deleted(usize),
    Used(usize, Option<AttachmentRow>),
}

/// A blob and a file, with threads that link them and threads that are deleted, concurrently.
struct UseRace<'a> {
    directory: &'a dyn TestStore,
    owner: UserId,
    seed: u64,
    /// This race uses the paths from here on.
    first_path: usize,
    threads: Vec<ThreadId>,
}

impl UseRace<'_> {
    /// Deletes the first thread, which uses both. Some of the others are deleted before or after they link one.
    async fn run(&self) -> Vec<RaceStep> {
        let mut rng = Rng::new(self.seed);
        let (first, paper) = (&self.threads[0], nth_attachment(self.first_path, 50));
        self.directory.commit_blob(&self.owner, first, nth_blob(self.first_path, 1, 7), None).await.unwrap();
        self.directory.commit_attachment(&self.owner, paper.clone(), None).await.unwrap();
        self.directory.link_attachment(&self.owner, first, &paper.path).await.unwrap();
        let mut all: Vec<BoxFuture<'_, RaceStep>> = vec![Box::pin(self.delete(0))];
        for n in 1..self.threads.len() {
            all.push(Box::pin(self.use_or_put(n, rng.below(4))));
            if rng.below(3) == 0 {
                all.push(Box::pin(self.delete(n)));
            }
        }
        for n in (1..all.len()).rev() {
            all.swap(n, rng.below(n + 1));
        }
        join_all(all).await
    }

    async fn delete(&self, n: usize) -> RaceStep {
        self.directory.delete_thread(&self.owner, &self.threads[n]).await.unwrap();
        RaceStep::Deleted(n)
    }

    async fn use_or_put(&self, n: usize, how: usize) -> RaceStep {
        let Self { directory, owner, .. } = self;
        let (of, new) = (&self.threads[n], nth_blob(self.first_path + n, 1, 7));
        let used = match how {
            0 => directory.link_attachment(owner, of, &nth_attachment(self.first_path, 50).path).await.unwrap(),
            1 => match directory.commit_blob(owner, of, new.clone(), None).await.unwrap() {
                AttachmentOutcome::Stored => Some(new),
                AttachmentOutcome::Duplicate(row) => Some(row),
                AttachmentOutcome::QuotaExceeded { .. } => None,
            },
            _ => directory.link_blob(owner, of, &nth_hash(1)).await.unwrap(),
        };
        RaceStep::Used(n, used)
    }

    /// Checks the links of the live threads and returns their number.
    async fn check(&self, did: &[RaceStep]) -> usize {
        let Self { directory, owner, seed, .. } = self;
        let released = directory.unreferenced_attachments().await.unwrap();
        let mut stayed = 0;
        for used in did {
            let RaceStep::Used(n, Some(row)) = used else { continue };
            if did.iter().any(|did| matches!(did, RaceStep::Deleted(gone) if gone == n)) {
                continue;
            }
            stayed += 1;
            assert_eq!(directory.attachment(owner, &row.path).await, Ok(Some(row.clone())), "seed {seed}: {n}");
            assert!(!released.iter().any(|(_, path)| *path == row.path), "seed {seed}: {n}");
            if let Some(hash) = &row.hash {
                let found = directory.blob(owner, Some(&self.threads[*n]), hash).await;
                assert_eq!(found, Ok(Some(row.clone())), "seed {seed}: {n}");
            }
        }
        let picture = directory.blob(owner, None, &nth_hash(1)).await.unwrap();
        let paper = directory.attachment(owner, &nth_attachment(self.first_path, 50).path).await.unwrap();
        let held: u64 = picture.iter().chain(&paper).map(|row| row.size_bytes).sum();
        assert_eq!(directory.attachment_bytes_used(owner).await, Ok(held), "seed {seed}");
        stayed
    }

    async fn clean_up(&self) {
        let Self { directory, owner, seed, .. } = self;
        for n in 0..self.threads.len() {
            self.delete(n).await;
        }
        assert_eq!(directory.attachment_bytes_used(owner).await, Ok(0), "seed {seed}");
        for (_, path) in directory.stale_attachments().await.unwrap() {
            assert_eq!(directory.delete_attachment(owner, &path).await, Ok(true), "seed {seed}");
        }
    }
}
