//! One message on a WebSocket, and how long its first reply took.

use crate::target::LoadTarget;
use crate::websocket::{self, FrameKind, FrameSplitter};
use anyhow::Context;
use bytes::Bytes;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

/// The time from before connecting until the first text frame had arrived, and that frame's text.
pub(crate) async fn probe_websocket(target: &LoadTarget, message: &str) -> anyhow::Result<(Duration, Bytes)> {
    let started = Instant::now();
    let exchange = async {
        let mut socket = websocket::connect(&target.authority).await?;
        socket.write_all(&websocket::client_frame(FrameKind::Text, message.as_bytes())?).await?;
        let mut splitter = FrameSplitter::default();
        loop {
            match splitter.next()? {
                Some((FrameKind::Text, payload)) => return anyhow::Ok((started.elapsed(), payload)),
                Some((FrameKind::Ping | FrameKind::Pong, _)) => {}
                Some((FrameKind::Close, _)) => anyhow::bail!("/ws was closed"),
                None => anyhow::ensure!(splitter.read_from(&mut socket).await?, "/ws ended"),
            }
        }
    };
    let (took, text) = tokio::time::timeout(PROBE_TIMEOUT, exchange).await.context("no reply on /ws")??;
    let error = String::from_utf8_lossy(&text);
    anyhow::ensure!(!error.contains("\"type\":\"error\""), "/ws: {error}");
    Ok((took, text))
}
