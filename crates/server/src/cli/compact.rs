//! `headwater compact`: rewrites the database of a data folder without its free space.

use super::config_args::{DataDirArgs, DataPlace};
use super::print_line;
use anyhow::bail;
use clap::Args;
use std::process::ExitCode;
use store::{CompactReport, DiskSpaceProbe};

const MIB: f64 = 1024.0 * 1024.0;

#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    folder: DataDirArgs,
}

pub(crate) fn run(args: CompactArgs) -> anyhow::Result<ExitCode> {
    let path = match args.folder.resolve()? {
        DataPlace::Folder { path, .. } => path,
        DataPlace::Database(place) => bail!(
            "the data is in the database at {}, and `headwater compact` is for data folders: PostgreSQL's VACUUM does that for \
             a database",
            place.url.place()
        ),
    };
    if !path.exists() {
        bail!("the data folder {} does not exist", path.display());
    }
    let CompactReport { bytes_before, bytes_after } = store::compact_data_folder(&path, &DiskSpaceProbe::default())?;
    print_line(format_args!("before: {bytes_before} bytes ({:.1} MiB)", mebibytes(bytes_before)));
    print_line(format_args!("after: {bytes_after} bytes ({:.1} MiB)", mebibytes(bytes_after)));
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
const fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
