//! Every relevant rule of the standard, one row each; then limits, memory and time.

use super::*;

/// The decoder's state at the end of a stream.
#[derive(Debug, PartialEq)]
struct Read {
    events: Vec<SseEvent>,
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
    failure: Option<DecodeError>,
}

fn read<'a>(limits: DecodeLimits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    let failure = chunks.into_iter().find_map(|mut rest| {
        loop {
            match decoder.decode(&mut rest) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return None,
                Err(failure) => return Some(failure),
            }
        }
    });
    Read { events, last_event_id: decoder.last_event_id().map(str::to_owned), retry_ms: decoder.retry_ms(), failure }
}

fn nothing() -> Read {
    Read { events: vec![], last_event_id: None, retry_ms: None, failure: None }
}

/// Events without id or name.
fn plain(data: &[&str]) -> Read {
    let events = data.iter().map(|data| SseEvent { id: None, event: None, data: (*data).to_owned() }).collect();
    Read { events, ..nothing() }
}

fn named(event: &str, data: &str) -> Read {
    Read { events: vec![SseEvent { id: None, event: Some(event.to_owned()), data: data.to_owned() }], ..nothing() }
}

/// Events with their ids, and the last id of the stream.
fn with_ids(events: &[(&str, &str)], last: &str) -> Read {
    let id = |id: &str| (!id.is_empty()).then(|| id.to_owned());
    let events = events
        .iter()
        .map(|(event_id, data)| SseEvent { id: id(event_id).map(Arc::from), event: None, data: (*data).to_owned() })
        .collect();
    Read { events, last_event_id: id(last), ..nothing() }
}

fn asked_to_wait(ms: u64) -> Read {
    Read { retry_ms: Some(ms), ..nothing() }
}

/// Each row is decoded whole, byte by byte, and in two chunks for every split.
fn check(rows: Vec<(&str, &[u8], Read)>) {
    for (rule, bytes, expected) in rows {
        assert_eq!(read(DecodeLimits::default(), [bytes]), expected, "{rule}");
        assert_eq!(read(DecodeLimits::default(), bytes.chunks(1)), expected, "{rule}, byte by byte");
        for at in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(at);
            assert_eq!(read(DecodeLimits::default(), [head, tail]), expected, "{rule}, cut at {at}");
        }
    }
}

#[test]
fn examples_of_the_standard() {
    check(vec![
        ("lines of data are joined", b"data: YHOO\ndata: +2\ndata: 10\n\n", plain(&["YHOO\n+2\n10"])),
        (
            "a comment, an id, a reset of the id, and two spaces",
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            with_ids(&[("1", "first event"), ("", "second event"), ("", " third event")], ""),
        ),
        ("empty data, two empty lines of data, and one unfinished", b"data\n\ndata\ndata\n\ndata:", plain(&["", "\n"])),
        ("the space after the colon may be missing", b"data:test\n\ndata: test\n\n", plain(&["test", "test"])),
    ]);
}

#[test]
fn lines() {
    check(vec![
        ("an empty stream", b"", nothing()),
        ("LF", b"data: a\ndata: b\n\n", plain(&["a\nb"])),
        ("CR", b"data: a\rdata: b\r\r", plain(&["a\nb"])),
        ("CRLF", b"data: a\r\ndata: b\r\n\r\n", plain(&["a\nb"])),
        ("all of them mixed", b"data: a\rdata: b\ndata: c\r\n\rdata: d\n\r\n", plain(&["a\nb\nc", "d"])),
        ("LF CR are two line ends", b"data: a\n\rdata: b\n\n", plain(&["a", "b"])),
        ("a CR as the last byte of the stream ends its line", b"data: a\n\r", plain(&["a"])),
        ("many blank lines", b"\n\r\r\n\n\ndata: a\n\n\n\n", plain(&["a"])),
        (
            "other line ends of Unicode are text",
            "data: a\u{2028}\u{85}\u{B}b\n\n".as_bytes(),
            plain(&["a\u{2028}\u{85}\u{B}b"]),
        ),
        ("a byte order mark before the first field", b"\xEF\xBB\xBFdata: a\n\n", plain(&["a"])),
        ("a byte order mark before a blank line", b"\xEF\xBB\xBF\ndata: a\n\n", plain(&["a"])),
        ("only one is taken", b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n", plain(&["b"])),
        ("and only at the start", b"\n\xEF\xBB\xBFdata: a\n\ndata: \xEF\xBB\xBFb\n\n", plain(&["\u{FEFF}b"])),
        ("half of one is a bad name", b"\xEF\xBBdata: a\n\ndata: b\n\n", plain(&["b"])),
        ("comments", b":\n: x\n:data: x\ndata: a\n: x\ndata: b\n\n:\n\n", plain(&["a\nb"])),
        (
            "fields that nobody knows, and names that are nearly right",
            b"foo: x\nDATA: x\n data: x\ndata : x\ndata: a\n\n",
            plain(&["a"]),
        ),
        ("only the first colon counts", b"data: a: b:\n\n", plain(&["a: b:"])),
        ("a tab is not a space", b"data:\ta\n\n", plain(&["\ta"])),
        ("an event that the end cuts off", b"data: a\n\ndata: b\n", plain(&["a"])),
        ("a line that the end cuts off", b"data: a\n\ndata: b", plain(&["a"])),
        ("NUL in data", b"data: a\0b\n\n", plain(&["a\0b"])),
    ]);
}

#[test]
fn events() {
    check(vec![
        ("a name", b"event: greet\ndata: a\n\n", named("greet", "a")),
        ("the last name counts", b"event: x\ndata: a\nevent: greet\n\n", named("greet", "a")),
        ("an empty name is none", b"event: x\nevent\ndata: a\n\n", plain(&["a"])),
        ("a name without data is forgotten", b"event: x\n\ndata: a\n\n", plain(&["a"])),
        ("a name does not stay", b"event: greet\ndata: a\n\nevent: x\n\n", named("greet", "a")),
    ]);
}

#[test]
fn ids() {
    check(vec![
        ("an id stays", b"id: 1\ndata: a\n\ndata: b\n\n", with_ids(&[("1", "a"), ("1", "b")], "1")),
        ("an id without data counts", b"id: 1\ndata: a\n\nid: 2\n\n", with_ids(&[("1", "a")], "2")),
        ("and shows on the next event", b"id: 2\n\ndata: a\n\n", with_ids(&[("2", "a")], "2")),
        ("but not before its blank line", b"id: 1\n\nid: 2\n", with_ids(&[], "1")),
        ("the last one counts", b"id: 1\ndata: a\nid: 2\n\n", with_ids(&[("2", "a")], "2")),
        ("an id with NUL is ignored", b"id: 1\n\nid: 2\0\ndata: a\n\n", with_ids(&[("1", "a")], "1")),
        ("an empty id resets", b"id: 1\ndata: a\n\nid:\ndata: b\n\n", with_ids(&[("1", "a"), ("", "b")], "")),
        ("an id without a colon resets too", b"id: 1\n\nid\n\n", with_ids(&[], "")),
        ("one space is stripped, not two", b"id:  1 \n\n", with_ids(&[], " 1 ")),
    ]);
}

#[test]
fn waits() {
    check(vec![
        ("digits", b"retry: 1500\n\n", asked_to_wait(1500)),
        ("without a blank line", b"retry:1500\n", asked_to_wait(1500)),
        ("the last good one counts", b"retry: 1\nretry: 2\nretry: x\n", asked_to_wait(2)),
        ("anything but digits is ignored", b"retry: 1.5\nretry: -1\nretry: +1\nretry: 1 \nretry:  1\n", nothing()),
        ("nothing is not a number", b"retry:\nretry\n", nothing()),
        ("digits of other scripts are not digits", "retry: \u{661}\n".as_bytes(), nothing()),
        ("too many digits", b"retry: 99999999999999999999999\n", asked_to_wait(u64::MAX)),
    ]);
}

#[test]
fn bad_utf8_becomes_the_replacement_character() {
    check(vec![
        ("a byte that never occurs", b"data: a\xFFb\n\n", plain(&["a\u{FFFD}b"])),
        ("the beginning of a character", b"data: \xF0\x9F\x98\n\n", plain(&["\u{FFFD}"])),
        ("a beginning, then the line ends inside", b"data: \xE2\x82\ndata: \xAC\n\n", plain(&["\u{FFFD}\n\u{FFFD}"])),
        ("an overlong form, byte by byte", b"data: \xC0\xAF\n\n", plain(&["\u{FFFD}\u{FFFD}"])),
        ("a surrogate", b"data: \xED\xA0\x80\n\n", plain(&["\u{FFFD}\u{FFFD}\u{FFFD}"])),
        ("in a name", b"event: \xFF\ndata: a\n\n", named("\u{FFFD}", "a")),
        ("in an id", b"id: \xFF\ndata: a\n\n", with_ids(&[("\u{FFFD}", "a")], "\u{FFFD}")),
        ("good characters stay", "data: \u{1F600}\u{20AC}\n\n".as_bytes(), plain(&["\u{1F600}\u{20AC}"])),
    ]);
}

const TIGHT: DecodeLimits = DecodeLimits { line_bytes_max: 8, event_bytes_max: 5 };

#[test]
fn limits_are_the_last_value_that_fits() {
    let line = DecodeError::LineTooLong { line_bytes_max: 8 };
    let event = DecodeError::EventTooLong { event_bytes_max: 5 };
    let failed = |read: Read, failure| Read { failure: Some(failure), ..read };
    let rows: Vec<(&str, &[u8], Read)> = vec![
        ("a line that just fits", b"data:abc\n\n:2345678\r\n", plain(&["abc"])),
        ("a line one too long", b"data: a\n\n:23456789\ndata: b\n\n", failed(plain(&["a"]), line)),
        ("a long line that never ends", b"data: a\n\n:23456789", failed(plain(&["a"]), line)),
        ("an event that just fits", b"data:ab\ndata:cd\n\n", plain(&["ab\ncd"])),
        ("an event one too long", b"id:1\n\ndata:ab\ndata:cde\n\n", failed(with_ids(&[], "1"), event)),
        ("line feeds count", b"data\ndata\ndata\ndata\ndata\ndata\ndata\n\n", failed(nothing(), event)),
        ("as text, a bad byte counts as three", b"data:\xFF\xFF\n\n", failed(nothing(), event)),
        ("each event starts at nothing", b"data:abc\n\ndata:abc\n\n", plain(&["abc", "abc"])),
        ("a name does not count", b"event:ab\ndata:abc\n\n", named("ab", "abc")),
    ];
    for (rule, bytes, expected) in rows {
        assert_eq!(read(TIGHT, [bytes]), expected, "{rule}");
        assert_eq!(read(TIGHT, bytes.chunks(1)), expected, "{rule}, byte by byte");
    }
}

#[test]
fn the_defaults_are_as_documented() {
    let limits = DecodeLimits::default();
    let mut line = b"data:".to_vec();
    line.resize(limits.line_bytes_max, b'x');
    line.push(b'\n');
    let four_lines = [&line[..], &line, &line, &line, b"\n"].concat();
    assert_eq!(read(limits, [&four_lines[..]]).events[0].data.len(), 4 * ((1 << 20) - 5) + 3);

    let five_lines = [&line[..], &line, &line, &line, &line].concat();
    assert_eq!(read(limits, [&five_lines[..]]).failure, Some(DecodeError::EventTooLong { event_bytes_max: 4 << 20 }));

    line.insert(5, b'x');
    assert_eq!(read(limits, [&line[..]]).failure, Some(DecodeError::LineTooLong { line_bytes_max: 1 << 20 }));
}

#[test]
fn an_error_names_its_limit() {
    assert_eq!(
        DecodeError::LineTooLong { line_bytes_max: 8 }.to_string(),
        "a line of the event stream is longer than line_bytes_max (8 bytes)"
    );
    assert_eq!(
        DecodeError::EventTooLong { event_bytes_max: 5 }.to_string(),
        "an event of the event stream has more data than event_bytes_max (5 bytes)"
    );
}

#[test]
fn after_an_error_the_decoder_is_finished() {
    let mut decoder = Decoder::new(TIGHT);
    let failure = DecodeError::LineTooLong { line_bytes_max: 8 };
    assert_eq!(decoder.decode(&mut &b"id:1\n\ndata:2\n:23456789"[..]), Err(failure));
    assert_eq!(decoder.decode(&mut &b"\n\ndata:a\n\n"[..]), Err(failure));
    assert_eq!(decoder.decode(&mut &b""[..]), Err(failure));
    assert_eq!(decoder.last_event_id(), Some("1"));
    assert_eq!(decoder.partial.capacity(), 0);
    assert_eq!(decoder.data.capacity(), 0);
}

#[test]
fn the_rest_of_a_chunk_waits_for_the_caller() {
    let mut decoder = Decoder::new(DecodeLimits::default());
    let mut rest = &b"data: a\n\ndata: b\n\ndata: c"[..];
    assert_eq!(decoder.decode(&mut rest).unwrap().unwrap().data, "a");
    assert_eq!(rest, b"data: b\n\ndata: c");
    assert_eq!(decoder.decode(&mut rest).unwrap().unwrap().data, "b");
    assert_eq!(decoder.decode(&mut rest), Ok(None));
    assert_eq!(rest, b"");
}

#[test]
fn a_line_without_an_end_takes_no_more_than_its_limit() {
    let limits = DecodeLimits { line_bytes_max: 10_000, event_bytes_max: 10_000 };
    let mut decoder = Decoder::new(limits);
    let mut largest = 0;
    for _ in 0..100_000 {
        // A vector that grows by doubling may reserve up to twice what it holds.
        largest = largest.max(decoder.partial.capacity());
        if decoder.decode(&mut &b"xxxxxxx"[..]).is_err() {
            break;
        }
    }
    assert!(largest <= 2 * limits.line_bytes_max, "{largest}");
    assert_eq!(decoder.partial.capacity(), 0);
}

#[test]
fn tiny_events_share_one_long_id() {
    let stream = [b"id: ", "7".repeat(1000).as_bytes(), b"\n\n", &b"data\n\n".repeat(1000)].concat();
    let events = read(DecodeLimits::default(), [&stream[..]]).events;
    assert_eq!(events.len(), 1000);
    assert!(events.windows(2).all(|pair| Arc::ptr_eq(pair[0].id.as_ref().unwrap(), pair[1].id.as_ref().unwrap())));
}

#[test]
fn a_long_event_leaves_no_long_buffers() {
    let (mut decoder, mut event) = (Decoder::new(DecodeLimits::default()), SseEvent::default());
    let long = [b"data: ", &vec![b'x'; 500_000][..], b"\n\n"].concat();
    for mut half in long.chunks(300_000) {
        decoder.decode_into(&mut half, &mut event).unwrap();
    }
    assert_eq!(event.data.len(), 500_000);
    assert!(decoder.decode_into(&mut &b"data: a\n\n"[..], &mut event).unwrap());
    assert_eq!(event.data, "a");
    let kept = [decoder.partial.capacity(), decoder.data.capacity(), event.data.capacity()];
    assert!(kept.iter().all(|bytes| *bytes <= KEPT_BUFFER_BYTES), "{kept:?}");
}

/// If every chunk rescanned its line, this would be 10^12 steps.
#[test]
fn single_bytes_cost_linear_time() {
    let limits = DecodeLimits { line_bytes_max: 2 << 20, event_bytes_max: 2 << 20 };
    let long_line = [b"data: ", &vec![b'x'; (2 << 20) - 6][..], b"\n\n"].concat();
    assert_eq!(read(limits, long_line.chunks(1)).events[0].data.len(), (2 << 20) - 6);

    let many_lines = [&b"data\n".repeat(1 << 18)[..], b"\n"].concat();
    assert_eq!(read(limits, many_lines.chunks(1)).events[0].data.len(), (1 << 18) - 1);
}
