//! One request at a time, and how long its answer took.

use crate::load;
use crate::sse_splitter::SseSplitter;
use crate::stream_check::StreamFault;
use crate::target::LoadTarget;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use std::time::{Duration, Instant};

const PROBE_TIMEOUT: Duration = Duration::from_secs(120);
const ERROR_TEXT_BYTES: usize = 500;

/// What a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadUntil {
    /// The first event of a stream. A comment before it (`:`, `retry:`) tells the client nothing.
    FirstEvent,
    /// The end of the body.
    End,
}

pub(crate) struct ProbeReading {
    /// From before connecting until that had arrived.
    pub(crate) took: Duration,
    /// Bytes of the body by then.
    pub(crate) bytes: usize,
}

/// Sends one request on a new connection. A response with an error status is an error, with its text.
pub(crate) async fn probe(
    target: &LoadTarget,
    request: Request<Full<Bytes>>,
    until: ReadUntil,
) -> anyhow::Result<ProbeReading> {
    let started = Instant::now();
    let uri = request.uri().clone();
    let reading = load::send_request(target, request, async |response| {
        let status = response.status();
        let (mut splitter, mut text, mut bytes, mut has_event) = (SseSplitter::default(), Vec::new(), 0, false);
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StreamFault::Cut)?;
            let data = frame.data_ref().map_or(&[][..], |data| data);
            bytes += data.len();
            // For the message of an error. A copy of all of it would count as the server's time.
            text.extend_from_slice(data.get(..ERROR_TEXT_BYTES.saturating_sub(text.len())).unwrap_or(data));
            if status.is_success() && until == ReadUntil::FirstEvent {
                splitter.push(data);
                has_event = splitter.next().map_err(|_| StreamFault::Malformed)?.is_some();
            }
            if has_event {
                break;
            }
        }
        Ok((status, bytes, text, has_event, started.elapsed()))
    });
    let outcome = tokio::time::timeout(PROBE_TIMEOUT, reading).await.unwrap_or(Err(StreamFault::Cut));
    let (status, bytes, text, has_event, took) = outcome.map_err(|fault| anyhow::anyhow!("{uri}: {fault:?}"))?;
    anyhow::ensure!(status.is_success(), "{uri}: {status} {}", String::from_utf8_lossy(&text));
    anyhow::ensure!(has_event || until == ReadUntil::End, "{uri}: {status} without an event");
    Ok(ProbeReading { took, bytes })
}
