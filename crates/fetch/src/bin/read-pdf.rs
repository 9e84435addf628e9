//! Reads a PDF from stdin and writes its text: `fetch::pdf_process` as a program, for tests and experiments.

use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let text_bytes_max = arguments.next().and_then(|most| most.parse().ok());
    let memory_bytes_max = arguments.next().and_then(|most| most.parse().ok());
    let time_ms_max = arguments.next().and_then(|most| most.parse().ok());
    let time_max = Duration::from_millis(time_ms_max.unwrap_or(10_000));
    fetch::pdf_process::run_pdf_process(
        text_bytes_max.unwrap_or(1 << 20),
        memory_bytes_max.unwrap_or(1 << 30),
        time_max,
    )
}
