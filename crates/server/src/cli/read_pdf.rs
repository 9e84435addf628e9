//! `headwater read-pdf`: what the server starts to read a PDF (`fetch::apart`). Not for people, so no help names it.

use clap::Args;
use fetch::pdf_process::{self, PdfProcess};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub(super) const COMMAND_NAME: &str = "read-pdf";
/// This program, also when somebody has put a newer one in its place.
const SELF_EXE: &str = "/proc/self/exe";

/// What [`Apart`] says.
#[derive(Debug, Args)]
pub(crate) struct ReadPdfArgs {
    text_bytes_max: usize,
    memory_bytes_max: u64,
    time_ms_max: u64,
}

pub(crate) fn run(args: &ReadPdfArgs) -> ExitCode {
    pdf_process::run_pdf_process(args.text_bytes_max, args.memory_bytes_max, Duration::from_millis(args.time_ms_max))
}

/// How such a process is started.
pub(crate) fn pdf_process() -> std::io::Result<PdfProcess> {
    let ourselves = Path::new(SELF_EXE);
    let program = if ourselves.exists() { ourselves.to_owned() } else { std::env::current_exe()? };
    Ok(PdfProcess::new(program, vec![COMMAND_NAME.into()]))
}
