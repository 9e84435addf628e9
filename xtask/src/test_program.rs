//! Builds a program that tests the server, and the server that it tests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use crate::defects;
use crate::test::TestEffort;
use crate::workspace::Repo;

/// Starts PostgreSQL, and then the program that its arguments name.
pub(crate) const WITH_POSTGRES: &str = "with_postgres";

/// Builds the server and `program`, whose package has the same name. Returns their folder.
pub(crate) fn build_test_program(repo: &Repo, program: &str, effort: TestEffort) -> anyhow::Result<PathBuf> {
    let beside = std::env::current_exe()?.parent().context("xtask has no folder")?.to_owned();
    if effort == TestEffort::Full {
        // One after the other: together, the server would get features that it does not have alone.
        for (binary, package) in [("headwater", "server"), (program, program)] {
            run_cargo(repo, &format!("build --locked --release --bin {binary} --package {package}"))?;
        }
        return Ok(beside.with_file_name("release"));
    }
    // The same features as in the step `test`: other ones would build everything once more. Cargo includes those of
    // dev-dependencies, as tests do, if an example is among the targets.
    let options = defects::TEST_ARGUMENTS.split_once(' ').map_or("", |(_, options)| options);
    run_cargo(repo, &format!("build {options} --bin headwater --bin {program} --example {WITH_POSTGRES}"))?;
    Ok(beside)
}

fn run_cargo(repo: &Repo, arguments: &str) -> anyhow::Result<()> {
    let mut command = Command::new("cargo");
    let status = command.current_dir(&repo.root).args(arguments.split(' ')).status().context("cannot start cargo")?;
    anyhow::ensure!(status.success(), "it does not build: cargo {arguments}");
    Ok(())
}
