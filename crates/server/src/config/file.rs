//! The file as it is written. Serde refuses what it does not know; where in the file that is, is found here.

use super::ConfigError;
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The longest file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A file, and what it may refer to.
pub(crate) struct Source {
    /// What errors call it.
    pub(crate) origin: String,
    /// Its text.
    pub(crate) text: String,
    /// Where the files that it names are.
    pub(crate) beside: Beside,
}

/// Where the files are that a file names.
pub(crate) enum Beside {
    /// In this folder.
    Folder(PathBuf),
    /// In the binary.
    Embedded(&'static [(&'static str, &'static str)]),
}

impl Source {
    /// The demo.
    pub(crate) fn demo() -> Self {
        Self {
            origin: "the embedded demo".to_owned(),
            text: include_str!("../../demo/headwater.toml").to_owned(),
            beside: Beside::Embedded(&[("scenarios.toml", include_str!("../../demo/scenarios.toml"))]),
        }
    }

    /// An operator's file.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        let text = read_bounded(path, FILE_BYTES_MAX)
            .map_err(|source| ConfigError::Read { origin: origin.clone(), source })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { origin, text, beside: Beside::Folder(folder) })
    }

    /// The file as tables.
    pub(crate) fn parse(&self) -> Result<File, ConfigError> {
        toml::from_str(&self.text)
            .map_err(|error| self.at(error.span().unwrap_or(0..0), error.message().replace('\n', ", ")))
    }

    /// A refusal of what stands at this place.
    pub(crate) fn at(&self, span: Range<usize>, what: impl Into<String>) -> ConfigError {
        let before = self.text.get(..span.start).unwrap_or(&self.text);
        let line = before.matches('\n').count() + 1;
        ConfigError::At { origin: self.origin.clone(), line, key: self.key(line), what: what.into() }
    }

    /// The key on a line, with the table that it is in.
    fn key(&self, line: usize) -> String {
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

/// Reads a text that may not be endless.
pub(crate) fn read_bounded(path: &Path, bytes_max: u64) -> std::io::Result<String> {
    use std::io::{Error, ErrorKind, Read as _};
    let mut text = String::new();
    let read = std::fs::File::open(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > bytes_max {
        return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes")));
    }
    Ok(text)
}

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) agents: BTreeMap<Spanned<String>, AgentTable>,
    pub(crate) tools: BTreeMap<Spanned<String>, ToolTable>,
    pub(crate) providers: BTreeMap<Spanned<String>, ProviderTable>,
    pub(crate) auth: AuthTable,
    pub(crate) server: ServerTable,
    pub(crate) limits: LimitsTable,
    pub(crate) store: StoreTable,
}

/// `[agents.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentTable {
    pub(crate) model: Spanned<OneOrMore>,
    #[serde(default)]
    pub(crate) instructions: String,
    #[serde(default)]
    pub(crate) tools: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) handoffs: Vec<Spanned<String>>,
}

/// `[tools.NAME]`. What other kinds need is read so that the kind can be refused, which says more than its keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolTable {
    pub(crate) kind: Spanned<String>,
    pub(crate) display_name: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) idempotent: Option<bool>,
    pub(crate) on_crash: Option<model::record::OnCrash>,
    pub(crate) url: Option<Spanned<IgnoredAny>>,
    pub(crate) command: Option<Spanned<IgnoredAny>>,
    pub(crate) parameters: Option<Spanned<IgnoredAny>>,
    pub(crate) description: Option<Spanned<IgnoredAny>>,
    pub(crate) approval: Option<Spanned<IgnoredAny>>,
}

/// `[providers.NAME]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderTable {
    pub(crate) kind: Spanned<String>,
    pub(crate) file: Option<Spanned<String>>,
}

/// `[auth]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthTable {
    pub(crate) mode: Option<Spanned<String>>,
}

/// `[server]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServerTable {
    pub(crate) listen: Option<Spanned<String>>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) hosts: Vec<Spanned<String>>,
    pub(crate) origins: Vec<Spanned<String>>,
    pub(crate) stop_grace_ms: Option<u64>,
}

/// `[limits]`: what a run may use up, and what a request may.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitsTable {
    pub(crate) steps_max: Option<u32>,
    pub(crate) parallel_tools_max: Option<usize>,
    pub(crate) tool_timeout_ms: Option<u64>,
    pub(crate) tool_output_bytes_max: Option<usize>,
    pub(crate) run_deadline_ms: Option<u64>,
    pub(crate) body_bytes_max: Option<usize>,
    pub(crate) body_read_ms: Option<u64>,
    pub(crate) header_read_ms: Option<u64>,
    pub(crate) write_stall_ms: Option<u64>,
    pub(crate) heartbeat_ms: Option<u64>,
    pub(crate) streams_per_user_max: Option<usize>,
    pub(crate) connections_max: Option<usize>,
    pub(crate) input_parts_max: Option<usize>,
    pub(crate) tools_max: Option<usize>,
}

/// `[store]`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreTable {
    pub(crate) commit_spacing_ms: Option<u64>,
}

/// A text, or a list of them.
#[derive(Debug)]
pub(crate) struct OneOrMore(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl<'de> Visitor<'de> for Texts {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<OneOrMore, A::Error> {
                let mut list = Vec::new();
                while let Some(text) = seq.next_element()? {
                    list.push(text);
                }
                if list.is_empty() { Err(A::Error::custom("the list is empty")) } else { Ok(OneOrMore(list)) }
            }
        }
        deserializer.deserialize_any(Texts)
    }
}
