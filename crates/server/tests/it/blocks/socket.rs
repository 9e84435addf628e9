//! A low-level WebSocket client that can also violate the protocol.

use crate::harness::{Server, TEST_TIMEOUT};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MASK: [u8; 4] = [1, 2, 3, 4];

pub(crate) struct Socket {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Whether pings are answered.
    pub(crate) answers_pings: bool,
    /// The payload of the last ping.
    pub(crate) last_ping: Vec<u8>,
    /// The last message as it came; while its fragments arrive, the part that is there.
    text: Vec<u8>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Event(Value),
    Ping,
    Closed(u16),
    /// The connection ended without a close frame.
    Disconnected,
}

impl Socket {
    pub(crate) async fn connect(server: &Server) -> Self {
        Self::connect_with_headers(server, "").await.unwrap_or_else(|head| panic!("{head}"))
    }

    /// With additional headers; returns the head of a refused handshake.
    pub(crate) async fn connect_with_headers(server: &Server, headers: &str) -> Result<Self, String> {
        Self::connect_to(server, "/ws", headers).await
    }

    /// The same, with a query string.
    pub(crate) async fn connect_to(server: &Server, path: &str, headers: &str) -> Result<Self, String> {
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n",
            server.address
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            read_more(&mut stream, &mut bytes).await;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        if !head.starts_with("HTTP/1.1 101 ") {
            return Err(head);
        }
        assert!(head.to_lowercase().contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        bytes.drain(..end);
        Ok(Self { stream, bytes, answers_pings: true, last_ping: Vec::new(), text: Vec::new() })
    }

    pub(crate) async fn send_json(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.send_frame(0x81, text.as_bytes()).await;
    }

    /// One frame, whatever it is.
    pub(crate) async fn send_frame(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match payload.len() {
            length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
            length => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        frame.extend_from_slice(&MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        // The server may have closed the connection already.
        let _refused = self.stream.write_all(&frame).await;
    }

    /// The next event; pings are answered meanwhile.
    pub(crate) async fn next_event(&mut self) -> Value {
        let event = async {
            loop {
                match self.receive().await {
                    Received::Event(event) => return event,
                    Received::Ping => {}
                    other => panic!("{other:?} instead of an event"),
                }
            }
        };
        // Pings alone would keep the loop busy forever.
        tokio::time::timeout(TEST_TIMEOUT, event).await.expect("an event in time")
    }

    /// The next event as it came.
    pub(crate) async fn next_text(&mut self) -> String {
        self.next_event().await;
        String::from_utf8(self.text.clone()).unwrap()
    }

    /// Events up to one of this type.
    pub(crate) async fn read_until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            events.push(self.next_event().await);
            if events.last().unwrap()["type"] == kind {
                return events;
            }
        }
    }

    /// How the connection ends.
    pub(crate) async fn read_close(&mut self) -> Received {
        loop {
            match self.receive().await {
                Received::Event(_) | Received::Ping => {}
                end => return end,
            }
        }
    }

    pub(crate) async fn receive(&mut self) -> Received {
        loop {
            if let Some((first, payload)) = self.take_frame() {
                let is_last = first & 0x80 != 0;
                match first & 0x0f {
                    opcode @ (0 | 1) => {
                        if opcode == 1 {
                            self.text.clear();
                        }
                        self.text.extend_from_slice(&payload);
                        if is_last {
                            return Received::Event(serde_json::from_slice(&self.text).unwrap());
                        }
                    }
                    8 => return Received::Closed(u16::from_be_bytes(payload[..2].try_into().unwrap())),
                    9 => {
                        if self.answers_pings {
                            self.send_frame(0x8a, &payload).await;
                        }
                        self.last_ping = payload;
                        return Received::Ping;
                    }
                    other => panic!("a frame with opcode {other}"),
                }
            }
            if !read_more(&mut self.stream, &mut self.bytes).await {
                return Received::Disconnected;
            }
        }
    }

    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let first = *self.bytes.first()?;
        assert_eq!(first & 0x70, 0, "there are no extensions");
        let (start, length) = match *self.bytes.get(1)? {
            126 => (4, usize::from(u16::from_be_bytes(self.bytes.get(2..4)?.try_into().unwrap()))),
            127 => (10, usize::try_from(u64::from_be_bytes(self.bytes.get(2..10)?.try_into().unwrap())).unwrap()),
            short => (2, usize::from(short)),
        };
        let payload = self.bytes.get(start..start + length)?.to_vec();
        self.bytes.drain(..start + length);
        Some((first, payload))
    }
}

/// Reads more bytes. Returns false at the end of the connection.
async fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> bool {
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_buf(bytes)).await.expect("something in time");
    read.unwrap_or_default() > 0
}
