//! The store: logs and tables.
//!
//! - [`sqlite`]: one folder, one process, one writer thread that commits for all threads at once.
//! - [`memory`]: a second implementation without a disk, with the same outcomes.
//! - [`mod@compact`]: `headwater compact`, which rewrites a database without its free space.
//! - [`mod@verify`]: what `headwater verify` checks in a folder, and which files the folder refers to.
//!
//! Both implement [`model::ports::Journal`], [`model::ports::Directory`] and [`model::ports::Accounts`], whose doc comments are
//! the law.
//! Invariant: payloads are opaque here. Only `verify` decodes an event, and nothing re-serialises one.

pub mod compact;
pub mod memory;
mod space_state;
pub mod sqlite;
mod validation;
pub mod verify;

pub use compact::{CompactError, CompactReport, compact_data_folder};
pub use memory::MemoryStore;
pub use sqlite::{
    DiskSpace, DiskSpaceProbe, LoggedRecords, LoggedRun, SqliteOptions, SqliteStore, StoreOpenError, WriterStats,
    find_logged_run,
};
pub use verify::{StoredFiles, VerifyReport, list_stored_files, verify_data_folder};
