//! Copies a data folder into the database of a cluster, for `headwater import`.
//!
//! - `folder_reader` reads a folder that no server uses, and sends batches through a bounded channel.
//! - `tables` says which rows become which; `row_batch` has them column by column.
//! - `database_writer` writes them in one transaction: an import that fails or is interrupted leaves the database as it was.
//!
//! Records keep their bytes, numbers, checksums and epochs, so the cursors that clients hold stay valid. Files are not copied.

mod database_writer;
mod folder_reader;
mod row_batch;
mod tables;

pub(crate) use folder_reader::{FolderSummary, ImportBatch};
pub(crate) use row_batch::{ColumnKind, ColumnValues, RowBatch};

use super::{DatabaseUrl, PostgresOpenError};
use crate::sqlite::StoreOpenError;
use database_writer::ImportTarget;
use folder_reader::StoppedFolder;
use model::ports::StoreError;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

/// Number of batches that are read before they are written.
const BATCHES_MAX: usize = 4;

/// A secret that the nodes of a cluster share.
#[derive(Clone)]
pub struct ImportedSecret {
    pub name: String,
    pub value: Vec<u8>,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    pub threads: u64,
    pub runs: u64,
    pub records: u64,
    /// Files that the database refers to from now on.
    pub files: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportProgress {
    /// The folder is being checked for damage.
    Checking,
    Copying {
        report: ImportReport,
        threads_total: u64,
    },
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(transparent)]
    Folder(#[from] StoreOpenError),
    #[error("data folder {dir} has format {found}: start a server of this version with it once, which migrates it")]
    OldFormat { dir: PathBuf, found: u32 },
    #[error("data folder {dir} is damaged: {problem}; `headwater verify` lists all damage")]
    Damaged { dir: PathBuf, problem: String },
    #[error(transparent)]
    Database(#[from] PostgresOpenError),
    #[error("the database at {place} has data already: import needs an empty one")]
    NotEmpty { place: String },
    #[error(
        "a server uses the database at {place} (node {node}): stop all servers first; one that was killed counts for ten more seconds"
    )]
    InUse { place: String, node: String },
    #[error("the database is unchanged: {0}")]
    Refused(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the folder cannot be read on: {0}")]
    Stopped(String),
}

impl From<JoinError> for ImportError {
    fn from(error: JoinError) -> Self {
        Self::Stopped(error.to_string())
    }
}

/// Copies a folder that no server uses into an empty database. The folder is locked meanwhile, and stays as it is.
///
/// # Errors
/// When the folder is damaged, or the database not empty. It is unchanged then.
pub async fn import_data_folder(
    dir: &Path,
    url: &DatabaseUrl,
    secrets: Vec<ImportedSecret>,
    mut on_progress: impl FnMut(ImportProgress),
) -> Result<ImportReport, ImportError> {
    let path = dir.to_owned();
    let folder = spawn_blocking(move || StoppedFolder::open(&path)).await??;
    let target = ImportTarget::connect(url).await?;
    on_progress(ImportProgress::Checking);
    let (folder, summary) = spawn_blocking(move || folder.check()).await??;
    let mut import = target.begin().await?;
    let (sender, mut batches) = mpsc::channel(BATCHES_MAX);
    let epoch = summary.epoch;
    let reading = spawn_blocking(move || folder.read(epoch, &sender));
    while let Some(batch) = batches.recv().await {
        import.write(&batch).await?;
        on_progress(ImportProgress::Copying { report: import.report(), threads_total: summary.threads });
    }
    // Locked until the end of the import.
    let _folder = reading.await??;
    import.finish(&summary, &secrets).await
}
