//! The images of a run that are in its data folder. Those in other storage keep their URL.

use bytes::Bytes;
use files::FileKey;
use gateway::attachments::FILES_DIR;
use std::path::Path;
use store::LoggedRun;

/// Empty if the image was deleted, `None` if it is not in the data folder.
pub(super) fn read_image(dir: &Path, run: &LoggedRun, hash: &str) -> Option<Bytes> {
    let Some(row) = run.find_blob(hash).ok()? else { return Some(Bytes::new()) };
    let key = FileKey::parse_stored(&row.path).ok()?;
    std::fs::read(dir.join(FILES_DIR).join(key.as_str())).ok().map(Bytes::from)
}
