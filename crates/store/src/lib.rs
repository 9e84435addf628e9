//! Logs and tables: what must not be lost.
//!
//! - [`sqlite`]: one folder, one process, one writer thread that commits for all threads at once.
//! - [`memory`]: its twin without a disk, with the same verdicts.
//! - [`mod@verify`]: what `headwater verify` finds out about a folder, and which files it says there are.
//!
//! Both implement [`model::ports::Journal`] and [`model::ports::Directory`], whose doc comments are the law.
//! Invariant: payloads are opaque here. Nothing but `verify` looks into an event, and nothing re-serialises one.

pub mod memory;
pub mod sqlite;
mod validation;
pub mod verify;

pub use memory::MemoryStore;
pub use sqlite::{LoggedRecords, LoggedRun, SqliteOptions, SqliteStore, StoreOpenError, WriterStats, find_logged_run};
pub use verify::{StoredFiles, VerifyReport, list_stored_files, verify_data_folder};
