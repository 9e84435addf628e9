//! The append log: files in which records are durable before the database has them.
//!
//! A commit of the database costs several times as much as an append to a file, and a row of its own for each delta as much
//! again. So a batch that has records and changes nothing else is appended to this log, and synced once for all threads of the
//! group. The database gets such records later, many of a thread in one row: before the next change of their run, or when the
//! log is long (`store_logged`). So the database alone always has a log of each thread without gaps.
//!
//! Two files take turns: one grows, while the records of the other are written to the database. Then they change places. A file
//! is overwritten from its start, because a sync of a file that does not grow is cheaper. Opening the database moves what the
//! files have into it (`recovery`).
//!
//! ```text
//!   file:   frame*
//!   frame:  generation u64 · number u64 · length u32 · checksum of the rows u32 · checksum of what precedes u32 · row*
//!   row:    thread u64 · run u64 · seq u64 · count u32 · length u32 · records as in a block
//! ```
//!
//! The frames of a file have the file's generation, which grows each time the files change places, and consecutive numbers. The
//! first frame that does not fit is what a crash left of the last write, or of an older generation, and ends the file.

use super::data_folder::{OWNER_ONLY_FILE, sync_dir};
use crate::block_coding::read_array;
use bytes::Bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The size from which on the other file is next.
const FILE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// A file grows in steps of this size, because a sync has more to do when the file has grown.
const GROWTH_BYTES: u64 = 512 * 1024;
/// A larger frame is not kept for the next one.
const FRAME_BYTES_KEPT: usize = 256 * 1024;

const FILE_SUFFIXES: [&str; 2] = ["-log0", "-log1"];
const FRAME_HEADER_BYTES: usize = 28;
const ROW_HEADER_BYTES: usize = 32;

/// Consecutive records of a run that were appended together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedRow {
    /// The numbers of thread and run.
    pub(crate) thread: i64,
    pub(crate) run: i64,
    pub(crate) seq: u64,
    pub(crate) count: u64,
    /// Encoded as in a block.
    pub(crate) records: Bytes,
}

/// The rows of a group, as they will be in the file.
#[derive(Debug, Default)]
pub(crate) struct LogFrame {
    /// With place for the header.
    bytes: Vec<u8>,
}

impl LogFrame {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(FRAME_BYTES_KEPT);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn add_row(&mut self, (thread, run): (i64, i64), seq: u64, count: u64, records: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.resize(FRAME_HEADER_BYTES, 0);
        }
        let mut header = [0; ROW_HEADER_BYTES];
        let (count, length) = (low_bits(count), low_bits(records.len() as u64));
        let fields = [&thread.to_le_bytes()[..], &run.to_le_bytes(), &seq.to_le_bytes(), &count, &length];
        write_fields(&mut header, &fields);
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(records);
    }

    /// Fills the header in.
    fn seal(&mut self, generation: u64, number: u64) -> &[u8] {
        if let Some((header, rows)) = self.bytes.split_at_mut_checked(FRAME_HEADER_BYTES) {
            let checksum = crc32fast::hash(rows).to_le_bytes();
            let length = low_bits(rows.len() as u64);
            write_fields(header, &[&generation.to_le_bytes(), &number.to_le_bytes(), &length, &checksum]);
            let checksum = crc32fast::hash(header.get(..FRAME_HEADER_BYTES - 4).unwrap_or_default());
            write_fields(header.get_mut(FRAME_HEADER_BYTES - 4..).unwrap_or_default(), &[&checksum.to_le_bytes()]);
        }
        &self.bytes
    }
}

fn low_bits(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

fn write_fields(mut place: &mut [u8], fields: &[&[u8]]) {
    for field in fields {
        let Some((head, rest)) = place.split_at_mut_checked(field.len()) else { return };
        head.copy_from_slice(field);
        place = rest;
    }
}

/// The files of a database that is open.
#[derive(Debug)]
pub(crate) struct AppendLog {
    files: [LogFile; 2],
    /// Which of them grows.
    growing: usize,
    generation: u64,
    next_number: u64,
    /// The size of the frame of a group that is not committed yet. None if it was not written.
    unconfirmed: Option<u64>,
}

#[derive(Debug)]
struct LogFile {
    file: File,
    /// Where the next frame begins.
    end: u64,
    /// How far the file was written since it was empty.
    length: u64,
}

impl AppendLog {
    /// Opens the files of a database, and empties them: [`read_append_log`] and the database have had what they had.
    pub(crate) fn create(database: &Path) -> io::Result<Self> {
        let [one, other] = log_paths(database);
        let files = [LogFile::open(&one)?, LogFile::open(&other)?];
        let mut log = Self { files, growing: 0, generation: 0, next_number: 0, unconfirmed: None };
        log.empty()?;
        database.parent().into_iter().for_each(sync_dir);
        Ok(log)
    }

    /// Writes the frame and waits for the disk. The caller confirms it or takes it back.
    pub(crate) fn write(&mut self, frame: &mut LogFrame) -> io::Result<()> {
        let (generation, number) = (self.generation, self.next_number);
        self.unconfirmed = Some(0);
        let Some(file) = self.files.get_mut(self.growing) else { return Ok(()) };
        file.write(frame.seal(generation, number))?;
        self.next_number += 1;
        self.unconfirmed = Some(frame.bytes.len() as u64);
        Ok(())
    }

    /// The group was committed. Returns whether it had a frame.
    pub(crate) fn confirm_write(&mut self) -> bool {
        self.unconfirmed.take().is_some()
    }

    /// The group was not committed: takes its frame back, if it had one, whether writing it failed or not.
    pub(crate) fn undo_write(&mut self) -> io::Result<()> {
        let Some(bytes) = self.unconfirmed.take() else { return Ok(()) };
        self.next_number = self.next_number.saturating_sub(u64::from(bytes > 0));
        self.files.get_mut(self.growing).map_or(Ok(()), |file| file.take_back(bytes))
    }

    /// Whether the other file should be next.
    pub(crate) fn is_long(&self) -> bool {
        self.files.get(self.growing).is_some_and(|file| file.end >= FILE_BYTES_MAX)
    }

    /// The files change places. The database has all records of the one that is next.
    pub(crate) fn switch_files(&mut self) {
        self.growing = 1 - self.growing;
        self.generation += 1;
        self.next_number = 0;
        if let Some(file) = self.files.get_mut(self.growing) {
            file.end = 0;
        }
    }

    /// Removes the content of both files. The database has all of their records.
    pub(crate) fn empty(&mut self) -> io::Result<()> {
        self.generation += 1;
        self.next_number = 0;
        self.files.iter_mut().try_for_each(LogFile::empty)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.iter().all(|file| file.length == 0)
    }
}

impl LogFile {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY_FILE).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { file, end: 0, length })
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let end = self.end.saturating_add(frame.len() as u64);
        if end > self.length {
            let length = end.saturating_add(GROWTH_BYTES);
            // Beyond its end first: then the frame is what is there of this generation.
            self.fill(self.length, length)?;
            self.length = length;
        }
        self.file.write_all_at(frame, self.end)?;
        self.file.sync_data()?;
        self.end = end;
        Ok(())
    }

    /// Ends the file this much earlier. Overwriting needs no room on the disk.
    fn take_back(&mut self, bytes: u64) -> io::Result<()> {
        self.end = self.end.saturating_sub(bytes);
        let header_end = self.end.saturating_add(FRAME_HEADER_BYTES as u64);
        self.fill(self.end, header_end.min(self.file.metadata()?.len()))?;
        self.file.sync_data()
    }

    /// Overwrites with zeros.
    fn fill(&self, mut at: u64, end: u64) -> io::Result<()> {
        const ZEROS: &[u8] = &[0; 64 * 1024];
        while at < end {
            let bytes = usize::try_from(end - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.file.write_all_at(ZEROS.get(..bytes).unwrap_or(ZEROS), at)?;
            at += bytes as u64;
        }
        Ok(())
    }

    fn empty(&mut self) -> io::Result<()> {
        if self.file.metadata()?.len() > 0 {
            self.file.set_len(0)?;
            self.file.sync_all()?;
        }
        (self.end, self.length) = (0, 0);
        Ok(())
    }
}

fn log_paths(database: &Path) -> [PathBuf; 2] {
    FILE_SUFFIXES.map(|suffix| {
        let mut path = database.as_os_str().to_owned();
        path.push(suffix);
        path.into()
    })
}

/// Whether the files of a database have content.
pub(crate) fn has_append_log(database: &Path) -> bool {
    log_paths(database).iter().any(|path| fs::metadata(path).is_ok_and(|found| found.len() > 0))
}

/// Removes the files of a database that has all of their records.
pub(crate) fn remove_append_log(database: &Path) {
    for path in log_paths(database) {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an empty log cannot be removed");
        }
    }
}

/// What the files of a database have, in the order in which it was appended. A server may be writing them.
pub(crate) fn read_append_log(database: &Path) -> io::Result<Vec<LoggedRow>> {
    let mut files = Vec::new();
    for path in log_paths(database) {
        match fs::read(&path) {
            Ok(content) => files.push(read_frames(&Bytes::from(content))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_by_key(|(generation, _)| *generation);
    Ok(files.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
struct FrameHeader {
    generation: u64,
    number: u64,
    length: usize,
    checksum: u32,
}

impl FrameHeader {
    fn read(content: &[u8]) -> Option<Self> {
        let header = content.get(..FRAME_HEADER_BYTES)?;
        let (fields, mut sum) = header.split_at_checked(FRAME_HEADER_BYTES - 4)?;
        if u32::from_le_bytes(read_array(&mut sum)?) != crc32fast::hash(fields) {
            return None;
        }
        let mut rest = fields;
        let generation = u64::from_le_bytes(read_array(&mut rest)?);
        let number = u64::from_le_bytes(read_array(&mut rest)?);
        let length = u32::from_le_bytes(read_array(&mut rest)?) as usize;
        let checksum = u32::from_le_bytes(read_array(&mut rest)?);
        Some(Self { generation, number, length, checksum })
    }
}

/// The generation of a file and its rows.
fn read_frames(content: &Bytes) -> (u64, Vec<LoggedRow>) {
    let mut rows = Vec::new();
    let Some(first) = FrameHeader::read(content) else { return (0, rows) };
    let (mut at, mut number) = (0, 0);
    loop {
        let follows = |header: &FrameHeader| header.generation == first.generation && header.number == number;
        let rest = content.get(at..).unwrap_or_default();
        let Some(header) = FrameHeader::read(rest).filter(follows) else { break };
        let begin = at + FRAME_HEADER_BYTES;
        let Some(body) = content.get(begin..begin.saturating_add(header.length)) else { break };
        (at, number) = (begin + header.length, number + 1);
        if crc32fast::hash(body) != header.checksum {
            let next = FrameHeader::read(content.get(at..).unwrap_or_default());
            if !next.is_some_and(|next| next.generation == first.generation && next.number == number) {
                break;
            }
            // Not the last write, so it was whole once. Each record has a checksum of its own, which readers verify.
            tracing::error!(offset = begin, "the append log is damaged: `headwater verify` lists all damage");
        }
        rows.extend(RowReader(content.slice(begin..at)));
    }
    (first.generation, rows)
}

/// The rows of a frame, up to the first one that does not fit in.
struct RowReader(Bytes);

impl Iterator for RowReader {
    type Item = LoggedRow;

    fn next(&mut self) -> Option<LoggedRow> {
        let mut rest = self.0.get(..ROW_HEADER_BYTES)?;
        let thread = i64::from_le_bytes(read_array(&mut rest)?);
        let run = i64::from_le_bytes(read_array(&mut rest)?);
        let seq = u64::from_le_bytes(read_array(&mut rest)?);
        let count = u64::from(u32::from_le_bytes(read_array(&mut rest)?));
        let length = u32::from_le_bytes(read_array(&mut rest)?) as usize;
        let _header = self.0.split_to(ROW_HEADER_BYTES);
        let records = (length <= self.0.len()).then(|| self.0.split_to(length))?;
        Some(LoggedRow { thread, run, seq, count, records })
    }
}
