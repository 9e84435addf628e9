//! The schema, its migrations, and the settings of connections.
//!
//! `application_id` identifies a Headwater database; `user_version` is the number of applied [`MIGRATIONS`]. A released
//! migration is never edited: changes are new migrations. The modules of the tables document the rows.

use super::free_pages::AUTO_VACUUM_INCREMENTAL;
use super::single_records;
use model::defects::Defect;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::Duration;

// In older versions, a write during a checkpoint could corrupt a database in WAL mode.
const _: () = assert!(rusqlite::ffi::SQLITE_VERSION_NUMBER >= 3_053_000, "the bundled SQLite is too old");

/// `HWTR` in ASCII.
pub(crate) const APPLICATION_ID: i32 = 0x4857_5452;
pub(crate) const DATABASE_FILE: &str = "headwater.db";
/// One migration per version, each in its own transaction.
pub(crate) const MIGRATIONS: &[&str] = &[
    VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8, VERSION_9, VERSION_10,
    VERSION_11, VERSION_12, VERSION_13, VERSION_14,
];
/// The first version with approvals.
pub(crate) const APPROVALS_SINCE: u32 = 2;
/// The first version with aliases.
pub(crate) const ALIASES_SINCE: u32 = 3;
/// The first version with attachments.
pub(crate) const ATTACHMENTS_SINCE: u32 = 5;
/// The first version with blobs and links from threads to files.
pub(crate) const BLOBS_SINCE: u32 = 6;

/// The first version with condensed blocks.
pub(crate) const CONDENSED_SINCE: u32 = 10;

/// The first version with rows of several records.
const RECORD_ROWS_SINCE: u32 = 13;

/// How long a connection waits for a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const BUSY_TIMEOUT_SHORT: Duration = Duration::from_millis(50);
/// Number of pages in the write-ahead log that triggers a checkpoint, on a connection without a `WalCheckpointer`.
const WAL_CHECKPOINT_PAGES: u32 = 4_000;
/// Size to which the write-ahead log is truncated after a checkpoint.
const WAL_BYTES_MAX: u32 = 64 * 1024 * 1024;
const STATEMENT_CACHE_SIZE: usize = 64;

/// Rows refer to threads and runs by integer to keep records small. `records` is in commit order and has no index: see
/// `record_index`. The records of a run move to `blocks` when it ends, or is long.
const VERSION_1: &str = "
CREATE TABLE meta (
    name TEXT PRIMARY KEY, value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('boot', 0);

CREATE TABLE threads (
    num INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX threads_of_owner ON threads (owner, id);

CREATE TABLE runs (
    num INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, owner TEXT NOT NULL, thread INTEGER NOT NULL,
    agent TEXT NOT NULL, status TEXT NOT NULL, first INTEGER, last INTEGER,
    created_at INTEGER NOT NULL, ended_at INTEGER
) STRICT;
CREATE UNIQUE INDEX runs_of_owner ON runs (owner, id);
CREATE INDEX runs_of_thread ON runs (thread, last);
CREATE INDEX runs_open ON runs (owner, id) WHERE ended_at IS NULL;

CREATE TABLE records (
    pos INTEGER PRIMARY KEY, thread INTEGER NOT NULL, run INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
    epoch INTEGER NOT NULL, v INTEGER NOT NULL, checksum INTEGER NOT NULL, public BLOB NOT NULL, private BLOB
) STRICT;

CREATE TABLE blocks (
    thread INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, run INTEGER NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (thread, first_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, thread INTEGER NOT NULL, at INTEGER NOT NULL, command TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_of_thread ON inbox (thread);

CREATE TABLE idempotency (
    owner TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, task TEXT NOT NULL, thread INTEGER NOT NULL,
    at INTEGER NOT NULL, PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_of_thread ON idempotency (thread);
CREATE INDEX idempotency_by_age ON idempotency (at);

CREATE TABLE checkpoints (
    thread INTEGER PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL
) STRICT;

CREATE TABLE keys (
    id TEXT PRIMARY KEY, user TEXT NOT NULL, digest TEXT NOT NULL, created_at INTEGER NOT NULL, revoked_at INTEGER
) STRICT, WITHOUT ROWID;
";

/// Approvals, wake-ups, spending and definitions. An approval without an answer is open; the open ones are few, hence
/// the partial index. A wake-up is deleted with its thread; spending and definitions outlive threads.
const VERSION_2: &str = "
CREATE TABLE approvals (
    owner TEXT NOT NULL, key TEXT NOT NULL, thread INTEGER NOT NULL, run TEXT NOT NULL, task TEXT NOT NULL,
    call TEXT NOT NULL, action TEXT NOT NULL, requested_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, answer TEXT,
    PRIMARY KEY (owner, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_of_owner ON approvals (owner, requested_at, key);
CREATE INDEX approvals_open ON approvals (owner, requested_at, key) WHERE answer IS NULL;
CREATE INDEX approvals_of_thread ON approvals (thread);

ALTER TABLE threads ADD COLUMN wake_at INTEGER;
CREATE INDEX threads_waking ON threads (wake_at, id) WHERE wake_at IS NOT NULL;

CREATE TABLE spent (
    owner TEXT NOT NULL, day INTEGER NOT NULL, input INTEGER NOT NULL, cached INTEGER NOT NULL,
    cache_write INTEGER NOT NULL, output INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (owner, day)
) STRICT, WITHOUT ROWID;

CREATE TABLE definitions (
    digest TEXT PRIMARY KEY, body TEXT NOT NULL
) STRICT;
";

/// Aliases. An alias may exist before its thread, hence the thread's id instead of its number.
const VERSION_3: &str = "
CREATE TABLE names (
    owner TEXT NOT NULL, protocol TEXT NOT NULL, name TEXT NOT NULL, thread TEXT NOT NULL, note TEXT NOT NULL,
    created_at INTEGER NOT NULL, PRIMARY KEY (owner, protocol, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX names_of_thread ON names (thread);
";

const VERSION_4: &str = "
CREATE TABLE shares (
    id TEXT PRIMARY KEY, thread INTEGER NOT NULL, digest TEXT NOT NULL, until INTEGER, created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX shares_of_thread ON shares (thread);
CREATE INDEX shares_open ON shares (expires_at) WHERE revoked_at IS NULL;
";

/// Attachments. A row without `bytes` is reserved; those are few, hence the partial index. The sums make a quota check
/// independent of the number of files.
const VERSION_5: &str = "
CREATE TABLE attachments (
    owner TEXT NOT NULL, path TEXT NOT NULL, name TEXT NOT NULL, content_type TEXT NOT NULL, bytes INTEGER,
    created_at INTEGER NOT NULL, PRIMARY KEY (owner, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX attachments_expected ON attachments (owner, path) WHERE bytes IS NULL;

CREATE TABLE attachment_sums (
    owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Blobs and links from threads to files. A released file keeps only its path. A link may exist before its thread,
/// hence the thread's id instead of its number.
const VERSION_6: &str = "
ALTER TABLE attachments ADD COLUMN hash TEXT;
ALTER TABLE attachments ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
CREATE UNIQUE INDEX blobs_of_owner ON attachments (owner, hash) WHERE hash IS NOT NULL;
CREATE INDEX attachments_released ON attachments (owner, path) WHERE released = 1;

CREATE TABLE attachment_uses (
    owner TEXT NOT NULL, thread TEXT NOT NULL, path TEXT NOT NULL, PRIMARY KEY (owner, thread, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX uses_of_attachment ON attachment_uses (owner, path);
";

/// Results of client tools. A call without a row is open; an empty digest is a call that records closed.
const VERSION_7: &str = "
CREATE TABLE client_results (
    thread INTEGER NOT NULL, call TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (thread, call)
) STRICT, WITHOUT ROWID;
";

/// The size of logs, and the time up to which retention counts age. Tables of their own: adding a column to a strict table
/// reads all of it. Threads up to `uncounted_max` are counted after the start.
const VERSION_8: &str = "
CREATE TABLE thread_sizes (
    thread INTEGER PRIMARY KEY, bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE log_sums (
    owner TEXT PRIMARY KEY, bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta SELECT 'uncounted_max', ifnull(max(num), 0) FROM threads;
";

/// The runs of checkpoints. A checkpoint of an older version has its runs in its body, and stays as it is until the next
/// run of its thread ends.
const VERSION_9: &str = "
CREATE TABLE checkpoint_runs (
    thread INTEGER NOT NULL, idx INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (thread, idx)
) STRICT, WITHOUT ROWID;
";

/// Condensed forms of blocks, by the same key: a table of its own, so that a reader of one does not read the other. Blocks
/// of older versions have none.
const VERSION_10: &str = "
CREATE TABLE condensed (
    thread INTEGER NOT NULL, first_seq INTEGER NOT NULL, last_seq INTEGER NOT NULL, run INTEGER NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (thread, first_seq)
) STRICT, WITHOUT ROWID;
";

/// Secrets of users. The version of a row is its number, which is never used again.
const VERSION_11: &str = "
CREATE TABLE user_secrets (
    version INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    body BLOB NOT NULL, updated_at INTEGER NOT NULL, expires_at INTEGER, claimed_until INTEGER,
    UNIQUE (owner, kind, name)
) STRICT;
CREATE INDEX user_secrets_by_name ON user_secrets (kind, name);
CREATE INDEX user_secrets_expiring ON user_secrets (expires_at) WHERE expires_at IS NOT NULL;
";

/// What users have seen of the tools of MCP servers.
const VERSION_12: &str = "
CREATE TABLE mcp_pins (
    owner TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (owner, server, tool)
) STRICT, WITHOUT ROWID;
";

/// Rows of several records: see `record_row`. `single_records` has the function.
const VERSION_13: &str = "
ALTER TABLE records RENAME TO single_records;
CREATE TABLE records (
    pos INTEGER PRIMARY KEY, thread INTEGER NOT NULL, run INTEGER NOT NULL, seq INTEGER NOT NULL,
    count INTEGER NOT NULL, data BLOB NOT NULL
) STRICT;
INSERT INTO records SELECT pos, thread, run, seq, 1, encode_record(at, epoch, v, checksum, public, private)
                    FROM single_records ORDER BY pos;
DROP TABLE single_records;
";

/// Records in the files of `append_log`, of which older versions know nothing.
const VERSION_14: &str = "INSERT OR REPLACE INTO meta VALUES ('append_log', 1);";

#[derive(Debug, thiserror::Error)]
pub(crate) enum MigrateError {
    #[error("format {found} is newer than {known}")]
    Newer { found: u32, known: u32 },
    /// The database belongs to another application.
    #[error("not a database of Headwater")]
    Foreign,
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

/// Opens the only connection that writes.
pub(crate) fn open_writer(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    configure_connection(&conn)?;
    let synchronous = if Defect::SynchronousNormal.is_planted() { "NORMAL" } else { "FULL" };
    conn.execute_batch(&format!(
        "PRAGMA synchronous={synchronous}; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON;
         PRAGMA secure_delete=ON; PRAGMA wal_autocheckpoint={WAL_CHECKPOINT_PAGES};
         PRAGMA journal_size_limit={WAL_BYTES_MAX}; PRAGMA cache_size=-16384;"
    ))?;
    Ok(conn)
}

/// Opens a read-only connection, which may run next to the writer.
pub(crate) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    make_read_only(Connection::open_with_flags(path, flags)?)
}

/// Opens a database without a writer. Unless a write-ahead log has to be read, SQLite creates no files next to it.
pub(crate) fn open_offline(path: &Path) -> rusqlite::Result<Connection> {
    if has_pending_wal(path) { open_reader(path) } else { open_immutable(path) }
}

/// Whether the write-ahead log has content, as after a crash; closing the database empties it.
pub(crate) fn has_pending_wal(path: &Path) -> bool {
    std::fs::metadata(wal_path(path)).is_ok_and(|log| log.len() > 0)
}

/// The path of the write-ahead log. The file exists while a writer is open; the last connection to close deletes it.
pub(crate) fn wal_path(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// Opens a database file that does not change: SQLite uses no locks and no other files.
pub(crate) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match char::from(*byte) {
            plain if plain.is_ascii_alphanumeric() || "/._-".contains(plain) => uri.push(plain),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    make_read_only(Connection::open_with_flags(uri, flags)?)
}

fn make_read_only(conn: Connection) -> rusqlite::Result<Connection> {
    configure_connection(&conn)?;
    let version: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if (1..RECORD_ROWS_SINCE).contains(&version) {
        single_records::show_as_record_rows(&conn)?;
    }
    conn.execute_batch("PRAGMA query_only=ON; PRAGMA cache_size=-4096;")?;
    Ok(conn)
}

fn configure_connection(conn: &Connection) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    // Stable query plans: otherwise SQLite may prepare a statement again when bound values change.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.execute_batch("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA temp_store=MEMORY;")
}

/// Enables WAL mode. Returns false when the file system does not support it.
pub(crate) fn enable_wal(conn: &Connection) -> rusqlite::Result<bool> {
    let mode: String = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    Ok(mode.eq_ignore_ascii_case("wal"))
}

/// Checkpoints and truncates the write-ahead log. Returns false when a reader prevented it.
pub(crate) fn checkpoint_wal(conn: &Connection) -> rusqlite::Result<bool> {
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |row| row.get::<_, i64>(0)).map(|busy| busy == 0)
}

/// Copies the write-ahead log into the database as far as readers and the writer allow, next to them.
pub(crate) fn copy_wal(path: &Path) -> rusqlite::Result<()> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    configure_connection(&conn)?;
    conn.execute_batch("PRAGMA synchronous=FULL; PRAGMA checkpoint_fullfsync=ON;")?;
    // The writer may be about to open the database again; closing the last connection would delete its log.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", (), |_| Ok(()))
}

/// Like [`checkpoint_wal`], with a short time-out.
pub(crate) fn try_checkpoint_wal(conn: &Connection) -> rusqlite::Result<bool> {
    conn.busy_timeout(BUSY_TIMEOUT_SHORT)?;
    let done = checkpoint_wal(conn);
    conn.busy_timeout(BUSY_TIMEOUT)?;
    done
}

/// Migrates a new or old database to the newest version. A crash leaves it between two migrations.
pub(crate) fn migrate(conn: &mut Connection, steps: &[&str]) -> Result<(), MigrateError> {
    let found = schema_version(conn, steps)?;
    if found == 0 {
        // Before the first table: a database that has one keeps its mode until it is rewritten.
        conn.pragma_update(None, "auto_vacuum", AUTO_VACUUM_INCREMENTAL)?;
    }
    single_records::register_encode_record(conn)?;
    for (step, to) in steps.iter().zip(1_u32..).skip(found as usize) {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", to)?;
        tx.commit()?;
    }
    Ok(())
}

/// The number of applied migrations; zero for a new database.
pub(crate) fn schema_version(conn: &Connection, steps: &[&str]) -> Result<u32, MigrateError> {
    let id: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let found: u32 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let tables: u32 = conn.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0))?;
    if id != APPLICATION_ID && (id != 0 || found != 0 || tables != 0) {
        return Err(MigrateError::Foreign);
    }
    let known = u32::try_from(steps.len()).unwrap_or(u32::MAX);
    if found > known { Err(MigrateError::Newer { found, known }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: &str = "CREATE TABLE later (x INTEGER) STRICT; INSERT INTO later VALUES (7);";
    const BROKEN: &str = "CREATE TABLE later (x INTEGER) STRICT; INSERT INTO nowhere VALUES (7);";

    fn at(version: u32, conn: &Connection) -> bool {
        conn.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).unwrap() == version
    }

    #[test]
    fn an_older_database_is_migrated_step_by_step() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        conn.execute("INSERT INTO meta VALUES ('mine', 5)", ()).unwrap();

        let later = [MIGRATIONS, &[LATER]].concat();
        migrate(&mut conn, &later).unwrap();
        migrate(&mut conn, &later).unwrap();

        assert!(at(15, &conn));
        assert_eq!(conn.query_row("SELECT sum(x) FROM later", (), |row| row.get::<_, i64>(0)), Ok(7));
        let kept = conn.query_row("SELECT value FROM meta WHERE name = 'mine'", (), |row| row.get::<_, i64>(0));
        assert_eq!(kept, Ok(5));
        assert!(matches!(migrate(&mut conn, MIGRATIONS), Err(MigrateError::Newer { found: 15, known: 14 })));
    }

    #[test]
    fn a_database_of_the_first_version_verifies_and_migrates_without_loss() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join(DATABASE_FILE);
        let mut conn = open_writer(&database).unwrap();
        migrate(&mut conn, &[VERSION_1]).unwrap();
        conn.execute("INSERT INTO threads VALUES (1, 'thr_1', 'somebody', 1, 2)", ()).unwrap();
        drop(conn);

        let clean = "1 threads, 0 runs, 0 records\nno damage found";
        let before = std::fs::read(&database).unwrap();
        assert_eq!(crate::verify_data_folder(dir.path()).unwrap().to_string(), clean);
        assert_eq!(std::fs::read(&database).unwrap(), before);

        drop(crate::SqliteStore::open(dir.path(), &crate::SqliteOptions::default()).unwrap());
        let kept =
            open_reader(&database).unwrap().query_row("SELECT id, updated_at, wake_at FROM threads", (), |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, Option<i64>>(2)?))
            });
        assert_eq!(kept, Ok(("thr_1".to_owned(), 2, None)));
        assert_eq!(crate::verify_data_folder(dir.path()).unwrap().to_string(), clean);
    }

    #[test]
    fn files_from_before_the_blob_migration_stay_files() {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join(DATABASE_FILE);
        let mut conn = open_writer(&database).unwrap();
        migrate(&mut conn, &MIGRATIONS[..5]).unwrap();
        let rows = "INSERT INTO attachments VALUES ('somebody', 'a', 'name', 'text/plain', 7, 1);
                    INSERT INTO attachments VALUES ('somebody', 'b', '', '', NULL, 1);
                    INSERT INTO attachment_sums VALUES ('somebody', 7);";
        conn.execute_batch(rows).unwrap();
        drop(conn);

        let before = crate::list_stored_files(dir.path()).unwrap();
        assert_eq!((before.committed.len(), before.stale.len()), (1, 1));
        assert!(crate::verify_data_folder(dir.path()).unwrap().is_clean());
        drop(crate::SqliteStore::open(dir.path(), &crate::SqliteOptions::default()).unwrap());
        assert_eq!(crate::list_stored_files(dir.path()).unwrap(), before);
        assert!(crate::verify_data_folder(dir.path()).unwrap().is_clean());
    }

    #[test]
    fn file_queries_use_an_index() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        for (sql, index) in [
            ("SELECT path FROM attachments WHERE owner = ?1 AND hash = ?2 AND bytes IS NOT NULL", "blobs_of_owner"),
            ("SELECT owner, path FROM attachments WHERE released = 1 ORDER BY owner, path", "attachments_released"),
            ("SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path", "attachments_expected"),
            ("DELETE FROM attachment_uses WHERE owner = ?1 AND path = ?2", "uses_of_attachment"),
            ("DELETE FROM attachment_uses WHERE owner = ?1 AND thread = ?2", "PRIMARY KEY (owner=? AND thread=?)"),
        ] {
            let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            // Unbound parameters are NULL.
            let mut rows = explain.raw_query();
            let plan: String = rows.next().unwrap().unwrap().get(3).unwrap();
            assert!(plan.contains(index), "{sql}: {plan}");
        }
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, MIGRATIONS).unwrap();
        assert!(matches!(migrate(&mut conn, &[MIGRATIONS, &[BROKEN]].concat()), Err(MigrateError::Sql(_))));
        assert!(at(14, &conn));
        assert!(conn.prepare("SELECT * FROM later").is_err());
    }

    #[test]
    fn the_writer_syncs_to_disk_and_overwrites_deleted_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join(DATABASE_FILE)).unwrap();
        assert!(enable_wal(&conn).unwrap());
        let asked = |pragma: &str| conn.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(asked("synchronous"), 2, "FULL");
        assert_eq!(asked("secure_delete"), 1);
    }

    #[test]
    fn a_database_of_another_program_is_not_touched() {
        let mut conn = Connection::open_in_memory().unwrap();
        conn.execute_batch("CREATE TABLE theirs (x)").unwrap();
        assert!(matches!(migrate(&mut conn, MIGRATIONS), Err(MigrateError::Foreign)));
    }
}
