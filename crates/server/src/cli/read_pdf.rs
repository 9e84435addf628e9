//! `headwater read-pdf`: the process in which the server reads a PDF (`fetch::pdf_process`). Hidden from the help.

use clap::Args;
use fetch::pdf_process::{self, PdfProcess};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub(super) const COMMAND_NAME: &str = "read-pdf";
/// This binary, even if the file has been replaced since.
const SELF_EXE: &str = "/proc/self/exe";

#[derive(Debug, Args)]
pub(crate) struct ReadPdfArgs {
    text_bytes_max: usize,
    memory_bytes_max: u64,
    time_ms_max: u64,
}

pub(crate) fn run(args: &ReadPdfArgs) -> ExitCode {
    pdf_process::run_pdf_process(args.text_bytes_max, args.memory_bytes_max, Duration::from_millis(args.time_ms_max))
}

pub(crate) fn pdf_process() -> std::io::Result<PdfProcess> {
    Ok(PdfProcess::new(own_program()?, vec![COMMAND_NAME.into()]))
}

pub(super) fn own_program() -> std::io::Result<PathBuf> {
    let own_exe = Path::new(SELF_EXE);
    if own_exe.exists() { Ok(own_exe.to_owned()) } else { std::env::current_exe() }
}
