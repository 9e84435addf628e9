//! `headwater verify`: checks a data folder or a database and the storage of its files, and lists all damage. Writes nothing.

mod file_audit;

use super::config_args::{DataDirArgs, announce_config};
use super::{TextColor, paint, print_line};
use crate::archive::find_archive;
use crate::config::{self, DatabaseConfig, StorageConfig};
use anyhow::bail;
use clap::Args;
use file_audit::{FileAudit, FileProblem};
use files::{FileStore, StorageLocation};
use gateway::attachments::default_location;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{PostgresClient, StoredFiles, VerifyReport};

/// The check failed: neither clean nor damaged.
const EXIT_NOT_VERIFIED: u8 = 2;
/// How often files are compared with the rows of a database. Servers may upload and delete files between two looks, but not the
/// same file each time.
const DATABASE_FILE_CHECKS: usize = 3;

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
        FilesCheck::Checked { files, orphaned, orphan_note, .. } => {
            print_line(format_args!("{files} files"));
            if *orphaned > 0 {
                print_line(format_args!("{orphaned} of them belong to no thread{orphan_note}"));
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
    /// `orphaned` files were left behind by a crash, or are of a request that is being received.
    Checked {
        files: usize,
        orphaned: usize,
        orphan_note: &'static str,
        problems: Vec<String>,
    },
    LocationUnknown(String),
    Failed(anyhow::Error),
}

async fn verify_data(args: VerifyArgs) -> anyhow::Result<(VerifyReport, FilesCheck)> {
    let target = VerifyTarget::new(args)?;
    let (report, rows) = match &target.data {
        VerifiedData::Folder(dir) => (store::verify_data_folder(dir)?, FileRows::Folder(dir)),
        VerifiedData::Database(database) => {
            let archive = find_archive(database.archive.as_ref())?;
            let client = PostgresClient::open_for_reading(&database.url).await?;
            let client = client.with_archive(archive.as_ref()).await?;
            (client.verify().await?, FileRows::Database(client))
        }
    };
    // The damage of a database has been reported; its rows of files are then unreliable.
    let files_check = check_files(&target, &rows).await.unwrap_or_else(FilesCheck::Failed);
    Ok((report, files_check))
}

/// Where the rows of files are.
enum FileRows<'a> {
    Folder(&'a Path),
    Database(PostgresClient),
}

impl FileRows<'_> {
    async fn list(&self) -> anyhow::Result<StoredFiles> {
        Ok(match self {
            Self::Folder(dir) => store::list_stored_files(dir)?,
            Self::Database(client) => client.stored_files().await?,
        })
    }

    /// What becomes of files without a thread.
    const fn orphan_note(&self) -> &'static str {
        match self {
            Self::Folder(_) => ": the next start removes them",
            Self::Database(_) => " yet",
        }
    }

    const fn checks_max(&self) -> usize {
        match self {
            Self::Folder(_) => 1,
            Self::Database(_) => DATABASE_FILE_CHECKS,
        }
    }
}

async fn check_files(target: &VerifyTarget, rows: &FileRows<'_>) -> anyhow::Result<FilesCheck> {
    let stored = rows.list().await?;
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
    let mut problems = audit_files(file_store.as_ref(), &stored, None).await?;
    for _ in 1..rows.checks_max() {
        if problems.is_empty() {
            break;
        }
        let suspects = problems.into_iter().map(|problem| problem.path).collect();
        problems = audit_files(file_store.as_ref(), &rows.list().await?, Some(&suspects)).await?;
    }
    let problems = problems.into_iter().map(|problem| problem.text).collect();
    let (files, orphaned, orphan_note) = (stored.committed.len(), stored.unlinked, rows.orphan_note());
    Ok(FilesCheck::Checked { files, orphaned, orphan_note, problems })
}

/// Compares the storage with the rows: all of them, or only the files with these paths.
async fn audit_files(
    file_store: Option<&FileStore>,
    stored: &StoredFiles,
    suspects: Option<&HashSet<String>>,
) -> anyhow::Result<Vec<FileProblem>> {
    let mut all = match file_store {
        Some(file_store) => file_store.list().await?,
        None => Vec::new(),
    };
    let Some(suspects) = suspects else { return Ok(FileAudit::new(all).compare_with_rows(file_store, stored).await?) };
    all.retain(|file| suspects.contains(&file.name));
    let committed = stored.committed.iter().filter(|(_, row)| suspects.contains(&row.path)).cloned().collect();
    let stored = StoredFiles { committed, stale: stored.stale.clone(), unlinked: 0 };
    Ok(FileAudit::new(all).compare_with_rows(file_store, &stored).await?)
}

enum VerifiedData {
    Folder(PathBuf),
    Database(Box<DatabaseConfig>),
}

struct VerifyTarget {
    data: VerifiedData,
    location: StorageLocation,
    /// Whether a config file was found: then a missing folder of files is damage.
    is_configured: bool,
    env_vars: Vec<(String, String)>,
}

impl VerifyTarget {
    /// The config also tells where the files are, so it is read even if the command line names the folder.
    fn new(args: VerifyArgs) -> anyhow::Result<Self> {
        let DataDirArgs { config, data_dir, database } = args.folder;
        let check_exists = |dir: &Path| match dir.exists() {
            true => Ok(()),
            false => bail!("the data folder {} does not exist", dir.display()),
        };
        let is_folder = data_dir.is_flag && database.database_url.is_none();
        data_dir.path.as_deref().filter(|_| is_folder).map_or(Ok(()), check_exists)?;
        let source = config.find()?;
        let StorageConfig { data_dir, database, files, .. } =
            config::load_storage_config(&source, data_dir.path, database.database_url)?;
        announce_config(&source);
        let location = files.location.unwrap_or_else(|| default_location(&data_dir));
        let data = match database.filter(|_| !is_folder) {
            Some(database) => VerifiedData::Database(Box::new(database)),
            None => {
                check_exists(&data_dir)?;
                VerifiedData::Folder(data_dir)
            }
        };
        Ok(Self { data, location, is_configured: !source.is_demo(), env_vars: files.env_vars })
    }
}
