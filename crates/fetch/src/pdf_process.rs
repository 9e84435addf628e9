//! Reading a PDF in a process of its own.
//!
//! A PDF is a program in all but name: a few kilobytes can ask for gigabytes of memory, for ever, or for a stack that does
//! not exist. Limits inside a process catch most of that; a process with limits catches all of it. [`Apart`] starts such a
//! process and [`serve`] is what runs in it: the file comes in on stdin, its text goes out on stdout after one letter that
//! says what it is.

use crate::FetchError;
use crate::document_text::pdf;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// Address space of the process, unless somebody knows better.
const MEMORY_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Processor time of the process. Whoever started it is less patient.
const CPU_SECONDS_MAX: u64 = 20;
/// Larger files are not even read.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

const WHOLE: u8 = b'w';
const TRUNCATED: u8 = b't';

/// How such a process is started: a program that calls [`serve`].
#[derive(Clone, Debug)]
pub struct PdfProcess {
    /// The program.
    pub program: PathBuf,
    /// What it is told first. Then come the arguments of [`serve`], the time in milliseconds.
    pub args: Vec<OsString>,
    /// The most memory that it may have.
    pub memory_bytes_max: u64,
}

impl PdfProcess {
    /// With as much memory as the largest honest file needs.
    #[must_use]
    pub fn new(program: PathBuf, arguments: Vec<OsString>) -> Self {
        Self { program, args: arguments, memory_bytes_max: MEMORY_BYTES_MAX }
    }

    /// Reads a PDF. Dropping the future ends the process.
    pub(crate) async fn extract_text(
        &self,
        bytes: &[u8],
        text_bytes_max: usize,
        time_max: Duration,
    ) -> Result<(String, bool), FetchError> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear();
        command.arg(text_bytes_max.to_string()).arg(self.memory_bytes_max.to_string());
        // It ends by itself while somebody still waits: what it has read by then is worth something.
        command.arg((time_max * 3 / 4).as_millis().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|_| FetchError::Unreadable)?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(FetchError::Unreadable);
        };
        let give = async move {
            // A process that has seen enough goes away, and its answer says why.
            let _ = stdin.write_all(bytes).await;
        };
        let mut answer = Vec::new();
        let answer_bytes_max = u64::try_from(text_bytes_max).unwrap_or(u64::MAX).saturating_add(1);
        let mut stdout = stdout.take(answer_bytes_max);
        let ((), taken) = tokio::join!(give, stdout.read_to_end(&mut answer));
        taken.map_err(|_| FetchError::Unreadable)?;
        let status = child.wait().await.map_err(|_| FetchError::Unreadable)?;
        match answer.split_first() {
            Some((letter @ (&WHOLE | &TRUNCATED), text)) if status.success() => {
                let text = String::from_utf8(text.to_vec()).map_err(|_| FetchError::Unreadable)?;
                Ok((text, *letter == TRUNCATED))
            }
            _ => Err(FetchError::Unreadable),
        }
    }
}

/// Runs in that process: limits it, reads the file, writes the text.
#[must_use]
pub fn run_pdf_process(text_bytes_max: usize, memory_bytes_max: u64, time_max: Duration) -> ExitCode {
    let limit = |resource, most| setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    let limited = [(Resource::As, memory_bytes_max), (Resource::Cpu, CPU_SECONDS_MAX), (Resource::Core, 0)];
    if limited.into_iter().any(|(resource, most)| limit(resource, most).is_err()) {
        return ExitCode::FAILURE;
    }
    let mut bytes = Vec::new();
    if std::io::stdin().take(FILE_BYTES_MAX).read_to_end(&mut bytes).is_err() {
        return ExitCode::FAILURE;
    }
    let Ok((text, truncated)) = pdf::extract_pdf_text(&bytes, &pdf::PdfLimits::new(text_bytes_max, time_max)) else {
        return ExitCode::FAILURE;
    };
    let mut stdout = std::io::stdout().lock();
    let letter = if truncated { TRUNCATED } else { WHOLE };
    let written = stdout.write_all(&[letter]).and_then(|()| stdout.write_all(text.as_bytes()));
    if written.and_then(|()| stdout.flush()).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
