//! Frames of an event stream, each as one piece of bytes.
//!
//! Text can come from a model, a tool or a stranger, so nothing that it holds may end a field: a line break in `data`
//! begins another `data` line (the reader joins them by LF, whichever break it was), and a CR or LF in a name or an id,
//! or a NUL anywhere, is written as U+FFFD. Such an id is refused when it comes back, which is louder than a
//! shortened one that may name another place. Nothing here can fail.

use bytes::{Bytes, BytesMut};

use super::{find_byte, find_line_end};

/// What a field cannot carry, and what stands in for it.
const FORBIDDEN_CHARS: [char; 3] = ['\r', '\n', '\0'];
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Appends one event. An empty `id` or `event` is left out like a missing one: the former would take the reader's
/// position away, the latter says nothing.
///
/// ```
/// let mut out = bytes::BytesMut::new();
/// sse::frame(&mut out, Some("8f3a01bc-7"), Some("task.text.delta"), r#"{"delta":"Hi"}"#);
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
    let mut rest = data;
    while let Some((line, after)) = split_line(rest) {
        write_field(out, b"data: ", line);
        rest = after;
    }
    write_field(out, b"data: ", rest);
    out.extend_from_slice(b"\n");
}

/// Appends a frame that moves the reader's position to `id` without giving it an event. An empty id is no position, and
/// nothing is written.
pub fn write_id(out: &mut BytesMut, id: &str) {
    if !id.is_empty() {
        write_field(out, b"id: ", id);
        out.extend_from_slice(b"\n");
    }
}

/// Appends a frame that asks the reader to wait `ms` milliseconds before it reconnects.
pub fn write_retry(out: &mut BytesMut, ms: u64) {
    write_field(out, b"retry: ", itoa::Buffer::new().format(ms));
    out.extend_from_slice(b"\n");
}

/// A frame that says nothing: it keeps proxies from closing a silent stream, and shows who is gone.
pub fn keep_alive_comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

/// One line `name` `text`, whatever the text holds.
fn write_field(out: &mut BytesMut, name: &[u8], text: &str) {
    out.extend_from_slice(name);
    // JSON has no control characters at all, and to rule out all of them is one comparison.
    if find_byte(text.as_bytes(), |byte| byte < b' ').is_none() {
        out.extend_from_slice(text.as_bytes());
    } else {
        for (index, piece) in text.split(FORBIDDEN_CHARS).enumerate() {
            if index > 0 {
                out.extend_from_slice(REPLACEMENT);
            }
            out.extend_from_slice(piece.as_bytes());
        }
    }
    out.extend_from_slice(b"\n");
}

/// The text before and after its first line break: CRLF, CR or LF.
fn split_line(text: &str) -> Option<(&str, &str)> {
    let (line, rest) = text.split_at_checked(find_line_end(text.as_bytes())?)?;
    let after = rest.strip_prefix("\r\n").or_else(|| rest.get(1..))?;
    Some((line, after))
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
