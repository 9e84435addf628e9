//! `headwater openapi`: the document that the server answers under `/openapi.json`.

use crate::routes::page::OPENAPI_JSON;
use std::io::Write as _;
use std::process::ExitCode;

pub(crate) fn run() -> ExitCode {
    // A reader that closes the pipe has had enough, which is no failure of ours.
    let _closed = std::io::stdout().write_all(OPENAPI_JSON.as_bytes());
    ExitCode::SUCCESS
}
