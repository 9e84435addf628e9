//! A long conversation: how a turn in a thread of a thousand turns starts, compared with the first turn of a new one.
//!
//! The two are measured alternately, so that the machine treats them alike. The agent has the whole history, as by default,
//! so the request to the provider grows with the thread. What the longer request costs by itself is measured in between: the
//! client sends it straight to the mock.

use crate::clock;
use crate::fanout::{self, CreatedRun};
use crate::load;
use crate::mock_frames::DELTA_TEXT;
use crate::probe::{ReadUntil, probe};
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::median;
use crate::stream_check::{LatencyScope, StreamChecker};
use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;
use serde_json::{Value, json};
use std::time::Duration;

const TURNS: u32 = 1000;
const MEASURED_TURNS: u32 = 50;
const PROBES: u32 = 20;
const STORY: &str = "story 3 fast";
const STORY_DELTAS: u32 = 3;
const TURN_DEADLINE: Duration = Duration::from_secs(30);
const RATIO_MAX: f64 = 1.2;
/// Before each stream. After the end of a turn the server has still to write what it left, which would delay the next one.
const REST: Duration = Duration::from_millis(10);

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let Some(headwater) = ServerProcess::start_headwater(options, &mock.target().authority).await? else {
        return Ok(true);
    };
    let target = LoadTarget { protocol: StreamProtocol::Tasks, model: "bench", ..headwater.target().clone() };
    let measured = measure_thread(&target, mock.target()).await;
    let sample = measured.inspect_err(|_| eprintln!("{}", headwater.log_tail()))?;
    headwater.stop().await?;
    mock.stop().await?;

    let mut table = Table::new(&["what", "p50 ms"]);
    for (what, ms) in [
        ("first delta of the first turn of a thread", sample.first_turn_ms),
        ("first delta of its second turn", sample.second_turn_ms),
        ("first delta of a turn after 1,000 turns", sample.late_turn_ms),
        ("first delta of the mock, straight, without a history", sample.mock_short_ms),
        ("first delta of the mock, straight, with 1,000 turns", sample.mock_long_ms),
        ("`GET /v1/threads/{id}` of the long thread, whole", sample.get_ms),
        ("`GET /v1/threads/{id}/events` of the long thread, first event", sample.events_ms),
    ] {
        table.push_row(&[what.to_owned(), format_figure(ms)]);
    }
    let ratio = sample.late_turn_ms / sample.first_turn_ms;
    let is_met = ratio <= RATIO_MAX;
    let text = format!(
        "a turn after {TURNS} turns starts in {} × the first (at most {RATIO_MAX}), and in {} × the second; straight to the \
         mock, the longer request takes {} ms more",
        format_figure(ratio),
        format_figure(sample.late_turn_ms / sample.second_turn_ms),
        format_figure(sample.mock_long_ms - sample.mock_short_ms)
    );
    let body = format!("{}\n{}", table.into_markdown(), format_verdict(&text, is_met));
    report::publish_section("threads", &body, output)?;
    Ok(is_met)
}

struct ThreadSample {
    first_turn_ms: f64,
    second_turn_ms: f64,
    late_turn_ms: f64,
    mock_short_ms: f64,
    mock_long_ms: f64,
    get_ms: f64,
    events_ms: f64,
}

async fn measure_thread(target: &LoadTarget, mock: &LoadTarget) -> anyhow::Result<ThreadSample> {
    let mut short_threads = Vec::new();
    for _ in 0..MEASURED_TURNS {
        short_threads.push(start_thread(target).await?);
    }
    // While it grows, the first turns of the others end.
    let thread = start_thread(target).await?;
    for _ in 1..TURNS {
        take_turn(target, Some(&thread)).await?;
    }
    let (short, long) = (provider_request(0), provider_request(TURNS));
    let mut times_ms: [Vec<f64>; 5] = Default::default();
    for short_thread in short_threads {
        let round = [
            take_turn(target, None).await?,
            take_turn(target, Some(&short_thread)).await?,
            take_turn(target, Some(&thread)).await?,
            first_delta_ms(mock, &short).await?,
            first_delta_ms(mock, &long).await?,
        ];
        times_ms.iter_mut().zip(round).for_each(|(times, ms)| times.push(ms));
    }
    let get_ms = probe_ms(target, &format!("/v1/threads/{thread}"), ReadUntil::End).await?;
    let events_ms = probe_ms(target, &format!("/v1/threads/{thread}/events"), ReadUntil::FirstEvent).await?;
    let [first_turn_ms, second_turn_ms, late_turn_ms, mock_short_ms, mock_long_ms] = times_ms.map(median);
    Ok(ThreadSample { first_turn_ms, second_turn_ms, late_turn_ms, mock_short_ms, mock_long_ms, get_ms, events_ms })
}

/// Starts a thread with one turn, and returns its id.
async fn start_thread(target: &LoadTarget) -> anyhow::Result<String> {
    let CreatedRun { thread_id, .. } =
        fanout::start_run(target, STORY).await.map_err(|fault| anyhow::anyhow!("no first turn: {fault:?}"))?;
    thread_id.ok_or_else(|| anyhow::anyhow!("the task names no thread"))
}

/// Milliseconds until the first delta of a turn. No thread is a new one.
async fn take_turn(target: &LoadTarget, thread: Option<&str>) -> anyhow::Result<f64> {
    let mut body = json!({"model": target.model, "input": STORY, "stream": true});
    if let (Some(thread), Some(body)) = (thread, body.as_object_mut()) {
        body.insert("thread_id".into(), thread.into());
    }
    first_delta_ms(target, &body).await
}

/// A request of the size of the one that Headwater sends.
fn provider_request(turns: u32) -> Value {
    let question = json!({"role": "user", "content": STORY});
    let answer = (1..=STORY_DELTAS).map(|number| format!("{} {number} {DELTA_TEXT}", clock::now_us()));
    let answer = json!({"role": "assistant", "content": answer.collect::<String>()});
    let past = std::iter::repeat_n([question.clone(), answer], turns as usize).flatten();
    let messages: Vec<Value> = past.chain([question]).collect();
    json!({"messages": messages, "model": "story", "stream": true, "stream_options": {"include_usage": true}})
}

/// Milliseconds until the first delta of a stream, which is read to its end.
async fn first_delta_ms(target: &LoadTarget, body: &Value) -> anyhow::Result<f64> {
    tokio::time::sleep(REST).await;
    let check = StreamChecker::new_in_thread(target.protocol, STORY_DELTAS, LatencyScope::AllDeltas);
    let reading = load::read_checked_stream(target, target.post(body)?, check, TURN_DEADLINE).await;
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
