//! A connection that WebSocket messages go over.
//!
//! One task owns it and does one thing at a time, so there is nothing to lock. What it has not been able to write yet is
//! what it was last given to write: nothing piles up here. Pings are answered by the library.

use super::metered_io::MeteredIo;
use crate::config::HttpLimits;
use crate::json_body::BodyPermit;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

const READ_BUFFER_BYTES: usize = 4 * 1024;
/// After so many bytes the other side has to have taken some: it is slow when it takes none for a while, not when it takes
/// long for all of them.
const FLUSH_BYTES: usize = 16 * 1024;
/// How long the other side has to take the last message, and to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why nothing more can be said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WsError {
    #[error("the other side is gone")]
    Disconnected,
    #[error("the other side takes nothing")]
    WriteTimeout,
    #[error("the other side broke a rule of the protocol")]
    ProtocolViolation(CloseCode),
}

impl From<Error> for WsError {
    fn from(error: Error) -> Self {
        match error {
            Error::Capacity(_) => Self::ProtocolViolation(CloseCode::Size),
            Error::Utf8(_) => Self::ProtocolViolation(CloseCode::Invalid),
            Error::Protocol(_) => Self::ProtocolViolation(CloseCode::Protocol),
            _ => Self::Disconnected,
        }
    }
}

/// What came in.
#[derive(Debug)]
pub(crate) enum WsIncoming {
    /// A text, and the room that it takes where it is large.
    Text(Bytes, Option<BodyPermit>),
    /// Bytes, which nobody here reads.
    Binary,
    /// A sign of life.
    KeepAlive,
    /// The other side closes.
    Close,
}

pub(crate) struct WsConnection {
    socket: WebSocketStream<MeteredIo>,
    write_timeout: Duration,
}

impl WsConnection {
    pub(crate) async fn new(io: TokioIo<Upgraded>, limits: &HttpLimits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(limits.body_bytes_max))
            .max_frame_size(Some(limits.body_bytes_max));
        let socket = WebSocketStream::from_raw_socket(MeteredIo::new(io, limits), Role::Server, Some(config)).await;
        Self { socket, write_timeout: limits.write_timeout }
    }

    /// The next message. May be given up at any moment: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<WsIncoming, WsError> {
        match self.socket.next().await.ok_or(WsError::Disconnected)?? {
            Message::Text(text) => Ok(WsIncoming::Text(text.into(), self.socket.get_mut().end_message())),
            Message::Binary(_) => {
                self.socket.get_mut().end_message();
                Ok(WsIncoming::Binary)
            }
            Message::Ping(payload) | Message::Pong(payload) => {
                self.socket.get_mut().discount_control_frame(payload.len());
                Ok(WsIncoming::KeepAlive)
            }
            Message::Frame(_) => Ok(WsIncoming::KeepAlive),
            Message::Close(_) => Ok(WsIncoming::Close),
        }
    }

    /// Sends lines, a text each.
    pub(crate) async fn send_lines(&mut self, mut lines: Bytes) -> Result<(), WsError> {
        let mut waiting = 0;
        while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
            let line = lines.split_to(end);
            let _line_end = lines.split_to(1);
            waiting += line.len();
            // A projection writes JSON, which is text.
            let text = Utf8Bytes::try_from(line).map_err(|_| WsError::ProtocolViolation(CloseCode::Error))?;
            self.send(Message::Text(text), waiting >= FLUSH_BYTES).await?;
            waiting = if waiting >= FLUSH_BYTES { 0 } else { waiting };
        }
        self.flush().await
    }

    pub(crate) async fn send_text(&mut self, text: &str) -> Result<(), WsError> {
        self.send(Message::text(text), true).await
    }

    pub(crate) async fn ping(&mut self) -> Result<(), WsError> {
        self.send(Message::Ping(Bytes::new()), true).await
    }

    async fn send(&mut self, message: Message, flush: bool) -> Result<(), WsError> {
        match tokio::time::timeout(self.write_timeout, self.socket.feed(message)).await {
            Err(_) => return Err(WsError::WriteTimeout),
            Ok(fed) => fed?,
        }
        if flush { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), WsError> {
        match tokio::time::timeout(self.write_timeout, self.socket.flush()).await {
            Err(_) => Err(WsError::WriteTimeout),
            Ok(flushed) => Ok(flushed?),
        }
    }

    /// Says why, and closes. Whoever does not listen any more is not waited for.
    pub(crate) async fn close(mut self, code: CloseCode, reason: &'static str) {
        let farewell = async {
            // Whoever closed first is answered with the next read.
            let _closed_first = self.socket.close(Some(CloseFrame { code, reason: reason.into() })).await;
            // Closing with unread bytes would take back what was just said.
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, farewell).await.is_err() {
            tracing::debug!(%code, "a socket was cut");
        }
    }
}
