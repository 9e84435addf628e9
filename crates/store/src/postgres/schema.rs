//! The schema and its migrations.
//!
//! All tables are in the schema `headwater`, so a database may be shared with other programs. `meta` has the number of applied
//! [`MIGRATIONS`]. Nodes migrate one at a time, under an advisory lock. A released migration is never edited.
//!
//! Nodes of two versions work side by side during a rolling upgrade: a migration must leave the statements of the version
//! before it valid, or raise [`COMPATIBLE_SINCE`], which makes older nodes refuse to start.
//!
//! Texts that users choose freely are `bytea`, because PostgreSQL's `text` has no NUL. Ids sort bytewise (`COLLATE "C"`).

use super::connection::OpenTransaction;
use super::open_error::PostgresOpenError;
use super::pool::DatabasePool;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

/// One migration per version, all in one transaction.
const MIGRATIONS: &[&str] = &[VERSION_1, VERSION_2, VERSION_3];
/// The oldest version whose nodes can use the newest schema.
const COMPATIBLE_SINCE: usize = 1;
/// The key of the advisory lock: `HWTR` in ASCII.
const MIGRATION_LOCK: i64 = 0x4857_5452;
/// A node that migrates a large database holds the lock for longer than other statements wait.
const MIGRATION_LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = 0";

const SCHEMA_VERSION: &str = "schema_version";
const COMPATIBLE_VERSION: &str = "compatible_since";

/// `threads.head` and `threads.appends` change with every append, hence the fill factor: without an indexed column among
/// them the new version of a row fits the same page. A thread is held while the lease of its node is valid. `segments` has the
/// records that are in the archive and not in `records`; `archive_objects` has the objects that are to be deleted.
const VERSION_1: &str = r#"
CREATE TABLE headwater.meta (
    name text PRIMARY KEY, value text NOT NULL
);

CREATE TABLE headwater.secrets (
    name text PRIMARY KEY, value bytea NOT NULL
);

CREATE TABLE headwater.commit_tokens (
    source bigint NOT NULL, number bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    is_void boolean NOT NULL DEFAULT false, PRIMARY KEY (source, number)
);

CREATE SEQUENCE headwater.epochs;

CREATE TABLE headwater.nodes (
    id text COLLATE "C" PRIMARY KEY, host text NOT NULL, started_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL, agents text[] NOT NULL, has_archive boolean NOT NULL
);

CREATE TABLE headwater.threads (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
    owner text COLLATE "C" NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL,
    node text COLLATE "C", epoch bigint NOT NULL, head bigint NOT NULL DEFAULT 0, appends bigint NOT NULL DEFAULT 0,
    log_bytes bigint NOT NULL DEFAULT 0, wake_at bigint
) WITH (fillfactor = 50);
CREATE INDEX threads_of_owner ON headwater.threads (owner, id);
CREATE INDEX threads_held ON headwater.threads (owner) WHERE node IS NOT NULL;
CREATE INDEX threads_waking ON headwater.threads (wake_at, id) WHERE wake_at IS NOT NULL;

CREATE TABLE headwater.runs (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL, owner text COLLATE "C" NOT NULL,
    thread bigint NOT NULL, agent text NOT NULL, status text NOT NULL, first_seq bigint, last_seq bigint,
    created_at bigint NOT NULL, ended_at bigint, is_archived boolean NOT NULL DEFAULT false, archive_claim timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX runs_of_owner ON headwater.runs (owner, id);
CREATE INDEX runs_of_thread ON headwater.runs (thread);
CREATE INDEX runs_open ON headwater.runs (thread) WHERE ended_at IS NULL;
CREATE INDEX runs_to_archive ON headwater.runs (ended_at)
    WHERE ended_at IS NOT NULL AND first_seq IS NOT NULL AND NOT is_archived;

CREATE TABLE headwater.records (
    thread bigint NOT NULL, seq bigint NOT NULL, run bigint NOT NULL, at bigint NOT NULL, epoch bigint NOT NULL,
    format smallint NOT NULL, checksum integer NOT NULL, public bytea NOT NULL, private bytea,
    PRIMARY KEY (thread, seq)
);

CREATE TABLE headwater.segments (
    thread bigint NOT NULL, first_seq bigint NOT NULL, last_seq bigint NOT NULL, run bigint NOT NULL,
    raw_bytes bigint NOT NULL, object text COLLATE "C" NOT NULL, PRIMARY KEY (thread, first_seq)
);

CREATE TABLE headwater.archive_objects (
    name text COLLATE "C" PRIMARY KEY, due_at timestamptz NOT NULL, is_upload boolean NOT NULL
);
CREATE INDEX archive_objects_due ON headwater.archive_objects (due_at);

CREATE TABLE headwater.inbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, thread bigint NOT NULL, at bigint NOT NULL, command text NOT NULL
);
CREATE INDEX inbox_of_thread ON headwater.inbox (thread, id);

CREATE TABLE headwater.idempotency (
    owner text COLLATE "C" NOT NULL, key bytea NOT NULL, digest text NOT NULL, task text COLLATE "C" NOT NULL,
    thread bigint NOT NULL, at bigint NOT NULL, PRIMARY KEY (owner, key)
);
CREATE INDEX idempotency_of_thread ON headwater.idempotency (thread);
CREATE INDEX idempotency_by_age ON headwater.idempotency (at);

CREATE TABLE headwater.checkpoints (
    thread bigint PRIMARY KEY, seq bigint NOT NULL, body text NOT NULL
);
CREATE TABLE headwater.checkpoint_runs (
    thread bigint NOT NULL, idx bigint NOT NULL, body text NOT NULL, PRIMARY KEY (thread, idx)
);

CREATE TABLE headwater.approvals (
    owner text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, thread bigint NOT NULL, run text NOT NULL,
    task text NOT NULL, call text NOT NULL, action text NOT NULL, requested_at bigint NOT NULL,
    expires_at bigint NOT NULL, answer text, PRIMARY KEY (owner, key)
);
CREATE INDEX approvals_of_owner ON headwater.approvals (owner, requested_at, key);
CREATE INDEX approvals_open ON headwater.approvals (owner, requested_at, key) WHERE answer IS NULL;
CREATE INDEX approvals_of_thread ON headwater.approvals (thread);

CREATE TABLE headwater.client_results (
    thread bigint NOT NULL, call text COLLATE "C" NOT NULL, digest text NOT NULL, PRIMARY KEY (thread, call)
);

CREATE TABLE headwater.spent (
    owner text COLLATE "C" NOT NULL, day integer NOT NULL, node text COLLATE "C" NOT NULL, input numeric NOT NULL,
    cached numeric NOT NULL, cache_write numeric NOT NULL, output numeric NOT NULL, reasoning numeric NOT NULL,
    cost numeric NOT NULL, PRIMARY KEY (owner, day, node)
);

CREATE TABLE headwater.recovery_attempts (
    thread bigint PRIMARY KEY, node text COLLATE "C" NOT NULL, resumes integer NOT NULL
);

CREATE UNLOGGED TABLE headwater.request_allowances (
    owner text COLLATE "C" PRIMARY KEY, full_at timestamptz NOT NULL
);

CREATE TABLE headwater.definitions (
    digest text PRIMARY KEY, body bytea NOT NULL
);

CREATE TABLE headwater.shares (
    id text COLLATE "C" PRIMARY KEY, thread bigint NOT NULL, digest text NOT NULL, until_seq bigint,
    created_at bigint NOT NULL, expires_at bigint NOT NULL, revoked_at bigint
);
CREATE INDEX shares_of_thread ON headwater.shares (thread);
CREATE INDEX shares_open ON headwater.shares (expires_at) WHERE revoked_at IS NULL;

CREATE TABLE headwater.access_keys (
    id text COLLATE "C" PRIMARY KEY, owner text NOT NULL, digest text NOT NULL, created_at bigint NOT NULL,
    revoked_at bigint
);

CREATE TABLE headwater.tickets (
    digest text PRIMARY KEY, owner text COLLATE "C" NOT NULL, credential text NOT NULL, expires_at bigint NOT NULL
);
CREATE INDEX tickets_of_owner ON headwater.tickets (owner, expires_at);

CREATE TABLE headwater.aliases (
    owner text COLLATE "C" NOT NULL, kind text NOT NULL, name bytea NOT NULL, thread text COLLATE "C" NOT NULL,
    data text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (owner, kind, name)
);
CREATE INDEX aliases_of_thread ON headwater.aliases (thread);

CREATE TABLE headwater.attachments (
    owner text COLLATE "C" NOT NULL, path text COLLATE "C" NOT NULL, name bytea NOT NULL, content_type text NOT NULL,
    bytes bigint, created_at bigint NOT NULL, hash text, released boolean NOT NULL DEFAULT false,
    PRIMARY KEY (owner, path)
);
CREATE UNIQUE INDEX blobs_of_owner ON headwater.attachments (owner, hash) WHERE hash IS NOT NULL;
CREATE INDEX attachments_released ON headwater.attachments (owner, path) WHERE released;
CREATE INDEX attachments_expected ON headwater.attachments (owner, path) WHERE bytes IS NULL;

CREATE TABLE headwater.attachment_links (
    owner text COLLATE "C" NOT NULL, thread text COLLATE "C" NOT NULL, path text COLLATE "C" NOT NULL,
    linked_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (owner, thread, path)
);
CREATE INDEX links_of_attachment ON headwater.attachment_links (owner, path);

CREATE TABLE headwater.attachment_sums (
    owner text COLLATE "C" PRIMARY KEY, bytes bigint NOT NULL
);
"#;

/// Secrets of users. Every write takes the next version, so that no version means two values.
const VERSION_2: &str = r#"
CREATE SEQUENCE headwater.secret_versions;

CREATE TABLE headwater.user_secrets (
    version bigint PRIMARY KEY DEFAULT nextval('headwater.secret_versions'), owner text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, body bytea NOT NULL, updated_at bigint NOT NULL,
    expires_at bigint, claimed_until bigint, UNIQUE (owner, kind, name)
);
CREATE INDEX user_secrets_by_name ON headwater.user_secrets (kind, name);
CREATE INDEX user_secrets_expiring ON headwater.user_secrets (expires_at) WHERE expires_at IS NOT NULL;
"#;

/// What users have seen of the tools of MCP servers.
const VERSION_3: &str = r#"
CREATE TABLE headwater.mcp_pins (
    owner text COLLATE "C" NOT NULL, server text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL,
    digest text NOT NULL, at bigint NOT NULL, PRIMARY KEY (owner, server, tool)
);
"#;

/// Creates the schema, or migrates it to the newest version.
pub(super) async fn migrate(tx: &OpenTransaction<'_>) -> Result<(), PostgresOpenError> {
    migrate_to(tx, MIGRATIONS, COMPATIBLE_SINCE).await
}

/// Creates the schema, or migrates it, in a transaction of its own.
pub(super) async fn create(pool: &DatabasePool) -> Result<(), PostgresOpenError> {
    let tx = OpenTransaction::begin(pool).await?;
    migrate(&tx).await?;
    Ok(tx.commit_without_token().await?)
}

/// What a program that does not migrate finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaState {
    Missing,
    Older {
        found: usize,
        known: usize,
    },
    /// The newest that this version knows, or a newer one that it can use.
    Usable,
}

pub(super) async fn find_state(client: &Client) -> Result<SchemaState, PostgresOpenError> {
    let known = MIGRATIONS.len();
    Ok(match find_version(client, known).await? {
        0 => SchemaState::Missing,
        found if found < known => SchemaState::Older { found, known },
        _ => SchemaState::Usable,
    })
}

async fn migrate_to(
    tx: &OpenTransaction<'_>,
    steps: &[&str],
    compatible_since: usize,
) -> Result<(), PostgresOpenError> {
    tx.client().batch_execute(MIGRATION_LOCK_TIMEOUT).await?;
    tx.client().query_typed("SELECT pg_advisory_xact_lock($1)", &[(&MIGRATION_LOCK, Type::INT8)]).await?;
    let found = find_version(tx.client(), steps.len()).await?;
    if found >= steps.len() {
        return Ok(());
    }
    // `IF NOT EXISTS` would need the right to create one even if it exists.
    let schema = tx.client().query_typed("SELECT 1 FROM pg_namespace WHERE nspname = 'headwater'", &[]).await?;
    if schema.is_empty() {
        tx.client().batch_execute("CREATE SCHEMA headwater").await?;
    }
    for step in steps.iter().skip(found) {
        tx.client().batch_execute(step).await?;
    }
    for (name, value) in [(SCHEMA_VERSION, steps.len()), (COMPATIBLE_VERSION, compatible_since)] {
        let sql = "INSERT INTO headwater.meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        tx.client().execute_typed(sql, &[(&name, Type::TEXT), (&value.to_string(), Type::TEXT)]).await?;
    }
    Ok(())
}

/// The number of applied migrations; zero for a database without the schema.
async fn find_version(client: &Client, known: usize) -> Result<usize, PostgresOpenError> {
    let sql = "SELECT to_regclass('headwater.meta') IS NOT NULL,
               EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                       WHERE n.nspname = 'headwater')";
    let row = client.query_typed_one(sql, &[]).await?;
    let (has_meta, has_tables): (bool, bool) = (row.try_get(0)?, row.try_get(1)?);
    if !has_meta {
        return if has_tables { Err(PostgresOpenError::Foreign) } else { Ok(0) };
    }
    let sql = "SELECT name, value FROM headwater.meta WHERE name IN ($1, $2)";
    let rows = match client.query_typed(sql, &[(&SCHEMA_VERSION, Type::TEXT), (&COMPATIBLE_VERSION, Type::TEXT)]).await
    {
        // A table of this name with other columns.
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_COLUMN) => return Err(PostgresOpenError::Foreign),
        rows => rows?,
    };
    let (mut version, mut compatible) = (None, None);
    for row in rows {
        // Columns of other types are those of another program.
        let (Ok(name), Ok(value)) = (row.try_get::<_, &str>(0), row.try_get::<_, &str>(1)) else { continue };
        let value = value.parse::<usize>().ok();
        if name == SCHEMA_VERSION { version = value } else { compatible = value }
    }
    match (version, compatible) {
        (Some(found), Some(compatible)) if compatible > known => Err(PostgresOpenError::Newer { found, known }),
        (Some(found), Some(_)) => Ok(found),
        _ => Err(PostgresOpenError::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::DatabaseUrl;
    use crate::space_state::SpaceState;
    use postgres_testing::TestDatabase;
    use std::sync::Arc;

    const STEP_1: &str = "CREATE TABLE headwater.meta (name text PRIMARY KEY, value text NOT NULL);
                          CREATE TABLE headwater.rivers (name text)";
    const STEP_2: &str = "ALTER TABLE headwater.rivers ADD COLUMN length bigint";

    fn open_pool(database: &TestDatabase) -> DatabasePool {
        let url: DatabaseUrl = database.url().parse().unwrap();
        DatabasePool::new(&url, 2, Arc::<SpaceState>::default()).unwrap()
    }

    /// As a version that has these migrations.
    async fn migrate_with(
        pool: &DatabasePool,
        steps: &[&str],
        compatible_since: usize,
    ) -> Result<(), PostgresOpenError> {
        let tx = OpenTransaction::begin(pool).await?;
        migrate_to(&tx, steps, compatible_since).await?;
        Ok(tx.commit_without_token().await?)
    }

    fn describe_schema(database: &TestDatabase) -> String {
        database.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'headwater' ORDER BY 1, 2;
             SELECT name, value FROM headwater.meta ORDER BY 1;",
        )
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn versions_migrate_forward_and_share_what_both_understand() {
        let database = TestDatabase::create();
        let pool = open_pool(&database);
        migrate_with(&pool, &[STEP_1], 1).await.unwrap();
        let first = describe_schema(&database);
        assert!(first.ends_with("compatible_since|1\nschema_version|1"), "{first}");
        migrate_with(&pool, &[STEP_1], 1).await.unwrap();
        assert_eq!(describe_schema(&database), first, "no migration is applied twice");

        migrate_with(&pool, &[STEP_1, STEP_2], 1).await.unwrap();
        let second = describe_schema(&database);
        assert!(second.contains("rivers|length") && second.ends_with("schema_version|2"), "{second}");
        // The older version during a rolling upgrade.
        migrate_with(&pool, &[STEP_1], 1).await.unwrap();
        assert_eq!(describe_schema(&database), second);

        migrate_with(&pool, &[STEP_1, STEP_2, "DROP TABLE headwater.rivers"], 3).await.unwrap();
        for steps in [&[STEP_1][..], &[STEP_1, STEP_2]] {
            let refused = migrate_with(&pool, steps, 1).await.unwrap_err();
            let known = steps.len();
            assert!(matches!(refused, PostgresOpenError::Newer { found: 3, known: n } if n == known), "{refused}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_migration_that_fails_changes_nothing() {
        let database = TestDatabase::create();
        let pool = open_pool(&database);
        migrate_with(&pool, &[STEP_1, "SELECT 1 / 0"], 1).await.unwrap_err();
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'headwater'";
        assert_eq!(database.execute(schemas), "0", "not even the schema is there");
        migrate_with(&pool, &[STEP_1], 1).await.unwrap();
        let before = describe_schema(&database);
        migrate_with(&pool, &[STEP_1, STEP_2, "CREATE TABLE headwater.lakes (name text); SELECT 1 / 0"], 3)
            .await
            .unwrap_err();
        assert_eq!(describe_schema(&database), before);
        // The lock was released, and the next attempt succeeds.
        migrate_with(&pool, &[STEP_1, STEP_2], 1).await.unwrap();
    }

    #[test]
    fn this_version_can_use_its_own_schema() {
        assert!((1..=MIGRATIONS.len()).contains(&COMPATIBLE_SINCE));
    }
}
