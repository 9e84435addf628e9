//! The exact bytes of each kind of frame, and the encoding of hostile text.

use super::*;

fn framed(id: Option<&str>, event: Option<&str>, data: &str) -> String {
    let mut out = BytesMut::new();
    write_event(&mut out, id, event, data);
    let mut in_place = BytesMut::from("before");
    let write_id = |out: &mut BytesMut| out.extend_from_slice(id.unwrap_or_default().as_bytes());
    write_event_with(&mut in_place, write_id, event, |out| out.extend_from_slice(data.as_bytes()));
    assert_eq!(in_place.strip_prefix(b"before"), Some(&out[..]), "both writers write the same");
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn a_frame_is_id_event_data() {
    assert_eq!(framed(Some("7"), Some("greet"), "{}"), "id: 7\nevent: greet\ndata: {}\n\n");
    assert_eq!(framed(None, Some("greet"), "{}"), "event: greet\ndata: {}\n\n");
    assert_eq!(framed(Some("7"), None, "{}"), "id: 7\ndata: {}\n\n");
    assert_eq!(framed(None, None, "[DONE]"), "data: [DONE]\n\n");
    assert_eq!(framed(None, None, ""), "data: \n\n");
}

#[test]
fn an_empty_id_or_name_is_left_out() {
    assert_eq!(framed(Some(""), Some(""), "{}"), "data: {}\n\n");
}

#[test]
fn each_line_of_data_is_a_field() {
    assert_eq!(framed(None, None, "a\nb\rc\r\nd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
    assert_eq!(framed(None, None, "a\n"), "data: a\ndata: \n\n");
    assert_eq!(framed(None, None, "\n\r"), "data: \ndata: \ndata: \n\n");
    assert_eq!(framed(None, None, "  a"), "data:   a\n\n");
}

#[test]
fn text_cannot_forge_an_event() {
    assert_eq!(
        framed(None, Some("task.text.delta"), "x\n\nevent: task.completed\ndata: {}\n\n"),
        "event: task.text.delta\ndata: x\ndata: \ndata: event: task.completed\ndata: data: {}\ndata: \ndata: \n\n"
    );
}

#[test]
fn what_a_field_cannot_carry_is_replaced() {
    assert_eq!(framed(Some("7\n\nid: 8"), None, "{}"), "id: 7\u{FFFD}\u{FFFD}id: 8\ndata: {}\n\n");
    assert_eq!(framed(None, Some("a\rb\0c"), "{}"), "event: a\u{FFFD}b\u{FFFD}c\ndata: {}\n\n");
    assert_eq!(framed(None, None, "a\0b"), "data: a\u{FFFD}b\n\n");
    assert_eq!(framed(Some("a\u{2028}\u{85}"), None, "\u{2028}"), "id: a\u{2028}\u{85}\ndata: \u{2028}\n\n");
}

#[test]
fn a_line_break_is_found_at_any_position() {
    for before in 0..100 {
        let (before, after) = ("x".repeat(before), "y".repeat(50));
        let expected = format!("data: {before}\ndata: {after}\n\n");
        for line_break in ["\n", "\r", "\r\n"] {
            assert_eq!(framed(None, None, &format!("{before}{line_break}{after}")), expected);
        }
    }
}

#[test]
fn frames_that_carry_no_event() {
    let mut out = BytesMut::new();
    write_id(&mut out, "7");
    write_id(&mut out, "");
    write_retry(&mut out, 1500);
    assert_eq!(&out[..], b"id: 7\n\nretry: 1500\n\n");
    assert_eq!(&keep_alive_comment()[..], b":\n\n");
    out.clear();
    write_comment(&mut out, "the disk is full");
    assert_eq!(&out[..], b": the disk is full\n\n");
    write_comment(&mut out, "no\ndata: event");
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 4, "one line each");
}

/// Had the buffer grown more than once, it would have room left over.
#[test]
fn an_ordinary_frame_grows_its_buffer_once() {
    let mut out = BytesMut::new();
    write_event(&mut out, Some("8f3a01bc-7"), Some("task.text.delta"), r#"{"delta":"Hi"}"#);
    assert_eq!(out.capacity(), out.len());
}
