//! Files of threads that were never created, because a node crashed between the two.

use super::writers::poll_until;
use super::{create_thread, options};
use model::ThreadId;
use model::ports::{AttachmentRow, AttachmentWriter as _, Attachments as _};
use postgres_testing::TestDatabase;
use store::PostgresStore;
use store_conformance::fixtures::{nth_thread, test_user};

fn blob(n: usize) -> AttachmentRow {
    AttachmentRow {
        path: format!("blobs/{n:04}"),
        name: String::new(),
        content_type: "image/png".to_owned(),
        size_bytes: 10,
        created_at: 1,
        hash: Some(format!("{n:064x}")),
    }
}

async fn store_blob(store: &PostgresStore, n: usize, thread: &ThreadId) {
    store.commit_blob(&test_user(), thread, blob(n), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_thread_never_came_is_released_after_an_hour() {
    let database = TestDatabase::create();
    let store = PostgresStore::open(options(&database)).await.unwrap();
    let (used, missing) = (nth_thread(1), nth_thread(2));
    drop(create_thread(&store, 1).await);
    store_blob(&store, 1, &used).await;
    for n in [1, 2, 3, 4] {
        store_blob(&store, n, &missing).await;
    }
    // An upload stays, as long as nobody deletes it.
    let upload = AttachmentRow { path: "files/0005".to_owned(), hash: None, ..blob(5) };
    store.commit_attachment(&test_user(), upload, None).await.unwrap();
    store.link_attachment(&test_user(), &missing, "files/0005").await.unwrap();
    database.execute(
        "UPDATE headwater.attachment_links SET linked_at = clock_timestamp() - interval '2 hours'
         WHERE path <> 'blobs/0004'",
    );
    store.close().await;

    let store = PostgresStore::open(options(&database)).await.unwrap();
    let links = "SELECT string_agg(path || ' ' || thread, ', ' ORDER BY path) FROM headwater.attachment_links";
    let left = format!("blobs/0001 {used}, blobs/0004 {missing}");
    poll_until("old links without a thread are gone", || database.execute(links).trim() == left).await;
    let stale: Vec<String> = store.stale_attachments().await.unwrap().into_iter().map(|(_, path)| path).collect();
    assert_eq!(stale, ["blobs/0002", "blobs/0003"]);
    assert!(store.attachment(&test_user(), "files/0005").await.unwrap().is_some());
    assert!(store.blob(&test_user(), Some(&used), &format!("{:064x}", 1)).await.unwrap().is_some());
    assert_eq!(store.attachment_bytes_used(&test_user()).await.unwrap(), 30);
}
