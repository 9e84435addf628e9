//! A connection that WebSocket frames go over.
//!
//! One task owns it and does one thing at a time, so there is nothing to lock. What it has not been able to write yet is
//! what it was last given to write: nothing piles up here.

use super::frame::{self, Decoder, Message, Opcode, Violation};
use crate::config::HttpLimits;
use bytes::{Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io::{Error, ErrorKind};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const READ_BYTES: usize = 4 * 1024;
/// How long the other side has to take the last frame, and to close.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// Why nothing more can be said.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the other side is gone")]
    Gone,
    #[error("the other side takes nothing")]
    Slow,
    #[error(transparent)]
    Violation(#[from] Violation),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        if error.kind() == ErrorKind::TimedOut { Self::Slow } else { Self::Gone }
    }
}

pub(crate) struct Line {
    io: TokioIo<Upgraded>,
    decoder: Decoder,
    out: BytesMut,
    stall: Duration,
}

impl Line {
    pub(crate) fn new(io: TokioIo<Upgraded>, limits: &HttpLimits) -> Self {
        let decoder = Decoder::new(limits.body_bytes_max);
        Self { io, decoder, out: BytesMut::new(), stall: limits.write_stall }
    }

    /// The next message. May be given up at any moment: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some(message) = self.decoder.next()? {
                return Ok(message);
            }
            let buffer = self.decoder.buffer();
            buffer.reserve(READ_BYTES);
            if self.io.read_buf(buffer).await? == 0 {
                return Err(Broken::Gone);
            }
        }
    }

    /// Sends lines, a text each.
    pub(crate) async fn send_lines(&mut self, lines: Bytes) -> Result<(), Broken> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            frame::push(&mut self.out, Opcode::Text, line);
        }
        // Whoever is slow holds one copy, not two.
        drop(lines);
        self.flush().await
    }

    pub(crate) async fn send_text(&mut self, text: &str) -> Result<(), Broken> {
        frame::push(&mut self.out, Opcode::Text, text.as_bytes());
        self.flush().await
    }

    pub(crate) async fn ping(&mut self) -> Result<(), Broken> {
        frame::push(&mut self.out, Opcode::Ping, b"");
        self.flush().await
    }

    pub(crate) async fn pong(&mut self, payload: &[u8]) -> Result<(), Broken> {
        frame::push(&mut self.out, Opcode::Pong, payload);
        self.flush().await
    }

    /// Writes what there is to write, as long as the other side takes some of it now and then.
    async fn flush(&mut self) -> Result<(), Broken> {
        while !self.out.is_empty() {
            match tokio::time::timeout(self.stall, self.io.write_buf(&mut self.out)).await {
                Err(_) => return Err(Broken::Slow),
                Ok(Ok(0)) => return Err(Broken::Gone),
                Ok(written) => written?,
            };
        }
        // One large write must not be paid for as long as the socket lives.
        self.out = BytesMut::new();
        Ok(self.io.flush().await?)
    }

    /// Says why, and closes. Whoever does not listen any more is not waited for.
    pub(crate) async fn close(mut self, code: u16, reason: &str) {
        frame::push_close(&mut self.out, code, reason);
        let farewell = async {
            self.flush().await?;
            self.io.shutdown().await?;
            // Closing with unread bytes would take back what was just said.
            while self.next().await.is_ok() {}
            Ok::<(), Broken>(())
        };
        if tokio::time::timeout(CLOSE_WITHIN, farewell).await.is_err() {
            tracing::debug!(code, "a socket was cut");
        }
    }
}
