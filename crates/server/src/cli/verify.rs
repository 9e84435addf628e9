//! `headwater verify`: looks through a data folder, and through the place of its files, and lists all damage. It writes
//! nothing.

use super::say;
use crate::config::{self, Config, DATA_DIR, Overrides};
use crate::files::folder;
use crate::hex::hex;
use clap::Args;
use files::{FileKey, FileStore, FileStoreError, ListedFile, ListedFileKind, StorageLocation};
use futures_util::TryStreamExt as _;
use model::UserId;
use model::ports::AttachmentRow;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;
use store::{StoredFiles, VerifyReport};

/// The folder could not be looked at: neither clean nor damaged.
const COULD_NOT_LOOK: u8 = 2;

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
    let (mut report, looked) = match look(args).await {
        Ok(found) => found,
        Err(error) => {
            eprintln!("headwater: {error:#}");
            return ExitCode::from(COULD_NOT_LOOK);
        }
    };
    let mut unseen = false;
    match looked {
        Looked::All { files, left, problems } => {
            say(format_args!("{files} files"));
            if left > 0 {
                say(format_args!("{left} of them belong to no thread: the next start removes them"));
            }
            problems.into_iter().for_each(|problem| report.add_problem(problem));
        }
        // There are some, so that nobody can say that they are whole.
        Looked::Nowhere(why) => {
            say(format_args!("files were not looked at: {why}"));
            unseen = true;
        }
        Looked::Failed(error) => {
            eprintln!("headwater: files were not looked at: {error:#}");
            unseen = true;
        }
    }
    say(report.to_string().trim_end());
    match report.is_clean() {
        true if unseen => ExitCode::from(COULD_NOT_LOOK),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// What was seen of files.
enum Looked {
    /// Everything: how many there are, how many of them a crash left behind, and what is wrong with them.
    All { files: usize, left: usize, problems: Vec<String> },
    /// Nothing, because nobody says where they are.
    Nowhere(String),
    /// Nothing, because it was not possible.
    Failed(anyhow::Error),
}

async fn look(args: VerifyArgs) -> anyhow::Result<(VerifyReport, Looked)> {
    let at = Whereabouts::new(args)?;
    let report = store::verify_data_folder(&at.data_dir)?;
    // A database that is damaged has been reported on; what it says of files is then worth nothing.
    let looked = match store::list_stored_files(&at.data_dir) {
        Ok(stored) => look_at_files(&at, &stored).await.unwrap_or_else(Looked::Failed),
        Err(error) => Looked::Failed(error.into()),
    };
    Ok((report, looked))
}

async fn look_at_files(at: &Whereabouts, stored: &StoredFiles) -> anyhow::Result<Looked> {
    let depot = match &at.place {
        // Opening it would make it.
        StorageLocation::Folder(folder) if !folder.is_dir() => {
            if !at.is_told && !stored.committed.is_empty() {
                let why = format!("there is no folder {}; name the config file with --config", folder.display());
                return Ok(Looked::Nowhere(why));
            }
            None
        }
        place => Some(FileStore::open(place, &at.variables)?),
    };
    let all = match &depot {
        Some(depot) => depot.list().await?,
        None => Vec::new(),
    };
    let problems = Look::new(all).hold_against(depot.as_ref(), stored).await?;
    Ok(Looked::All { files: stored.committed.len(), left: stored.unlinked, problems })
}

/// Where everything is.
struct Whereabouts {
    data_dir: PathBuf,
    place: StorageLocation,
    /// Does a config file say where files are, or that they are where they are unless it is said?
    is_told: bool,
    variables: Vec<(String, String)>,
}

impl Whereabouts {
    fn new(args: VerifyArgs) -> anyhow::Result<Self> {
        let Some(file) = args.config else {
            let data_dir = args.data_dir.unwrap_or_else(|| PathBuf::from(DATA_DIR));
            return Ok(Self { place: folder(&data_dir), data_dir, is_told: false, variables: Vec::new() });
        };
        let environment: Option<fn(&str) -> _> = Some(config::environment);
        let overrides = Overrides { data_dir: args.data_dir, environment, ..Overrides::default() };
        let Config { data_dir, files, .. } = config::load(Some(&file), overrides)?;
        let place = files.place.unwrap_or_else(|| folder(&data_dir));
        Ok(Self { data_dir, place, is_told: true, variables: files.variables })
    }
}

/// What is in the place of files, held against the rows that tell of it.
struct Look {
    found: HashMap<String, u64>,
    /// What has come so far of files.
    parts: Vec<String>,
    problems: Vec<String>,
}

impl Look {
    fn new(all: Vec<ListedFile>) -> Self {
        let mut look = Self { found: HashMap::new(), parts: Vec::new(), problems: Vec::new() };
        for ListedFile { name, bytes, kind: what } in all {
            match what {
                ListedFileKind::File => drop(look.found.insert(name, bytes)),
                ListedFileKind::PartialUpload => look.parts.push(name),
                ListedFileKind::Other => look.problems.push(format!("{name}, where files are, is not one")),
            }
        }
        look
    }

    async fn hold_against(
        mut self,
        depot: Option<&FileStore>,
        stored: &StoredFiles,
    ) -> Result<Vec<String>, FileStoreError> {
        for (owner, row) in &stored.committed {
            if let Some(problem) = self.file(depot, owner, row).await? {
                self.problems.push(problem);
            }
        }
        // What is on its way, or on its way out, may be there or not.
        let unfinished: HashSet<&str> = stored.stale.iter().map(|(_, path)| path.as_str()).collect();
        let strays = self.found.into_keys().chain(self.parts).filter(|name| !unfinished.contains(name.as_str()));
        let mut strays: Vec<String> = strays.map(|name| format!("nothing tells of the file {name}")).collect();
        strays.sort();
        self.problems.extend(strays);
        Ok(self.problems)
    }

    /// What is wrong with a file that a row tells of.
    async fn file(
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
        let is_it = digest(depot, &key).await? == *hash;
        Ok((!is_it).then(|| format!("the bytes of the blob {path} are not those of {hash}")))
    }
}

async fn digest(depot: &FileStore, key: &FileKey) -> Result<String, FileStoreError> {
    let reading = depot.read(key, None).await?;
    let hashing = reading.stream.try_fold(Sha256::new(), async |hasher, piece| Ok(hasher.chain_update(&piece)));
    Ok(hex(&hashing.await?.finalize()))
}
