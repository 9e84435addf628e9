//! The repository as the checks see it: its root, its files, and what cargo knows about its crates.
//!
//! Only this module reads the disk and calls git and cargo; the checks get plain values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The root of the repository.
pub(crate) struct Repo {
    pub(crate) root: PathBuf,
}

/// A text file of the repository, by its path from the root.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The part of `cargo metadata` that the checks read.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) workspace_root: String,
    pub(crate) resolve: Resolve,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    /// None for packages of this repository.
    pub(crate) source: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

/// A dependency as a manifest declares it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Option<DependencyKind>,
    /// Set for dependencies within this repository.
    pub(crate) path: Option<String>,
    pub(crate) features: Vec<String>,
}

/// Normal dependencies have no kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    Dev,
    Build,
}

/// The resolved graph, all workspace features taken together.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<ResolveNode>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ResolveNode {
    pub(crate) id: String,
    pub(crate) deps: Vec<NodeDep>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct NodeDep {
    pub(crate) pkg: String,
    pub(crate) dep_kinds: Vec<DepKind>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct DepKind {
    pub(crate) kind: Option<DependencyKind>,
}

impl Repo {
    /// The repository that this xtask was built from.
    pub(crate) fn locate() -> anyhow::Result<Self> {
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest_dir.parent().context("xtask has no parent folder")?;
        Ok(Self { root: root.to_owned() })
    }

    /// The text of one file, none when there is no such file.
    pub(crate) fn read_file(&self, path: &str) -> anyhow::Result<Option<String>> {
        match std::fs::read_to_string(self.root.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
        }
    }

    /// Every text file that is or could be committed: tracked ones, and new ones that `.gitignore` does not name.
    pub(crate) fn source_files(&self) -> anyhow::Result<Vec<SourceFile>> {
        let args = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let listing = self.command_output("git", &args).context("tidy reads the list of files from git")?;
        let mut files = Vec::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            let full = self.root.join(path);
            // A deleted file is still listed until its deletion is staged; a link is checked where it points to.
            if !full.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                continue;
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            // What is not UTF-8 is an image or a fuzz input.
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(SourceFile { path: path.to_owned(), text });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(files)
    }

    /// The workspace and all its dependencies, for every platform.
    pub(crate) fn metadata(&self) -> anyhow::Result<Metadata> {
        let text = self.command_output("cargo", &["metadata", "--format-version", "1", "--locked"])?;
        serde_json::from_str(&text).context("cannot read what `cargo metadata` says")
    }

    fn command_output(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(program)
            .args(args)
            .current_dir(&self.root)
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            bail!("`{program} {}` failed: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("{program} did not answer in UTF-8"))
    }
}

impl Metadata {
    /// The crates of this repository.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// A member's folder from the root, as `crates/model`.
    pub(crate) fn folder<'a>(&'a self, package: &'a Package) -> &'a str {
        let path = package.manifest_path.strip_prefix(&self.workspace_root).unwrap_or(&package.manifest_path);
        path.trim_end_matches("Cargo.toml").trim_matches('/')
    }
}

/// Small graphs for the tests of the checks.
#[cfg(test)]
pub(crate) mod fixture {
    use super::*;

    /// A member of the workspace in `folder`, with its declared dependencies within it.
    pub(crate) fn member_package(folder: &str, dependencies: &[(&str, Option<DependencyKind>)]) -> Package {
        let name = folder.rsplit('/').next().unwrap().to_owned();
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency {
                name: (*name).to_owned(),
                kind: *kind,
                path: Some(format!("/repo/crates/{name}")),
                features: Vec::new(),
            })
            .collect();
        Package {
            id: name.clone(),
            name,
            version: "0.1.0".to_owned(),
            license: Some("Apache-2.0".to_owned()),
            source: None,
            manifest_path: format!("/repo/{folder}/Cargo.toml"),
            dependencies,
            features: BTreeMap::new(),
        }
    }

    /// A package from the registry under `license`.
    pub(crate) fn registry_package(name: &str, license: Option<&str>) -> Package {
        Package {
            license: license.map(str::to_owned),
            source: Some("registry+https://registry.example/index".to_owned()),
            manifest_path: format!("/registry/{name}/Cargo.toml"),
            ..member_package(&format!("crates/{name}"), &[])
        }
    }

    /// A workspace of `packages`, resolved into `edges` of (from, to, kind).
    pub(crate) fn fake_metadata(packages: Vec<Package>, edges: &[(&str, &str, Option<DependencyKind>)]) -> Metadata {
        let nodes = packages
            .iter()
            .map(|package| {
                let deps = edges.iter().filter(|(from, _, _)| *from == package.name);
                let deps = deps
                    .map(|(_, to, kind)| NodeDep { pkg: (*to).to_owned(), dep_kinds: vec![DepKind { kind: *kind }] });
                ResolveNode { id: package.id.clone(), deps: deps.collect() }
            })
            .collect();
        Metadata {
            workspace_members: packages.iter().filter(|p| p.source.is_none()).map(|p| p.id.clone()).collect(),
            workspace_root: "/repo".to_owned(),
            resolve: Resolve { nodes },
            packages,
        }
    }
}
