//! `headwater openapi`: prints what the server sends at `/openapi.json`.

use super::print_text;
use crate::routes::page::OPENAPI_JSON;
use std::process::ExitCode;

pub(crate) fn run() -> ExitCode {
    // A closed pipe is not an error.
    let _closed = print_text(OPENAPI_JSON);
    ExitCode::SUCCESS
}
