//! What users call their files. For people and for headers: no path is ever made of it.

use crate::FileType;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const NAME_BYTES_MAX: usize = 200;
/// All but what RFC 8187 lets stand.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name as it is kept: the last part of a path, without what cannot be seen, and not longer than a file system takes.
/// Nothing left of it is `file`.
#[must_use]
pub fn sanitize_file_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = last.chars().filter(|c| !c.is_control() && !is_bidi_control(*c)).collect();
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    let name = name.trim_matches([' ', '.']);
    if name.is_empty() { "file".to_owned() } else { name.to_owned() }
}

/// Characters that turn text round, so that `gpj.exe` reads `exe.jpg`.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `Content-Disposition` (RFC 6266): shown in place where that is safe, else saved, under its name. Any name gives one line.
#[must_use]
pub fn content_disposition(name: &str, content_type: &str) -> String {
    let how = if FileType::is_inline_safe(content_type) { "inline" } else { "attachment" };
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%') || c == ' ' { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    format!("{how}; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ESCAPED))
}

/// The file's name in the `Content-Disposition` of a part of a form; `None` when the part is no file.
///
/// Senders write it in every way that there is: quoted or bare, and encoded as RFC 8187 has it, which says most and wins.
/// A name that cannot be read is an empty one.
#[must_use]
pub fn parse_disposition_file_name(disposition: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(disposition);
    let (mut plain, mut encoded) = (None, None);
    let mut rest = text.split_once(';').map_or("", |(_, rest)| rest);
    while let Some((before, after)) = rest.split_once('=') {
        let (value, behind) = split_parameter_value(after.trim_start());
        rest = behind;
        // What stands there without a value is nothing that we look for.
        match before.rsplit(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
            // The one sign that browsers escape in there and that a name may have.
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

/// The value that a text begins with, and what stands behind it.
fn split_parameter_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (bare, rest) = text.split_once(';').unwrap_or((text, ""));
        return (bare.trim().to_owned(), rest);
    };
    let mut said = String::new();
    let mut chars = quoted.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => break,
            // Only in front of these: some send whole paths with their backslashes as they are.
            '\\' if chars.as_str().starts_with(['"', '\\']) => said.extend(chars.next()),
            c => said.push(c),
        }
    }
    (said, chars.as_str())
}

/// `charset'language'text`, of which the text is escaped.
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
