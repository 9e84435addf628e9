//! One request at a time, and how long it took.

use crate::load;
use crate::stream_check::StreamFault;
use crate::target::LoadTarget;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use std::time::{Duration, Instant};

const PROBE_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) struct ProbeReading {
    /// From before connecting until some of the body had arrived.
    pub(crate) first_byte: Duration,
    /// What had arrived by then.
    pub(crate) body: Vec<u8>,
}

/// Sends one request on a new connection and reads until some of the body has arrived. A response with an error status is an
/// error, with its text.
pub(crate) async fn probe(target: &LoadTarget, request: Request<Full<Bytes>>) -> anyhow::Result<ProbeReading> {
    let started = Instant::now();
    let uri = request.uri().clone();
    let reading = load::send_request(target, request, async |response| {
        let status = response.status();
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StreamFault::Cut)?;
            let bytes = frame.data_ref().map_or(&[][..], |data| data);
            if !bytes.is_empty() {
                return Ok((status, Some(started.elapsed()), bytes.to_vec()));
            }
        }
        Ok((status, None, Vec::new()))
    });
    let outcome = tokio::time::timeout(PROBE_TIMEOUT, reading).await.unwrap_or(Err(StreamFault::Cut));
    let (status, first_byte, body) = outcome.map_err(|fault| anyhow::anyhow!("{uri}: {fault:?}"))?;
    let text = || String::from_utf8_lossy(body.get(..body.len().min(500)).unwrap_or_default()).into_owned();
    anyhow::ensure!(status.is_success(), "{uri}: {status} {}", text());
    let Some(first_byte) = first_byte else { anyhow::bail!("{uri}: {status} without a body") };
    Ok(ProbeReading { first_byte, body })
}
