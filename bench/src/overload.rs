//! More than the server can carry: the streams share what there is, memory stays, and latency falls back afterwards.
//!
//! The capacity is measured first, with more paced streams than the server can carry. The overload is streams whose models offer
//! 1.5 × that capacity; the mock makes up for what it could not send in time, as a provider would. All streams are read to their
//! end and checked. The plateau is the time in which all of them are running.

use crate::cell::HeadwaterCell;
use crate::clock;
use crate::load::{self, LoadPlan};
use crate::process_usage::rss_kb;
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stream_check::{LatencyScope, StreamChecker, StreamFault};
use crate::target::{LoadTarget, STORY_INTERVAL_MS, StreamRequest, story_input};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Before and after the overload.
const CALM: LoadPlan = LoadPlan { streams: 20, deltas: 100, interval_ms: STORY_INTERVAL_MS, waves: 1 };
const FULL_SPEED: LoadPlan = LoadPlan { streams: 50, deltas: 1_000, interval_ms: 0, waves: 2 };
const OVERLOAD: f64 = 1.5;
/// What a run costs in memory when nothing is short.
const CALM_STREAMS: u32 = 100;
const STREAMS_MIN: u32 = 50;
const STREAMS_MAX: u32 = 4_000;
/// Ten seconds, if the server could carry it.
const DELTAS: u32 = 500;
const RAMP: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_secs(60);
const RSS_INTERVAL: Duration = Duration::from_millis(250);
/// A stream starves if it gets nothing for as many seconds.
const WINDOW_SECONDS: usize = 3;

const SHARE_MIN: f64 = 0.1;
const RSS_GROWTH_MAX: f64 = 2.0;
const LATENCY_GROWTH_MAX: f64 = 3.0;
/// Below this a latency is noise.
const LATENCY_FLOOR_MS: f64 = 1.0;

/// When the deltas of one stream came, after the start of all.
#[derive(Debug, Default)]
pub(crate) struct DeltaArrivals {
    /// By second.
    pub(crate) per_second: Vec<u32>,
    pub(crate) ended_after: Duration,
    pub(crate) fault: Option<StreamFault>,
}

impl DeltaArrivals {
    fn add(&mut self, second: usize, deltas: u32) {
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        if let Some(count) = self.per_second.get_mut(second) {
            *count += deltas;
        }
    }
}

/// How the streams of an overload were served.
#[derive(Debug)]
pub(crate) struct Fairness {
    /// Whole seconds in which all streams were under way.
    pub(crate) seconds: usize,
    /// Deltas of all streams in this time.
    pub(crate) deltas: u64,
    /// What the slowest stream got, as a share of the mean.
    pub(crate) slowest_share: f64,
    /// Streams that got nothing in some window.
    pub(crate) starved: usize,
    pub(crate) faulty: usize,
}

impl Fairness {
    /// `begun` is when the last stream was started.
    pub(crate) fn of(streams: &[DeltaArrivals], begun: Duration) -> Self {
        let first = usize::try_from(begun.as_secs()).unwrap_or_default() + usize::from(begun.subsec_nanos() > 0);
        let end = streams.iter().map(|stream| stream.ended_after.as_secs()).min().unwrap_or_default();
        let end = usize::try_from(end).unwrap_or_default().max(first);
        let plateau = |stream: &DeltaArrivals| -> Vec<u32> {
            (first..end).map(|second| stream.per_second.get(second).copied().unwrap_or_default()).collect()
        };
        let (mut totals, mut starved) = (Vec::new(), 0);
        for stream in streams {
            let seconds = plateau(stream);
            starved += usize::from(seconds.windows(WINDOW_SECONDS).any(|window| window.iter().all(|n| *n == 0)));
            totals.push(seconds.into_iter().map(u64::from).sum::<u64>());
        }
        let deltas: u64 = totals.iter().sum();
        let mean = deltas as f64 / totals.len().max(1) as f64;
        Self {
            seconds: end - first,
            deltas,
            slowest_share: totals.iter().min().map_or(0.0, |least| *least as f64 / mean),
            starved,
            faulty: streams.iter().filter(|stream| stream.fault.is_some()).count(),
        }
    }
}

#[derive(Debug)]
struct OverloadSample {
    streams: u32,
    capacity_per_s: f64,
    fairness: Fairness,
    /// What a run adds to the server's memory at most, before and in the overload.
    run_kib: (f64, f64),
    /// The median before and after.
    latency_ms: (f64, f64),
}

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let Some(headwater) = ServerProcess::start_headwater(options, &mock.target().authority).await? else {
        return Ok(true);
    };
    let sample = measure(&HeadwaterCell::Tasks.target(headwater.target())).await;
    let sample = sample.inspect_err(|_| eprintln!("{}", headwater.log_tail()))?;
    headwater.stop().await?;
    mock.stop().await?;
    let (verdicts, is_met) = judge(&sample);
    report::publish_section("overload", &format!("{}\n{verdicts}", render(&sample)), output)?;
    Ok(is_met)
}

async fn measure(target: &LoadTarget) -> anyhow::Result<OverloadSample> {
    // The first streams of a process cost more than later ones.
    load::run_load(target, CALM).await?;
    let before = load::run_load(target, CALM).await?;
    // The same for both: what an allocator keeps of earlier runs is not free for others.
    let base_kb = rss_kb(target.pid)?;
    let calm = overload(target, CALM_STREAMS, DELTAS).await?;
    // At full speed many deltas share a write, so this is more than paced streams can have.
    let limit_per_s = load::run_load(target, FULL_SPEED).await?.deltas_per_s;
    let probing = LoadPlan { streams: streams_offering(limit_per_s), ..CALM };
    let capacity_per_s = load::run_load(target, probing).await?.deltas_per_s;
    let streams = streams_offering(capacity_per_s * OVERLOAD);
    eprintln!("capacity {} deltas/s, overload by {streams} streams", format_figure(capacity_per_s));
    let (arrivals, rss) = overload(target, streams, DELTAS).await?;
    let fairness = Fairness::of(&arrivals, RAMP);
    let after = load::run_load(target, CALM).await?;
    Ok(OverloadSample {
        streams,
        capacity_per_s,
        run_kib: (kib_per_run(&calm.1, base_kb, CALM_STREAMS), kib_per_run(&rss, base_kb, streams)),
        fairness,
        latency_ms: (before.added_latency.p50_ms, after.added_latency.p50_ms),
    })
}

/// The number of paced streams that together offer `deltas_per_s`.
fn streams_offering(deltas_per_s: f64) -> u32 {
    let streams = deltas_per_s * STORY_INTERVAL_MS as f64 / 1_000.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let streams = streams as u32;
    streams.clamp(STREAMS_MIN, STREAMS_MAX)
}

/// Reads `streams` paced streams to their end, and samples the server's memory meanwhile.
async fn overload(target: &LoadTarget, streams: u32, deltas: u32) -> anyhow::Result<(Vec<DeltaArrivals>, Vec<u64>)> {
    let begun = Instant::now();
    let request = target.stream_request(&story_input(deltas, STORY_INTERVAL_MS))?;
    let target = Arc::new(target.clone());
    let mut readers = JoinSet::new();
    for n in 0..streams {
        let (target, request) = (target.clone(), request.clone());
        readers.spawn(async move {
            tokio::time::sleep(RAMP * n / streams).await;
            read_arrivals(&target, request, deltas, begun).await
        });
    }
    let (stop, stopped) = oneshot::channel();
    let watching = tokio::spawn(watch_rss(target.pid, stopped));
    let arrivals = readers.join_all().await;
    drop(stop);
    Ok((arrivals, watching.await??))
}

/// The memory of a process from time to time, until the sender is dropped.
async fn watch_rss(pid: u32, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<Vec<u64>> {
    let mut samples = Vec::new();
    loop {
        samples.push(rss_kb(pid)?);
        tokio::select! {
            _ = &mut stopped => return Ok(samples),
            () = tokio::time::sleep(RSS_INTERVAL) => {}
        }
    }
}

/// Reads and checks one stream, and notes when its deltas came.
async fn read_arrivals(target: &LoadTarget, request: StreamRequest, deltas: u32, begun: Instant) -> DeltaArrivals {
    let mut arrivals = DeltaArrivals::default();
    let reading = note_arrivals(target, request, deltas, begun, &mut arrivals);
    let outcome = tokio::time::timeout(DEADLINE, reading).await.unwrap_or(Err(StreamFault::Cut));
    arrivals.fault = outcome.err();
    arrivals.ended_after = begun.elapsed();
    arrivals
}

async fn note_arrivals(
    target: &LoadTarget,
    request: StreamRequest,
    deltas: u32,
    begun: Instant,
    arrivals: &mut DeltaArrivals,
) -> Result<(), StreamFault> {
    let StreamRequest::Http(request) = request else { return Err(StreamFault::Http) };
    load::send_request(target, *request, async |response| {
        if !response.status().is_success() {
            return Err(StreamFault::Http);
        }
        let mut check = StreamChecker::new(target.protocol, deltas, LatencyScope::AllDeltas);
        let mut body = response.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            let before = check.deltas();
            if let Some(bytes) = frame.data_ref() {
                check.on_chunk(bytes, clock::now_us())?;
            }
            let second = usize::try_from(begun.elapsed().as_secs()).unwrap_or_default();
            arrivals.add(second, check.deltas() - before);
        }
        check.finish()
    })
    .await
}

/// By how much memory grew at most, divided by the runs.
fn kib_per_run(rss_kb: &[u64], base_kb: u64, runs: u32) -> f64 {
    let most = rss_kb.iter().max().copied().unwrap_or_default();
    if most > base_kb { (most - base_kb) as f64 / f64::from(runs) } else { f64::NAN }
}

fn render(sample: &OverloadSample) -> String {
    let mut table = Table::new(&[
        "capacity, deltas/s",
        "streams",
        "offered, deltas/s",
        "carried, deltas/s",
        "slowest stream, share of the mean",
        "starved streams",
        "KiB per run, before and in it",
        "added p50 ms, before and after",
    ]);
    let seconds = sample.fairness.seconds.max(1) as f64;
    table.push_row(&[
        format_figure(sample.capacity_per_s),
        sample.streams.to_string(),
        format_figure(f64::from(sample.streams) * 1_000.0 / STORY_INTERVAL_MS as f64),
        format_figure(sample.fairness.deltas as f64 / seconds),
        format_figure(sample.fairness.slowest_share),
        sample.fairness.starved.to_string(),
        format!("{}, {}", format_figure(sample.run_kib.0), format_figure(sample.run_kib.1)),
        format!("{}, {}", format_figure(sample.latency_ms.0), format_figure(sample.latency_ms.1)),
    ]);
    table.into_markdown()
}

fn judge(sample: &OverloadSample) -> (String, bool) {
    let Fairness { seconds, slowest_share, starved, faulty, .. } = sample.fairness;
    let (rss_growth, calm_ms) = (sample.run_kib.1 / sample.run_kib.0, sample.latency_ms.0.max(LATENCY_FLOOR_MS));
    let latency_growth = sample.latency_ms.1 / calm_ms;
    let lines = [
        (format!("the plateau lasts {seconds} s (at least {WINDOW_SECONDS})"), seconds >= WINDOW_SECONDS),
        (format!("{faulty} of {} streams were bad (none)", sample.streams), faulty == 0),
        (format!("{starved} streams got nothing for {WINDOW_SECONDS} s (none)"), starved == 0),
        (
            format!("the slowest stream got {} of the mean (at least {SHARE_MIN})", format_figure(slowest_share)),
            slowest_share >= SHARE_MIN,
        ),
        (
            format!("a run takes {} × the memory (at most {RSS_GROWTH_MAX})", format_figure(rss_growth)),
            rss_growth <= RSS_GROWTH_MAX,
        ),
        (
            format!("afterwards latency is {} × (at most {LATENCY_GROWTH_MAX})", format_figure(latency_growth)),
            latency_growth <= LATENCY_GROWTH_MAX,
        ),
    ];
    let is_met = lines.iter().all(|(_, is_met)| *is_met);
    (lines.into_iter().map(|(text, is_met)| format_verdict(&text, is_met)).collect(), is_met)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(per_second: &[u32], ended_after: u64) -> DeltaArrivals {
        DeltaArrivals {
            per_second: per_second.to_vec(),
            ended_after: Duration::from_secs(ended_after),
            ..Default::default()
        }
    }

    fn sample(streams: &[DeltaArrivals]) -> OverloadSample {
        OverloadSample {
            streams: 2,
            capacity_per_s: 100.0,
            fairness: Fairness::of(streams, Duration::from_secs(1)),
            run_kib: (100.0, 110.0),
            latency_ms: (2.0, 3.0),
        }
    }

    #[test]
    fn fair_streams_meet_every_target() {
        let fair = sample(&[stream(&[9, 10, 10, 10, 10, 3], 5), stream(&[2, 9, 11, 9, 10, 50], 6)]);
        let Fairness { seconds, deltas, starved, faulty, slowest_share } = fair.fairness;
        assert_eq!((seconds, deltas, starved, faulty), (4, 79, 0, 0));
        assert!((slowest_share - 39.0 / 39.5).abs() < 1e-9);
        assert!(judge(&fair).1, "{}", judge(&fair).0);
    }

    #[test]
    fn every_unfairness_misses_a_target() {
        let steady = || stream(&[0, 10, 10, 10, 10, 10, 10, 10], 8);
        let pausing = sample(&[steady(), stream(&[0, 20, 0, 0, 0, 20, 20, 10], 9)]);
        assert_eq!(pausing.fairness.starved, 1);
        let slow = sample(&[steady(), steady(), stream(&[0, 1, 0, 1, 0, 0, 1, 1], 9)]);
        assert_eq!(slow.fairness.starved, 0);
        let short = sample(&[steady(), stream(&[0, 10, 10], 2)]);
        let cut = DeltaArrivals { fault: Some(StreamFault::Cut), ..steady() };
        let hungry = OverloadSample { run_kib: (100.0, 210.0), ..sample(&[steady(), steady()]) };
        let unmeasured = OverloadSample { run_kib: (f64::NAN, 130.0), ..sample(&[steady(), steady()]) };
        let lasting = OverloadSample { latency_ms: (2.0, 7.0), ..sample(&[steady(), steady()]) };
        for missed in [pausing, slow, short, sample(&[steady(), cut]), hungry, unmeasured, lasting] {
            let (text, is_met) = judge(&missed);
            assert!(!is_met && text.matches("MISSED").count() == 1, "{text}");
        }
    }
}
