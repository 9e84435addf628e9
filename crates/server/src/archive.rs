//! The archive of a database, as `[database] archive` names it.

use crate::config::ArchiveConfig;
use files::{ArchiveStore, FileStoreOpenError, StorageLocation, read_folder_id, read_or_create_folder_id};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::ArchivePlace;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveOpenError {
    #[error("the archive {0} cannot be used: {1}")]
    Folder(PathBuf, io::Error),
    #[error("the archive cannot be used: {0}")]
    Location(#[from] FileStoreOpenError),
}

/// Opens the archive, and creates a missing folder. Blocking.
pub(crate) fn open_archive(config: &ArchiveConfig) -> Result<ArchivePlace, ArchiveOpenError> {
    let id = match &config.location {
        StorageLocation::Bucket { .. } => None,
        StorageLocation::Folder(folder) => Some(read_or_create_folder_id(folder).map_err(folder_error(folder))?),
    };
    open_place(config, id.as_deref())
}

/// Opens the archive for reading; `None` if the folder is not that of an archive. Creates nothing. Blocking.
pub(crate) fn find_archive(config: Option<&ArchiveConfig>) -> Result<Option<ArchivePlace>, ArchiveOpenError> {
    let Some(config) = config else { return Ok(None) };
    let id = match &config.location {
        StorageLocation::Bucket { .. } => None,
        StorageLocation::Folder(folder) => match read_folder_id(folder).map_err(folder_error(folder))? {
            Some(id) => Some(id),
            None => return Ok(None),
        },
    };
    open_place(config, id.as_deref()).map(Some)
}

fn folder_error(folder: &Path) -> impl FnOnce(io::Error) -> ArchiveOpenError {
    let folder = folder.to_owned();
    |error| ArchiveOpenError::Folder(folder, error)
}

fn open_place(config: &ArchiveConfig, folder_id: Option<&str>) -> Result<ArchivePlace, ArchiveOpenError> {
    let archive = ArchiveStore::open(&config.location, &config.env_vars)?;
    Ok(ArchivePlace { archive: Arc::new(archive), identity: location_identity(&config.location, folder_id) })
}

/// Two nodes with equal identities use the same location, wherever its folder is mounted.
pub(crate) fn location_identity(location: &StorageLocation, folder_id: Option<&str>) -> String {
    match location {
        StorageLocation::Bucket { bucket, prefix, provider } => format!("{provider:?} {bucket}/{prefix}"),
        StorageLocation::Folder(_) => format!("folder {}", folder_id.unwrap_or_default()),
    }
}
