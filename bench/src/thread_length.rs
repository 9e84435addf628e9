//! A long conversation: how a turn in a thread of a thousand turns starts, compared with the first turn of a new one.
//!
//! The two are measured alternately, so that the machine treats them alike. The agent has the whole history, as by default,
//! so the request to the provider grows with the thread.

use crate::fanout::{self, CreatedRun};
use crate::load;
use crate::probe::{ReadUntil, probe};
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::median;
use crate::stream_check::{LatencyScope, StreamChecker};
use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;
use serde_json::json;
use std::time::Duration;

const TURNS: u32 = 1000;
const MEASURED_TURNS: u32 = 50;
const PROBES: u32 = 20;
const STORY: &str = "story 3 fast";
const STORY_DELTAS: u32 = 3;
const TURN_DEADLINE: Duration = Duration::from_secs(30);
const RATIO_MAX: f64 = 1.2;

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let Some(headwater) = ServerProcess::start_headwater(options, &mock.target().authority).await? else {
        return Ok(true);
    };
    let target = LoadTarget { protocol: StreamProtocol::Tasks, model: "bench", ..headwater.target().clone() };
    let measured = measure_thread(&target).await;
    let sample = measured.inspect_err(|_| eprintln!("{}", headwater.log_tail()))?;
    headwater.stop().await?;
    mock.stop().await?;

    let mut table = Table::new(&["what", "p50 ms"]);
    for (what, ms) in [
        ("first delta of the first turn of a thread", sample.first_turn_ms),
        ("first delta of a turn after 1,000 turns", sample.late_turn_ms),
        ("`GET /v1/threads/{id}` of the long thread, whole", sample.get_ms),
        ("`GET /v1/threads/{id}/events` of the long thread, first event", sample.events_ms),
    ] {
        table.push_row(&[what.to_owned(), format_figure(ms)]);
    }
    let ratio = sample.late_turn_ms / sample.first_turn_ms;
    let is_met = ratio <= RATIO_MAX;
    let text =
        format!("a turn after {TURNS} turns starts in {} × the first (at most {RATIO_MAX})", format_figure(ratio));
    let body = format!("{}\n{}", table.into_markdown(), format_verdict(&text, is_met));
    report::publish_section("threads", &body, output)?;
    Ok(is_met)
}

struct ThreadSample {
    first_turn_ms: f64,
    late_turn_ms: f64,
    get_ms: f64,
    events_ms: f64,
}

async fn measure_thread(target: &LoadTarget) -> anyhow::Result<ThreadSample> {
    let CreatedRun { thread_id, .. } =
        fanout::start_run(target, STORY).await.map_err(|fault| anyhow::anyhow!("no first turn: {fault:?}"))?;
    let thread = thread_id.ok_or_else(|| anyhow::anyhow!("the task names no thread"))?;
    for _ in 1..TURNS {
        take_turn(target, Some(&thread)).await?;
    }
    let (mut first_ms, mut late_ms) = (Vec::new(), Vec::new());
    for _ in 0..MEASURED_TURNS {
        first_ms.push(take_turn(target, None).await?);
        late_ms.push(take_turn(target, Some(&thread)).await?);
    }
    let get_ms = probe_ms(target, &format!("/v1/threads/{thread}"), ReadUntil::End).await?;
    let events_ms = probe_ms(target, &format!("/v1/threads/{thread}/events"), ReadUntil::FirstEvent).await?;
    Ok(ThreadSample { first_turn_ms: median(first_ms), late_turn_ms: median(late_ms), get_ms, events_ms })
}

/// Milliseconds until the first delta of a turn, which is read to its end. No thread is a new one.
async fn take_turn(target: &LoadTarget, thread: Option<&str>) -> anyhow::Result<f64> {
    let mut body = json!({"model": target.model, "input": STORY, "stream": true});
    if let (Some(thread), Some(body)) = (thread, body.as_object_mut()) {
        body.insert("thread_id".into(), thread.into());
    }
    let check = StreamChecker::new_in_thread(target.protocol, STORY_DELTAS, LatencyScope::AllDeltas);
    let reading = load::read_checked_stream(target, target.post(&body)?, check, TURN_DEADLINE).await;
    anyhow::ensure!(reading.fault.is_none(), "a turn was bad: {:?}", reading.fault);
    Ok(f64::from(reading.first_delta_us.unwrap_or(u32::MAX)) / 1000.0)
}

async fn probe_ms(target: &LoadTarget, uri: &str, until: ReadUntil) -> anyhow::Result<f64> {
    let mut times_ms = Vec::new();
    for _ in 0..PROBES {
        let reading = probe(target, target.get(uri)?, until).await?;
        times_ms.push(reading.took.as_secs_f64() * 1000.0);
    }
    Ok(median(times_ms))
}
