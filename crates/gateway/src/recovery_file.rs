//! What a process is resuming, in a file beside the database.

use async_trait::async_trait;
use model::ThreadId;
use model::ports::{RecoveryAttempts, StoreError, StoreResult};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tokio::task::spawn_blocking;

/// The name of the file in the data folder. It exists only while threads are being resumed.
const FILE_NAME: &str = "recovering.json";
const OWNER_ONLY: u32 = 0o600;

/// Keeps [`RecoveryAttempts`] in a data folder.
#[derive(Clone, Debug)]
pub struct RecoveryFile {
    folder: PathBuf,
}

impl RecoveryFile {
    pub fn new(data_dir: &Path) -> Self {
        Self { folder: data_dir.to_owned() }
    }

    /// Nothing, if there is no file or it is damaged.
    fn load_blocking(&self) -> BTreeMap<ThreadId, u32> {
        let text = fs::read(self.folder.join(FILE_NAME)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn save_blocking(&self, attempts: &BTreeMap<ThreadId, u32>) -> io::Result<()> {
        let path = self.folder.join(FILE_NAME);
        if attempts.is_empty() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => return Ok(()),
            }
        }
        let new = self.folder.join(format!("{FILE_NAME}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&new)?;
        file.write_all(&serde_json::to_vec(attempts)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(&self.folder)?.sync_all()
    }
}

#[async_trait]
impl RecoveryAttempts for RecoveryFile {
    async fn load(&self) -> StoreResult<BTreeMap<ThreadId, u32>> {
        let file = self.clone();
        spawn_blocking(move || file.load_blocking()).await.map_err(|error| unavailable_error(&error))
    }

    async fn save(&self, attempts: &BTreeMap<ThreadId, u32>) -> StoreResult<()> {
        let (file, attempts) = (self.clone(), attempts.clone());
        let saved = spawn_blocking(move || file.save_blocking(&attempts)).await;
        saved.map_err(|error| unavailable_error(&error))?.map_err(|error| unavailable_error(&error))
    }
}

fn unavailable_error(error: &impl ToString) -> StoreError {
    StoreError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_saved_last_is_loaded_and_a_damaged_file_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let file = RecoveryFile::new(dir.path());
        assert_eq!(file.load().await.unwrap(), BTreeMap::new());
        let attempts = BTreeMap::from([(ThreadId::from("thr_1"), 2), (ThreadId::from("thr_2"), 0)]);
        file.save(&attempts).await.unwrap();
        assert_eq!(RecoveryFile::new(dir.path()).load().await.unwrap(), attempts);
        fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(file.load().await.unwrap(), BTreeMap::new());
        file.save(&BTreeMap::new()).await.unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
