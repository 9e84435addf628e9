//! `headwater import`: copies a data folder into a database.

use super::config_args::{DataDirArgs, announce_config};
use super::print_line;
use crate::config::{self, StorageConfig};
use crate::storage::{SIGNING_KEY_FILE, SIGNING_KEY_SECRET};
use anyhow::{Context as _, bail};
use clap::Args;
use files::UrlSigner;
use gateway::attachments::FILES_DIR;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use store::{ImportProgress, ImportReport, ImportedSecret};

#[derive(Debug, Args)]
#[command(
    after_help = "Needs a database (--database-url, or [database] in the config file) without data. Cursors, keys, shares and \
    signed URLs stay valid. Files are not copied: [files] url has to name a place that has them and that all servers reach."
)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    folder: DataDirArgs,
}

pub(crate) async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let DataDirArgs { config, data_dir, database } = args.folder;
    let source = config.find()?;
    let StorageConfig { data_dir, database, files, .. } =
        config::load_storage_config(&source, data_dir.path, database.database_url)?;
    announce_config(&source);
    let Some(database) = database else {
        bail!("no database to import into: name it with --database-url, or in [database] of the config file");
    };
    if !data_dir.exists() {
        bail!("the data folder {} does not exist", data_dir.display());
    }
    let secrets = read_signing_key(&data_dir)?.into_iter().collect();
    let mut line = ProgressLine::new();
    let imported =
        store::import_data_folder(&data_dir, &database.url, secrets, |progress| line.show(&describe(progress))).await;
    line.clear();
    let ImportReport { threads, runs, records, files: file_count } = imported?;
    print_line(format_args!("imported {threads} threads, {runs} runs, {records} records"));
    if file_count > 0 && files.location.is_none() {
        eprintln!(
            "headwater: {file_count} files stay in {}: copy them to a bucket or a shared folder that all servers reach, and \
             name it in [files] url before you start one",
            data_dir.join(FILES_DIR).display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// The key of signed URLs. A folder whose server has never started has none.
fn read_signing_key(data_dir: &Path) -> anyhow::Result<Option<ImportedSecret>> {
    let path = data_dir.join(SIGNING_KEY_FILE);
    let value = match std::fs::read(&path) {
        Ok(value) => value,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    if UrlSigner::from_key(&value).is_none() {
        bail!("{} is not a key: remove it, which invalidates all signed URLs, and import again", path.display());
    }
    Ok(Some(ImportedSecret { name: SIGNING_KEY_SECRET.to_owned(), value }))
}

fn describe(progress: ImportProgress) -> String {
    match progress {
        ImportProgress::Checking => "checking the folder".to_owned(),
        ImportProgress::Copying { report: ImportReport { threads, records, .. }, threads_total } => {
            format!("copying: {threads} of {threads_total} threads, {records} records")
        }
    }
}

/// One line on stderr that changes, if somebody sees it.
struct ProgressLine {
    is_terminal: bool,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal() }
    }

    fn show(&mut self, text: &str) {
        if self.is_terminal {
            let mut stderr = io::stderr().lock();
            // A line that cannot be shown is no reason to stop.
            let _hidden = write!(stderr, "\r\u{1b}[K{text}").and_then(|()| stderr.flush());
        }
    }

    fn clear(&mut self) {
        self.show("");
    }
}
