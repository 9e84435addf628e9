//! Properties of every stream and every frame.

use bytes::BytesMut;
use proptest::prelude::*;
use sse::{DecodeError, DecodeLimits, Decoder, SseEvent, write_event, write_id};

use crate::seed::config;

/// Everything that a reader can learn from a stream.
type Read = (Vec<SseEvent>, Option<String>, Option<u64>, Option<DecodeError>);

fn read<'a>(limits: DecodeLimits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(limits);
    let mut events = Vec::new();
    let failure = chunks.into_iter().try_for_each(|mut rest| {
        while let Some(event) = decoder.decode(&mut rest)? {
            events.push(event);
        }
        Ok(())
    });
    (events, decoder.last_event_id().map(str::to_owned), decoder.retry_ms(), failure.err())
}

/// As `read`, with one event for the whole stream.
fn read_into_one_event<'a>(limits: DecodeLimits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Read {
    let mut decoder = Decoder::new(limits);
    let (mut event, mut events) = (SseEvent::default(), Vec::new());
    let failure = chunks.into_iter().try_for_each(|mut rest| {
        while decoder.decode_into(&mut rest, &mut event)? {
            events.push(event.clone());
        }
        Ok(())
    });
    (events, decoder.last_event_id().map(str::to_owned), decoder.retry_ms(), failure.err())
}

/// `bytes` in chunks of these sizes, repeated as needed.
fn pieces<'a>(bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// Bytes similar enough to an event stream to reach every branch.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => prop::sample::select(vec![&b"\n"[..], b"\r", b"\r\n", b"\n\n"]).prop_map(<[u8]>::to_vec),
        6 => prop::sample::select(vec![&b"data"[..], b"data:", b"data: ", b"id: ", b"id", b"event: ", b"retry: ", b":", b" "])
            .prop_map(<[u8]>::to_vec),
        1 => prop::sample::select(vec![&b"\xEF\xBB\xBF"[..], b"\xEF\xBB", b"\0", b"\xE2\x82", b"\xAC", b"\xFF"])
            .prop_map(<[u8]>::to_vec),
        2 => "[0-9a-z]{1,12}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn limits() -> impl Strategy<Value = DecodeLimits> {
    let tight = (0..40_usize, 0..40_usize)
        .prop_map(|(line_bytes_max, event_bytes_max)| DecodeLimits { line_bytes_max, event_bytes_max });
    prop_oneof![Just(DecodeLimits::default()), tight]
}

/// Text in which line breaks and NUL are as likely as letters.
fn hostile_text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        prop::sample::select(vec!['\n', '\r', '\0', ' ', ':', '\u{FEFF}', '\u{2028}', '\u{85}']),
        prop::char::any(),
        prop::char::range('a', 'z'),
    ];
    prop::collection::vec(character, 0..80).prop_map(String::from_iter)
}

fn fields() -> impl Strategy<Value = (Option<String>, Option<String>, String)> {
    (prop::option::of(hostile_text()), prop::option::of(hostile_text()), hostile_text())
}

fn encoded(id: Option<&str>, event: Option<&str>, data: &str) -> Vec<u8> {
    let mut out = BytesMut::new();
    write_event(&mut out, id, event, data);
    out.to_vec()
}

/// A name or an id after a round trip: unchanged, unless it contains what a field cannot carry.
fn carried(text: Option<String>) -> Option<String> {
    text.map(|text| text.replace(['\r', '\n', '\0'], "\u{FFFD}")).filter(|text| !text.is_empty())
}

/// The same for data, where a line break is carried, but as LF.
fn carried_data(data: &str) -> String {
    data.replace("\r\n", "\n").replace('\r', "\n").replace('\0', "\u{FFFD}")
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_chunking_gives_the_same_events(
        bytes in stream(),
        sizes in prop::collection::vec(1..20_usize, 1..20),
        limits in limits(),
    ) {
        let whole = read(limits, [&bytes[..]]);
        prop_assert_eq!(&read(limits, bytes.chunks(1)), &whole);
        prop_assert_eq!(&read(limits, pieces(&bytes, &sizes)), &whole);
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_depend_on_chunking(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        sizes in prop::collection::vec(1..200_usize, 1..20),
    ) {
        prop_assert_eq!(read(DecodeLimits::default(), pieces(&bytes, &sizes)), read(DecodeLimits::default(), [&bytes[..]]));
    }

    #[test]
    fn an_event_that_is_used_again_has_nothing_of_the_previous_one(
        bytes in stream(),
        limits in limits(),
        sizes in prop::collection::vec(1..60_usize, 1..20),
    ) {
        prop_assert_eq!(read_into_one_event(limits, pieces(&bytes, &sizes)), read(limits, [&bytes[..]]));
    }

    #[test]
    fn an_event_is_within_its_limits(bytes in stream(), limits in limits()) {
        let (events, ..) = read(limits, [&bytes[..]]);
        for event in events {
            prop_assert!(event.data.len() <= limits.event_bytes_max);
            prop_assert!(!event.data.contains('\r'));
            prop_assert!(event.id.is_none_or(|id| !id.is_empty() && !id.contains(['\0', '\r', '\n'])));
            prop_assert!(event.event.is_none_or(|name| !name.is_empty() && !name.contains(['\r', '\n'])));
        }
    }

    /// Like the next one, but exact: text that fits is unchanged.
    #[test]
    fn decode_undoes_encode_exactly(
        id in prop::option::of("[^\r\n\0]{1,40}"),
        event in prop::option::of("[^\r\n\0]{1,40}"),
        data in "[^\r\0]{0,200}",
    ) {
        let (events, ..) = read(DecodeLimits::default(), [&encoded(id.as_deref(), event.as_deref(), &data)[..]]);
        prop_assert_eq!(events, vec![SseEvent { id: id.map(Into::into), event, data }]);
    }

    #[test]
    fn decode_undoes_encode_for_any_frames(frames in prop::collection::vec(fields(), 0..8), sizes in prop::collection::vec(1..20_usize, 1..9)) {
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        let mut last_id = None;
        for (id, event, data) in frames {
            bytes.extend(encoded(id.as_deref(), event.as_deref(), &data));
            last_id = carried(id).or(last_id);
            expected.push(SseEvent {
                id: last_id.as_deref().map(Into::into),
                event: carried(event),
                data: carried_data(&data),
            });
        }
        prop_assert_eq!(read(DecodeLimits::default(), pieces(&bytes, &sizes)), (expected, last_id, None, None));
    }

    #[test]
    fn a_position_is_read_back_without_an_event(id in hostile_text()) {
        let mut out = BytesMut::new();
        write_id(&mut out, &id);
        prop_assert_eq!(read(DecodeLimits::default(), [&out[..]]), (vec![], carried(Some(id)), None, None));
    }

    /// Each LF ends an intended field, or is the blank line.
    #[test]
    fn no_text_can_break_out_of_its_field((id, event, data) in fields()) {
        let bytes = encoded(id.as_deref(), event.as_deref(), &data);
        prop_assert!(!bytes.contains(&b'\r') && !bytes.contains(&b'\0'));
        let text = String::from_utf8(bytes).unwrap();
        let body = text.strip_suffix("\n\n").unwrap();
        let names: Vec<&str> = body.split('\n').map(|line| line.split_once(": ").unwrap().0).collect();

        let mut expected = Vec::new();
        expected.extend(id.filter(|id| !id.is_empty()).map(|_| "id"));
        expected.extend(event.filter(|event| !event.is_empty()).map(|_| "event"));
        expected.extend(carried_data(&data).split('\n').map(|_| "data"));
        prop_assert_eq!(names, expected);
    }
}
