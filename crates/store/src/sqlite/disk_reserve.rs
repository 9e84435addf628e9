//! The free space of the data folder's disk, and the part of it that is kept for deletions.
//!
//! The reserve is a file with allocated blocks. When the disk is nearly full, the writer refuses new data and keeps the file, so
//! that no other program takes its space. The file is released only while a deletion runs. When there is room again, the writer
//! restores the whole file before it accepts new data. The file has no content, so it need not survive a crash: a start without it
//! checks the free space as if the reserve had just been released.

use super::data_folder::OWNER_ONLY_FILE;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;
use std::cell::Cell;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const RESERVE_FILE: &str = "reserve";
/// The reserve takes at most this part of a disk.
const DISK_SHARE: u64 = 8;
/// The part of the reserve below which free space is low.
const LOW_SHARE: u64 = 4;
/// The least free space with which the database can work.
const LOW_BYTES_MIN: u64 = 256 * 1024;
/// The approximate number of bytes that a commit writes per byte of its rows: pages, indexes, the write-ahead log.
const WRITE_FACTOR: u64 = 2;
/// Free space above which it is not read again before each commit: no program fills a disk that fast.
const PLENTY_BYTES: u64 = 1024 * 1024 * 1024;
const PLENTY_LASTS: Duration = Duration::from_millis(50);

/// The room on a disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// What this process may still write.
    pub available: u64,
    pub total: u64,
}

/// Reads the room on the disk of a folder. `None` if the file system does not tell.
#[derive(Clone)]
pub struct DiskSpaceProbe(Arc<ReadDiskSpace>);

type ReadDiskSpace = dyn Fn(&Path) -> Option<DiskSpace> + Send + Sync;

impl DiskSpaceProbe {
    /// A probe for tests.
    pub fn new(read: impl Fn(&Path) -> Option<DiskSpace> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// The room on the disk of a folder.
    pub(crate) fn read(&self, folder: &Path) -> Option<DiskSpace> {
        (self.0)(folder)
    }
}

impl Default for DiskSpaceProbe {
    fn default() -> Self {
        Self::new(|dir| {
            let found = statvfs(dir).ok().filter(|found| found.f_blocks > 0)?;
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            Some(DiskSpace { available: bytes(found.f_bavail), total: bytes(found.f_blocks) })
        })
    }
}

impl fmt::Debug for DiskSpaceProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DiskSpaceProbe")
    }
}

#[derive(Debug)]
pub(crate) struct DiskReserve {
    folder: PathBuf,
    /// What the reserve should have; less on a small disk.
    wanted: u64,
    probe: DiskSpaceProbe,
    /// When there was plenty of room, and how much.
    plenty: Cell<Option<(Instant, DiskSpace)>>,
}

impl DiskReserve {
    /// `wanted` is the size of the reserve; the one that exists by default.
    pub(crate) fn new(folder: &Path, wanted: Option<u64>, probe: DiskSpaceProbe) -> Self {
        let mut reserve = Self { folder: folder.to_owned(), wanted: 0, probe, plenty: Cell::new(None) };
        let held = reserve.held();
        reserve.wanted = wanted.unwrap_or(held);
        if held > reserve.wanted {
            reserve.release();
        }
        reserve
    }

    /// Whether a commit of `bytes` leaves enough for deletions.
    pub(crate) fn has_room_for(&self, bytes: u64) -> bool {
        let Some(found) = self.disk_space() else { return true };
        found.available >= self.low_water(found).saturating_add(bytes.saturating_mul(WRITE_FACTOR))
    }

    /// Whether the reserve is whole, and leaves room on the disk.
    pub(crate) fn is_whole(&self) -> bool {
        self.has_room_for(0) && self.disk_space().is_none_or(|found| self.held() >= self.goal(found))
    }

    /// Fills the reserve. Returns false, and fills nothing, unless there is room for it and for a commit of `bytes`:
    /// on the disk, or in pages that the database has freed.
    pub(crate) fn try_fill(&self, bytes: u64, free_page_bytes: u64) -> bool {
        let Some(found) = self.disk_space() else { return true };
        let (goal, low) = (self.goal(found), self.low_water(found));
        // More than what raises the alarm, so that it does not come back at once.
        let kept = low.saturating_add(bytes.saturating_mul(WRITE_FACTOR).max(low));
        let Some(spare) = found.available.saturating_add(self.held()).checked_sub(kept) else { return false };
        if spare.saturating_add(free_page_bytes) < goal {
            return false;
        }
        match self.fill(goal.min(spare)) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "the disk reserve cannot be filled");
                self.release();
                // Without a reserve the server works; a disk that is full is another matter.
                error.kind() != io::ErrorKind::StorageFull
            }
        }
    }

    /// Allocates as much of the reserve as the full disk has room for, so that no other program takes that space.
    pub(crate) fn hold(&self) {
        let Some(found) = self.disk_space() else { return };
        let held = self.held();
        let bytes = held.saturating_add(found.available.saturating_sub(LOW_BYTES_MIN)).min(self.goal(found));
        if bytes > held
            && let Err(error) = self.fill(bytes)
        {
            tracing::debug!(%error, "another program took the space of the disk reserve");
        }
    }

    /// Gives the reserve's space back to the disk.
    pub(crate) fn release(&self) {
        if let Err(error) = fs::remove_file(self.path())
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the disk reserve cannot be released");
        }
    }

    pub(crate) fn disk_space(&self) -> Option<DiskSpace> {
        if let Some((at, found)) = self.plenty.get()
            && at.elapsed() < PLENTY_LASTS
        {
            return Some(found);
        }
        let found = self.probe.read(&self.folder);
        self.plenty.set(found.filter(|found| found.available > PLENTY_BYTES).map(|found| (Instant::now(), found)));
        found
    }

    fn fill(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).mode(OWNER_ONLY_FILE).open(self.path())?;
        if file.metadata()?.len() > bytes {
            return file.set_len(bytes);
        }
        match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // This file system cannot allocate.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => io::copy(&mut io::repeat(0).take(bytes), &mut file).map(drop),
            allocated => Ok(allocated?),
        }
    }

    fn held(&self) -> u64 {
        fs::metadata(self.path()).map_or(0, |found| found.len())
    }

    fn goal(&self, found: DiskSpace) -> u64 {
        self.wanted.min(found.total / DISK_SHARE)
    }

    fn low_water(&self, found: DiskSpace) -> u64 {
        (self.goal(found) / LOW_SHARE).max(LOW_BYTES_MIN)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(RESERVE_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    const MIB: u64 = 1024 * 1024;

    fn reserve(dir: &Path) -> (Arc<AtomicU64>, DiskReserve) {
        let room = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&room);
        let probe = DiskSpaceProbe::new(move |_| Some(DiskSpace { available: read.load(SeqCst), total: 1024 * MIB }));
        (room, DiskReserve::new(dir, Some(MIB), probe))
    }

    #[test]
    fn the_reserve_comes_back_whole_or_freed_pages_make_up_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (room, reserve) = reserve(dir.path());
        for (available, freed, is_room, held) in [
            (2 * LOW_BYTES_MIN - 1, 100 * MIB, false, 0),
            (2 * LOW_BYTES_MIN, MIB - 1, false, 0),
            (2 * LOW_BYTES_MIN, MIB, true, 0),
            (2 * LOW_BYTES_MIN + MIB / 2, MIB / 2, true, MIB / 2),
            (2 * LOW_BYTES_MIN + MIB, 0, true, MIB),
        ] {
            reserve.release();
            room.store(available, SeqCst);
            assert_eq!((reserve.try_fill(0, freed), reserve.held()), (is_room, held), "{available} {freed}");
        }
        // The commit that found no room has to fit.
        reserve.release();
        assert!(!reserve.try_fill(MIB, 0));
        room.store(LOW_BYTES_MIN + 3 * MIB, SeqCst);
        assert!(reserve.try_fill(MIB, 0));
    }

    #[test]
    fn a_full_disk_leaves_the_reserve_as_it_is_or_what_there_is_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let (room, reserve) = reserve(dir.path());
        for (available, held) in [
            (LOW_BYTES_MIN, 0),
            (LOW_BYTES_MIN + 1000, 1000),
            (0, 1000),
            (LOW_BYTES_MIN + MIB / 2, MIB / 2 + 1000),
            (100 * MIB, MIB),
        ] {
            room.store(available, SeqCst);
            reserve.hold();
            assert_eq!(reserve.held(), held, "{available}");
        }
        assert!(reserve.is_whole());
        // A whole reserve and too little beside it is as little room as before it was filled.
        room.store(2 * LOW_BYTES_MIN - 1, SeqCst);
        assert!(!reserve.try_fill(0, 0) && reserve.held() == MIB);
        assert!(reserve.try_fill(0, 1) && reserve.held() == MIB - 1, "freed pages make up for it");
        assert!(!reserve.is_whole());
    }

    #[test]
    fn a_disk_with_plenty_of_room_is_asked_now_and_then_and_another_one_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let asked = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&asked);
        let room = Arc::new(AtomicU64::new(PLENTY_BYTES + 1));
        let read = Arc::clone(&room);
        let probe = DiskSpaceProbe::new(move |_| {
            count.fetch_add(1, SeqCst);
            Some(DiskSpace { available: read.load(SeqCst), total: u64::MAX })
        });
        let reserve = DiskReserve::new(dir.path(), Some(MIB), probe);
        let begun = Instant::now();
        for _ in 0..1000 {
            assert!(reserve.has_room_for(0));
        }
        assert!(u128::from(asked.load(SeqCst)) <= 1 + begun.elapsed().as_millis() / PLENTY_LASTS.as_millis());
        room.store(0, SeqCst);
        while reserve.has_room_for(0) {
            assert!(begun.elapsed() < Duration::from_secs(10), "it never asks again");
        }
        let before = asked.load(SeqCst);
        assert!(!reserve.has_room_for(0) && !reserve.has_room_for(0));
        assert_eq!(asked.load(SeqCst), before + 2);
    }

    #[test]
    fn a_reserve_stays_as_it_is_unless_its_size_is_given() {
        let dir = tempfile::tempdir().unwrap();
        let (room, reserve) = reserve(dir.path());
        room.store(100 * MIB, SeqCst);
        assert!(reserve.try_fill(0, 0));
        let same = |wanted| DiskReserve::new(dir.path(), wanted, reserve.probe.clone());
        assert_eq!((same(None).held(), same(None).wanted), (MIB, MIB));
        assert_eq!(same(Some(0)).held(), 0);
    }
}
