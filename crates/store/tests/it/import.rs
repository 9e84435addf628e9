//! Importing a folder into a database: everything is there, and continues.

use crate::data_folder::kill;
use crate::postgres::options;
use model::event::Event;
use model::limits::CostMicros;
use model::ports::{
    AccessKeyRow, Accounts as _, AliasKind, AppendOutcome, AttachmentWriter as _, Attachments as _, Day,
    DefinitionStore as _, DefinitionWriter as _, DirectoryChange, Inbox as _, InboxWriter as _, Journal as _,
    NewSecret, PageLimit, Retention as _, RetentionWriter as _, SecretKey, SecretKind, Spend, SubmitError, Submitted,
    ThreadWriter as _, Threads as _, UsageLedger as _, UserSecrets as _,
};
use model::usage::Usage;
use model_testing::test_seeds;
use postgres_testing::{PgBouncer, TestDatabase, shared};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;
use store::{
    DatabaseUrl, ImportError, ImportProgress, ImportReport, ImportedSecret, PostgresClient, PostgresOptions,
    PostgresStore, SqliteOptions, SqliteStore, StoreOpenError, import_data_folder,
};
use store_conformance::blobs::{nth_blob, nth_hash};
use store_conformance::fixtures::{
    LogWriter, claim_thread, new_thread_submission, nth_run, nth_thread, read_all_records, start_command, submission,
    test_user, with_idempotency_key,
};
use store_conformance::random_log::RandomLogWriter;
use store_conformance::random_walk::RandomWalk;
use store_conformance::restart::{check_after_restart, write_before_restart};
use store_conformance::threads::nth_alias;

const INBOX: usize = 5;

fn open(dir: &Path) -> SqliteStore {
    SqliteStore::open(dir, &SqliteOptions { inbox_rows_max: INBOX, ..SqliteOptions::default() }).unwrap()
}

fn url(database: &TestDatabase) -> DatabaseUrl {
    database.url().parse().unwrap()
}

async fn import(dir: &Path, database: &TestDatabase) -> Result<ImportReport, ImportError> {
    import_data_folder(dir, &url(database), Vec::new(), |_| {}).await
}

async fn open_imported(database: &TestDatabase) -> PostgresStore {
    PostgresStore::open(PostgresOptions { inbox_rows_max: INBOX, ..options(database) }).await.unwrap()
}

async fn close(store: SqliteStore) {
    store.close().await;
}

/// Every file of a folder and its bytes.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_walks_continue_in_the_database() {
    for seed in test_seeds().step_by(16) {
        let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
        let mut walk = RandomWalk::new(seed, INBOX);
        for _ in 0..2 {
            let store = open(dir.path());
            walk.forget_leases();
            walk.run_steps(&store, &store, 150).await;
            close(store).await;
        }
        let before = files(dir.path());
        import(dir.path(), &database).await.unwrap();
        assert_eq!(files(dir.path()), before, "seed {seed}: the folder stays as it is");
        let store = open_imported(&database).await;
        walk.forget_leases();
        walk.check_all(&store, &store).await;
        walk.run_steps(&store, &store, 150).await;
        assert_eq!(store.stats().failures, 0, "seed {seed}");
        assert!(walk.confirmed_records() > 100, "seed {seed}: a walk that got nowhere");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_survives_a_restart_survives_an_import() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let remembered = write_before_restart(&store, &store).await;
    close(store).await;
    let report = import(dir.path(), &database).await.unwrap();
    assert_eq!((report.threads, report.runs, report.files), (6, 7, 2), "{report:?}");
    let verified = PostgresClient::open_for_reading(&url(&database)).await.unwrap().verify().await.unwrap();
    assert_eq!(verified.problems, [""; 0]);
    assert_eq!((verified.threads, verified.runs, verified.records), (report.threads, report.runs, report.records));
    let store = open_imported(&database).await;
    check_after_restart(&store, &store, remembered).await;
    let verified = PostgresClient::open_for_reading(&url(&database)).await.unwrap().verify().await.unwrap();
    assert_eq!(verified.problems, [""; 0], "and what was added");
}

/// The write-ahead log of a killed server has what the database has not.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_imported_as_a_crash_left_it() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let remembered = write_before_restart(&store, &store).await;
    let crashed = kill(dir.path());
    import(crashed.path(), &database).await.unwrap();
    let store = open_imported(&database).await;
    check_after_restart(&store, &store, remembered).await;
}

/// What no fixture of other tests has.
#[tokio::test(flavor = "multi_thread")]
async fn keys_spending_names_and_secrets_are_imported_exactly() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let keys = [(1, None), (2, Some(3))].map(|(n, revoked_at)| AccessKeyRow {
        id: format!("key_{n}"),
        user: test_user(),
        digest: format!("digest {n}"),
        created_at: n,
        revoked_at,
    });
    for key in &keys {
        store.create_access_key(key.clone()).await.unwrap();
    }
    let spent = Spend {
        usage: Usage { input_tokens: u64::MAX, cached_tokens: 1, output_tokens: 1 << 63, ..Usage::default() },
        cost: CostMicros(u64::MAX - 1),
    };
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.changes.push(DirectoryChange::AddSpend { day: Day(u32::MAX / 2), spent });
    author.start_run().push_event_with_private(Event::decode(b"{}"), Some("\0 \u{1F30A}")).must_append().await;
    let named = with_idempotency_key(submission(&nth_thread(1), start_command(&nth_run(2))), "key\0", "digest");
    store.submit(&test_user(), named.clone()).await.unwrap();
    let alias = nth_alias(AliasKind::Conversation, "a\0name", 1);
    store.create_alias(&test_user(), alias.clone()).await.unwrap();
    store.set_retention_time(7_777).await.unwrap();
    for kind in SecretKind::ALL {
        let key = SecretKey { owner: test_user(), kind, name: "files".to_owned() };
        let sealed = NewSecret { key, body: vec![0, 255], at: 5, expires_at: Some(99), count_max: 9 };
        store.put_secret(sealed).await.unwrap();
    }
    close(store).await;

    let server = open_imported(&database).await;
    for name in ["some_key", "other_key"] {
        assert_eq!(server.shared_secret(name, b"made at the first start").await.unwrap(), b"made at the first start");
    }
    server.close().await;
    let secrets = vec![ImportedSecret { name: "some_key".to_owned(), value: vec![0, 1, 255] }];
    import_data_folder(dir.path(), &url(&database), secrets, |_| {}).await.unwrap();
    let store = open_imported(&database).await;
    assert_eq!(store.access_keys().await.unwrap(), keys);
    assert_eq!(store.daily_spend(&test_user(), Day(u32::MAX / 2)).await, Ok(spent));
    assert_eq!(store.alias(&test_user(), AliasKind::Conversation, "a\0name").await, Ok(Some(alias)));
    assert_eq!(store.retention_time().await, Ok(Some(7_777)));
    let sealed = store.secrets(&test_user(), 6).await.unwrap();
    let kept: Vec<(SecretKind, &[u8], _)> =
        sealed.iter().map(|secret| (secret.key.kind, secret.body.as_slice(), secret.expires_at)).collect();
    // What waits for a browser is not worth copying.
    let wanted = [SecretKind::McpClient, SecretKind::McpToken].map(|kind| (kind, &[0, 255][..], Some(99)));
    assert_eq!(kept, wanted);
    assert_eq!(store.shared_secret("some_key", b"another").await.unwrap(), [0, 1, 255]);
    assert_eq!(store.shared_secret("other_key", b"another").await.unwrap(), b"another");
    let again = Submitted::Duplicate { task: nth_run(2), thread: nth_thread(1) };
    assert_eq!(store.submit(&test_user(), named.clone()).await, Ok(again));
    let other = with_idempotency_key(named, "key\0", "another digest");
    assert_eq!(store.submit(&test_user(), other).await, Err(SubmitError::KeyReused));
}

/// Rows in the inbox of a folder had numbers, and so had threads and runs: none is given again.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_of_deleted_rows_and_epochs_of_lost_leases_are_not_given_again() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    let row = store.inbox_page(&test_user(), &nth_thread(1), 0, 9).await.unwrap()[0].id;
    author.changes.push(DirectoryChange::ConsumeInboxRow { row });
    author.start_run().complete_run().must_append().await;
    LogWriter::new(&store, &store, 2).await;
    store.delete_thread(&test_user(), &nth_thread(2)).await.unwrap();
    let lost = claim_thread(&store, &test_user(), &nth_thread(1)).await;
    close(store).await;
    import(dir.path(), &database).await.unwrap();
    let store = open_imported(&database).await;
    let created = store.submit(&test_user(), new_thread_submission(&nth_thread(3), start_command(&nth_run(3)))).await;
    let Ok(Submitted::Claimed { lease, row: next }) = created else { panic!("{created:?}") };
    assert!(next > row + 1, "{next} after {row} and one more");
    assert!(lease.epoch > lost.epoch, "{lease:?} after {lost:?}");
    assert!(claim_thread(&store, &test_user(), &nth_thread(1)).await.epoch > lost.epoch);
    assert_eq!(database.execute("SELECT num FROM headwater.threads ORDER BY num").trim(), "1\n3");
    let mut fenced = LogWriter::with_lease(&store, test_user(), 1, lost);
    assert_eq!(fenced.push_notes(1).append().await, AppendOutcome::Fenced, "the folder's server has no lease");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_logs_are_imported_in_pages_and_progress_is_told() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let (_, all) = crate::logged::long_run(&store).await;
    let mut logs = Vec::new();
    for seed in test_seeds().step_by(12).take(3) {
        println!("seed {seed}");
        let mut log = RandomLogWriter::new(&store, &store, seed).await;
        while log.appended_len() < log.records.len() {
            log.append(500).await;
        }
        logs.push((log.thread.clone(), log.records.clone()));
    }
    close(store).await;
    let mut told = Vec::new();
    let report = import_data_folder(dir.path(), &url(&database), Vec::new(), |progress| told.push(progress)).await;
    let report = report.unwrap();
    assert_eq!(told[0], ImportProgress::Checking);
    assert_eq!(
        told.last(),
        Some(&ImportProgress::Copying { report: ImportReport { files: 0, ..report }, threads_total: 5 })
    );
    assert!(told.len() > 3 && report.threads == 5, "{told:?}");
    let store = open_imported(&database).await;
    let owner = store_conformance::fixtures::other_user();
    assert_eq!(read_all_records(&store, (&owner, &nth_thread(1)), PageLimit::WIDE).await.unwrap(), all);
    for (thread, records) in logs {
        assert_eq!(read_all_records(&store, (&test_user(), &thread), PageLimit::WIDE).await.unwrap(), records);
    }
    let verified = PostgresClient::open_for_reading(&url(&database)).await.unwrap().verify().await.unwrap();
    assert_eq!(verified.problems, [""; 0]);
}

/// What a start of the folder's server would have removed.
#[tokio::test(flavor = "multi_thread")]
async fn blobs_of_threads_that_were_never_created_are_released() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    LogWriter::new(&store, &store, 1).await.start_run().must_append().await;
    for (thread, n) in [(1, 1), (9, 2)] {
        store.commit_blob(&test_user(), &nth_thread(thread), nth_blob(n, n, 10), None).await.unwrap();
    }
    close(store).await;
    assert_eq!(import(dir.path(), &database).await.unwrap().files, 1);
    let store = open_imported(&database).await;
    assert_eq!(store.blob(&test_user(), None, &nth_hash(1)).await, Ok(Some(nth_blob(1, 1, 10))));
    assert_eq!(store.blob(&test_user(), None, &nth_hash(2)).await, Ok(None));
    assert_eq!(store.unreferenced_attachments().await.unwrap(), [(test_user(), nth_blob(2, 2, 10).path)]);
    assert_eq!(store.attachment_bytes_used(&test_user()).await, Ok(10));
    let verified = PostgresClient::open_for_reading(&url(&database)).await.unwrap().verify().await.unwrap();
    assert_eq!(verified.problems, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_with_data_or_a_server_is_refused() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    LogWriter::new(&store, &store, 1).await.start_run().must_append().await;
    let locked = import(dir.path(), &database).await.unwrap_err().to_string();
    assert!(locked.contains("is in use by another process: stop that one"), "{locked}");
    close(store).await;

    let server = open_imported(&database).await;
    let place = url(&database).place();
    let refused = import(dir.path(), &database).await.unwrap_err().to_string();
    let said = format!(
        "a server uses the database at {place} (node node on ): stop all servers first; one that was killed counts for \
         ten more seconds"
    );
    assert_eq!(refused, said);
    // What a server writes that is started and stopped without work.
    server.put_definitions("digest", "{}").await.unwrap();
    server.close().await;

    import(dir.path(), &database).await.unwrap();
    let refused = import(dir.path(), &database).await.unwrap_err().to_string();
    assert_eq!(refused, format!("the database at {place} has data already: import needs an empty one"));
    let store = open_imported(&database).await;
    assert_eq!(store.threads(&test_user(), model::ports::ListPage { before: None, limit: 9 }).await.unwrap().len(), 1);
    assert_eq!(store.definitions("digest").await.unwrap().as_deref(), Some("{}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_folder_is_refused_and_leaves_an_empty_database() {
    let damages = [
        (
            "UPDATE records SET data = CAST(replace(CAST(data AS TEXT), 'note 1', 'note ?') AS BLOB)
             WHERE thread = 2 AND seq = 1",
            "the log of thr_00000000000000000000000000000002 is damaged at record 4: restore it from a backup",
        ),
        ("DELETE FROM records WHERE thread = 2 AND seq = 5", "fits nowhere; `headwater verify` lists all damage"),
        ("UPDATE inbox SET thread = 99 WHERE id = 1", "is damaged: 1 rows of inbox belong to no thread"),
    ];
    for (damage, problem) in damages {
        let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
        let store = open(dir.path());
        for n in 1..=2 {
            let mut author = LogWriter::new(&store, &store, n).await;
            author.start_run().push_notes(2).must_append().await;
            author.push_note("lost").push_change().must_append().await;
            author.push_notes(7).push_change().must_append().await;
        }
        close(store).await;
        assert_eq!(Connection::open(dir.path().join("headwater.db")).unwrap().execute(damage, ()), Ok(1));
        let refused = import(dir.path(), &database).await.unwrap_err().to_string();
        assert!(refused.contains(problem), "{damage}: {refused}");
        let tables = "SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'";
        assert_eq!(database.execute(tables).trim(), "0", "{damage}");
    }
}

/// A server that starts meanwhile waits, and then finds all of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_starts_during_an_import_finds_all_of_it() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let mut author = LogWriter::new(&store, &store, 1).await;
    author.start_run();
    for _ in 0..5 {
        author.push_notes(4_000).must_append().await;
    }
    close(store).await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut begun = Some(begun);
    let (address, options) = (url(&database), options(&database));
    let importing = import_data_folder(dir.path(), &address, Vec::new(), |progress| {
        if let ImportProgress::Copying { .. } = progress {
            begun.take().into_iter().for_each(|begun| begun.send(()).unwrap());
        }
    });
    let starting = async {
        has_begun.await.unwrap();
        let server = PostgresStore::open(options).await.unwrap();
        server.read_page(&test_user(), &nth_thread(1), model::Seq::ZERO, PageLimit::ONE).await.unwrap().head
    };
    let (report, head) = tokio::join!(importing, starting);
    assert_eq!((report.unwrap().records, head.0), (20_002, 20_002));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_import_leaves_an_empty_database_for_the_next() {
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let (_, all) = crate::logged::long_run(&store).await;
    close(store).await;
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let mut begun = Some(begun);
    let address = url(&database);
    let importing = import_data_folder(dir.path(), &address, Vec::new(), |progress| {
        if matches!(progress, ImportProgress::Copying { report, .. } if report.records > 0) {
            begun.take().into_iter().for_each(|begun| begun.send(()).unwrap());
        }
    });
    tokio::select! {
        biased;
        begun = has_begun => begun.unwrap(),
        report = importing => panic!("it was not interrupted: {report:?}"),
    }
    // The reader of the interrupted one still holds the folder for a moment.
    let began = std::time::Instant::now();
    let report = loop {
        match import(dir.path(), &database).await {
            Err(ImportError::Folder(StoreOpenError::Locked(_)))
                if began.elapsed() < std::time::Duration::from_secs(20) => {}
            imported => break imported.unwrap(),
        }
    };
    assert_eq!(report.threads, 2);
    let store = open_imported(&database).await;
    let owner = store_conformance::fixtures::other_user();
    assert_eq!(read_all_records(&store, (&owner, &nth_thread(1)), PageLimit::WIDE).await.unwrap(), all);
}

/// Through a pooler that gives every transaction another connection.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_is_imported_checked_and_read_through_a_pooler() {
    let Some(pooler) = PgBouncer::start_or_skip(shared(), "a_folder_is_imported_checked_and_read_through_a_pooler")
    else {
        return;
    };
    let (dir, database) = (tempfile::tempdir().unwrap(), TestDatabase::create());
    let store = open(dir.path());
    let (_, all) = crate::logged::long_run(&store).await;
    close(store).await;
    let pooled: DatabaseUrl = pooler.url(database.name()).parse().unwrap();
    import_data_folder(dir.path(), &pooled, Vec::new(), |_| {}).await.unwrap();
    let client = PostgresClient::open_for_reading(&pooled).await.unwrap();
    assert_eq!(client.verify().await.unwrap().problems, [""; 0]);
    let run = client.find_logged_run(&nth_run(1)).await.unwrap().unwrap();
    assert_eq!(crate::logged::read_some(&mut run.records(), usize::MAX).await, all);
}
