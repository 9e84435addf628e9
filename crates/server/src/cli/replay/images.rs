//! The pictures of a run, as far as its data folder has them. Files may be elsewhere: then an address stays an address.

use bytes::Bytes;
use files::FileKey;
use gateway::attachments::FILES_DIR;
use std::path::Path;
use store::LoggedRun;

/// The bytes of a picture: none when it is gone, `None` when they are not here.
pub(super) fn read_image(dir: &Path, run: &LoggedRun, hash: &str) -> Option<Bytes> {
    let Some(row) = run.find_blob(hash).ok()? else { return Some(Bytes::new()) };
    let key = FileKey::parse_stored(&row.path).ok()?;
    std::fs::read(dir.join(FILES_DIR).join(key.as_str())).ok().map(Bytes::from)
}
