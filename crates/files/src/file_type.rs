//! What bytes are, by the bytes. What a sender says of them counts only where it says more and not something else.
//!
//! Markup and scripts are text: whoever opens one from here reads it, and no browser runs it. Bytes that are both text
//! and something else (a GIF that is also a script) are text for the same reason.

/// So many first bytes are enough to tell.
pub const SNIFF_BYTES: usize = 8 * 1024;

/// What bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileType {
    /// For headers and rows.
    pub content_type: &'static str,
    /// How names of such files end.
    pub extension: Option<&'static str>,
}

const TEXT: FileType = FileType { content_type: "text/plain", extension: Some("txt") };
const OCTET_STREAM: FileType = FileType { content_type: "application/octet-stream", extension: None };
/// What text may also be called.
const TEXT_TYPES: [FileType; 4] = [
    TEXT,
    FileType { content_type: "text/csv", extension: Some("csv") },
    FileType { content_type: "text/markdown", extension: Some("md") },
    FileType { content_type: "application/json", extension: Some("json") },
];
/// How files begin that may look like text and are more. In the middle of a text these are only words.
const TEXT_LIKE_MAGIC: [&[u8]; 2] = [b"%PDF-", b"{\\rtf"];
/// Office documents: where their parts are in the archive that each of them is.
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
/// How the first file of such an archive is called, whoever wrote it.
const OFFICE_FIRST_ENTRIES: [&[u8]; 6] = [b"[Content_Types].xml", b"_rels/", b"docProps/", b"word/", b"xl/", b"ppt/"];
/// Pictures that a browser may show in place, because nothing in them is run.
const INLINE_SAFE_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif"];

impl FileType {
    /// What begins with these bytes, of which [`HEAD_BYTES`] are enough.
    #[must_use]
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

    /// May a browser show a file of this type in place?
    #[must_use]
    pub fn is_inline_safe(content_type: &str) -> bool {
        INLINE_SAFE_TYPES.contains(&content_type)
    }
}

/// The office document that an archive is, by the names of its files. Where these come too late, the sender may say.
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
    let said = || {
        OFFICE
            .iter()
            .find(|(_, kind)| declared.is_some_and(|declared| declared.eq_ignore_ascii_case(kind.content_type)))
    };
    seen.next().or_else(said).map(|(_, kind)| *kind)
}

/// Is this the beginning of a text? Its last character may be cut.
fn is_text(head: &[u8]) -> bool {
    match head {
        // The mark of the same with four bytes for each, which nobody writes, begins with the first of these.
        [0xff, 0xfe, 0, 0, ..] => false,
        [0xff, 0xfe, rest @ ..] => is_utf16_text(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => is_utf16_text(rest, u16::from_be_bytes),
        _ => is_utf8_text(head),
    }
}

/// The same for UTF-16, behind its mark.
fn is_utf16_text(head: &[u8], unit: fn([u8; 2]) -> u16) -> bool {
    let (pairs, _) = head.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().copied().map(unit).collect();
    let whole = match units.as_slice() {
        [whole @ .., 0xd800..0xdc00] => whole,
        whole => whole,
    };
    !whole.is_empty() && char::decode_utf16(whole.iter().copied()).all(|c| c.is_ok_and(is_text_char))
}

fn is_utf8_text(head: &[u8]) -> bool {
    let whole = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            head.get(..error.valid_up_to()).and_then(|valid| std::str::from_utf8(valid).ok()).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !whole.is_empty() && whole.chars().all(is_text_char)
}

/// Does text have this character?
fn is_text_char(c: char) -> bool {
    !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\u{c}' | '\u{1b}')
}
