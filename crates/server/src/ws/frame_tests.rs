use super::*;
use model::testing::{Rng, seeds};

const MAX: usize = 70_000;

/// A client's frame.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 255, 13];
    let mut plain = BytesMut::new();
    push(&mut plain, Opcode::Text, payload);
    let start = plain.len() - payload.len();
    let mut frame = plain[..start].to_vec();
    frame[0] = first;
    frame[1] |= MASKED;
    frame.extend_from_slice(&mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

fn read(bytes: &[u8]) -> Result<Vec<Message>, Violation> {
    let mut decoder = Decoder::new(MAX);
    decoder.buffer().extend_from_slice(bytes);
    let mut messages = Vec::new();
    while let Some(message) = decoder.next()? {
        messages.push(message);
    }
    Ok(messages)
}

#[test]
fn a_text_of_any_length_comes_through() {
    for length in [0, 1, 125, 126, 127, 65_535, 65_536, MAX] {
        let text = "x".repeat(length);
        assert_eq!(read(&masked(0x81, text.as_bytes())), Ok(vec![Message::Text(text)]), "{length}");
    }
}

#[test]
fn a_message_may_come_in_pieces_with_pings_between() {
    let bytes = [masked(0x01, b"One "), masked(0x89, b"?"), masked(0x00, b"and "), masked(0x80, b"two")].concat();
    let expected = vec![Message::Ping(Bytes::from_static(b"?")), Message::Text("One and two".to_owned())];
    assert_eq!(read(&bytes), Ok(expected));
}

/// However the bytes are cut into reads, the messages are the same.
#[test]
fn reads_may_be_cut_anywhere() {
    for seed in seeds() {
        let mut chance = Rng::new(seed);
        let (mut bytes, mut said) = (Vec::new(), Vec::new());
        for number in 0..20 {
            let text = format!("{number} {}", "ạ".repeat(chance.below(90)));
            let cut = chance.below(text.len());
            bytes.extend(masked(0x01, &text.as_bytes()[..cut]));
            bytes.extend(masked(0x8a, b""));
            bytes.extend(masked(0x80, &text.as_bytes()[cut..]));
            said.extend([Message::Pong, Message::Text(text)]);
        }
        let (mut decoder, mut heard, mut rest) = (Decoder::new(MAX), Vec::new(), &bytes[..]);
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(chance.below(rest.len().min(40)) + 1);
            decoder.buffer().extend_from_slice(piece);
            rest = after;
            while let Some(message) = decoder.next().unwrap() {
                heard.push(message);
            }
        }
        assert_eq!(heard, said, "SEED={seed}");
    }
}

#[test]
fn what_is_not_websocket_is_refused_with_its_code() {
    let mut unmasked = BytesMut::new();
    push(&mut unmasked, Opcode::Text, b"hello");
    let cases: [(&str, Vec<u8>, u16); 12] = [
        ("a frame without a mask", unmasked.to_vec(), 1002),
        ("a reserved bit", masked(0xc1, b"x"), 1002),
        ("an unknown opcode", masked(0x83, b"x"), 1002),
        ("a ping in pieces", masked(0x09, b"x"), 1002),
        ("a long ping", masked(0x89, &[0; 126]), 1002),
        ("the middle of nothing", masked(0x80, b"x"), 1002),
        ("a text inside a text", [masked(0x01, b"x"), masked(0x81, b"y")].concat(), 1002),
        ("a close of one byte", masked(0x88, &[3]), 1002),
        ("a close code that is none", masked(0x88, &[0x03, 0xed]), 1002),
        ("a text that is none", masked(0x81, &[0xff]), 1007),
        ("more than the limit", masked(0x81, &vec![b'x'; MAX + 1]), 1009),
        ("more than the limit in pieces", [masked(0x01, &vec![b'x'; MAX]), masked(0x80, b"x")].concat(), 1009),
    ];
    for (what, bytes, code) in cases {
        assert_eq!(read(&bytes).map_err(Violation::code), Err(code), "{what}");
    }
    // The head alone is enough: nobody waits for bytes that are too many.
    let head = masked(0x81, &vec![b'x'; MAX + 1]);
    assert_eq!(read(&head[..14]), Err(Violation::TooLarge));
}

/// No bytes can make it panic, and it never says more than it was given.
#[test]
fn any_bytes_are_survived() {
    for seed in seeds() {
        let mut chance = Rng::new(seed);
        for _ in 0..200 {
            let bytes: Vec<u8> = (0..chance.below(60)).map(|_| u8::try_from(chance.below(256)).unwrap()).collect();
            if let Ok(messages) = read(&bytes) {
                assert!(messages.len() <= bytes.len() / 6, "SEED={seed}: {bytes:?}");
            }
        }
    }
}

#[test]
fn a_close_says_why() {
    let close = masked(0x88, b"\x03\xe8bye");
    assert_eq!(read(&close), Ok(vec![Message::Close(Some(1000))]));
    assert_eq!(read(&masked(0x88, b"")), Ok(vec![Message::Close(None)]));
    let mut out = BytesMut::new();
    push_close(&mut out, 4408, "slow");
    assert_eq!(&out[..], b"\x88\x06\x11\x38slow");
}
