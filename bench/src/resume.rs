//! Reading a long run: a stream that continues near its end, and the finished object, in each protocol that has them.
//!
//! The time is that until the first event, or until the whole object was read, on a new connection. It is measured many times on a server that has
//! read the run before, and once per request right after the server was killed and started again.

use crate::fanout::{self, CreatedRun};
use crate::load;
use crate::probe::{ReadUntil, probe};
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::{median, min_max};
use crate::stream_check::{LatencyScope, StreamChecker};
use crate::stream_protocol::StreamProtocol;
use crate::target::{LoadTarget, story_input};
use crate::websocket_probe::probe_websocket;
use hyper::http::uri::Authority;
use serde_json::json;
use std::time::Duration;

const SHORT_RUN_DELTAS: u32 = 10_000;
const LONG_RUN_DELTAS: u32 = 1_000_000;
const PROBES: usize = 20;
const RUN_DEADLINE: Duration = Duration::from_secs(900);
/// Events before the last one at which a stream continues.
const REMAINING_EVENTS: u64 = 5;
const SHORT_RUN_MS_MAX: f64 = 5.0;
const LONG_RUN_MS_MAX: f64 = 200.0;

/// How many events the measured logs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogScale {
    /// Quick enough for every day.
    Small,
    /// As large as the targets say.
    Full,
}

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, scale: LogScale, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let upstream = mock.target().authority.clone();
    let Some(mut headwater) = ServerProcess::start_headwater(options, &upstream).await? else { return Ok(true) };
    let mut table = Table::new(&[
        "deltas of the run",
        "request",
        "first byte p50 ms",
        "slowest ms",
        "after a restart ms",
        "first bytes",
    ]);
    let (mut verdicts, mut all_met) = (String::new(), true);
    let mut sizes = vec![(SHORT_RUN_DELTAS, SHORT_RUN_MS_MAX)];
    if scale == LogScale::Full {
        sizes.push((LONG_RUN_DELTAS, LONG_RUN_MS_MAX));
    }
    for (deltas, bound_ms) in sizes {
        let requests = finish_run(headwater.target(), deltas).await?;
        for (name, request) in requests {
            let (sample, restarted) = measure_request(headwater, options, &upstream, &request).await?;
            headwater = restarted;
            eprintln!("{deltas} {name}: p50 {} ms", format_figure(sample.p50_ms));
            table.push_row(&[
                deltas.to_string(),
                name.to_owned(),
                format_figure(sample.p50_ms),
                format_figure(sample.slowest_ms),
                format_figure(sample.restarted_ms),
                sample.bytes.to_string(),
            ]);
            // Of a short run the whole object is more than its end; of a long one it has the same bound.
            if !matches!(request, RunRequest::Get(_)) || deltas == LONG_RUN_DELTAS {
                let worst =
                    if deltas == LONG_RUN_DELTAS { sample.p50_ms.max(sample.restarted_ms) } else { sample.p50_ms };
                let text = format!("{name} after {deltas} deltas: {} ms (at most {bound_ms})", format_figure(worst));
                verdicts += &format_verdict(&text, worst <= bound_ms);
                all_met &= worst <= bound_ms;
            }
        }
    }
    headwater.stop().await?;
    mock.stop().await?;
    report::publish_section("resume", &format!("{}\n{verdicts}", table.into_markdown()), output)?;
    Ok(all_met)
}

/// One way to read a run that has ended.
enum RunRequest {
    /// The path of a stream that continues near the end.
    Resume(String),
    /// The message that makes a WebSocket continue there.
    ResumeBlocks(String),
    /// The path of the finished object.
    Get(String),
}

/// Runs one story to its end. Returns the requests that read it, with their names.
async fn finish_run(server: &LoadTarget, deltas: u32) -> anyhow::Result<Vec<(&'static str, RunRequest)>> {
    let tasks = LoadTarget { protocol: StreamProtocol::Tasks, model: "bench", ..server.clone() };
    let run = fanout::start_run(&tasks, &story_input(deltas, 0))
        .await
        .map_err(|fault| anyhow::anyhow!("the run did not start: {fault:?}"))?;
    let CreatedRun { id: task, thread_id } = run;
    let thread = thread_id.ok_or_else(|| anyhow::anyhow!("the task names no thread"))?;
    let response = task.replacen("task_", "resp_", 1);
    let after = count_events(&tasks, &task, deltas).await?.saturating_sub(REMAINING_EVENTS);
    let responses = LoadTarget { protocol: StreamProtocol::Responses, ..tasks };
    // Numbered from 0.
    let starting_after = count_events(&responses, &response, deltas).await?.saturating_sub(REMAINING_EVENTS + 1);
    let blocks = json!({"type": "resume", "session_id": thread, "after": after.to_string()}).to_string();
    let run_items = format!("/v1/tasks/{task}/events?format=run-items&after={after}");
    let response_stream = format!("/v1/responses/{response}?stream=true&starting_after={starting_after}");
    Ok(vec![
        ("resume, tasks", RunRequest::Resume(format!("/v1/tasks/{task}/events?after={after}"))),
        ("resume, run items", RunRequest::Resume(run_items)),
        ("resume, responses", RunRequest::Resume(response_stream)),
        ("resume, agent runs", RunRequest::Resume(format!("/api/v1/agent/runs/{thread}/events?after={after}"))),
        ("resume, blocks", RunRequest::ResumeBlocks(blocks)),
        ("resume, thread", RunRequest::Resume(format!("/v1/threads/{thread}/events?after={after}"))),
        ("GET task", RunRequest::Get(format!("/v1/tasks/{task}"))),
        ("GET response", RunRequest::Get(format!("/v1/responses/{response}"))),
    ])
}

/// Reads a run to its end and checks it.
async fn count_events(target: &LoadTarget, id: &str, deltas: u32) -> anyhow::Result<u64> {
    let check = StreamChecker::new(target.protocol, deltas, LatencyScope::SinceAttach);
    let reading = load::read_checked_stream(target, target.follow_request(id)?, check, RUN_DEADLINE).await;
    anyhow::ensure!(reading.fault.is_none(), "a run of {deltas} deltas was bad: {:?}", reading.fault);
    Ok(reading.events)
}

struct RequestSample {
    p50_ms: f64,
    slowest_ms: f64,
    restarted_ms: f64,
    bytes: usize,
}

/// Measures one request on a server that runs, then on the same one started again, which it returns.
async fn measure_request(
    server: ServerProcess,
    options: &HeadwaterOptions,
    upstream: &Authority,
    request: &RunRequest,
) -> anyhow::Result<(RequestSample, ServerProcess)> {
    let (mut times_ms, mut bytes) = (Vec::with_capacity(PROBES), 0);
    for _ in 0..PROBES {
        let (ms, read) = send_once(server.target(), request).await?;
        times_ms.push(ms);
        bytes = read;
    }
    let server = server.restart_headwater(options, upstream).await?;
    let (restarted_ms, _) = send_once(server.target(), request).await?;
    let slowest_ms = min_max(times_ms.iter().copied()).1;
    Ok((RequestSample { p50_ms: median(times_ms), slowest_ms, restarted_ms, bytes }, server))
}

/// Milliseconds until the first event or the whole object, and how many bytes had been read then.
async fn send_once(target: &LoadTarget, request: &RunRequest) -> anyhow::Result<(f64, usize)> {
    let (took, bytes) = match request {
        RunRequest::ResumeBlocks(message) => {
            let (took, reply) = probe_websocket(target, message).await?;
            (took, reply.len())
        }
        RunRequest::Resume(uri) => {
            let reading = probe(target, target.get(uri)?, ReadUntil::FirstEvent).await?;
            (reading.took, reading.bytes)
        }
        RunRequest::Get(uri) => {
            let reading = probe(target, target.get(uri)?, ReadUntil::End).await?;
            (reading.took, reading.bytes)
        }
    };
    Ok((took.as_secs_f64() * 1000.0, bytes))
}
