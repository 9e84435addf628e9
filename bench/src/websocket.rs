//! WebSockets, as far as the benchmark needs them: a handshake, and frames in both directions.
//!
//! There is no WebSocket library here on purpose, as there is no SSE library (see `sse_splitter`). It knows what the servers
//! under test send (text, ping and close frames, each a whole message) and no more.

use anyhow::Context;
use bytes::{Buf, Bytes, BytesMut};
use hyper::http::uri::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The sample nonce of RFC 6455; the reply is not authenticated by it here.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const MASKED: u8 = 0x80;
const MASK_BYTES: usize = 4;
/// A longer message is taken for a stream that has lost its frames.
const MESSAGE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The first byte of a frame that is a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Text = 0x81,
    Close = 0x88,
    Ping = 0x89,
    Pong = 0x8a,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Text, Self::Close, Self::Ping, Self::Pong].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Connects to `/ws`.
pub(crate) async fn connect(authority: &Authority) -> anyhow::Result<TcpStream> {
    let mut socket = TcpStream::connect(authority.as_str()).await?;
    socket.set_nodelay(true)?;
    let request = format!(
        "GET /ws HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: {NONCE}\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(head.len() < HEAD_BYTES_MAX, "the head of the reply is too long");
        head.push(socket.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    anyhow::ensure!(head.starts_with("HTTP/1.1 101 "), "no WebSocket: {head}");
    Ok(socket)
}

/// A frame as clients send them: masked, here with zeros.
pub(crate) fn client_frame(kind: FrameKind, payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut frame = frame_head(kind, MASKED, payload.len())?;
    frame.extend([0; MASK_BYTES]);
    frame.extend_from_slice(payload);
    Ok(frame)
}

/// A frame as servers send them.
pub(crate) fn server_frame(kind: FrameKind, payload: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut frame = frame_head(kind, 0, payload.len())?;
    frame.extend_from_slice(payload);
    Ok(frame)
}

fn frame_head(kind: FrameKind, mask: u8, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut head = vec![kind as u8];
    match u8::try_from(length) {
        Ok(length) if length < 126 => head.push(mask | length),
        _ => {
            head.push(mask | 126);
            head.extend(u16::try_from(length).context("the message is too long")?.to_be_bytes());
        }
    }
    Ok(head)
}

/// Splits a byte stream into frames, in any chunking.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter(BytesMut);

impl FrameSplitter {
    /// Reads what has arrived. Returns false at the end of the connection.
    pub(crate) async fn read_from(&mut self, socket: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<bool> {
        Ok(socket.read_buf(&mut self.0).await? > 0)
    }

    /// The next whole frame and its payload.
    pub(crate) fn next(&mut self) -> anyhow::Result<Option<(FrameKind, Bytes)>> {
        let [kind, length, rest @ ..] = &*self.0 else { return Ok(None) };
        let kind = FrameKind::from_byte(*kind).with_context(|| format!("an unexpected frame: {kind:#x}"))?;
        let (is_masked, length) = (length & MASKED != 0, length & !MASKED);
        let (length_bytes, length) = match length {
            126 => (2, rest.first_chunk().map(|two| u64::from(u16::from_be_bytes(*two)))),
            127 => (8, rest.first_chunk().map(|eight| u64::from_be_bytes(*eight))),
            short => (0, Some(u64::from(short))),
        };
        let Some(length) = length else { return Ok(None) };
        anyhow::ensure!(length <= MESSAGE_BYTES_MAX, "a message of {length} bytes");
        let length = usize::try_from(length)?;
        let head = 2 + length_bytes;
        let mask_bytes = if is_masked { MASK_BYTES } else { 0 };
        if self.0.len() < head + mask_bytes + length {
            return Ok(None);
        }
        self.0.advance(head);
        let mask = self.0.split_to(mask_bytes);
        let mut payload = self.0.split_to(length);
        if is_masked {
            payload.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        }
        Ok(Some((kind, payload.freeze())))
    }

    /// Whether the stream is between two frames.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_length_of_its_message() {
        assert_eq!(client_frame(FrameKind::Text, b"hi").unwrap(), [0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
        let long = client_frame(FrameKind::Text, &[b'x'; 300]).unwrap();
        assert_eq!((long.get(..4).unwrap(), long.len()), (&[0x81, 0xfe, 1, 44][..], 308));
        assert_eq!(server_frame(FrameKind::Close, b"").unwrap(), [0x88, 0]);
    }

    #[test]
    fn any_cut_gives_the_same_frames() {
        let mut masked = client_frame(FrameKind::Text, b"masked").unwrap();
        masked.splice(2..6, [1, 2, 3, 4]);
        masked.iter_mut().skip(6).zip([1, 2, 3, 4].iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        let stream = [
            server_frame(FrameKind::Text, &[b'x'; 300]).unwrap(),
            server_frame(FrameKind::Ping, b"?").unwrap(),
            masked,
            server_frame(FrameKind::Close, b"").unwrap(),
        ]
        .concat();
        for cut in 0..stream.len() {
            let mut splitter = FrameSplitter::default();
            let mut found = Vec::new();
            for part in [stream.get(..cut).unwrap(), stream.get(cut..).unwrap()] {
                splitter.0.extend_from_slice(part);
                while let Some((kind, payload)) = splitter.next().unwrap() {
                    found.push((kind, payload.len()));
                    assert!(kind != FrameKind::Text || payload.len() == 300 || payload == "masked");
                }
            }
            assert!(splitter.is_between_frames());
            let kinds = [(FrameKind::Text, 300), (FrameKind::Ping, 1), (FrameKind::Text, 6), (FrameKind::Close, 0)];
            assert_eq!(found, kinds, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&b"\x01\x00"[..], b"HTTP/1.1", &[0x81, 127, 255, 255, 255, 255, 255, 255, 255, 255]] {
            assert!(FrameSplitter(bytes.into()).next().is_err(), "{bytes:?}");
        }
    }
}
