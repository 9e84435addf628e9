//! `headwater verify`: looks through a data folder and lists all damage. It writes nothing.

use super::{DataDir, say};
use std::process::ExitCode;

/// The folder could not be looked at: neither clean nor damaged.
const COULD_NOT_LOOK: u8 = 2;

pub(crate) fn run(args: &DataDir) -> ExitCode {
    match store::verify(&args.data_dir) {
        Ok(report) => {
            say(report.to_string().trim_end());
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("headwater: {error}");
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}
