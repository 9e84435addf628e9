//! The load client: many streams at once, each read to its end and checked.
//!
//! A slot opens a stream on a connection of its own, reads it, and opens the next until its waves are done; slots
//! start one after the other over at most a second. Connection and reader live in one task, so that the client takes
//! as little of the shared cores as it can.

use crate::clock;
use crate::process_usage::{ProcessUsage, UsageMeter};
use crate::stats::Percentiles;
use crate::stream_check::{FaultCounts, LatencyScope, StreamChecker, StreamFault};
use crate::target::{LoadTarget, StreamRequest, story_input};
use crate::websocket_stream;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const RAMP_MAX: Duration = Duration::from_secs(1);
const RAMP_PER_STREAM: Duration = Duration::from_millis(2);
/// How much longer than planned a stream may take before it counts as cut.
const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadPlan {
    pub(crate) streams: u32,
    pub(crate) deltas: u32,
    /// Zero is full speed.
    pub(crate) interval_ms: u64,
    /// Streams that each slot reads, one after the other.
    pub(crate) waves: u32,
}

impl LoadPlan {
    pub(crate) fn is_paced(&self) -> bool {
        self.interval_ms > 0
    }

    pub(crate) fn label(&self) -> String {
        let pace = if self.is_paced() { format!("{} ms", self.interval_ms) } else { "full speed".into() };
        format!("{} × {pace}", self.streams)
    }

    /// At full speed a ramp would let each stream end before the next begins.
    fn ramp(&self) -> Duration {
        if self.is_paced() { RAMP_MAX.min(RAMP_PER_STREAM * self.streams) } else { Duration::ZERO }
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.interval_ms) * self.deltas + STALL_TIMEOUT
    }
}

#[derive(Clone, Debug)]
pub(crate) struct LoadSample {
    pub(crate) cpu_ms_per_1k: f64,
    /// Receipt minus stamp, per delta.
    pub(crate) added_latency: Percentiles,
    /// From before connecting until the first delta was read, per stream.
    pub(crate) first_delta_latency: Percentiles,
    pub(crate) deltas_per_s: f64,
    pub(crate) usage: ProcessUsage,
    /// Events of every kind, in all streams.
    pub(crate) events: u64,
    pub(crate) streams: usize,
    pub(crate) faults: FaultCounts,
}

#[derive(Debug, Default)]
pub(crate) struct StreamReading {
    pub(crate) events: u64,
    pub(crate) deltas: u32,
    pub(crate) latencies_us: Vec<u32>,
    pub(crate) first_delta_us: Option<u32>,
    pub(crate) fault: Option<StreamFault>,
}

/// Runs `plan` against `target`.
pub(crate) async fn run_load(target: &LoadTarget, plan: LoadPlan) -> anyhow::Result<LoadSample> {
    let request = target.stream_request(&story_input(plan.deltas, plan.interval_ms))?;
    let target = Arc::new(target.clone());
    let meter = UsageMeter::start(target.pid)?;
    let started = Instant::now();
    let mut slots = JoinSet::new();
    for slot in 0..plan.streams {
        let start = plan.ramp() * slot / plan.streams;
        let (target, request) = (target.clone(), request.clone());
        slots.spawn(async move {
            tokio::time::sleep(start).await;
            let mut readings = Vec::with_capacity(plan.waves as usize);
            for _ in 0..plan.waves {
                readings.push(read_stream(&target, request.clone(), plan).await);
            }
            readings
        });
    }
    let readings: Vec<StreamReading> = slots.join_all().await.into_iter().flatten().collect();
    let seconds = started.elapsed().as_secs_f64();
    Ok(summarize(readings, seconds, meter.stop()?))
}

fn summarize(readings: Vec<StreamReading>, seconds: f64, usage: ProcessUsage) -> LoadSample {
    let streams = readings.len();
    let (mut deltas, mut events, mut faults) = (0_u64, 0, FaultCounts::default());
    let (mut added_us, mut first_us) = (Vec::new(), Vec::new());
    for reading in readings {
        deltas += u64::from(reading.deltas);
        events += reading.events;
        added_us.extend(reading.latencies_us);
        first_us.extend(reading.first_delta_us);
        if let Some(fault) = reading.fault {
            faults.add(fault);
        }
    }
    LoadSample {
        cpu_ms_per_1k: usage.cpu_ms * 1000.0 / deltas as f64,
        added_latency: Percentiles::from_micros(added_us),
        first_delta_latency: Percentiles::from_micros(first_us),
        deltas_per_s: deltas as f64 / seconds,
        usage,
        events,
        streams,
        faults,
    }
}

async fn read_stream(target: &LoadTarget, request: StreamRequest, plan: LoadPlan) -> StreamReading {
    let check = StreamChecker::new(target.protocol, plan.deltas, LatencyScope::AllDeltas);
    read_checked_stream(target, request, check, plan.deadline()).await
}

/// Reads and checks one stream; gives up at `deadline`.
pub(crate) async fn read_checked_stream(
    target: &LoadTarget,
    request: impl Into<StreamRequest>,
    mut check: StreamChecker,
    deadline: Duration,
) -> StreamReading {
    let mut first_delta_us = None;
    let reading = follow_stream(target, request.into(), &mut check, &mut first_delta_us);
    let outcome = tokio::time::timeout(deadline, reading).await.unwrap_or(Err(StreamFault::Cut));
    StreamReading {
        events: check.events(),
        deltas: check.deltas(),
        first_delta_us,
        fault: outcome.err(),
        latencies_us: check.into_latencies_us(),
    }
}

async fn follow_stream(
    target: &LoadTarget,
    request: StreamRequest,
    check: &mut StreamChecker,
    first_delta_us: &mut Option<u32>,
) -> Result<(), StreamFault> {
    let request = match request {
        StreamRequest::Http(request) => *request,
        StreamRequest::WebSocket(message) => {
            return websocket_stream::follow_websocket(target, &message, check, first_delta_us).await;
        }
    };
    let started = Instant::now();
    send_request(target, request, async |response| {
        if !is_event_stream(&response) {
            return Err(StreamFault::Http);
        }
        check.on_response_start(clock::now_us());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            // A transport error in mid-stream is a cut, unless the stream was already complete.
            let Ok(frame) = frame else { break };
            if let Some(bytes) = frame.data_ref() {
                check.on_chunk(bytes, clock::now_us())?;
            }
            if first_delta_us.is_none() && check.deltas() > 0 {
                *first_delta_us = Some(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
        }
        check.finish()
    })
    .await
}

fn is_event_stream(response: &Response<Incoming>) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    response.status() == StatusCode::OK && kind.starts_with("text/event-stream")
}

/// Sends one request on a new connection; `read` gets the response while the connection is polled beside it.
pub(crate) async fn send_request<T>(
    target: &LoadTarget,
    request: Request<Full<Bytes>>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, StreamFault>,
) -> Result<T, StreamFault> {
    let socket = TcpStream::connect(target.authority.as_str()).await.map_err(|_| StreamFault::Http)?;
    socket.set_nodelay(true).map_err(|_| StreamFault::Http)?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await;
    let (mut sender, connection) = handshake.map_err(|_| StreamFault::Http)?;
    let connection = async {
        // The reader still gets what the connection has buffered, and any error.
        let _ = connection.await;
        std::future::pending::<Result<T, StreamFault>>().await
    };
    let reading = async {
        let response = sender.send_request(request).await.map_err(|_| StreamFault::Http)?;
        read(response).await
    };
    tokio::select! {
        biased; // the connection first: what it reads from the socket is then handled in the same poll
        outcome = connection => outcome,
        outcome = reading => outcome,
    }
}
