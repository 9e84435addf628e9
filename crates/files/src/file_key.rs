//! Keys of files: `agent-inputs/{user}/{id}{.extension}` for files from users, `blobs/{user}/{sha-256}-{id}` for
//! content of threads.
//!
//! A client's path never becomes a path in the file system. It is parsed as a key, part by part, and refused unless
//! this crate could have made it. The caller has percent-decoded it once; the only decoding here is that of the user's
//! id, in the one form in which it is written.

use model::UserId;
use model::blob::is_sha256_hex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use uuid::Uuid;

/// Root of the files that users send.
const ATTACHMENTS_ROOT: &str = "agent-inputs";
/// Root of the blobs. Never visible to clients.
const BLOBS_ROOT: &str = "blobs";
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');
/// The longest user id that fits into a file name.
const USER_BYTES_MAX: usize = 200;
const ID_BYTES: usize = 32;
const EXTENSION_BYTES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    path: String,
    owner: UserId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileKeyError {
    #[error("the path is malformed: use the path that the upload returned")]
    Malformed,
    #[error("no such file")]
    Unknown,
    /// The user's id is empty or too long.
    #[error("files need a user id that is neither empty nor too long")]
    InvalidOwner,
}

impl FileKey {
    pub fn for_attachment(owner: &UserId, random: Uuid, extension: Option<&str>) -> Result<Self, FileKeyError> {
        let (folder, id) = (owner_prefix(ATTACHMENTS_ROOT, owner)?, random.simple());
        let path = match extension.filter(|extension| is_extension(extension)) {
            Some(extension) => format!("{folder}/{id}.{extension}"),
            None => format!("{folder}/{id}"),
        };
        Ok(Self { path, owner: owner.clone() })
    }

    /// The key of a new blob: the hash of its bytes and an id, so that a blob that is deleted and stored again gets a
    /// new key.
    pub fn for_blob(owner: &UserId, hash: &str, random: Uuid) -> Result<Self, FileKeyError> {
        if !is_sha256_hex(hash) {
            return Err(FileKeyError::Malformed);
        }
        let path = format!("{}/{hash}-{}", owner_prefix(BLOBS_ROOT, owner)?, random.simple());
        Ok(Self { path, owner: owner.clone() })
    }

    /// Parses a client's path, percent-decoded exactly once.
    pub fn parse(path: &str) -> Result<Self, FileKeyError> {
        Self::parse_under(path, &[ATTACHMENTS_ROOT])
    }

    /// Parses a key that was stored in a row.
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

    pub fn as_str(&self) -> &str {
        &self.path
    }

    pub const fn owner(&self) -> &UserId {
        &self.owner
    }
}

fn owner_prefix(root: &str, owner: &UserId) -> Result<String, FileKeyError> {
    let user = utf8_percent_encode(owner.as_str(), ESCAPED).to_string();
    if (1..=USER_BYTES_MAX).contains(&user.len()) {
        Ok(format!("{root}/{user}"))
    } else {
        Err(FileKeyError::InvalidOwner)
    }
}

/// The user of a path segment, if it is written in canonical form.
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
