//! Reads PDFs in a separate process.
//!
//! A few kilobytes of PDF can ask for gigabytes of memory, endless computation or a huge stack. Limits inside a process
//! catch most of that; resource limits of a separate process catch all of it. [`PdfProcess`] starts such a process,
//! [`run_pdf_process`] runs in it: the file comes in on stdin, the text goes out on stdout after one byte of status.

use crate::error::FetchError;
use crate::pdf::{self, PdfLimits};
use crate::plain_text::ExtractedText;
use rustix::process::{Resource, Rlimit, getpriority_process, setpriority_process, setrlimit};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Address space.
const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// For the scheduler the process counts a tenth of the server.
const ADDED_NICENESS: i32 = 10;
const NICENESS_MAX: i32 = 19;
/// CPU time; the parent's time-out is shorter.
const CPU_SECONDS_MAX: u64 = 20;
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

const COMPLETE: u8 = b'w';
const TRUNCATED: u8 = b't';

/// The command of a process that calls [`run_pdf_process`].
#[derive(Clone, Debug)]
pub struct PdfProcess {
    pub program: PathBuf,
    /// Followed by the arguments of [`run_pdf_process`], with the time in milliseconds.
    pub args: Vec<OsString>,
    pub memory_bytes_max: u64,
}

impl PdfProcess {
    /// With enough memory for the largest legitimate file.
    pub fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Self { program, args, memory_bytes_max: MEMORY_BYTES_MAX }
    }

    /// Dropping the future kills the process.
    pub(crate) async fn extract_text(
        &self,
        bytes: &[u8],
        text_bytes_max: usize,
        time_max: Duration,
    ) -> Result<ExtractedText, FetchError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear();
        command.arg(text_bytes_max.to_string()).arg(self.memory_bytes_max.to_string());
        // The process stops before the time-out, so that its text so far is not lost.
        command.arg((time_max * 3 / 4).as_millis().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|_| FetchError::Unreadable)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(FetchError::Unreadable);
        };
        let write_input = async move {
            // A process that has seen enough exits early; its output says why.
            let _ = stdin.write_all(bytes).await;
        };
        let mut output = Vec::new();
        let output_bytes_max = u64::try_from(text_bytes_max).unwrap_or(u64::MAX).saturating_add(1);
        let mut stdout = stdout.take(output_bytes_max);
        let ((), read) = tokio::join!(write_input, stdout.read_to_end(&mut output));
        read.map_err(|_| FetchError::Unreadable)?;
        let status = child.wait().await.map_err(|_| FetchError::Unreadable)?;
        match output.split_first() {
            Some((status_byte @ (&COMPLETE | &TRUNCATED), text)) if status.success() => {
                let text = String::from_utf8(text.to_vec()).map_err(|_| FetchError::Unreadable)?;
                Ok(ExtractedText { text, truncated: *status_byte == TRUNCATED })
            }
            _ => Err(FetchError::Unreadable),
        }
    }
}

/// Runs in the separate process: sets limits, reads the file, writes the text.
pub fn run_pdf_process(text_bytes_max: usize, memory_bytes_max: u64, time_max: Duration) -> ExitCode {
    let limit = |resource, max| setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) });
    let limits = [(Resource::As, memory_bytes_max), (Resource::Cpu, CPU_SECONDS_MAX), (Resource::Core, 0)];
    if limits.into_iter().any(|(resource, max)| limit(resource, max).is_err()) {
        return ExitCode::FAILURE;
    }
    // Reading can wait; what the server does for others cannot. Without the right to it, it is only less fair.
    let _fairness = getpriority_process(None)
        .and_then(|niceness| setpriority_process(None, niceness.saturating_add(ADDED_NICENESS).min(NICENESS_MAX)));
    let mut bytes = Vec::new();
    if std::io::stdin().take(FILE_BYTES_MAX).read_to_end(&mut bytes).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok(extracted) = pdf::extract_pdf_text(&bytes, &PdfLimits::new(text_bytes_max, time_max)) else {
        return ExitCode::FAILURE;
    };
    let mut stdout = std::io::stdout().lock();
    let status_byte = if extracted.truncated { TRUNCATED } else { COMPLETE };
    let written = stdout.write_all(&[status_byte]).and_then(|()| stdout.write_all(extracted.text.as_bytes()));
    if written.and_then(|()| stdout.flush()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
