//! One message on a WebSocket, and how long its first reply took.
//!
//! A handshake, one masked frame and the head of the reply are all that is needed, so there is no WebSocket library here.

use crate::target::LoadTarget;
use anyhow::Context;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PROBE_TIMEOUT: Duration = Duration::from_secs(120);
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The sample nonce of RFC 6455; the reply is not authenticated by it here.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const FINAL_TEXT_FRAME: u8 = 0x81;
const PING_FRAME: u8 = 0x89;
const MASKED: u8 = 0x80;

/// The time from before connecting until the first text frame had arrived, and that frame's text.
pub(crate) async fn probe_websocket(target: &LoadTarget, message: &str) -> anyhow::Result<(Duration, Vec<u8>)> {
    let started = Instant::now();
    let exchange = async {
        let mut socket = TcpStream::connect(target.authority.as_str()).await?;
        socket.set_nodelay(true)?;
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: {NONCE}\r\n\r\n",
            target.authority
        );
        socket.write_all(request.as_bytes()).await?;
        read_upgrade(&mut socket).await?;
        socket.write_all(&text_frame(message)?).await?;
        loop {
            let (kind, payload) = read_frame(&mut socket).await?;
            if kind == FINAL_TEXT_FRAME {
                return anyhow::Ok((started.elapsed(), payload));
            }
            anyhow::ensure!(kind == PING_FRAME, "an unexpected frame: {kind:#x}");
        }
    };
    let (took, text) = tokio::time::timeout(PROBE_TIMEOUT, exchange).await.context("no reply on /ws")??;
    let error = String::from_utf8_lossy(&text);
    anyhow::ensure!(!error.contains("\"type\":\"error\""), "/ws: {error}");
    Ok((took, text))
}

async fn read_upgrade(socket: &mut TcpStream) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        anyhow::ensure!(head.len() < HEAD_BYTES_MAX, "the head of the reply is too long");
        head.push(socket.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    anyhow::ensure!(head.starts_with("HTTP/1.1 101 "), "no WebSocket: {head}");
    Ok(())
}

/// A frame as clients send them: masked, here with zeros.
fn text_frame(message: &str) -> anyhow::Result<Vec<u8>> {
    let mut frame = vec![FINAL_TEXT_FRAME];
    match u8::try_from(message.len()) {
        Ok(length) if length < 126 => frame.push(MASKED | length),
        _ => {
            frame.push(MASKED | 126);
            frame.extend(u16::try_from(message.len()).context("the message is too long")?.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(message.as_bytes());
    Ok(frame)
}

async fn read_frame(socket: &mut TcpStream) -> anyhow::Result<(u8, Vec<u8>)> {
    let kind = socket.read_u8().await?;
    let length = match socket.read_u8().await? {
        126 => u64::from(socket.read_u16().await?),
        127 => socket.read_u64().await?,
        length => u64::from(length),
    };
    let mut payload = Vec::new();
    socket.take(length).read_to_end(&mut payload).await?;
    Ok((kind, payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_length_of_its_message() {
        assert_eq!(text_frame("hi").unwrap(), [0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
        let long = text_frame(&"x".repeat(300)).unwrap();
        assert_eq!((long.get(..4).unwrap(), long.len()), (&[0x81, 0xfe, 1, 44][..], 308));
    }
}
