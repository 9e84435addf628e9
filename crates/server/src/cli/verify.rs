//! `headwater verify`: looks through a data folder, and through the place of its files, and lists all damage. It writes
//! nothing.

use super::print_line;
use crate::config::{self, Config, DEFAULT_DATA_DIR, Overrides};
use clap::Args;
use files::{FileKey, FileStore, FileStoreError, ListedFile, ListedFileKind, StorageLocation};
use futures_util::TryStreamExt as _;
use gateway::attachments::default_location;
use gateway::secret_token::encode_hex;
use model::UserId;
use model::ports::AttachmentRow;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{StoredFiles, VerifyReport};

/// The folder could not be looked at: neither clean nor damaged.
const EXIT_NOT_VERIFIED: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The config file, where it says in which folder or bucket files are.
    #[arg(long, env = "HEADWATER_CONFIG")]
    config: Option<PathBuf>,
    /// The data folder [default: what the config file says, or headwater-data].
    #[arg(long, env = "HEADWATER_DATA_DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) async fn run(args: VerifyArgs) -> ExitCode {
    let (mut report, looked) = match verify_data(args).await {
        Ok(found) => found,
        Err(error) => {
            eprintln!("headwater: {error:#}");
            return ExitCode::from(EXIT_NOT_VERIFIED);
        }
    };
    let mut unseen = false;
    match looked {
        FilesCheck::Checked { files, orphaned: left, problems } => {
            print_line(format_args!("{files} files"));
            if left > 0 {
                print_line(format_args!("{left} of them belong to no thread: the next start removes them"));
            }
            problems.into_iter().for_each(|problem| report.add_problem(problem));
        }
        // There are some, so that nobody can say that they are whole.
        FilesCheck::LocationUnknown(why) => {
            print_line(format_args!("files were not looked at: {why}"));
            unseen = true;
        }
        FilesCheck::Failed(error) => {
            eprintln!("headwater: files were not looked at: {error:#}");
            unseen = true;
        }
    }
    print_line(report.to_string().trim_end());
    match report.is_clean() {
        true if unseen => ExitCode::from(EXIT_NOT_VERIFIED),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What was seen of files.
enum FilesCheck {
    /// Everything: how many there are, how many of them a crash left behind, and what is wrong with them.
    Checked { files: usize, orphaned: usize, problems: Vec<String> },
    /// Nothing, because nobody says where they are.
    LocationUnknown(String),
    /// Nothing, because it was not possible.
    Failed(anyhow::Error),
}

async fn verify_data(args: VerifyArgs) -> anyhow::Result<(VerifyReport, FilesCheck)> {
    let at = VerifyTarget::new(args)?;
    let report = store::verify_data_folder(&at.data_dir)?;
    // A database that is damaged has been reported on; what it says of files is then worth nothing.
    let looked = match store::list_stored_files(&at.data_dir) {
        Ok(stored) => check_files(&at, &stored).await.unwrap_or_else(FilesCheck::Failed),
        Err(error) => FilesCheck::Failed(error.into()),
    };
    Ok((report, looked))
}

async fn check_files(at: &VerifyTarget, stored: &StoredFiles) -> anyhow::Result<FilesCheck> {
    let depot = match &at.location {
        // Opening it would make it.
        StorageLocation::Folder(folder) if !folder.is_dir() => {
            if !at.is_configured && !stored.committed.is_empty() {
                let why = format!("there is no folder {}; name the config file with --config", folder.display());
                return Ok(FilesCheck::LocationUnknown(why));
            }
            None
        }
        place => Some(FileStore::open(place, &at.env_vars)?),
    };
    let all = match &depot {
        Some(depot) => depot.list().await?,
        None => Vec::new(),
    };
    let problems = FileAudit::new(all).compare_with_rows(depot.as_ref(), stored).await?;
    Ok(FilesCheck::Checked { files: stored.committed.len(), orphaned: stored.unlinked, problems })
}

/// Where everything is.
struct VerifyTarget {
    data_dir: PathBuf,
    location: StorageLocation,
    /// Does a config file say where files are, or that they are where they are unless it is said?
    is_configured: bool,
    env_vars: Vec<(String, String)>,
}

impl VerifyTarget {
    fn new(args: VerifyArgs) -> anyhow::Result<Self> {
        let Some(file) = args.config else {
            let data_dir = args.data_dir.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR));
            return Ok(Self {
                location: default_location(&data_dir),
                data_dir,
                is_configured: false,
                env_vars: Vec::new(),
            });
        };
        let environment: Option<fn(&str) -> _> = Some(config::read_env);
        let overrides = Overrides { data_dir: args.data_dir, env: environment, ..Overrides::default() };
        let Config { data_dir, files, .. } = config::load_config(Some(&file), overrides)?;
        let place = files.location.unwrap_or_else(|| default_location(&data_dir));
        Ok(Self { data_dir, location: place, is_configured: true, env_vars: files.env_vars })
    }
}

/// What is in the place of files, held against the rows that tell of it.
struct FileAudit {
    found: HashMap<String, u64>,
    /// What has come so far of files.
    partial_uploads: Vec<String>,
    problems: Vec<String>,
}

impl FileAudit {
    fn new(all: Vec<ListedFile>) -> Self {
        let mut look = Self { found: HashMap::new(), partial_uploads: Vec::new(), problems: Vec::new() };
        for ListedFile { name, bytes, kind: what } in all {
            match what {
                ListedFileKind::File => drop(look.found.insert(name, bytes)),
                ListedFileKind::PartialUpload => look.partial_uploads.push(name),
                ListedFileKind::Other => look.problems.push(format!("{name}, where files are, is not one")),
            }
        }
        look
    }

    async fn compare_with_rows(
        mut self,
        depot: Option<&FileStore>,
        stored: &StoredFiles,
    ) -> Result<Vec<String>, FileStoreError> {
        for (owner, row) in &stored.committed {
            if let Some(problem) = self.check_file(depot, owner, row).await? {
                self.problems.push(problem);
            }
        }
        // What is on its way, or on its way out, may be there or not.
        let unfinished: HashSet<&str> = stored.stale.iter().map(|(_, path)| path.as_str()).collect();
        let strays =
            self.found.into_keys().chain(self.partial_uploads).filter(|name| !unfinished.contains(name.as_str()));
        let mut strays: Vec<String> = strays.map(|name| format!("nothing tells of the file {name}")).collect();
        strays.sort();
        self.problems.extend(strays);
        Ok(self.problems)
    }

    /// What is wrong with a file that a row tells of.
    async fn check_file(
        &mut self,
        depot: Option<&FileStore>,
        owner: &UserId,
        row: &AttachmentRow,
    ) -> Result<Option<String>, FileStoreError> {
        let path = &row.path;
        let Some(bytes) = self.found.remove(path) else {
            return Ok(Some(format!("the file {path} is not there")));
        };
        let Some(key) = FileKey::parse_stored(path).ok().filter(|key| key.owner() == owner) else {
            return Ok(Some(format!("the file {path} has a name that no file of {owner} has")));
        };
        if bytes != row.size_bytes {
            return Ok(Some(format!("the file {path} has {bytes} bytes, and not {}", row.size_bytes)));
        }
        let (Some(hash), Some(depot)) = (&row.hash, depot) else { return Ok(None) };
        let is_it = file_digest(depot, &key).await? == *hash;
        Ok((!is_it).then(|| format!("the bytes of the blob {path} are not those of {hash}")))
    }
}

async fn file_digest(depot: &FileStore, key: &FileKey) -> Result<String, FileStoreError> {
    let reading = depot.read(key, None).await?;
    let hashing = reading.stream.try_fold(Sha256::new(), async |hasher, piece| Ok(hasher.chain_update(&piece)));
    Ok(encode_hex(&hashing.await?.finalize()))
}
