//! Text: which characters the bytes are, and no more of them than allowed.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use std::borrow::Cow;

/// The characters: as the mark at the beginning says, else as the server says, else UTF-8 if it is that, else what the web
/// has always meant by nothing.
pub(super) fn decode_text<'a>(bytes: &'a [u8], declared: Option<&str>) -> Cow<'a, str> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(bytes.get(mark..).unwrap_or_default()).0;
    }
    let declared = declared.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = declared.unwrap_or_else(|| if std::str::from_utf8(bytes).is_ok() { UTF_8 } else { WINDOWS_1252 });
    encoding.decode_without_bom_handling(bytes).0
}

/// The characters as the mark at the beginning says, else as UTF-8, whatever else they may be.
pub(super) fn decode_by_bom(bytes: &[u8]) -> Cow<'_, str> {
    let (encoding, mark) = Encoding::for_bom(bytes).unwrap_or((UTF_8, 0));
    encoding.decode_without_bom_handling(bytes.get(mark..).unwrap_or_default()).0
}

/// The text with one sort of line end and without control characters, and whether there was more of it.
pub(super) fn normalize_text(text: &str, bytes_max: usize) -> (String, bool) {
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
            return (clean, true);
        }
        clean.push(c);
    }
    (clean, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_found_by_mark_then_by_word_then_by_looking() {
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
    fn line_ends_are_alike_and_control_characters_are_gone() {
        let (text, truncated) = normalize_text("a\r\nb\rc\n\td\0\u{1b}[0m\u{85}e\u{c}f", 100);
        assert_eq!((text.as_str(), truncated), ("a\nb\nc\n\td[0me\nf", false));
    }

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(normalize_text("aé", 3), ("aé".to_owned(), false));
        assert_eq!(normalize_text("aé", 2), ("a".to_owned(), true));
        assert_eq!(normalize_text("aé", 0), (String::new(), true));
    }
}
