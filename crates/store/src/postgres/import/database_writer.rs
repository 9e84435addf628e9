//! Writes a data folder to the database, in one transaction.
//!
//! The transaction holds the lock of migrations, for which a server that starts waits, and that of the nodes, which no server
//! can pass: none works on half an import.

use super::super::connection::{OpenTransaction, Params, column, describe, u64_column};
use super::super::database_url::DatabaseUrl;
use super::super::group_columns::RecordColumns;
use super::super::group_write::INSERT_RECORDS;
use super::super::open_error::PostgresOpenError;
use super::super::pool::DatabasePool;
use super::super::schema::{self, SchemaState};
use super::super::server_check::check_server;
use super::{
    ColumnKind, ColumnValues, FolderSummary, ImportBatch, ImportError, ImportReport, ImportedSecret, RowBatch,
};
use crate::space_state::SpaceState;
use model::seq::Epoch;
use std::sync::Arc;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

/// The folder may be on a slow disk.
const SETTINGS: &str = "SET LOCAL idle_in_transaction_session_timeout = '300s'";
const LOCK_NODES: &str = "LOCK TABLE headwater.nodes IN SHARE ROW EXCLUSIVE MODE";

/// Columns whose numbers the database gives, by table.
const NUMBERED: [(&str, &str); 3] = [("threads", "num"), ("runs", "num"), ("inbox", "id")];

/// A crash leaves blobs that no thread uses, as does the upload of a request that was refused later.
const RELEASE_UNLINKED: &str = "
    UPDATE headwater.attachments a SET released = true, name = '', content_type = '', bytes = NULL, hash = NULL
    WHERE hash IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM headwater.attachment_links l WHERE l.owner = a.owner AND l.path = a.path)";
const COUNT_SUMS: &str = "
    INSERT INTO headwater.attachment_sums (owner, bytes)
    SELECT owner, sum(bytes) FROM headwater.attachments WHERE bytes IS NOT NULL GROUP BY owner
    ON CONFLICT (owner) DO UPDATE SET bytes = excluded.bytes";
const PUT_SECRET: &str = "INSERT INTO headwater.secrets (name, value) VALUES ($1, $2)";

/// A database that can be imported into.
#[derive(Debug)]
pub(crate) struct ImportTarget {
    pool: DatabasePool,
    place: String,
}

impl ImportTarget {
    pub(crate) async fn connect(url: &DatabaseUrl) -> Result<Self, ImportError> {
        let target = Self { pool: DatabasePool::new(url, 1, Arc::<SpaceState>::default())?, place: url.place() };
        check_server(&target.pool, &target.place).await?;
        let connection = target.pool.get().await?;
        match schema::find_state(&connection).await? {
            SchemaState::Missing => {}
            SchemaState::Older { found, known } => return Err(PostgresOpenError::Older { found, known }.into()),
            SchemaState::Usable => target.check_empty(&connection).await?,
        }
        Ok(target)
    }

    /// Checks that the database has no data, and that no server uses it.
    async fn check_empty(&self, client: &Client) -> Result<(), ImportError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM headwater.threads) OR EXISTS (SELECT 1 FROM headwater.attachments)
                       OR EXISTS (SELECT 1 FROM headwater.aliases) OR EXISTS (SELECT 1 FROM headwater.spent),
                   (SELECT min(id || ' on ' || host) FROM headwater.nodes WHERE lease_until > clock_timestamp())";
        let row = client.query_typed_one(sql, &[]).await.map_err(|error| refused(&error))?;
        if column(&row, 0)? {
            return Err(ImportError::NotEmpty { place: self.place.clone() });
        }
        match column(&row, 1)? {
            Some(node) => Err(ImportError::InUse { place: self.place.clone(), node }),
            None => Ok(()),
        }
    }

    /// Begins the transaction, and creates the schema if it is missing.
    pub(crate) async fn begin(&self) -> Result<ImportTransaction<'_>, ImportError> {
        let tx = OpenTransaction::begin_long(&self.pool).await?;
        let client = tx.client();
        client.batch_execute(SETTINGS).await.map_err(|error| refused(&error))?;
        schema::migrate(&tx).await?;
        client.batch_execute(LOCK_NODES).await.map_err(|error| refused(&error))?;
        self.check_empty(client).await?;
        Ok(ImportTransaction { tx, report: ImportReport::default(), newest_epoch: Epoch(0) })
    }
}

fn refused(error: &Error) -> ImportError {
    ImportError::Refused(describe(error))
}

/// An import that is not committed yet. Dropping it leaves the database as it was.
pub(crate) struct ImportTransaction<'a> {
    tx: OpenTransaction<'a>,
    report: ImportReport,
    /// That of the records.
    newest_epoch: Epoch,
}

impl ImportTransaction<'_> {
    /// What was written so far.
    pub(crate) const fn report(&self) -> ImportReport {
        self.report
    }

    async fn execute(&self, sql: &str, params: Params<'_>) -> Result<(), ImportError> {
        self.tx.client().execute_typed(sql, params).await.map(drop).map_err(|error| refused(&error))
    }

    /// Makes every claim newer than the leases of the folder's servers, and than the records.
    async fn set_epoch(&self, epoch: Epoch) -> Result<(), ImportError> {
        let epoch = epoch.max(self.newest_epoch).0.cast_signed();
        let params: Params<'_> = &[(&epoch, Type::INT8)];
        self.execute("UPDATE headwater.threads SET epoch = $1 WHERE epoch < $1", params).await?;
        self.execute("SELECT setval('headwater.epochs', greatest($1, last_value)) FROM headwater.epochs", params).await
    }

    pub(crate) async fn write(&mut self, batch: &ImportBatch) -> Result<(), ImportError> {
        match batch {
            ImportBatch::Rows(rows) => {
                self.write_rows(rows).await?;
                match rows.table.name {
                    "threads" => self.report.threads += rows.len() as u64,
                    "runs" => self.report.runs += rows.len() as u64,
                    _ => {}
                }
            }
            ImportBatch::Records(records) => {
                let mut columns = RecordColumns::default();
                for row in records {
                    columns.push(row.thread, row.run, &row.record);
                    self.newest_epoch = self.newest_epoch.max(row.record.epoch);
                }
                self.execute(INSERT_RECORDS, &columns.params()).await?;
                self.report.records += records.len() as u64;
            }
        }
        Ok(())
    }

    async fn write_rows(&self, rows: &RowBatch) -> Result<(), ImportError> {
        let (mut names, mut values, mut params) = (Vec::new(), Vec::new(), Vec::new());
        for ((name, kind), column) in rows.table.columns.iter().zip(&rows.columns) {
            names.push(*name);
            values.push(format!("u.{name}{}", if *kind == ColumnKind::Numeric { "::numeric" } else { "" }));
            params.push(array_param(column));
        }
        let (table, names, values) = (rows.table.name, names.join(", "), values.join(", "));
        let places = (1..=params.len()).map(|place| format!("${place}")).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "INSERT INTO headwater.{table} ({names}) OVERRIDING SYSTEM VALUE
             SELECT {values} FROM unnest({places}) AS u({names}) {}",
            rows.table.on_conflict
        );
        self.execute(&sql, &params).await
    }

    /// Completes what is derived from the rows, and commits.
    pub(crate) async fn finish(
        mut self,
        summary: &FolderSummary,
        secrets: &[ImportedSecret],
    ) -> Result<ImportReport, ImportError> {
        self.set_epoch(summary.epoch).await?;
        self.execute(RELEASE_UNLINKED, &[]).await?;
        self.execute(COUNT_SUMS, &[]).await?;
        for (table, last) in &summary.last_numbers {
            let Some((_, name)) = NUMBERED.iter().find(|(numbered, _)| numbered == table) else { continue };
            let sql = "SELECT setval(pg_get_serial_sequence('headwater.' || $1, $2), $3)";
            self.execute(sql, &[(table, Type::TEXT), (name, Type::TEXT), (last, Type::INT8)]).await?;
        }
        // Those of a server that was started with the empty database: no URL was signed with them.
        self.execute("DELETE FROM headwater.secrets", &[]).await?;
        for ImportedSecret { name, value } in secrets {
            self.execute(PUT_SECRET, &[(name, Type::TEXT), (value, Type::BYTEA)]).await?;
        }
        let sql = "SELECT count(*) FROM headwater.attachments WHERE bytes IS NOT NULL";
        self.report.files = u64_column(&self.tx.query_one(sql, &[]).await?, 0)?;
        self.tx.commit().await?;
        Ok(self.report)
    }
}

fn array_param(column: &ColumnValues) -> (&(dyn ToSql + Sync), Type) {
    match column {
        ColumnValues::Bigint(values) => (values, Type::INT8_ARRAY),
        ColumnValues::Integer(values) => (values, Type::INT4_ARRAY),
        ColumnValues::Boolean(values) => (values, Type::BOOL_ARRAY),
        ColumnValues::Text(values) => (values, Type::TEXT_ARRAY),
        ColumnValues::Bytes(values) => (values, Type::BYTEA_ARRAY),
    }
}
