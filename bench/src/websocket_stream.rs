//! A stream over a WebSocket: in the load client, and in the mock.

use crate::clock;
use crate::delta_stream::StreamBody;
use crate::sse_splitter::SseSplitter;
use crate::stream_check::{StreamChecker, StreamFault};
use crate::target::LoadTarget;
use crate::websocket::{self, FrameKind, FrameSplitter};
use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Sends one message and checks what follows. The socket stays open after a turn, so the client closes it, and checks what
/// arrives until the server has closed it, too.
pub(crate) async fn follow_websocket(
    target: &LoadTarget,
    message: &str,
    check: &mut StreamChecker,
    first_delta_us: &mut Option<u32>,
) -> Result<(), StreamFault> {
    let started = Instant::now();
    let mut socket = websocket::connect(&target.authority).await.map_err(|_| StreamFault::Http)?;
    send_frame(&mut socket, FrameKind::Text, message.as_bytes()).await?;
    check.on_response_start(clock::now_us());
    let (mut splitter, mut is_closing) = (FrameSplitter::default(), false);
    // A transport error in mid-stream is a cut, unless the stream was already complete.
    while splitter.read_from(&mut socket).await.unwrap_or(false) {
        let received_us = clock::now_us();
        while let Some((kind, payload)) = splitter.next().map_err(|_| StreamFault::Malformed)? {
            match kind {
                FrameKind::Text => check.on_event_data(&payload, received_us)?,
                FrameKind::Ping => send_frame(&mut socket, FrameKind::Pong, &payload).await?,
                FrameKind::Pong => {}
                FrameKind::Close => return check.finish(),
            }
        }
        if first_delta_us.is_none() && check.deltas() > 0 {
            *first_delta_us = Some(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        if check.has_ended() && !is_closing {
            is_closing = true;
            send_frame(&mut socket, FrameKind::Close, &[]).await?;
        }
    }
    if splitter.is_between_frames() { check.finish() } else { check.finish().and(Err(StreamFault::Malformed)) }
}

async fn send_frame(
    socket: &mut (impl AsyncWrite + Unpin),
    kind: FrameKind,
    payload: &[u8],
) -> Result<(), StreamFault> {
    let frame = websocket::client_frame(kind, payload).map_err(|_| StreamFault::Http)?;
    socket.write_all(&frame).await.map_err(|_| StreamFault::Cut)
}

/// The mock's side: reads one message, sends the stream that `stream_of` makes of it, and closes when the client does.
pub(crate) async fn serve_websocket(
    upgraded: hyper::upgrade::Upgraded,
    stream_of: impl Fn(&str) -> Option<StreamBody>,
) -> anyhow::Result<()> {
    let mut socket = TokioIo::new(upgraded);
    let mut splitter = FrameSplitter::default();
    let (_, message) = next_frame(&mut socket, &mut splitter).await?.context("no message")?;
    let mut body = stream_of(std::str::from_utf8(&message)?).context("no story")?;
    while let Some(frame) = body.frame().await {
        // The body has events of SSE; each is a message here.
        let mut events = SseSplitter::default();
        events.push(frame?.data_ref().map(Bytes::as_ref).unwrap_or_default());
        let mut messages = Vec::new();
        while let Some(event) = events.next().map_err(|_| anyhow::anyhow!("an event is too long"))? {
            messages.extend(websocket::server_frame(FrameKind::Text, &event.data)?);
        }
        socket.write_all(&messages).await?;
    }
    if body.has_completed() {
        while let Some((kind, _)) = next_frame(&mut socket, &mut splitter).await? {
            if kind == FrameKind::Close {
                socket.write_all(&websocket::server_frame(FrameKind::Close, &[])?).await?;
                break;
            }
        }
    }
    Ok(())
}

async fn next_frame(
    socket: &mut (impl AsyncRead + Unpin),
    splitter: &mut FrameSplitter,
) -> anyhow::Result<Option<(FrameKind, Bytes)>> {
    loop {
        if let Some(frame) = splitter.next()? {
            return Ok(Some(frame));
        }
        if !splitter.read_from(socket).await? {
            return Ok(None);
        }
    }
}
