//! Decodes and normalizes text.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use std::borrow::Cow;

/// Text from a file, up to a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtractedText {
    pub text: String,
    pub truncated: bool,
}

/// Decodes by byte order bom_bytes, then by the declared charset, then as UTF-8 if it is valid, and otherwise as
/// Windows-1252, the web's default.
pub(crate) fn decode_text<'a>(bytes: &'a [u8], declared: Option<&str>) -> Cow<'a, str> {
    if let Some((encoding, bom_bytes)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(bytes.get(bom_bytes..).unwrap_or_default()).0;
    }
    let declared = declared.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = declared.unwrap_or_else(|| if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 });
    encoding.decode_without_bom_handling(bytes).0
}

/// Decodes by byte order bom_bytes, or else as UTF-8 with replacement characters.
pub(crate) fn decode_by_bom(bytes: &[u8]) -> Cow<'_, str> {
    let (encoding, bom_bytes) = Encoding::for_bom(bytes).unwrap_or((UTF_8, 0));
    encoding.decode_without_bom_handling(bytes.get(bom_bytes..).unwrap_or_default()).0
}

/// Unifies line ends and removes control characters, up to a limit.
pub(crate) fn normalize_text(text: &str, bytes_max: usize) -> ExtractedText {
    let mut clean = String::with_capacity(text.len().min(bytes_max));
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let c = match c {
            '\r' if rest.peek() == Some(&'\n') => continue,
            '\r' | '\u{c}' => '\n',
            c if c.is_control() && c != '\n' && c != '\t' => continue,
            c => c,
        };
        if clean.len() + c.len_utf8() > bytes_max {
            return ExtractedText { text: clean, truncated: true };
        }
        clean.push(c);
    }
    ExtractedText { text: clean, truncated: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_is_detected_by_bom_then_label_then_content() {
        let cases: &[(&[u8], Option<&str>, &str)] = &[
            (b"\xef\xbb\xbfh\xc3\xa9", Some("iso-8859-1"), "hé"),
            (b"\xff\xfeh\0\xe9\0", None, "hé"),
            (b"\xfe\xff\0h\0\xe9", Some("utf-8"), "hé"),
            (b"h\0\xe9\0", Some("utf-16le"), "hé"),
            (b"\x93\xfa\x96\x7b", Some("shift_jis"), "日本"),
            (b"h\xc3\xa9", None, "hé"),
            (b"h\xe9 \x80", None, "hé €"),
            (b"h\xc3\xa9", Some("no-such-set"), "hé"),
            (b"h\xe9", Some("utf-8"), "h\u{fffd}"),
            (b"", None, ""),
        ];
        for (bytes, declared, wanted) in cases {
            assert_eq!(decode_text(bytes, *declared), *wanted, "{bytes:?} as {declared:?}");
        }
    }

    #[test]
    fn line_ends_are_normalised_and_control_characters_removed() {
        let ExtractedText { text, truncated } = normalize_text("a\r\nb\rc\n\td\0\u{1b}[0m\u{85}e\u{c}f", 100);
        assert_eq!((text.as_str(), truncated), ("a\nb\nc\n\td[0me\nf", false));
    }

    #[test]
    fn text_is_truncated_at_a_character_boundary() {
        for (bytes_max, text, truncated) in [(3, "aé", false), (2, "a", true), (0, "", true)] {
            assert_eq!(normalize_text("aé", bytes_max), ExtractedText { text: text.to_owned(), truncated });
        }
    }
}
