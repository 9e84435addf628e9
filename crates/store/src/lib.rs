//! The store: logs and tables.
//!
//! - [`sqlite`]: one folder, one process, one writer thread that commits for all threads at once.
//! - [`postgres`]: one database, any number of nodes.
//! - `block_coding`: compressed blocks of records, which SQLite keeps in its file and PostgreSQL in an archive.
//! - [`mod@compact`]: `headwater compact`, which rewrites a database without its free space.
//! - [`postgres::import`]: `headwater import`, which copies a folder into a database.
//! - [`mod@verify`]: what `headwater verify` checks in a store, and which files the store refers to.
//!
//! Both implement [`model::ports::Journal`], [`model::ports::Directory`] and [`model::ports::Accounts`], whose doc comments are
//! the law.
//! Invariant: payloads are opaque here. Only `verify` decodes an event, and nothing re-serialises one.

mod block_coding;
pub mod compact;
pub mod logged_run;
mod node_folder;
pub mod postgres;
mod space_state;
pub mod sqlite;
pub mod verify;

pub use compact::{CompactError, CompactReport, compact_data_folder};
pub use logged_run::{LoggedRecords, LoggedRun};
pub use node_folder::NodeFolder;
pub use postgres::import::{ImportError, ImportProgress, ImportReport, ImportedSecret, import_data_folder};
pub use postgres::{
    ArchiveOptions, ArchivePlace, ArchiveStats, DatabaseUrl, PostgresClient, PostgresCluster, PostgresOpenError,
    PostgresOptions, PostgresStore, StoredTicket,
};
pub use space_state::SpaceState;
pub use sqlite::{
    DiskSpace, DiskSpaceProbe, SqliteOptions, SqliteStore, StorageUse, StoreOpenError, TickLoad, WriterStats,
    find_logged_run, has_sqlite_database,
};
pub use verify::{StoredFiles, VerifyReport, list_stored_files, verify_data_folder};
