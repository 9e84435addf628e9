//! Runs a command beside a PostgreSQL server: `with_postgres COMMAND [ARGUMENTS]`. The command finds the server's URL in
//! HEADWATER_TEST_POSTGRES_URL.

#![expect(clippy::panic, reason = "how a program for tests says that it cannot run")]

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { panic!("no command: with_postgres COMMAND [ARGUMENTS]") };
    let server = postgres_testing::shared();
    let status = Command::new(&program)
        .args(arguments)
        .env("HEADWATER_TEST_POSTGRES_URL", server.url("postgres"))
        .status()
        .unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()));
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
