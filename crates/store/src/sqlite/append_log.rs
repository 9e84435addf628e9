//! The append log: files in which records are durable before the database has them.
//!
//! A commit of the database costs several times as much as an append to a file, and a row of its own for each delta as much
//! again. So a batch that has records and changes nothing else is appended to this log, and synced once for all threads of the
//! group. The database gets such records later, many of a thread in one row, or in a block: with the next change of their run
//! (`batches`), or when the log is long (`log_write_out`). So the database alone always has a log of each thread without gaps.
//!
//! Two files take turns: one grows, while the records of the other are written to the database. Then they change places. A file
//! is overwritten from its start, because a sync of a file that does not grow is cheaper. Opening the database moves what the
//! files have into it (`log_recovery`).
//!
//! The frames of a file have the file's generation, which grows each time the files change places, and consecutive numbers. What
//! follows the last one is what a crash left of a write, or of an older generation.

use super::data_folder::{OWNER_ONLY_FILE, sync_dir};
use super::log_frame::{FRAME_HEADER_BYTES, LogFrame, LoggedRow, RowReader, read_frames};
use bytes::Bytes;
use model::defects::Defect;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The size from which on the other file is next. A start after a crash reads both, so it bounds how long that takes.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// A file grows in steps of this size, because a sync has more to do when the file has grown.
const GROWTH_BYTES: u64 = 512 * 1024;

const FILE_SUFFIXES: [&str; 2] = ["-log0", "-log1"];

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
        self.unconfirmed = Some(frame.size_bytes());
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
        self.growing_bytes() >= FILE_BYTES_MAX
    }

    /// Whether the file that grows is half as long as it gets.
    pub(crate) fn is_half_long(&self) -> bool {
        self.growing_bytes() >= FILE_BYTES_MAX / 2
    }

    fn growing_bytes(&self) -> u64 {
        self.files.get(self.growing).map_or(0, |file| file.end)
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
        if !Defect::AppendLogNotSynced.is_planted() {
            self.file.sync_data()?;
        }
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

/// What the files of a database have.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppendLogContent {
    /// In the order in which they were appended.
    pub(crate) rows: Vec<LoggedRow>,
    /// Whether a frame is damaged that was not the last one.
    pub(crate) is_damaged: bool,
}

/// Reads the files of a database. A server may be writing them.
pub(crate) fn read_append_log(database: &Path) -> io::Result<AppendLogContent> {
    let mut files = Vec::new();
    for path in log_paths(database) {
        match fs::read(&path) {
            Ok(content) => files.push(read_frames(&Bytes::from(content))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_by_key(|file| file.generation);
    let is_damaged = files.iter().any(|file| file.is_damaged);
    let frames: Vec<_> = files.into_iter().flat_map(|file| file.frames).collect();
    let last = frames.len().saturating_sub(1);
    let rows = frames
        .into_iter()
        .enumerate()
        .flat_map(|(at, frame)| RowReader(frame).map(move |row| LoggedRow { is_newest: at == last, ..row }));
    Ok(AppendLogContent { rows: rows.collect(), is_damaged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::log_frame::ROW_HEADER_BYTES;
    use std::slice;

    fn row(n: u64) -> LoggedRow {
        let records = Bytes::from(format!("record {n} ") + if n.is_multiple_of(2) { "" } else { "which is longer" });
        LoggedRow { thread: 3, run: 5, seq: n, count: 1, records, is_newest: false }
    }

    fn write_rows(log: &mut AppendLog, rows: &[LoggedRow]) -> io::Result<()> {
        let mut frame = LogFrame::default();
        for row in rows {
            frame.add_row((row.thread, row.run), row.seq, row.count, &row.records);
        }
        log.write(&mut frame)
    }

    fn append(log: &mut AppendLog, n: u64) {
        write_rows(log, slice::from_ref(&row(n))).unwrap();
        assert!(log.confirm_write());
    }

    fn database() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("test.db");
        (dir, database)
    }

    /// The numbers of the rows that are read, and whether the last one is the newest.
    fn read(database: &Path) -> (Vec<u64>, bool) {
        let AppendLogContent { rows, is_damaged } = read_append_log(database).unwrap();
        assert!(!is_damaged);
        let newest: Vec<_> = rows.iter().map(|row| row.is_newest).collect();
        assert!(newest.is_sorted(), "the newest rows are the last ones");
        let numbers = rows.iter().map(|found| {
            assert_eq!(*found, LoggedRow { is_newest: found.is_newest, ..row(found.seq) });
            found.seq
        });
        (numbers.collect(), newest.last() == Some(&true))
    }

    #[test]
    fn the_files_take_turns_and_are_read_in_order() {
        let (_dir, database) = database();
        assert_eq!(read(&database), (vec![], false), "without files");
        let mut log = AppendLog::create(&database).unwrap();
        assert!(!has_append_log(&database) && log.is_empty());
        (1..=40).for_each(|n| append(&mut log, n));
        assert!(has_append_log(&database) && !log.is_empty() && !log.is_long());
        log.switch_files();
        assert_eq!(read(&database), ((1..=40).collect(), true), "nothing is in the next file yet");
        (41..=50).for_each(|n| append(&mut log, n));
        assert_eq!(read(&database), ((1..=50).collect(), true));
        log.switch_files();
        append(&mut log, 51);
        assert_eq!(read(&database), ((41..=51).collect(), true), "the rest of the old generation does not count");
        // A reader that comes while the server writes, and the next server.
        let again = AppendLog::create(&database).unwrap();
        assert!(again.is_empty() && !has_append_log(&database));
        remove_append_log(&database);
        assert_eq!(fs::read_dir(database.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_group_that_was_not_committed_leaves_nothing() {
        let (_dir, database) = database();
        let mut log = AppendLog::create(&database).unwrap();
        append(&mut log, 1);
        write_rows(&mut log, &[row(2), row(3)]).unwrap();
        assert_eq!(read(&database).0, [1, 2, 3]);
        log.undo_write().unwrap();
        log.undo_write().unwrap();
        assert_eq!(read(&database).0, [1]);
        append(&mut log, 4);
        assert_eq!(read(&database).0, [1, 4]);
        assert!(!log.confirm_write(), "a group without a frame");
        log.empty().unwrap();
        append(&mut log, 5);
        assert_eq!(read(&database).0, [5]);
    }

    #[test]
    fn a_file_is_long_at_its_limit_and_as_large_as_its_frames() {
        let (_dir, database) = database();
        let mut log = AppendLog::create(&database).unwrap();
        let large = LoggedRow { records: vec![7; 1 << 20].into(), ..row(1) };
        for n in 1..=16 {
            write_rows(&mut log, slice::from_ref(&large)).unwrap();
            assert_eq!((log.is_half_long(), log.is_long()), (n >= 8, n == 16));
        }
        let length = fs::metadata(&log_paths(&database)[0]).unwrap().len();
        assert!((FILE_BYTES_MAX..FILE_BYTES_MAX + 2 * GROWTH_BYTES).contains(&length), "{length}");
    }

    #[test]
    fn what_a_crash_leaves_of_the_last_write_ends_the_file() {
        let (_dir, database) = database();
        let mut log = AppendLog::create(&database).unwrap();
        // The remains of an older generation follow the last frame.
        (1..=9).for_each(|n| append(&mut log, n));
        log.switch_files();
        log.switch_files();
        append(&mut log, 11);
        let begin = usize::try_from(log.files[0].end).unwrap();
        append(&mut log, 12);
        let end = usize::try_from(log.files[0].end).unwrap();
        let [path, _] = log_paths(&database);
        let whole = fs::read(&path).unwrap();
        for lost in begin..end {
            for remains in [&[][..], &[0; 512]] {
                let mut torn = whole[..lost].to_vec();
                torn.extend_from_slice(remains);
                fs::write(&path, &torn).unwrap();
                assert_eq!(read(&database).0, [11], "{lost} of {end} bytes");
            }
        }
        fs::write(&path, &whole).unwrap();
        assert_eq!(read(&database).0, [11, 12]);
    }

    #[test]
    fn damage_does_not_hide_the_frames_behind_it() {
        let (_dir, database) = database();
        let mut log = AppendLog::create(&database).unwrap();
        (1..=3).for_each(|n| append(&mut log, n));
        let [path, _] = log_paths(&database);
        let whole = fs::read(&path).unwrap();
        let second = FRAME_HEADER_BYTES + ROW_HEADER_BYTES + row(1).records.len();
        for at in second..second + FRAME_HEADER_BYTES + ROW_HEADER_BYTES + row(2).records.len() {
            let mut content = whole.clone();
            content[at] ^= 1;
            fs::write(&path, &content).unwrap();
            let AppendLogContent { rows, is_damaged } = read_append_log(&database).unwrap();
            assert!(is_damaged, "byte {at}");
            let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
            assert_eq!((first, last), (&row(1), &LoggedRow { is_newest: true, ..row(3) }), "byte {at}");
            // Without the row, or with a record whose checksum tells, or with a number that fits nowhere.
            assert!(!rows.contains(&row(2)), "byte {at}");
        }
    }
}
