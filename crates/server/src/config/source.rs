//! The text of a config file, and the files that it refers to.

use super::ConfigError;
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The file that is used if none is named.
pub(crate) const DEFAULT_FILE: &str = "headwater.toml";

pub(crate) struct ConfigSource {
    /// Its name in errors.
    pub(crate) origin: String,
    pub(crate) text: String,
    /// Relative paths in the file start here.
    pub(crate) base: ConfigBase,
}

pub(crate) enum ConfigBase {
    Folder(PathBuf),
    /// Name and content of files in the binary.
    Embedded(&'static [(&'static str, &'static str)]),
}

impl ConfigSource {
    /// The named file, or else `./headwater.toml`, or else the embedded demo.
    pub(crate) fn find(named: Option<&Path>) -> Result<Self, ConfigError> {
        let default_file = Path::new(DEFAULT_FILE);
        match named {
            Some(path) => Self::read(path),
            // A link that leads nowhere is an error, not a reason to run the demo.
            None if default_file.symlink_metadata().is_ok() => Self::read(default_file),
            None => Ok(Self::demo()),
        }
    }

    pub(crate) const fn is_demo(&self) -> bool {
        matches!(self.base, ConfigBase::Embedded(_))
    }

    pub(crate) fn demo() -> Self {
        Self {
            origin: "the embedded demo".to_owned(),
            text: include_str!("../../demo/headwater.toml").to_owned(),
            base: ConfigBase::Embedded(&[("scenarios.toml", include_str!("../../demo/scenarios.toml"))]),
        }
    }

    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        let text = read_bounded(path, FILE_BYTES_MAX)
            .map_err(|source| ConfigError::Read { origin: origin.clone(), source })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { origin, text, base: ConfigBase::Folder(folder) })
    }

    /// Absolute, so that the working directory of a tool does not matter.
    pub(super) fn resolve_path(&self, text: &str) -> PathBuf {
        let joined = match &self.base {
            ConfigBase::Folder(folder) => folder.join(text),
            ConfigBase::Embedded(_) => PathBuf::from(text),
        };
        std::path::absolute(&joined).unwrap_or(joined)
    }

    /// The line of a byte offset, starting at 1.
    pub(super) fn line_at(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or(&self.text).matches('\n').count() + 1
    }

    /// The key on a line with its table, as far as the text of an invalid TOML file shows it.
    pub(super) fn key_on_line(&self, line: usize) -> String {
        let mut lines: Vec<&str> = self.text.lines().take(line).collect();
        let own = lines.pop().unwrap_or_default().trim();
        let table =
            |text: &str| text.trim().strip_prefix('[').map(|rest| rest.split(']').next().unwrap_or(rest).to_owned());
        if let Some(table) = table(own) {
            return table;
        }
        let own = own.split('=').next().unwrap_or(own).trim();
        match lines.iter().rev().find_map(|line| table(line)) {
            Some(table) => format!("{table}.{own}"),
            None => own.to_owned(),
        }
    }
}

pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read as _};
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > bytes_max {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes")));
    }
    Ok(text)
}
