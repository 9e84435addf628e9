//! The data folder and its lock.
//!
//! A folder is inspected before anything is created in it, so a rejected folder stays unchanged. The operating system
//! releases the lock when the process ends, also after a crash. The folder and the files in it are for their owner alone,
//! whatever the umask is: they hold conversations, keys and what tools returned.

use super::schema::{APPLICATION_ID, DATABASE_FILE, MIGRATIONS, MigrateError};
use super::writer_space::is_disk_full;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LOCK_FILE: &str = "lock";
/// The copy that `headwater compact` writes. It takes the place of the database when it is complete.
pub(crate) const COMPACTED_COPY_FILE: &str = "headwater.db.compacted";
const OWNER_ONLY_FOLDER: u32 = 0o700;
pub(crate) const OWNER_ONLY_FILE: u32 = 0o600;
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// Layout of the SQLite file header.
const HEADER_BYTES: u64 = 100;
const USER_VERSION_OFFSET: usize = 60;
const APPLICATION_ID_OFFSET: usize = 68;

/// Why a data folder cannot be opened, as one line for the operator. The folder is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    #[error("data folder {0} is in use by another process: stop that one, or use another folder")]
    Locked(PathBuf),
    #[error("{0} is not a folder: use another path for the data folder")]
    NotAFolder(PathBuf),
    /// The operating system denied access.
    #[error("data folder {path} cannot be used: {reason}")]
    Denied { path: PathBuf, reason: String },
    #[error("data folder {path} has format {found} and this version knows {known}: use the version that wrote it")]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("{0} is not a database of Headwater: use another data folder")]
    Foreign(PathBuf),
    /// Neither the disk nor the reserve has room for what opening writes, and the database cannot be read without it.
    #[error("the disk of data folder {0} is full: delete other files on it or enlarge it, then start again")]
    DiskFull(PathBuf),
    #[error("{path} is damaged ({reason}): restore it from a backup")]
    Damaged { path: PathBuf, reason: String },
}

impl StoreOpenError {
    pub(crate) fn denied(path: &Path, why: &impl ToString) -> Self {
        Self::Denied { path: path.to_owned(), reason: why.to_string().replace('\n', " ") }
    }

    pub(crate) fn from_sqlite(database: &Path, error: &rusqlite::Error) -> Self {
        let path = database.to_owned();
        match error.sqlite_error_code() {
            _ if is_want_of_space(error) => Self::DiskFull(database.parent().unwrap_or(database).to_owned()),
            Some(rusqlite::ErrorCode::NotADatabase) => Self::Foreign(path),
            Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
                Self::Damaged { path, reason: error.to_string().replace('\n', " ") }
            }
            _ => Self::denied(database, error),
        }
    }

    pub(crate) fn from_migration(database: &Path, error: &MigrateError) -> Self {
        match error {
            MigrateError::Newer { found, known } => {
                let path = database.parent().unwrap_or(database).to_owned();
                Self::Newer { path, found: *found, known: *known }
            }
            MigrateError::Foreign => Self::Foreign(database.to_owned()),
            MigrateError::Sql(error) => Self::from_sqlite(database, error),
        }
    }
}

/// Whether SQLite could not write, or could not create the index of its write-ahead log.
fn is_want_of_space(error: &rusqlite::Error) -> bool {
    let extended = error.sqlite_error().map(|failure| failure.extended_code);
    is_disk_full(error) || extended == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

const INHERITED_LOCK_WAIT: Duration = Duration::from_secs(2);
const INHERITED_LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A data folder, locked until this is dropped.
#[derive(Debug)]
pub(crate) struct DataFolder {
    pub(crate) database: PathBuf,
    _lock: Option<File>,
}

impl DataFolder {
    /// Locks a folder; creates it if it is missing.
    pub(crate) fn lock_or_create(dir: &Path) -> Result<Self, StoreOpenError> {
        has_database(dir)?;
        let new = !dir.exists();
        let lock = lock_folder(dir)?;
        // Another process may have created a database before the lock was acquired.
        has_database(dir)?;
        remove_compacted_copy(dir);
        // SQLite gives the files beside the database its permissions, so it must find an own file.
        open_private_file(&dir.join(DATABASE_FILE))?;
        sync_dir(dir);
        dir.ancestors().skip(1).filter(|_| new).for_each(sync_dir);
        Ok(Self { database: dir.join(DATABASE_FILE), _lock: Some(lock) })
    }

    /// Locks a folder that has a database.
    pub(crate) fn lock_with_database(dir: &Path) -> Result<Self, StoreOpenError> {
        database_path(dir)?;
        Self::lock_or_create(dir)
    }

    /// Locks a folder for reading. A folder without a lock file was never used by a server; none is created.
    pub(crate) fn lock_existing(dir: &Path) -> Result<Self, StoreOpenError> {
        let database = database_path(dir)?;
        let lock = match File::open(dir.join(LOCK_FILE)) {
            Ok(file) => Some(try_lock_file(dir, file)?),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(StoreOpenError::denied(dir, &error)),
        };
        Ok(Self { database, _lock: lock })
    }
}

/// Locks a folder that only its owner can use; creates it if it is missing.
pub(crate) fn lock_folder(dir: &Path) -> Result<File, StoreOpenError> {
    if dir.exists() && !dir.is_dir() {
        return Err(StoreOpenError::NotAFolder(dir.to_owned()));
    }
    let created = DirBuilder::new().recursive(true).mode(OWNER_ONLY_FOLDER).create(dir);
    created.map_err(|error| StoreOpenError::denied(dir, &error))?;
    let lock = try_lock_file(dir, open_private_file(&dir.join(LOCK_FILE))?)?;
    write_owner(&lock);
    make_private(dir);
    Ok(lock)
}

/// Whether a folder has a database of this program.
pub fn has_sqlite_database(dir: &Path) -> bool {
    has_database(dir).unwrap_or(false)
}

/// The database in a folder, without the lock, for readers that run next to a server.
pub(crate) fn database_path(dir: &Path) -> Result<PathBuf, StoreOpenError> {
    let database = dir.join(DATABASE_FILE);
    if has_database(dir)? { Ok(database) } else { Err(StoreOpenError::Foreign(database)) }
}

/// Removes what a compaction that was interrupted has left. The caller holds the folder's lock.
pub(crate) fn remove_compacted_copy(dir: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let path = dir.join(format!("{COMPACTED_COPY_FILE}{suffix}"));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "an incomplete copy of the database cannot be removed");
        }
    }
}

/// Opens a file, or creates it for its owner alone.
pub(crate) fn open_private_file(path: &Path) -> Result<File, StoreOpenError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY_FILE).open(path);
    file.map_err(|error| StoreOpenError::denied(path, &error))
}

/// Takes the folder and what is directly in it away from other users. What belongs to somebody else stays as it is.
fn make_private(dir: &Path) {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in std::iter::once(dir.to_owned()).chain(entries) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let mode = match found.file_type() {
            kind if kind.is_dir() => OWNER_ONLY_FOLDER,
            kind if kind.is_file() => OWNER_ONLY_FILE,
            _ => continue,
        };
        let had = found.permissions().mode() & 0o777;
        if had & 0o077 == 0 {
            continue;
        }
        let changed = fs::set_permissions(&path, Permissions::from_mode(mode));
        let (path, had, now) = (path.display(), format!("{had:04o}"), format!("{mode:04o}"));
        match changed {
            Ok(()) => {
                tracing::warn!(%path, had, now, "other users had access to the data: the permissions were changed");
            }
            Err(error) => {
                tracing::warn!(%path, had, %error, "other users have access to the data: change the permissions");
            }
        }
    }
}

/// Waits for a lock whose owner is gone: a program that it was starting inherited the lock, until it is executed.
fn try_lock_file(dir: &Path, file: File) -> Result<File, StoreOpenError> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < INHERITED_LOCK_WAIT && !has_other_owner(dir) => {
                #[expect(clippy::disallowed_methods, reason = "the end of a lock is no event")]
                std::thread::sleep(INHERITED_LOCK_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Err(StoreOpenError::Locked(dir.to_owned())),
            Err(TryLockError::Error(error)) => return Err(StoreOpenError::denied(dir, &error)),
        }
    }
}

/// Best effort: without it, others wait for a moment before they are told that the folder is in use.
fn write_owner(mut lock: &File) {
    let _ = lock.set_len(0).and_then(|()| lock.write_all(std::process::id().to_string().as_bytes()));
}

/// Whether the process that locked the folder last is another one, and alive.
fn has_other_owner(dir: &Path) -> bool {
    let owner = fs::read_to_string(dir.join(LOCK_FILE)).ok().and_then(|text| text.trim().parse::<u32>().ok());
    owner.is_some_and(|pid| pid != std::process::id() && Path::new("/proc").join(pid.to_string()).exists())
}

/// Makes new directory entries survive a power cut. Best effort: some systems cannot sync a directory.
pub(crate) fn sync_dir(dir: &Path) {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let done = File::open(dir).and_then(|dir| dir.sync_all());
    if let Err(error) = done {
        tracing::debug!(%error, "a folder cannot be synced");
    }
}

/// Whether the folder has a Headwater database. Writes nothing.
fn has_database(dir: &Path) -> Result<bool, StoreOpenError> {
    match fs::metadata(dir) {
        Ok(found) if !found.is_dir() => return Err(StoreOpenError::NotAFolder(dir.to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Err(StoreOpenError::NotAFolder(dir.to_owned()));
        }
        Err(error) => return Err(StoreOpenError::denied(dir, &error)),
    }
    let path = dir.join(DATABASE_FILE);
    let head = match read_header(&path) {
        Ok(head) => head,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(StoreOpenError::Foreign(path)),
        Err(error) => return Err(StoreOpenError::denied(&path, &error)),
    };
    // A crash interrupted the creation of the database: SQLite rolls it back on open.
    if head.is_empty() || dir.join(format!("{DATABASE_FILE}-journal")).exists() {
        return Ok(false);
    }
    let number = |at: usize| head.get(at..at + 4).and_then(|four| four.try_into().ok()).map(u32::from_be_bytes);
    if !head.starts_with(SQLITE_MAGIC) || number(APPLICATION_ID_OFFSET) != Some(APPLICATION_ID.cast_unsigned()) {
        return Err(StoreOpenError::Foreign(path));
    }
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let found = number(USER_VERSION_OFFSET).unwrap_or_default();
    if found > known {
        return Err(StoreOpenError::Newer { path: dir.to_owned(), found, known });
    }
    Ok(true)
}

fn read_header(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEADER_BYTES).read_to_end(&mut head)?;
    Ok(head)
}
