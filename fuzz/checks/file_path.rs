//! The checks of the fuzz target `attachment_path`: a path from a client names a file of one user or is refused, and a file
//! name from a client cannot leave its header.

use files::{FileKey, content_disposition, parse_disposition_file_name, sanitize_file_name};
use uuid::Uuid;

pub(crate) fn a_path_names_one_file(bytes: &[u8]) {
    let _ = parse_disposition_file_name(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(key) = FileKey::parse(text) {
        assert_eq!(key.as_str(), text);
        assert_eq!(FileKey::parse_stored(text).as_ref(), Ok(&key));
        let parts: Vec<&str> = text.split('/').collect();
        assert!(parts.len() == 3 && parts[0] == "agent-inputs", "{text:?}");
        assert!(parts.iter().all(|part| !part.is_empty() && !part.starts_with('.')), "{text:?}");
        // Only this user's uploads get such a path.
        let own = FileKey::for_attachment(key.owner(), Uuid::nil(), None).unwrap();
        assert_eq!(own.as_str().rsplit_once('/').unwrap().0, text.rsplit_once('/').unwrap().0);
    }
    let name = sanitize_file_name(text);
    assert_eq!(sanitize_file_name(&name), name, "{text:?}");
    assert!(!name.contains(['/', '\\', '\0', '\n', '\r']), "{name:?}");
    let header = content_disposition(&name, "text/html");
    assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header:?}");
}
