//! File rows: both backends agree, restarts clean up, and `verify` detects inconsistencies.

use crate::data_folder::{database, open};
use memory_store::MemoryStore;
use model::blob;
use model::content::{ContentPart, ImageBlock, ImageUrl};
use model::event::{Event, ImageEvent, InputAdded, InputMessage, TaggedImageBlock};
use model::item::Role;
use model::ports::{
    AliasKind, AttachmentOutcome, AttachmentRow, AttachmentWriter as _, Attachments as _, DirectoryChange,
    ShareWriter as _, StoreError, ThreadWriter as _,
};
use model::record::{PrivatePayload, Record, RecordDraft};
use model::{ItemId, ThreadId, UserId};
use model_testing::{Rng, test_seeds};
use std::path::Path;
use store::{SqliteStore, StoredFiles, list_stored_files, verify_data_folder};
use store_conformance::attachments::nth_attachment;
use store_conformance::blobs::{nth_blob, nth_hash};
use store_conformance::fixtures::{LogWriter, note_event, nth_checkpoint, nth_thread, other_user, test_user};

/// An operation on files.
#[derive(Clone, Debug)]
enum Step {
    Expect(String),
    Put(AttachmentRow, Option<u64>),
    PutBlob(ThreadId, AttachmentRow, Option<u64>),
    Use(ThreadId, String),
    UseBlob(ThreadId, String),
    DeleteThread(ThreadId),
    Forget(String),
}

/// Its outcome.
#[derive(Debug, PartialEq)]
enum Said {
    Nothing(Result<(), StoreError>),
    Kept(Result<AttachmentOutcome, StoreError>),
    Found(Result<Option<AttachmentRow>, StoreError>),
    Was(Result<bool, StoreError>),
}

fn step(rng: &mut Rng) -> Step {
    let of = nth_thread(rng.below(4));
    let (place, kind, bytes) = (rng.below(12), rng.below(4), 1 + rng.below(9) as u64);
    let bound = rng.choose(None, &[Some(20), Some(40)]);
    let path = if rng.chance(50) { nth_attachment(place, 0).path } else { nth_blob(place, 0, 0).path };
    match rng.below(9) {
        0 | 1 => Step::Expect(path),
        2 => Step::Put(nth_attachment(place, bytes), bound),
        3 | 4 => Step::PutBlob(of, nth_blob(place, kind, bytes), bound),
        5 => Step::Use(of, path),
        6 => Step::UseBlob(of, nth_hash(kind)),
        7 => Step::DeleteThread(of),
        _ => Step::Forget(path),
    }
}

async fn take(store: &impl store_conformance::TestStore, owner: &UserId, step: Step) -> Said {
    match step {
        Step::Expect(path) => Said::Nothing(store.reserve_attachment(owner, &path, 1).await),
        Step::Put(row, bound) => Said::Kept(store.commit_attachment(owner, row, bound).await),
        Step::PutBlob(of, row, bound) => Said::Kept(store.commit_blob(owner, &of, row, bound).await),
        Step::Use(of, path) => Said::Found(store.link_attachment(owner, &of, &path).await),
        Step::UseBlob(of, hash) => Said::Found(store.link_blob(owner, &of, &hash).await),
        Step::DeleteThread(of) => Said::Was(store.delete_thread(owner, &of).await),
        Step::Forget(path) => Said::Was(store.delete_attachment(owner, &path).await),
    }
}

/// The complete visible state of files.
async fn visible_state(store: &impl store_conformance::TestStore) -> String {
    let mut seen = vec![format!("{:?}", store.unreferenced_attachments().await.unwrap())];
    seen.push(format!("{:?}", store.stale_attachments().await.unwrap()));
    for owner in [test_user(), other_user()] {
        seen.push(format!("{owner} {}", store.attachment_bytes_used(&owner).await.unwrap()));
        for place in 0..12 {
            seen.push(format!("{:?}", store.attachment(&owner, &nth_attachment(place, 0).path).await.unwrap()));
        }
        for kind in 0..4 {
            for of in [None, Some(nth_thread(0)), Some(nth_thread(1)), Some(nth_thread(2)), Some(nth_thread(3))] {
                seen.push(format!("{:?}", store.blob(&owner, of.as_ref(), &nth_hash(kind)).await.unwrap()));
            }
        }
    }
    seen.join("\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn both_backends_agree_on_random_file_operations() {
    let mut released = 0;
    for seed in test_seeds().step_by(16) {
        println!("seed {seed}");
        let (dir, memory) = (tempfile::tempdir().unwrap(), MemoryStore::new());
        let sqlite = open(dir.path());
        let mut rng = Rng::new(seed);
        for _ in 0..200 {
            let owner = if rng.chance(80) { test_user() } else { other_user() };
            let step = step(&mut rng);
            let said = (take(&memory, &owner, step.clone()).await, take(&sqlite, &owner, step.clone()).await);
            assert_eq!(said.0, said.1, "seed {seed}: {step:?}");
            if rng.chance(10) {
                assert_eq!(visible_state(&memory).await, visible_state(&sqlite).await, "seed {seed} after {step:?}");
            }
        }
        assert_eq!(visible_state(&memory).await, visible_state(&sqlite).await, "seed {seed}");
        assert_eq!(sqlite.stats().failures, 0, "seed {seed}");
        released += memory.unreferenced_attachments().await.unwrap().len();
        drop(sqlite);
        assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new(), "seed {seed}");
    }
    assert!(released > 0, "nothing was ever released");
}

/// Two existing threads and one that was never created, with an image of each and a file of all.
async fn three_threads(store: &SqliteStore) {
    let owner = test_user();
    for n in 1..=2 {
        LogWriter::new(store, store, n).await.start_run().complete_run().must_append().await;
    }
    store.commit_attachment(&owner, nth_attachment(1, 1), None).await.unwrap();
    store.commit_attachment(&owner, nth_attachment(2, 2), None).await.unwrap();
    store.reserve_attachment(&owner, "expected", 1).await.unwrap();
    for n in 1..=3 {
        store.commit_blob(&owner, &nth_thread(n), nth_blob(n, n, 10), None).await.unwrap();
        store.link_attachment(&owner, &nth_thread(n), &nth_attachment(1, 1).path).await.unwrap();
    }
    // The missing thread uses some more, and another user links a file to a thread that is not theirs.
    store.link_attachment(&owner, &nth_thread(3), &nth_attachment(2, 2).path).await.unwrap();
    store.link_blob(&owner, &nth_thread(3), &nth_hash(1)).await.unwrap();
    store.commit_blob(&other_user(), &nth_thread(1), nth_blob(1, 1, 5), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_for_threads_that_were_never_created_are_released_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    three_threads(&store).await;
    assert_eq!(store.attachment_bytes_used(&test_user()).await, Ok(33));
    drop(store);
    assert_eq!(
        verify_data_folder(dir.path()).unwrap().problems,
        Vec::<String>::new(),
        "what a crash leaves is no damage"
    );

    let (owner, other) = (test_user(), other_user());
    for _ in 0..2 {
        let store = open(dir.path());
        let released = vec![(owner.clone(), nth_blob(3, 3, 10).path), (other.clone(), nth_blob(1, 1, 5).path)];
        assert_eq!(store.unreferenced_attachments().await, Ok(released));
        assert_eq!(store.blob(&owner, None, &nth_hash(3)).await, Ok(None));
        assert_eq!(store.blob(&other, None, &nth_hash(1)).await, Ok(None));
        assert_eq!(store.blob(&owner, Some(&nth_thread(3)), &nth_hash(1)).await, Ok(None));
        for n in 1..=2 {
            assert_eq!(store.blob(&owner, Some(&nth_thread(n)), &nth_hash(n)).await, Ok(Some(nth_blob(n, n, 10))));
            assert_eq!(
                store.attachment(&owner, &nth_attachment(n, 0).path).await,
                Ok(Some(nth_attachment(n, n as u64)))
            );
        }
        assert_eq!(store.attachment_bytes_used(&owner).await, Ok(23));
        assert_eq!(store.attachment_bytes_used(&other).await, Ok(0));
        drop(store);
        assert_eq!(verify_data_folder(dir.path()).unwrap().problems, Vec::<String>::new());
    }
    // Files used by the others are not released before the last of them is deleted.
    let store = open(dir.path());
    assert_eq!(store.delete_thread(&owner, &nth_thread(1)).await, Ok(true));
    assert_eq!(store.attachment_bytes_used(&owner).await, Ok(13));
    assert_eq!(store.delete_thread(&owner, &nth_thread(2)).await, Ok(true));
    assert_eq!(store.attachment_bytes_used(&owner).await, Ok(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_the_files_of_a_folder_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    assert!(list_stored_files(dir.path()).is_err(), "a server works in it");
    three_threads(&store).await;
    store.delete_thread(&test_user(), &nth_thread(2)).await.unwrap();
    drop(store);
    let before = std::fs::read(dir.path().join("headwater.db")).unwrap();
    let mine = [nth_blob(1, 1, 10), nth_blob(3, 3, 10), nth_attachment(1, 1), nth_attachment(2, 2)]
        .map(|row| (test_user(), row));
    let there = mine.into_iter().chain([(other_user(), nth_blob(1, 1, 5))]).collect();
    let unfinished = vec![(test_user(), nth_blob(2, 2, 10).path), (test_user(), "expected".to_owned())];
    // Files for a thread that was never created, and files of another user for a foreign thread.
    assert_eq!(
        list_stored_files(dir.path()).unwrap(),
        StoredFiles { committed: there, stale: unfinished, unlinked: 2 }
    );
    assert_eq!(std::fs::read(dir.path().join("headwater.db")).unwrap(), before);
}

/// Every cell of every table, as text.
fn cells(dir: &Path) -> Vec<String> {
    let conn = database(dir);
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    let tables: Vec<String> =
        conn.prepare(names).unwrap().query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut cells = Vec::new();
    for table in tables {
        let mut select = conn.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = select.column_count();
        let mut rows = select.query(()).unwrap();
        while let Some(row) = rows.next().unwrap() {
            cells.extend((0..width).map(|at| format!("{table}: {:?}", row.get_ref(at).unwrap())));
        }
    }
    cells
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_thread_leaves_nothing_in_any_table() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let before = cells(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run().push_notes(2).must_append().await;
    author.request_approval(1);
    author.changes.push(DirectoryChange::Checkpoint(nth_checkpoint(4, &[0, 1])));
    author.must_append().await;
    store.commit_attachment(&test_user(), nth_attachment(1, 7), None).await.unwrap();
    store.link_attachment(&test_user(), &nth_thread(1), &nth_attachment(1, 7).path).await.unwrap();
    store.commit_blob(&test_user(), &nth_thread(1), nth_blob(2, 2, 7), None).await.unwrap();
    store.create_share(store_conformance::shares::nth_share("share_1", 1)).await.unwrap();
    store
        .create_alias(&test_user(), store_conformance::threads::nth_alias(AliasKind::Conversation, "name", 1))
        .await
        .unwrap();
    assert_eq!(store.delete_thread(&test_user(), &nth_thread(1)).await, Ok(true));
    for (owner, path) in store.unreferenced_attachments().await.unwrap() {
        assert_eq!(store.delete_attachment(&owner, &path).await, Ok(true));
    }
    drop(store);
    let left: Vec<String> = cells(dir.path()).into_iter().filter(|cell| !before.contains(cell)).collect();
    // The used quota is known per user.
    let known = ["attachment_sums: Text([115, 111, 109, 101, 98, 111, 100, 121])", "attachment_sums: Integer(0)"];
    assert_eq!(left, known);
    assert_eq!(verify_data_folder(dir.path()).unwrap().to_string(), "0 threads, 0 runs, 0 records\nno damage found");
    let bytes = std::fs::read(dir.path().join("headwater.db")).unwrap();
    assert!(!bytes.windows(6).any(|six| six == b"thr_00" || six == b"blobs/"), "not even between the rows");
}

fn picture(n: usize) -> ImageUrl {
    ImageUrl::new(blob::blob_url(&nth_hash(n)))
}

/// Logs an image in an output, one in an input, and one that only the model sees.
async fn three_pictures(store: &SqliteStore, [shown, said, hidden]: [usize; 3]) {
    let mut author = LogWriter::new(store, store, 1).await;
    author.start_run().must_append().await;
    let (task_id, item_id) = (author.run.clone(), ItemId::from("msg_1"));
    let image = |n| ContentPart::ImageUrl { image_url: picture(n), id: None };
    let message = InputMessage { id: item_id.clone(), role: Role::User, content: vec![image(said)] };
    author.push_event(Event::InputAdded(InputAdded { task_id: task_id.clone(), input: vec![message] }));
    let item = TaggedImageBlock::Image(ImageBlock { image_url: picture(shown), id: None });
    let drawn = ImageEvent { task_id, item_id, output_index: 0, block_index: 0, item };
    author.push_event(Event::ImageDone(drawn));
    let private = PrivatePayload { content: Some(vec![image(hidden)]), ..PrivatePayload::default() };
    let event = note_event(&author.run, "see /v1/blobs/0123, or do not");
    let draft = RecordDraft { seq: author.next_seq(), at: author.now, event, private: Some(Box::new(private)) };
    let record = Record::seal(&author.thread, &author.run, author.lease.epoch, draft);
    author.records.push(record);
    author.complete_run().must_append().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_compares_the_images_of_a_log_with_the_blobs_of_its_thread() {
    for (missing, problem) in [(0, None), (1, Some("record 4")), (2, Some("record 3")), (3, Some("record 5"))] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for n in (1..=3).filter(|n| *n != missing) {
            store.commit_blob(&test_user(), &nth_thread(1), nth_blob(n, n, 10), None).await.unwrap();
        }
        // That other threads have the same image does not help.
        LogWriter::new(&store, &store, 2).await.start_run().complete_run().must_append().await;
        store.commit_blob(&test_user(), &nth_thread(2), nth_blob(9, missing, 10), None).await.unwrap();
        three_pictures(&store, [1, 2, 3]).await;
        drop(store);
        let wanted = problem.map(|at| format!("{}: {at} names a blob that is not the thread's", nth_thread(1)));
        let problems = verify_data_folder(dir.path()).unwrap().problems;
        let found = problems.iter().filter(|line| line.contains("names a blob")).collect::<Vec<_>>();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>(), "{missing}: {problems:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_detects_inconsistent_file_rows() {
    let lies = [
        ("UPDATE attachments SET hash = 'abc' WHERE hash IS NOT NULL", "has no hash that there can be"),
        ("UPDATE attachments SET hash = hash || '0' WHERE hash IS NOT NULL", "has no hash that there can be"),
        (
            "UPDATE attachments SET hash = replace(hash, '0', 'A') WHERE hash IS NOT NULL",
            "has no hash that there can be",
        ),
        (
            "INSERT INTO attachments SELECT owner, 'again', '', '', 0, 1, hash, 0 FROM attachments WHERE hash IS NOT NULL",
            "has it twice",
        ),
        ("UPDATE attachments SET released = 1 WHERE hash IS NOT NULL", "is there, and is not"),
        ("UPDATE attachments SET bytes = NULL WHERE hash IS NOT NULL", "is there, and is not"),
        ("DELETE FROM attachment_uses WHERE path LIKE 'blobs/%'", "no thread uses the blob blobs/0001"),
        ("DELETE FROM attachments WHERE path = 'files/1'", "uses a file that is not there"),
        ("UPDATE attachment_uses SET path = 'files/2' WHERE path = 'files/1'", "uses a file that is not there"),
        ("UPDATE attachments SET bytes = 8 WHERE path = 'files/1'", "the files of somebody are summed up wrongly"),
    ];
    for (lie, problem) in lies {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        LogWriter::new(&store, &store, 1).await.start_run().complete_run().must_append().await;
        store.commit_blob(&test_user(), &nth_thread(1), nth_blob(1, 1, 10), None).await.unwrap();
        store.commit_attachment(&test_user(), nth_attachment(1, 7), None).await.unwrap();
        store.link_attachment(&test_user(), &nth_thread(1), &nth_attachment(1, 7).path).await.unwrap();
        drop(store);
        assert!(verify_data_folder(dir.path()).unwrap().is_clean());
        let conn = database(dir.path());
        conn.execute_batch("DROP INDEX blobs_of_owner").unwrap();
        assert_eq!(conn.execute(lie, ()).unwrap(), 1, "{lie}");
        drop(conn);
        let report = verify_data_folder(dir.path()).unwrap();
        assert!(report.problems.iter().any(|line| line.contains(problem)), "{lie}: {report}");
    }
}
