//! Checks of the rows of files against each other and against the log, and the list of files that should exist. The
//! caller compares the list with the disk.
//!
//! Links of missing threads are not damage: a crash leaves them, and the next start removes them.

use super::{VerifyReport, for_each_row};
use crate::sqlite::{
    ATTACHMENTS_SINCE, BLOBS_SINCE, DataFolder, MIGRATIONS, StoreOpenError, attachment_row, open_offline,
    owner_and_path, schema_version,
};
use model::blob::{BLOB_URL_PREFIX, is_sha256_hex};
use model::content::{ContentPart, ImageUrl};
use model::event::Event;
use model::history::HistoryEntry;
use model::item::Block;
use model::ports::AttachmentRow;
use model::record::{PrivatePayload, Record};
use model::{ThreadId, UserId};
use rusqlite::{Connection, Row};
use std::collections::HashSet;
use std::path::Path;

/// The files in the database of a data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// Files whose bytes must exist.
    pub committed: Vec<(UserId, AttachmentRow)>,
    /// Paths that may have leftover bytes: interrupted uploads and released files.
    pub stale: Vec<(UserId, String)>,
    /// Number of committed blobs without a link from an existing thread. The next start removes them.
    pub unlinked: usize,
}

/// Lists the files in the database of a data folder, read-only.
pub fn list_stored_files(dir: &Path) -> Result<StoredFiles, StoreOpenError> {
    let folder = DataFolder::lock_existing(dir)?;
    let sql = |error: rusqlite::Error| StoreOpenError::from_sqlite(&folder.database, &error);
    let conn = open_offline(&folder.database).map_err(sql)?;
    let found =
        schema_version(&conn, MIGRATIONS).map_err(|error| StoreOpenError::from_migration(&folder.database, &error))?;
    if found < ATTACHMENTS_SINCE {
        return Ok(StoredFiles::default());
    }
    let hash = if found < BLOBS_SINCE { "NULL" } else { "hash" };
    let mut files = query_stored_files(&conn, hash).map_err(sql)?;
    if found >= BLOBS_SINCE {
        files.unlinked = count_unlinked(&conn).map_err(sql)?;
    }
    Ok(files)
}

fn count_unlinked(conn: &Connection) -> rusqlite::Result<usize> {
    let sql = "SELECT count(*) FROM attachments a WHERE hash IS NOT NULL AND bytes IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM attachment_uses u JOIN threads t ON t.id = u.thread AND t.owner = u.owner
                WHERE u.owner = a.owner AND u.path = a.path)";
    let count: i64 = conn.query_row(sql, (), |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn query_stored_files(conn: &Connection, hash: &str) -> rusqlite::Result<StoredFiles> {
    let mut files = StoredFiles::default();
    let sql = format!(
        "SELECT path, name, content_type, bytes, created_at, {hash}, owner FROM attachments
         WHERE bytes IS NOT NULL ORDER BY owner, path"
    );
    let there = |row: &Row<'_>| Ok((UserId::from(row.get::<_, String>(6)?), attachment_row(row)?));
    files.committed = conn.prepare(&sql)?.query_map((), there)?.collect::<rusqlite::Result<_>>()?;
    let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
    files.stale = conn.prepare(sql)?.query_map((), owner_and_path)?.collect::<rusqlite::Result<_>>()?;
    Ok(files)
}

/// Reports users whose stored sum differs from the size of their files.
pub(super) fn check_attachment_sums(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    let wrong = "SELECT owner FROM
                 (SELECT owner, total(bytes) AS held, 0 AS said FROM attachments GROUP BY owner
                  UNION ALL SELECT owner, 0, bytes FROM attachment_sums)
                 GROUP BY owner HAVING sum(held) <> sum(said) ORDER BY owner";
    for_each_text(conn, wrong, |owner| report.add_problem(format!("the files of {owner} are summed up wrongly")))
}

/// Reports invalid and duplicate blobs, and links that do not match the files.
pub(super) fn check_attachment_links(conn: &Connection, report: &mut VerifyReport) -> rusqlite::Result<()> {
    for_each_row(conn, "SELECT path, hash FROM attachments WHERE hash IS NOT NULL ORDER BY path", |row| {
        let (path, hash): (String, String) = (row.get(0)?, row.get(1)?);
        if !is_sha256_hex(&hash) {
            report.add_problem(format!("the blob {path} has no hash that there can be"));
        }
        Ok(())
    })?;
    let twice = "SELECT min(path) FROM attachments WHERE hash IS NOT NULL
                 GROUP BY owner, hash HAVING count(*) > 1 ORDER BY 1";
    for_each_text(conn, twice, |path| report.add_problem(format!("the owner of the blob {path} has it twice")))?;
    let undead = "SELECT path FROM attachments WHERE bytes IS NULL AND hash IS NOT NULL
                  OR released <> 0 AND bytes IS NOT NULL ORDER BY path";
    for_each_text(conn, undead, |path| report.add_problem(format!("the file {path} is there, and is not")))?;
    let unused = "SELECT path FROM attachments a WHERE hash IS NOT NULL AND NOT EXISTS
                  (SELECT 1 FROM attachment_uses u WHERE u.owner = a.owner AND u.path = a.path) ORDER BY path";
    for_each_text(conn, unused, |path| report.add_problem(format!("no thread uses the blob {path}")))?;
    let gone = "SELECT thread FROM attachment_uses u WHERE NOT EXISTS (SELECT 1 FROM attachments a
                WHERE a.owner = u.owner AND a.path = u.path AND a.bytes IS NOT NULL AND a.released = 0) ORDER BY thread";
    for_each_text(conn, gone, |thread| report.add_problem(format!("{thread} uses a file that is not there")))
}

fn for_each_text(conn: &Connection, sql: &str, mut found: impl FnMut(String)) -> rusqlite::Result<()> {
    for_each_row(conn, sql, |row| row.get(0).map(&mut found))
}

pub(super) fn linked_blob_hashes(
    conn: &Connection,
    owner: &UserId,
    thread: &ThreadId,
) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT a.hash FROM attachment_uses u JOIN attachments a ON a.owner = u.owner AND a.path = u.path
               WHERE u.owner = ?1 AND u.thread = ?2 AND a.hash IS NOT NULL AND a.bytes IS NOT NULL";
    let mut select = conn.prepare_cached(sql)?;
    select.query_map((owner.as_str(), thread.as_str()), |row| row.get(0))?.collect()
}

/// The blob hashes, valid or not, in a record's images and files; text and arguments may contain anything. A byte
/// search comes first, because nearly all records have none.
pub(super) fn blob_hashes_in_record(record: &Record) -> Vec<String> {
    let mut urls = BlobUrls(Vec::new());
    if contains_blob_url(&record.public) {
        urls.add_event(record.event());
    }
    if contains_blob_url(&record.private) {
        record.private().iter().for_each(|private| urls.add_private(private));
    }
    urls.0
}

fn contains_blob_url(bytes: &[u8]) -> bool {
    bytes.windows(BLOB_URL_PREFIX.len()).any(|window| window == BLOB_URL_PREFIX.as_bytes())
}

struct BlobUrls(Vec<String>);

impl BlobUrls {
    fn add_event(&mut self, event: &Event) {
        match event {
            Event::Created(created) => created.task.input.iter().for_each(|said| self.add_parts(&said.content)),
            Event::InputAdded(added) => added.input.iter().for_each(|said| self.add_parts(&said.content)),
            Event::ItemAdded(e) | Event::ItemDone(e) => self.add_blocks(e.item.blocks()),
            Event::ImageAdded(e) | Event::ImageDone(e) => self.add_image(&e.item.block().image_url),
            Event::ImageDelta(e) => self.add_image(&e.item.block().image_url),
            // No other event has images or files.
            _ => {}
        }
    }

    fn add_private(&mut self, private: &PrivatePayload) {
        self.add_parts(private.content.as_deref().unwrap_or_default());
        let before = private.prior_history.as_ref().map(|before| &before.entries);
        private
            .rewritten_history
            .iter()
            .chain(before)
            .flatten()
            .map(HistoryEntry::parts)
            .for_each(|parts| self.add_parts(parts));
    }

    fn add_parts(&mut self, parts: &[ContentPart]) {
        parts.iter().filter_map(ContentPart::url).for_each(|url| self.add_url(url));
    }

    fn add_blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            if let Block::Image(image) = block {
                self.add_image(&image.image_url);
            }
        }
    }

    fn add_image(&mut self, image: &ImageUrl) {
        self.add_url(&image.url);
    }

    fn add_url(&mut self, url: &str) {
        self.0.extend(url.strip_prefix(BLOB_URL_PREFIX).map(str::to_owned));
    }
}
