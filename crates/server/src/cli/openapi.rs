//! `headwater openapi`: prints what the server sends at `/openapi.json`.

use super::print_text;
use crate::router::openapi_json;
use std::process::ExitCode;

pub(crate) fn run() -> ExitCode {
    // A closed pipe is not an error.
    let _closed = print_text(openapi_json());
    ExitCode::SUCCESS
}
