//! Names of files: `agent-inputs/{user}/{id}{.extension}` of what users send, `blobs/{user}/{sha-256}-{id}` of what threads
//! hold.
//!
//! A client's path is never made into a file's path. It is read as a name that we could have given, part by part, and
//! what we could not have given is refused. Whoever calls has decoded it once; nothing is decoded here but a user's id,
//! and that only in the one way in which we write it.

use model::UserId;
use model::blob::is_sha256_hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;

/// What the names of files begin with that users send.
const ATTACHMENTS_ROOT: &str = "agent-inputs";
/// What the names of blobs begin with. No client ever sees one.
const BLOBS_ROOT: &str = "blobs";
/// All but letters, digits, `_` and `-`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');
/// The longest id that a folder can be named after.
const USER_BYTES_MAX: usize = 200;
const ID_BYTES: usize = 32;
const EXTENSION_BYTES_MAX: usize = 8;

/// The name of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    path: String,
    owner: UserId,
}

/// Why there is no such name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileKeyError {
    /// Nothing honest is written like this.
    #[error("this is not a path: use it as it was given when the file was sent")]
    Malformed,
    /// It could be a name, but not one of a file.
    #[error("no file is named so")]
    Unknown,
    /// No file can be named after this user.
    #[error("no file can be named after this user")]
    InvalidOwner,
}

impl FileKey {
    /// Names a new file.
    ///
    /// # Errors
    /// [`KeyError::Owner`] when the user's id is empty or too long.
    pub fn for_attachment(owner: &UserId, random: Uuid, extension: Option<&str>) -> Result<Self, FileKeyError> {
        let (folder, id) = (owner_prefix(ATTACHMENTS_ROOT, owner)?, random.simple());
        let path = match extension.filter(|extension| is_extension(extension)) {
            Some(extension) => format!("{folder}/{id}.{extension}"),
            None => format!("{folder}/{id}"),
        };
        Ok(Self { path, owner: owner.clone() })
    }

    /// Names a new blob after its bytes, by their hash in hex, and not after them alone: what was removed can come again,
    /// and is something else then.
    ///
    /// # Errors
    /// [`KeyError::Owner`] when the user's id is empty or too long; [`KeyError::Malformed`] when the hash is none.
    pub fn for_blob(owner: &UserId, hash: &str, random: Uuid) -> Result<Self, FileKeyError> {
        if !is_sha256_hex(hash) {
            return Err(FileKeyError::Malformed);
        }
        let path = format!("{}/{hash}-{}", owner_prefix(BLOBS_ROOT, owner)?, random.simple());
        Ok(Self { path, owner: owner.clone() })
    }

    /// Reads a name that a client sent, after exactly one decoding.
    ///
    /// # Errors
    /// When we could not have given it.
    pub fn parse(path: &str) -> Result<Self, FileKeyError> {
        Self::parse_under(path, &[ATTACHMENTS_ROOT])
    }

    /// Reads a name that a row of ours has.
    ///
    /// # Errors
    /// When we could not have given it.
    pub fn parse_stored(path: &str) -> Result<Self, FileKeyError> {
        Self::parse_under(path, &[ATTACHMENTS_ROOT, BLOBS_ROOT])
    }

    fn parse_under(path: &str, roots: &[&str]) -> Result<Self, FileKeyError> {
        let harmless = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-.%".contains(&byte);
        let parts: Vec<&str> = path.split('/').collect();
        if !path.bytes().all(harmless) || parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
            return Err(FileKeyError::Malformed);
        }
        let unknown = if path.contains('%') { FileKeyError::Malformed } else { FileKeyError::Unknown };
        let [root, user, name] = parts[..] else { return Err(unknown) };
        if !roots.contains(&root) {
            return Err(unknown);
        }
        let owner = decode_owner(user).ok_or(FileKeyError::Malformed)?;
        if name.contains('%') {
            return Err(FileKeyError::Malformed);
        }
        let is_known = if root == BLOBS_ROOT { is_blob_name(name) } else { is_attachment_name(name) };
        if !is_known || user.len() > USER_BYTES_MAX {
            return Err(FileKeyError::Unknown);
        }
        Ok(Self { path: path.to_owned(), owner })
    }

    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.path
    }

    /// Whose file it is.
    #[must_use]
    pub const fn owner(&self) -> &UserId {
        &self.owner
    }
}

/// What the names of all files of a user begin with.
fn owner_prefix(root: &str, owner: &UserId) -> Result<String, FileKeyError> {
    let user = utf8_percent_encode(owner.as_str(), ESCAPED).to_string();
    if (1..=USER_BYTES_MAX).contains(&user.len()) {
        Ok(format!("{root}/{user}"))
    } else {
        Err(FileKeyError::InvalidOwner)
    }
}

/// The user that a part is named after, where it is written as we write it.
fn decode_owner(part: &str) -> Option<UserId> {
    let user = percent_decode_str(part).decode_utf8().ok()?;
    (utf8_percent_encode(&user, ESCAPED).to_string() == part).then(|| UserId::from(&*user))
}

fn is_attachment_name(name: &str) -> bool {
    let (id, extension) = name.split_once('.').map_or((name, None), |(id, extension)| (id, Some(extension)));
    is_simple_uuid(id) && extension.is_none_or(is_extension)
}

fn is_blob_name(name: &str) -> bool {
    name.split_once('-').is_some_and(|(hash, id)| is_sha256_hex(hash) && is_simple_uuid(id))
}

fn is_simple_uuid(text: &str) -> bool {
    text.len() == ID_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_extension(text: &str) -> bool {
    (1..=EXTENSION_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}
