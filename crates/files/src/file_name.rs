//! Display names of files, for people and headers. Never used as a path.

use crate::file_type::FileType;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const NAME_BYTES_MAX: usize = 200;
/// All but the characters that RFC 8187 permits.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name as stored: the last segment of a path, without invisible characters, at most as long as file systems allow;
/// `file` if nothing is left.
pub fn sanitize_file_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = last.chars().filter(|c| !c.is_control() && !is_bidi_control(*c)).collect();
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    let name = name.trim_matches([' ', '.']);
    if name.is_empty() { "file".to_owned() } else { name.to_owned() }
}

/// Characters that reverse text, so that `gpj.exe` reads `exe.jpg`.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `Content-Disposition` (RFC 6266): inline where that is safe, otherwise as an attachment. Always a single line.
pub fn content_disposition(name: &str, content_type: &str) -> String {
    let how = if FileType::is_inline_safe(content_type) { "inline" } else { "attachment" };
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%') || c == ' ' { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    format!("{how}; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ESCAPED))
}

/// The file name in the `Content-Disposition` of a form part; `None` if the part is not a file.
///
/// Clients write it in many ways: quoted, bare, and encoded by RFC 8187, which takes precedence. A name that cannot be
/// decoded is empty.
pub fn parse_disposition_file_name(disposition: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(disposition);
    let (mut plain, mut encoded) = (None, None);
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((before, after)) = rest.split_once('=') {
        let (value, behind) = split_parameter_value(after.trim_start());
        rest = behind;
        // Parameters without a value are ignored.
        match before.rsplit(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            // Browsers escape quotes like this.
            "filename" if plain.is_none() => plain = Some(value.replace("%22", "\"")),
            "filename*" if encoded.is_none() => encoded = Some(decode_extended_value(&value)),
            _ => {}
        }
    }
    match encoded {
        Some(Some(name)) => Some(name),
        Some(None) => Some(plain.unwrap_or_default()),
        None => plain,
    }
}

/// Splits off the parameter value at the start of the text.
fn split_parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (bare, rest) = text.split_once(';').unwrap_or((text, ""));
        return (bare.trim().to_owned(), rest);
    };
    let mut value = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            // Only these are escapes: some clients send whole Windows paths.
            '\\' if chars.as_str().starts_with(['"', '\\']) => value.extend(chars.next()),
            c => value.push(c),
        }
    }
    (value, chars.as_str())
}

/// `charset'language'percent-encoded-text`.
fn decode_extended_value(value: &str) -> Option<String> {
    let (charset, rest) = value.split_once('\'')?;
    let (_language, text) = rest.split_once('\'')?;
    let bytes = percent_decode_str(text);
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" => bytes.decode_utf8().ok().map(|name| name.into_owned()),
        "iso-8859-1" => Some(bytes.map(char::from).collect()),
        _ => None,
    }
}
