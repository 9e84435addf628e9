//! The key that seals users' tokens for MCP servers: a variable of the environment, or a file of the data folder.
//!
//! A file beside the database protects copies of the database alone. With PostgreSQL the nodes share the key, and in the
//! database it would protect nothing, so there it must be given.

use crate::config;
use anyhow::{Context as _, bail};
use mcp::SealingKey;
use model::definition::{Definitions, McpAuth, McpTransport};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

pub(crate) const KEY_VARIABLE: &str = "HEADWATER_CREDENTIALS_KEY";
const KEY_FILE: &str = "credentials.key";
const KEY_BYTES: usize = 32;
const OWNER_ONLY: u32 = 0o600;

/// Whether an MCP server uses OAuth: the tokens of its users are sealed with the key.
pub(crate) fn needs_key(definitions: &Definitions) -> bool {
    definitions.mcp.values().any(|server| match &server.program.transport {
        McpTransport::Endpoint(endpoint) => matches!(endpoint.auth.as_deref(), Some(McpAuth::OAuth(_))),
        McpTransport::Command(_) => false,
    })
}

/// Blocking.
pub(crate) fn load_key(data_dir: &Path, has_database: bool) -> anyhow::Result<SealingKey> {
    if let Some(text) = config::read_env(KEY_VARIABLE) {
        return SealingKey::from_hex(&text).with_context(|| format!("{KEY_VARIABLE} must have 64 digits of hex"));
    }
    if has_database {
        bail!(
            "MCP servers with `auth` of kind `oauth` need a key for the tokens of users: set {KEY_VARIABLE} to the same 64 \
             digits of hex on every node (`openssl rand -hex 32` makes one)"
        );
    }
    let path = data_dir.join(KEY_FILE);
    let bytes = read_or_create(&path).with_context(|| path.display().to_string())?;
    SealingKey::from_bytes(&bytes).with_context(|| {
        format!(
            "{} does not hold {KEY_BYTES} bytes: remove it, and users authorize their MCP servers again",
            path.display()
        )
    })
}

fn read_or_create(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(file) => {
            file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bytes.resize(KEY_BYTES, 0);
            getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
            write_key(path, &bytes)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(bytes)
}

/// Writes a temporary file and renames it, so that a crash leaves no partial key.
fn write_key(path: &Path, key: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension("key.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(OWNER_ONLY).open(&temporary)?;
    file.write_all(key)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_file_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(KEY_FILE);
        let made = read_or_create(&path).unwrap();
        assert_eq!(made.len(), KEY_BYTES);
        assert_eq!(read_or_create(&path).unwrap(), made);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        std::fs::write(&path, "short").unwrap();
        let refused = load_key(folder.path(), false).unwrap_err().to_string();
        assert!(refused.ends_with("users authorize their MCP servers again"), "{refused}");
        let missing = load_key(folder.path(), true).unwrap_err().to_string();
        assert!(missing.contains("HEADWATER_CREDENTIALS_KEY"), "{missing}");
    }
}
