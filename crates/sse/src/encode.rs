//! Encodes frames of an event stream.
//!
//! Text may come from a model, a tool or a stranger, so its content must not end a field: a line break in `data` begins
//! another `data` line (the reader joins them with LF), and a CR or LF in a name or an id, or a NUL anywhere, is written as
//! U+FFFD. Such an id is refused when it comes back; a shortened one might name another position. Encoding cannot fail.

use bytes::{Bytes, BytesMut};

use super::{find_byte, find_line_end};

/// A field cannot contain these.
const FORBIDDEN_CHARS: [char; 3] = ['\r', '\n', '\0'];
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Appends one event. An empty `id` or `event` is omitted like a missing one: an empty id would reset the reader's position.
///
/// ```
/// let mut out = bytes::BytesMut::new();
/// sse::write_event(&mut out, Some("8f3a01bc-7"), Some("task.text.delta"), r#"{"delta":"Hi"}"#);
/// assert_eq!(&out[..], b"id: 8f3a01bc-7\nevent: task.text.delta\ndata: {\"delta\":\"Hi\"}\n\n");
/// ```
pub fn write_event(out: &mut BytesMut, id: Option<&str>, event: Option<&str>, data: &str) {
    const NAMES_BYTES: usize = "id: \nevent: \ndata: \n\n".len();
    let id = id.unwrap_or_default();
    let event = event.unwrap_or_default();
    out.reserve(id.len() + event.len() + data.len() + NAMES_BYTES);
    if !id.is_empty() {
        write_field(out, b"id: ", id);
    }
    if !event.is_empty() {
        write_field(out, b"event: ", event);
    }
    write_data_lines(out, data);
    out.extend_from_slice(b"\n");
}

/// Like [`write_event`], for an id and data that are written in place: serialised data needs no buffer of its own.
///
/// Both functions append UTF-8 and nothing else. An id of no bytes is omitted.
///
/// ```
/// let mut out = bytes::BytesMut::new();
/// sse::write_event_with(&mut out, |id| id.extend_from_slice(b"7"), None, |data| data.extend_from_slice(b"{}"));
/// assert_eq!(&out[..], b"id: 7\ndata: {}\n\n");
/// ```
pub fn write_event_with(
    out: &mut BytesMut,
    write_id: impl FnOnce(&mut BytesMut),
    event: Option<&str>,
    write_data: impl FnOnce(&mut BytesMut),
) {
    if let Some(unclean_id) = write_field_with(out, b"id: ", write_id)
        && !unclean_id.is_empty()
    {
        write_field(out, b"id: ", &unclean_id);
    }
    if let Some(event) = event.filter(|event| !event.is_empty()) {
        write_field(out, b"event: ", event);
    }
    if let Some(unclean_data) = write_field_with(out, b"data: ", write_data) {
        write_data_lines(out, &unclean_data);
    }
    out.extend_from_slice(b"\n");
}

/// Appends an event whose data `write_json` appends: JSON on one line has no control characters, so there is no search for
/// line breaks.
///
/// ```
/// let mut out = bytes::BytesMut::new();
/// sse::write_json_event(&mut out, "delta", |data| data.extend_from_slice(b"{}"));
/// assert_eq!(&out[..], b"event: delta\ndata: {}\n\n");
/// ```
pub fn write_json_event(out: &mut BytesMut, event: &'static str, write_json: impl FnOnce(&mut BytesMut)) {
    debug_assert!(find_byte(event.as_bytes(), |byte| byte < b' ').is_none());
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\ndata: ");
    let start = out.len();
    write_json(out);
    debug_assert!(find_byte(out.get(start..).unwrap_or_default(), |byte| byte < b' ').is_none());
    out.extend_from_slice(b"\n\n");
}

/// Appends a field whose text `write` appends. An empty text and one that cannot be a field as it is are removed again, and
/// returned.
fn write_field_with(out: &mut BytesMut, name: &[u8], write: impl FnOnce(&mut BytesMut)) -> Option<String> {
    let field_start = out.len();
    out.extend_from_slice(name);
    let text_start = out.len();
    write(out);
    let text = out.get(text_start..).unwrap_or_default();
    if text.is_empty() || find_byte(text, |byte| byte < b' ').is_some() {
        let text = String::from_utf8_lossy(text).into_owned();
        out.truncate(field_start);
        return Some(text);
    }
    out.extend_from_slice(b"\n");
    None
}

fn write_data_lines(out: &mut BytesMut, data: &str) {
    let mut rest = data;
    while let Some((line, after)) = split_line(rest) {
        write_field(out, b"data: ", line);
        rest = after;
    }
    write_field(out, b"data: ", rest);
}

/// Appends a frame that sets the reader's position without an event. An empty id is no position, and nothing is written.
pub fn write_id(out: &mut BytesMut, id: &str) {
    if !id.is_empty() {
        write_field(out, b"id: ", id);
        out.extend_from_slice(b"\n");
    }
}

/// Appends a frame that sets the reader's reconnection time.
pub fn write_retry(out: &mut BytesMut, ms: u64) {
    write_field(out, b"retry: ", itoa::Buffer::new().format(ms));
    out.extend_from_slice(b"\n");
}

/// An empty comment: it keeps proxies from closing an idle stream, and reveals disconnected clients.
pub fn keep_alive_comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// A comment: the reader ignores it, and people who look at the stream can read it. One line of text.
pub fn write_comment(out: &mut BytesMut, text: &str) {
    write_field(out, b": ", text);
    out.extend_from_slice(b"\n");
}

fn write_field(out: &mut BytesMut, name: &[u8], text: &str) {
    out.extend_from_slice(name);
    // JSON has no control characters, and excluding all of them takes one comparison.
    if find_byte(text.as_bytes(), |byte| byte < b' ').is_none() {
        out.extend_from_slice(text.as_bytes());
    } else {
        for (index, segment) in text.split(FORBIDDEN_CHARS).enumerate() {
            if index > 0 {
                out.extend_from_slice(REPLACEMENT);
            }
            out.extend_from_slice(segment.as_bytes());
        }
    }
    out.extend_from_slice(b"\n");
}

/// Splits at the first line break: CRLF, CR or LF.
fn split_line(text: &str) -> Option<(&str, &str)> {
    let (line, rest) = text.split_at_checked(find_line_end(text.as_bytes())?)?;
    let after = rest.strip_prefix("\r\n").or_else(|| rest.get(1..))?;
    Some((line, after))
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
