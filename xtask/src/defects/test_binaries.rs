//! Builds the workspace's tests and finds their binaries.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::workspace::Repo;

/// Every crate's integration tests are one binary of this name, made from `tests/it/main.rs`.
const INTEGRATION_TESTS: &str = "it";

/// The binary of each crate's integration tests, by the crate's folder name.
pub(crate) struct TestBinaries(BTreeMap<String, TestBinary>);

#[derive(Debug, PartialEq)]
pub(crate) struct TestBinary {
    /// Where `cargo test` would run it.
    pub(crate) crate_folder: PathBuf,
    pub(crate) program: PathBuf,
}

impl TestBinaries {
    /// Runs `cargo <arguments>` without running the tests.
    pub(crate) fn build(repo: &Repo, arguments: &str) -> anyhow::Result<Self> {
        let mut command = Command::new("cargo");
        command.args(arguments.split(' ')).args(["--no-run", "--message-format=json-render-diagnostics"]);
        command.current_dir(&repo.root).stdin(Stdio::null()).stderr(Stdio::inherit());
        let built = command.output().context("cannot start cargo")?;
        ensure!(built.status.success(), "the tests do not build");
        Ok(Self(parse_artifacts(&String::from_utf8_lossy(&built.stdout))))
    }

    pub(crate) fn integration_tests(&self, package: &str) -> anyhow::Result<&TestBinary> {
        self.0.get(package).with_context(|| format!("the crate {package} has no integration tests"))
    }
}

/// A message of cargo about something that it built.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: ArtifactTarget,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct ArtifactTarget {
    name: String,
}

fn parse_artifacts(messages: &str) -> BTreeMap<String, TestBinary> {
    // Other messages have other members.
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let of_tests = artifacts.filter(|artifact| artifact.target.name == INTEGRATION_TESTS);
    of_tests
        .filter_map(|artifact| {
            let crate_folder = artifact.manifest_path.parent()?.to_owned();
            let name = crate_folder.file_name()?.to_string_lossy().into_owned();
            Some((name, TestBinary { crate_folder, program: artifact.executable? }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integration_tests_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/store/Cargo.toml","target":{"name":"store"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/store/Cargo.toml","target":{"name":"it"},"executable":"/t/it-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = TestBinaries(parse_artifacts(messages));
        let expected = TestBinary { crate_folder: "/r/crates/store".into(), program: "/t/it-1".into() };
        assert_eq!(found.integration_tests("store").unwrap(), &expected);
        assert!(found.integration_tests("engine").is_err());
    }
}
