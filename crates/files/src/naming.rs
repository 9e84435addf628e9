//! What users call their files. For people and for headers: no path is ever made of it.

use crate::Kind;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const NAME_BYTES_MAX: usize = 200;
/// All but what RFC 8187 lets stand.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name as it is kept: the last part of a path, without what cannot be seen, and not longer than a file system takes.
/// Nothing left of it is `file`.
#[must_use]
pub fn shown_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut name: String = last.chars().filter(|c| !c.is_control() && !is_direction(*c)).collect();
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    let name = name.trim_matches([' ', '.']);
    if name.is_empty() { "file".to_owned() } else { name.to_owned() }
}

/// Characters that turn text round, so that `gpj.exe` reads `exe.jpg`.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `Content-Disposition` (RFC 6266): shown in place where that is safe, else saved, under its name. Any name gives one line.
#[must_use]
pub fn disposition(name: &str, content_type: &str) -> String {
    let how = if Kind::is_shown(content_type) { "inline" } else { "attachment" };
    let plain = |c: char| if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '%') || c == ' ' { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    format!("{how}; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ESCAPED))
}
