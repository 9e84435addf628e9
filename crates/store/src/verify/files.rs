//! Files, as far as the database knows of them: whether their rows agree with each other and with the logs, and which
//! bytes there should be. Whether those are there, whoever knows the place of files can see.
//!
//! Uses of a thread that is not there are no damage: a crash leaves them, and the next start clears them away.

use super::Report;
use crate::sqlite::{Folder, MIGRATIONS, OpenError, WITH_ATTACHMENTS, WITH_BLOBS, file_row, onlooker, place, version};
use model::blob::{BLOB_URL_PREFIX, is_sha256_hex};
use model::block::{Block, ContentPart, ImageUrl};
use model::event::Event;
use model::history::HistoryEntry;
use model::ports::AttachmentRow;
use model::record::{PrivatePayload, Record};
use model::{ThreadId, UserId};
use rusqlite::{Connection, Row};
use std::collections::HashSet;
use std::path::Path;

/// The files that a folder knows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFiles {
    /// Those that are there: each has its bytes.
    pub there: Vec<(UserId, AttachmentRow)>,
    /// Paths where there may be bytes that do not count: they were broken off, or no thread uses them any more.
    pub unfinished: Vec<(UserId, String)>,
    /// How many of those that are there no thread uses that is there. The next start removes them.
    pub left: usize,
}

/// Lists the files that a folder knows of. It only reads.
///
/// # Errors
/// When there is nothing to look at: no database of ours, a newer one, or a server works in the folder.
pub fn files_of(dir: &Path) -> Result<StoredFiles, OpenError> {
    let folder = Folder::look(dir)?;
    let sql = |error: rusqlite::Error| OpenError::sql(&folder.database, &error);
    let conn = onlooker(&folder.database).map_err(sql)?;
    let found = version(&conn, MIGRATIONS).map_err(|error| OpenError::migrate(&folder.database, &error))?;
    if found < WITH_ATTACHMENTS {
        return Ok(StoredFiles::default());
    }
    let hash = if found < WITH_BLOBS { "NULL" } else { "hash" };
    let mut files = list(&conn, hash).map_err(sql)?;
    if found >= WITH_BLOBS {
        files.left = left(&conn).map_err(sql)?;
    }
    Ok(files)
}

fn left(conn: &Connection) -> rusqlite::Result<usize> {
    let sql = "SELECT count(*) FROM attachments a WHERE hash IS NOT NULL AND bytes IS NOT NULL AND NOT EXISTS
               (SELECT 1 FROM attachment_uses u JOIN threads t ON t.id = u.thread AND t.owner = u.owner
                WHERE u.owner = a.owner AND u.path = a.path)";
    let count: i64 = conn.query_row(sql, (), |row| row.get(0))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn list(conn: &Connection, hash: &str) -> rusqlite::Result<StoredFiles> {
    let mut files = StoredFiles::default();
    let sql = format!(
        "SELECT path, name, content_type, bytes, created_at, {hash}, owner FROM attachments
         WHERE bytes IS NOT NULL ORDER BY owner, path"
    );
    let there = |row: &Row<'_>| Ok((UserId::from(row.get::<_, String>(6)?), file_row(row)?));
    files.there = conn.prepare(&sql)?.query_map((), there)?.collect::<rusqlite::Result<_>>()?;
    let sql = "SELECT owner, path FROM attachments WHERE bytes IS NULL ORDER BY owner, path";
    files.unfinished = conn.prepare(sql)?.query_map((), place)?.collect::<rusqlite::Result<_>>()?;
    Ok(files)
}

/// Sums that are not what the files of a user hold.
pub(super) fn sums(conn: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let wrong = "SELECT owner FROM
                 (SELECT owner, total(bytes) AS held, 0 AS said FROM attachments GROUP BY owner
                  UNION ALL SELECT owner, 0, bytes FROM attachment_sums)
                 GROUP BY owner HAVING sum(held) <> sum(said) ORDER BY owner";
    each(conn, wrong, |owner| report.add(format!("the files of {owner} are summed up wrongly")))
}

/// Blobs that are none, or that an owner has twice, and uses that do not go together with the files.
pub(super) fn uses(conn: &Connection, report: &mut Report) -> rusqlite::Result<()> {
    let mut select = conn.prepare("SELECT path, hash FROM attachments WHERE hash IS NOT NULL ORDER BY path")?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        let (path, hash): (String, String) = (row.get(0)?, row.get(1)?);
        if !is_sha256_hex(&hash) {
            report.add(format!("the blob {path} has no hash that there can be"));
        }
    }
    let twice = "SELECT min(path) FROM attachments WHERE hash IS NOT NULL
                 GROUP BY owner, hash HAVING count(*) > 1 ORDER BY 1";
    each(conn, twice, |path| report.add(format!("the owner of the blob {path} has it twice")))?;
    let undead = "SELECT path FROM attachments WHERE bytes IS NULL AND hash IS NOT NULL
                  OR released <> 0 AND bytes IS NOT NULL ORDER BY path";
    each(conn, undead, |path| report.add(format!("the file {path} is there, and is not")))?;
    let unused = "SELECT path FROM attachments a WHERE hash IS NOT NULL AND NOT EXISTS
                  (SELECT 1 FROM attachment_uses u WHERE u.owner = a.owner AND u.path = a.path) ORDER BY path";
    each(conn, unused, |path| report.add(format!("no thread uses the blob {path}")))?;
    let gone = "SELECT thread FROM attachment_uses u WHERE NOT EXISTS (SELECT 1 FROM attachments a
                WHERE a.owner = u.owner AND a.path = u.path AND a.bytes IS NOT NULL AND a.released = 0) ORDER BY thread";
    each(conn, gone, |thread| report.add(format!("{thread} uses a file that is not there")))
}

fn each(conn: &Connection, sql: &str, mut found: impl FnMut(String)) -> rusqlite::Result<()> {
    let mut select = conn.prepare(sql)?;
    let mut rows = select.query(())?;
    while let Some(row) = rows.next()? {
        found(row.get(0)?);
    }
    Ok(())
}

/// The hashes of the blobs that a thread uses.
pub(super) fn used(conn: &Connection, owner: &UserId, thread: &ThreadId) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT a.hash FROM attachment_uses u JOIN attachments a ON a.owner = u.owner AND a.path = u.path
               WHERE u.owner = ?1 AND u.thread = ?2 AND a.hash IS NOT NULL AND a.bytes IS NOT NULL";
    let mut select = conn.prepare_cached(sql)?;
    select.query_map((owner.as_str(), thread.as_str()), |row| row.get(0))?.collect()
}

/// What a record names as blobs: hashes, or what stands in their place. Nearly all records name none, which their bytes
/// tell. Only places count where pictures and files are; somebody's words, arguments or notes may say what they like.
pub(super) fn named(record: &Record) -> Vec<String> {
    let mut urls = Urls(Vec::new());
    if mentions(&record.public) {
        urls.event(record.event());
    }
    if mentions(&record.private) {
        record.private().iter().for_each(|private| urls.private(private));
    }
    urls.0
}

fn mentions(bytes: &[u8]) -> bool {
    bytes.windows(BLOB_URL_PREFIX.len()).any(|window| window == BLOB_URL_PREFIX.as_bytes())
}

struct Urls(Vec<String>);

impl Urls {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Created(created) => created.task.input.iter().for_each(|said| self.parts(&said.content)),
            Event::InputAdded(added) => added.input.iter().for_each(|said| self.parts(&said.content)),
            Event::ItemAdded(e) | Event::ItemDone(e) => self.blocks(e.item.blocks()),
            Event::ImageAdded(e) | Event::ImageDone(e) => self.image(&e.item.block().image_url),
            Event::ImageDelta(e) => self.image(&e.item.block().image_url),
            // Nothing else has a picture or a file in it.
            _ => {}
        }
    }

    fn private(&mut self, private: &PrivatePayload) {
        self.parts(private.content.as_deref().unwrap_or_default());
        let before = private.prior_history.as_ref().map(|before| &before.entries);
        private
            .rewritten_history
            .iter()
            .chain(before)
            .flatten()
            .map(HistoryEntry::parts)
            .for_each(|parts| self.parts(parts));
    }

    fn parts(&mut self, parts: &[ContentPart]) {
        parts.iter().filter_map(ContentPart::url).for_each(|url| self.url(url));
    }

    fn blocks(&mut self, blocks: &[Block]) {
        for block in blocks {
            if let Block::Image(image) = block {
                self.image(&image.image_url);
            }
        }
    }

    fn image(&mut self, image: &ImageUrl) {
        self.url(&image.url);
    }

    fn url(&mut self, url: &str) {
        self.0.extend(url.strip_prefix(BLOB_URL_PREFIX).map(str::to_owned));
    }
}
