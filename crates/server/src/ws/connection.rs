//! A WebSocket connection.
//!
//! One task owns it and handles one message at a time, so there is no lock and no queue of unsent messages. The library
//! answers pings.

use super::event_messages::MessageFragment;
use crate::config::HttpLimits;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use gateway::body_budget::BodyReservation;
use gateway::metered_io::{MeteredIo, READ_BUFFER_BYTES};
use gateway::poll_if_woken::WakeGate;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use model::UserId;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// Bytes between two flushes. The write time-out applies to each flush, so that it catches clients that stop reading,
/// not long outputs.
const FLUSH_BYTES: usize = 16 * 1024;
/// Covers sending the close frame and receiving the client's reply.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(crate) enum WsError {
    #[error("the client is gone")]
    Disconnected,
    #[error("the client does not read")]
    WriteTimeout,
    #[error("a message did not arrive in time")]
    ReadTimeout,
    #[error("the client violated the protocol")]
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

pub(crate) enum WsIncoming {
    /// A message, and the memory that it holds.
    Text(Bytes, BodyReservation),
    Binary,
    /// A ping or a pong.
    KeepAlive,
    Close,
}

pub(crate) struct WsConnection {
    socket: WebSocketStream<MeteredIo<TokioIo<Upgraded>>>,
    /// The library clears its whole read buffer before it looks for a message. So it looks when there may be one, and not at
    /// each frame that is sent.
    reads: WakeGate,
    write_timeout: Duration,
}

impl WsConnection {
    pub(crate) async fn new(io: TokioIo<Upgraded>, limits: &HttpLimits, user: &UserId) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(FLUSH_BYTES)
            .max_message_size(Some(limits.body_bytes_max))
            .max_frame_size(Some(limits.body_bytes_max));
        let io = MeteredIo::new(io, &limits.bodies, user, limits.body_read_timeout);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
        Self { socket, reads: WakeGate::default(), write_timeout: limits.write_timeout }
    }

    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<WsIncoming, WsError> {
        let Self { socket, reads, .. } = self;
        let next = poll_fn(|cx| reads.poll(cx, |cx| socket.poll_next_unpin(cx))).await;
        let next = match next.ok_or(WsError::Disconnected)? {
            Err(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => return Err(WsError::ReadTimeout),
            next => next?,
        };
        match next {
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

    /// Sends each line as a message.
    pub(crate) async fn send_lines(&mut self, mut lines: Bytes) -> Result<(), WsError> {
        let mut unflushed = 0;
        while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
            let line = lines.split_to(end);
            let _line_end = lines.split_to(1);
            unflushed += line.len();
            // A projection writes JSON, which is UTF-8.
            let text = Utf8Bytes::try_from(line).map_err(|_| WsError::ProtocolViolation(CloseCode::Error))?;
            self.feed(Message::Text(text)).await?;
            if unflushed >= FLUSH_BYTES {
                self.flush().await?;
                unflushed = 0;
            }
        }
        self.flush().await
    }

    /// Sends fragments of messages. A message that is complete in one is sent as a whole.
    pub(super) async fn send_fragments(&mut self, fragments: Vec<MessageFragment>) -> Result<(), WsError> {
        let mut unflushed = 0;
        for MessageFragment { bytes, is_first, is_last } in fragments {
            unflushed += bytes.len();
            let message = if is_first && is_last {
                // An event stream is UTF-8.
                Message::Text(Utf8Bytes::try_from(bytes).map_err(|_| WsError::ProtocolViolation(CloseCode::Error))?)
            } else {
                let opcode = OpCode::Data(if is_first { Data::Text } else { Data::Continue });
                Message::Frame(Frame::message(bytes, opcode, is_last))
            };
            self.feed(message).await?;
            if unflushed >= FLUSH_BYTES {
                self.flush().await?;
                unflushed = 0;
            }
        }
        self.flush().await
    }

    pub(crate) async fn send_text(&mut self, text: &str) -> Result<(), WsError> {
        self.feed(Message::text(text)).await?;
        self.flush().await
    }

    /// Sends a ping. Its payload is for people; clients return it and need not look at it.
    pub(crate) async fn ping(&mut self, payload: &'static str) -> Result<(), WsError> {
        self.feed(Message::Ping(Bytes::from_static(payload.as_bytes()))).await?;
        self.flush().await
    }

    async fn feed(&mut self, message: Message) -> Result<(), WsError> {
        match tokio::time::timeout(self.write_timeout, self.socket.feed(message)).await {
            Err(_) => Err(WsError::WriteTimeout),
            Ok(fed) => Ok(fed?),
        }
    }

    async fn flush(&mut self) -> Result<(), WsError> {
        match tokio::time::timeout(self.write_timeout, self.socket.flush()).await {
            Err(_) => Err(WsError::WriteTimeout),
            Ok(flushed) => Ok(flushed?),
        }
    }

    /// Closes with a reason, and does not wait for a client that is gone.
    pub(crate) async fn close(mut self, code: CloseCode, reason: &'static str) {
        let close = async {
            // If the client closed first, the next read answers it.
            let _closed_first = self.socket.close(Some(CloseFrame { code, reason: reason.into() })).await;
            // With unread bytes the kernel would send a reset, and the close frame could be lost.
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_err() {
            tracing::debug!(%code, "the client did not close in time");
        }
    }
}
