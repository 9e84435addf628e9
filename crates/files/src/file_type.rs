//! File types by content. A declared type counts only where it refines what the bytes say.
//!
//! Markup and scripts are text, so that browsers display them and never run them. Bytes that are valid text and
//! something else too (a GIF that is also a script) are text for the same reason.

/// Number of leading bytes that `sniff` needs.
pub const SNIFF_BYTES: usize = 8 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    pub content_type: &'static str,
    pub extension: Option<&'static str>,
}

const TEXT: FileType = FileType { content_type: "text/plain", extension: Some("txt") };
const OCTET_STREAM: FileType = FileType { content_type: "application/octet-stream", extension: None };
/// More specific types of text.
const TEXT_TYPES: [FileType; 4] = [
    TEXT,
    FileType { content_type: "text/csv", extension: Some("csv") },
    FileType { content_type: "text/markdown", extension: Some("md") },
    FileType { content_type: "application/json", extension: Some("json") },
];
/// Signatures of formats that look like text. Only significant at the start of a file.
const TEXT_LIKE_MAGIC: [&[u8]; 2] = [b"%PDF-", b"{\\rtf"];
/// Office documents, by a folder in their ZIP archive.
const OFFICE: [(&[u8], FileType); 3] = [
    (
        b"word/",
        FileType {
            content_type: "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            extension: Some("docx"),
        },
    ),
    (
        b"xl/",
        FileType {
            content_type: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            extension: Some("xlsx"),
        },
    ),
    (
        b"ppt/",
        FileType {
            content_type: "application/vnd.openxmlformats-officedocument.presentationml.presentation",
            extension: Some("pptx"),
        },
    ),
];
/// Names of the first archive entry, depending on the writing program.
const OFFICE_FIRST_ENTRIES: [&[u8]; 6] = [b"[Content_Types].xml", b"_rels/", b"docProps/", b"word/", b"xl/", b"ppt/"];
/// Images that a browser may display inline, because they contain nothing active.
const INLINE_SAFE_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];

impl FileType {
    /// The type of a file with these leading bytes, of which [`SNIFF_BYTES`] suffice.
    pub fn sniff(head: &[u8], declared: Option<&str>) -> Self {
        let head = head.get(..SNIFF_BYTES).unwrap_or(head);
        let known = infer::get(head);
        if is_text(head) && !TEXT_LIKE_MAGIC.iter().any(|start| head.starts_with(start)) {
            let declared = declared.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
            let named = TEXT_TYPES.iter().find(|kind| kind.content_type.eq_ignore_ascii_case(declared));
            return *named.unwrap_or(&TEXT);
        }
        if let Some(office) = sniff_office(head, declared) {
            return office;
        }
        match known {
            Some(known) if known.mime_type().starts_with("text/") => TEXT,
            Some(known) => Self { content_type: known.mime_type(), extension: Some(known.extension()) },
            None => OCTET_STREAM,
        }
    }

    /// Whether a browser may display a file of this type inline.
    pub fn is_inline_safe(content_type: &str) -> bool {
        INLINE_SAFE_TYPES.contains(&content_type)
    }
}

/// The office document in a ZIP archive, by the names of its entries. If these come too late, the declared type
/// decides.
fn sniff_office(head: &[u8], declared: Option<&str>) -> Option<FileType> {
    const ENTRY: &[u8] = b"PK\x03\x04";
    const NAME_AT: usize = 30;
    let named = |at: usize| head.get(at + NAME_AT..).unwrap_or_default();
    let is_office = head.starts_with(ENTRY) && OFFICE_FIRST_ENTRIES.iter().any(|first| named(0).starts_with(first));
    if !is_office {
        return None;
    }
    let entries = head.windows(ENTRY.len()).enumerate().filter(|(_, window)| *window == ENTRY);
    let mut seen = entries.filter_map(|(at, _)| OFFICE.iter().find(|(folder, _)| named(at).starts_with(folder)));
    let by_declared_type = || {
        OFFICE
            .iter()
            .find(|(_, kind)| declared.is_some_and(|declared| declared.eq_ignore_ascii_case(kind.content_type)))
    };
    seen.next().or_else(by_declared_type).map(|(_, kind)| *kind)
}

/// Whether the bytes are the start of a text. The last character may be truncated.
fn is_text(head: &[u8]) -> bool {
    match head {
        // The UTF-32 byte order mark starts with that of UTF-16; nobody uses UTF-32 in files.
        [0xff, 0xfe, 0, 0, ..] => false,
        [0xff, 0xfe, rest @ ..] => is_utf16_text(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => is_utf16_text(rest, u16::from_be_bytes),
        _ => is_utf8_text(head),
    }
}

/// The bytes after the byte order mark.
fn is_utf16_text(head: &[u8], unit: fn([u8; 2]) -> u16) -> bool {
    let (pairs, _) = head.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().copied().map(unit).collect();
    let text = match units.as_slice() {
        [text @ .., 0xd800..0xdc00] => text,
        text => text,
    };
    !text.is_empty() && char::decode_utf16(text.iter().copied()).all(|c| c.is_ok_and(is_text_char))
}

fn is_utf8_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            head.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(is_text_char)
}

fn is_text_char(c: char) -> bool {
    !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}')
}
