//! Finds the programs of PostgreSQL and PgBouncer.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION_MIN: u32 = 15;
const NEEDED: [&str; 3] = ["initdb", "postgres", "psql"];
/// Where Debian and Ubuntu install the programs of each version.
const VERSIONS_FOLDER: &str = "/usr/lib/postgresql";
/// Where `install` unpacks what it does not install.
const UNPACKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/.programs/usr");
const INSTALL: &str = "crates/postgres-testing/install";

/// The folder with the programs of one version of PostgreSQL.
#[derive(Clone, Debug)]
pub(crate) struct PostgresPrograms {
    folder: PathBuf,
}

impl PostgresPrograms {
    /// The first of at least [`VERSION_MIN`] in PATH, in [`VERSIONS_FOLDER`], or where `pg_config` says.
    pub(crate) fn find() -> Self {
        let candidates = find_in_path("initdb").chain(find_installed_versions()).chain(ask_pg_config());
        let mut rejected = Vec::new();
        for folder in candidates {
            match check_programs(&folder) {
                Ok(()) => return Self { folder },
                Err(why) => rejected.push(format!("{}: {why}", folder.display())),
            }
        }
        panic!(
            "these tests need PostgreSQL {VERSION_MIN} or later: run {INSTALL}, or put its initdb into PATH; found {rejected:?}"
        )
    }

    pub(crate) fn command(&self, program: &str) -> Command {
        new_command(&self.folder.join(program))
    }
}

/// A command that no setting of the machine's own PostgreSQL affects, with messages in English.
fn new_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C");
    command
}

pub(crate) fn find_pgbouncer() -> Option<PathBuf> {
    let folders = find_in_path("pgbouncer").chain(["/usr/sbin".into(), Path::new(UNPACKED).join("sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file())
}

/// With the libraries that were unpacked with it.
pub(crate) fn pgbouncer_command(program: &Path) -> Command {
    let mut command = new_command(program);
    if program.starts_with(UNPACKED) {
        let libraries = list_folders(&Path::new(UNPACKED).join("lib"));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).expect("a clone's path has no colon"));
    }
    command
}

/// The folders of PATH with `program`. Links are resolved, because the other programs are beside the real one.
fn find_in_path(program: &str) -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.into_iter().filter_map(move |folder| Some(folder.join(program).canonicalize().ok()?.parent()?.to_owned()))
}

/// Newest first.
fn find_installed_versions() -> impl Iterator<Item = PathBuf> {
    let version = |folder: &PathBuf| folder.file_name().and_then(OsStr::to_str).and_then(|name| name.parse().ok());
    let mut folders = list_folders(Path::new(VERSIONS_FOLDER));
    folders.sort_by_key(|folder| std::cmp::Reverse(version(folder).unwrap_or(0_u32)));
    folders.into_iter().map(|folder| folder.join("bin"))
}

fn ask_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().into())
}

fn list_folders(parent: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn check_programs(folder: &Path) -> Result<(), String> {
    if let Some(missing) = NEEDED.iter().find(|program| !folder.join(program).is_file()) {
        return Err(format!("has no {missing}"));
    }
    let output = new_command(&folder.join("postgres")).arg("--version").output();
    let output = output.map_err(|error| format!("postgres does not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match parse_version(&text) {
        Some(version) if version >= VERSION_MIN => Ok(()),
        Some(version) => Err(format!("is version {version}")),
        None => Err(format!("`postgres --version` printed {text:?}")),
    }
}

/// The major version in a line such as `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)` or `… 18beta1`.
fn parse_version(text: &str) -> Option<u32> {
    let version = text.split_once("(PostgreSQL) ")?.1;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed() {
        assert_eq!(parse_version("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"), Some(15));
        assert_eq!(parse_version("postgres (PostgreSQL) 9.6.24\n"), Some(9));
        assert_eq!(parse_version("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(parse_version("error while loading shared libraries\n"), None);
    }

    #[test]
    fn a_folder_without_the_programs_is_rejected() {
        assert_eq!(check_programs(Path::new("/dev")), Err("has no initdb".to_owned()));
    }
}
