//! `headwater verify`: checks a data folder and the storage of its files, and lists all damage. Writes nothing.

use super::config_args::{DataDirArgs, announce_config};
use super::{TextColor, paint, print_line};
use crate::config::{self, StorageConfig};
use anyhow::bail;
use clap::Args;
use files::{FileKey, FileStore, FileStoreError, ListedFile, ListedFileKind, StorageLocation};
use futures_util::TryStreamExt as _;
use gateway::attachments::default_location;
use gateway::secret_token::encode_hex;
use model::UserId;
use model::ports::AttachmentRow;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{StoredFiles, VerifyReport};

/// The check failed: neither clean nor damaged.
const EXIT_NOT_VERIFIED: u8 = 2;

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    folder: DataDirArgs,
    /// Print the report as one JSON object.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: VerifyArgs) -> ExitCode {
    let as_json = args.json;
    let (mut report, mut files_check) = match verify_data(args).await {
        Ok(checked) => checked,
        Err(error) => {
            eprintln!("headwater: {error:#}");
            return ExitCode::from(EXIT_NOT_VERIFIED);
        }
    };
    if let FilesCheck::Checked { problems, .. } = &mut files_check {
        std::mem::take(problems).into_iter().for_each(|problem| report.add_problem(problem));
    }
    if as_json {
        print_line(json_report(&report, &files_check));
    } else {
        print_report(&report, &files_check);
    }
    match (report.is_clean(), files_check) {
        (true, FilesCheck::Checked { .. }) => ExitCode::SUCCESS,
        // There are files, and nobody can say whether they are intact.
        (true, _) => ExitCode::from(EXIT_NOT_VERIFIED),
        (false, _) => ExitCode::FAILURE,
    }
}

fn print_report(report: &VerifyReport, files_check: &FilesCheck) {
    match files_check {
        FilesCheck::Checked { files, orphaned, .. } => {
            print_line(format_args!("{files} files"));
            if *orphaned > 0 {
                print_line(format_args!("{orphaned} of them belong to no thread: the next start removes them"));
            }
        }
        FilesCheck::LocationUnknown(why) => print_line(format_args!("files were not checked: {why}")),
        FilesCheck::Failed(error) => eprintln!("headwater: files were not checked: {error:#}"),
    }
    let color = if report.is_clean() { TextColor::Green } else { TextColor::Red };
    report.to_string().lines().for_each(|line| print_line(paint(line, color)));
}

fn json_report(report: &VerifyReport, files_check: &FilesCheck) -> Value {
    let (files, orphaned, not_checked) = match files_check {
        FilesCheck::Checked { files, orphaned, .. } => (Some(files), Some(orphaned), None),
        FilesCheck::LocationUnknown(why) => (None, None, Some(why.clone())),
        FilesCheck::Failed(error) => (None, None, Some(format!("{error:#}"))),
    };
    json!({
        "clean": report.is_clean(),
        "threads": report.threads,
        "runs": report.runs,
        "records": report.records,
        "files": files,
        "orphaned_files": orphaned,
        "files_not_checked": not_checked,
        "problems": report.problems,
    })
}

enum FilesCheck {
    /// `orphaned` files were left behind by a crash.
    Checked {
        files: usize,
        orphaned: usize,
        problems: Vec<String>,
    },
    LocationUnknown(String),
    Failed(anyhow::Error),
}

async fn verify_data(args: VerifyArgs) -> anyhow::Result<(VerifyReport, FilesCheck)> {
    let target = VerifyTarget::new(args)?;
    let report = store::verify_data_folder(&target.data_dir)?;
    // The damage of a database has been reported; its rows of files are then unreliable.
    let files_check = match store::list_stored_files(&target.data_dir) {
        Ok(stored) => check_files(&target, &stored).await.unwrap_or_else(FilesCheck::Failed),
        Err(error) => FilesCheck::Failed(error.into()),
    };
    Ok((report, files_check))
}

async fn check_files(target: &VerifyTarget, stored: &StoredFiles) -> anyhow::Result<FilesCheck> {
    let file_store = match &target.location {
        // Opening would create it.
        StorageLocation::Folder(folder) if !folder.is_dir() => {
            if !target.is_configured && !stored.committed.is_empty() {
                let why = format!("the folder {} does not exist; pass the config file with --config", folder.display());
                return Ok(FilesCheck::LocationUnknown(why));
            }
            None
        }
        location => Some(FileStore::open(location, &target.env_vars)?),
    };
    let all = match &file_store {
        Some(file_store) => file_store.list().await?,
        None => Vec::new(),
    };
    let problems = FileAudit::new(all).compare_with_rows(file_store.as_ref(), stored).await?;
    Ok(FilesCheck::Checked { files: stored.committed.len(), orphaned: stored.unlinked, problems })
}

struct VerifyTarget {
    data_dir: PathBuf,
    location: StorageLocation,
    /// Whether a config file was found: then a missing folder of files is damage.
    is_configured: bool,
    env_vars: Vec<(String, String)>,
}

impl VerifyTarget {
    fn new(args: VerifyArgs) -> anyhow::Result<Self> {
        let DataDirArgs { config, data_dir } = args.folder;
        let check_exists = |dir: &Path| match dir.exists() {
            true => Ok(()),
            false => bail!("the data folder {} does not exist", dir.display()),
        };
        data_dir.as_deref().map_or(Ok(()), check_exists)?;
        let source = config.find()?;
        let StorageConfig { data_dir, files, .. } = config::load_storage_config(&source, data_dir)?;
        announce_config(&source);
        check_exists(&data_dir)?;
        let location = files.location.unwrap_or_else(|| default_location(&data_dir));
        Ok(Self { data_dir, location, is_configured: !source.is_demo(), env_vars: files.env_vars })
    }
}

/// Compares the storage of files with the rows of the database.
struct FileAudit {
    found: HashMap<String, u64>,
    partial_uploads: Vec<String>,
    problems: Vec<String>,
}

impl FileAudit {
    fn new(all: Vec<ListedFile>) -> Self {
        let mut audit = Self { found: HashMap::new(), partial_uploads: Vec::new(), problems: Vec::new() };
        for ListedFile { name, bytes, kind } in all {
            match kind {
                ListedFileKind::File => drop(audit.found.insert(name, bytes)),
                ListedFileKind::PartialUpload => audit.partial_uploads.push(name),
                ListedFileKind::Other => audit.problems.push(format!("{name} is not a file")),
            }
        }
        audit
    }

    async fn compare_with_rows(
        mut self,
        file_store: Option<&FileStore>,
        stored: &StoredFiles,
    ) -> Result<Vec<String>, FileStoreError> {
        for (owner, row) in &stored.committed {
            if let Some(problem) = self.check_file(file_store, owner, row).await? {
                self.problems.push(problem);
            }
        }
        // Uploads and deletions in progress may or may not have a file.
        let unfinished: HashSet<&str> = stored.stale.iter().map(|(_, path)| path.as_str()).collect();
        let unknown =
            self.found.into_keys().chain(self.partial_uploads).filter(|name| !unfinished.contains(name.as_str()));
        let mut unknown: Vec<String> = unknown.map(|name| format!("no row refers to the file {name}")).collect();
        unknown.sort();
        self.problems.extend(unknown);
        Ok(self.problems)
    }

    async fn check_file(
        &mut self,
        file_store: Option<&FileStore>,
        owner: &UserId,
        row: &AttachmentRow,
    ) -> Result<Option<String>, FileStoreError> {
        let path = &row.path;
        let Some(bytes) = self.found.remove(path) else {
            return Ok(Some(format!("the file {path} is missing")));
        };
        let Some(key) = FileKey::parse_stored(path).ok().filter(|key| key.owner() == owner) else {
            return Ok(Some(format!("the file {path} has a name that files of {owner} cannot have")));
        };
        if bytes != row.size_bytes {
            return Ok(Some(format!("the file {path} has {bytes} bytes instead of {}", row.size_bytes)));
        }
        let (Some(hash), Some(file_store)) = (&row.hash, file_store) else { return Ok(None) };
        let is_intact = file_digest(file_store, &key).await? == *hash;
        Ok((!is_intact).then(|| format!("the content of the blob {path} does not match {hash}")))
    }
}

async fn file_digest(file_store: &FileStore, key: &FileKey) -> Result<String, FileStoreError> {
    let reading = file_store.read(key, None).await?;
    let hashing = reading.stream.try_fold(Sha256::new(), async |hasher, piece| Ok(hasher.chain_update(&piece)));
    Ok(encode_hex(&hashing.await?.finalize()))
}
