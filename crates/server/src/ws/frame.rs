//! The framing of WebSocket (RFC 6455), server's side: bytes → messages, messages → bytes.
//!
//! Pure, and indifferent to how bytes are cut into reads. No extensions: compression would cost each viewer a window of
//! its own. Whatever a client gets wrong has a close code; nothing is buffered beyond the limit.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// Control frames are short.
const CONTROL_BYTES_MAX: usize = 125;
const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A text.
    Text(String),
    /// Bytes, which nobody here reads.
    Binary,
    /// Are you there?
    Ping(Bytes),
    /// I am.
    Pong,
    /// The other side closes, with a code or without.
    Close(Option<u16>),
}

/// Why a connection cannot go on, with the code that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("this is not WebSocket")]
    Protocol,
    #[error("a text is not UTF-8")]
    NotText,
    #[error("a message is too large")]
    TooLarge,
}

impl Violation {
    /// The close code.
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::Protocol => 1002,
            Self::NotText => 1007,
            Self::TooLarge => 1009,
        }
    }
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte & 0x0f {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Messages out of bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    bytes: BytesMut,
    /// A message of which not all frames have come: what it is, and what there is of it.
    partial: Option<(Opcode, BytesMut)>,
    message_bytes_max: usize,
}

/// A frame's head.
struct Head {
    opcode: Opcode,
    is_last: bool,
    mask: [u8; 4],
    /// Where the payload begins.
    start: usize,
    length: usize,
}

impl Decoder {
    pub(crate) fn new(message_bytes_max: usize) -> Self {
        Self { bytes: BytesMut::new(), partial: None, message_bytes_max }
    }

    /// Where bytes are read to.
    pub(crate) const fn buffer(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// The next message, once all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Violation> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            if self.bytes.len() < head.start + head.length {
                return Ok(None);
            }
            self.bytes.advance(head.start);
            let mut payload = self.bytes.split_to(head.length);
            for (byte, mask) in payload.iter_mut().zip(head.mask.iter().cycle()) {
                *byte ^= mask;
            }
            if let Some(message) = self.frame(&head, payload)? {
                return Ok(Some(message));
            }
        }
    }

    fn head(&self) -> Result<Option<Head>, Violation> {
        let (Some(&first), Some(&second)) = (self.bytes.first(), self.bytes.get(1)) else { return Ok(None) };
        let opcode = Opcode::of(first).ok_or(Violation::Protocol)?;
        let is_last = first & FIN != 0;
        let short = usize::from(second & !MASKED);
        // A client masks what it sends; control frames are short and come in one piece.
        let fits = !opcode.is_control() || (is_last && short <= CONTROL_BYTES_MAX);
        if first & RESERVED != 0 || second & MASKED == 0 || !fits {
            return Err(Violation::Protocol);
        }
        let mut rest = self.bytes.get(2..).unwrap_or_default();
        let wide = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if rest.len() < wide + 4 {
            return Ok(None);
        }
        let length = match wide {
            2 => u64::from(rest.get_u16()),
            8 => rest.get_u64(),
            _ => short as u64,
        };
        let before = self.partial.as_ref().filter(|_| !opcode.is_control()).map_or(0, |(_, partial)| partial.len());
        let length =
            usize::try_from(length).ok().filter(|length| *length <= self.message_bytes_max.saturating_sub(before));
        let length = length.ok_or(Violation::TooLarge)?;
        let mut mask = [0; 4];
        rest.copy_to_slice(&mut mask);
        Ok(Some(Head { opcode, is_last, mask, start: 2 + wide + 4, length }))
    }

    /// A whole frame. `None` when it is only a part of a message.
    fn frame(&mut self, head: &Head, payload: BytesMut) -> Result<Option<Message>, Violation> {
        match (head.opcode, self.partial.take()) {
            (Opcode::Ping, partial) => {
                self.partial = partial;
                Ok(Some(Message::Ping(payload.freeze())))
            }
            (Opcode::Pong, partial) => {
                self.partial = partial;
                Ok(Some(Message::Pong))
            }
            (Opcode::Close, _) => closing(&payload).map(Some),
            (Opcode::Continuation, Some((opcode, mut partial))) => {
                partial.unsplit(payload);
                self.whole(head.is_last, opcode, partial)
            }
            (Opcode::Text | Opcode::Binary, None) => self.whole(head.is_last, head.opcode, payload),
            (Opcode::Continuation, None) | (Opcode::Text | Opcode::Binary, Some(_)) => Err(Violation::Protocol),
        }
    }

    fn whole(&mut self, is_last: bool, opcode: Opcode, bytes: BytesMut) -> Result<Option<Message>, Violation> {
        if !is_last {
            self.partial = Some((opcode, bytes));
            return Ok(None);
        }
        match opcode {
            Opcode::Text => String::from_utf8(bytes.to_vec()).map(Message::Text).map(Some).or(Err(Violation::NotText)),
            _ => Ok(Some(Message::Binary)),
        }
    }
}

fn closing(payload: &[u8]) -> Result<Message, Violation> {
    let Some((code, reason)) = payload.split_at_checked(2) else {
        return if payload.is_empty() { Ok(Message::Close(None)) } else { Err(Violation::Protocol) };
    };
    let code = u16::from_be_bytes(code.try_into().unwrap_or_default());
    let known = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
    match std::str::from_utf8(reason) {
        Ok(_) if known => Ok(Message::Close(Some(code))),
        Ok(_) => Err(Violation::Protocol),
        Err(_) => Err(Violation::NotText),
    }
}

/// Appends one frame.
pub(crate) fn push(out: &mut BytesMut, opcode: Opcode, payload: &[u8]) {
    out.reserve(payload.len() + 10);
    out.put_u8(FIN | opcode as u8);
    match payload.len() {
        length @ 0..=125 => out.put_u8(u8::try_from(length).unwrap_or_default()),
        length @ 126..=0xffff => {
            out.put_u8(126);
            out.put_u16(u16::try_from(length).unwrap_or_default());
        }
        length => {
            out.put_u8(127);
            out.put_u64(length as u64);
        }
    }
    out.put_slice(payload);
}

/// Appends the last frame: why the connection is closed.
pub(crate) fn push_close(out: &mut BytesMut, code: u16, reason: &str) {
    let mut payload = code.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    payload.truncate(CONTROL_BYTES_MAX);
    push(out, Opcode::Close, &payload);
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
