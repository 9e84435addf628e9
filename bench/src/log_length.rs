//! The cost of an event, and the time until a server is ready, against the number of events that the log has.
//!
//! One data folder grows by stories of the scripted model. At each size the server is killed and started again, and streams
//! from the mock provider are measured beside the do-nothing proxy, so that a change of the machine shows in both.

use crate::cell::HeadwaterCell;
use crate::load::{self, LoadPlan};
use crate::plot::{Plot, Series};
use crate::proxy::ProxyMode;
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::resume::LogScale;
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::median;

const SMALL_SIZES: [u64; 3] = [1_000, 100_000, 1_000_000];
const FULL_SIZES: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];
const ROUNDS: usize = 3;
const MEASURED: LoadPlan = LoadPlan { streams: 100, deltas: 100, interval_ms: 20, waves: 1 };
const FILL_DELTAS: u32 = 500;
const FILL_STREAMS: u32 = 50;
/// Events of a run besides its deltas, at least.
const EVENTS_PER_RUN_MIN: u64 = 5;

const GROWTH_MAX: f64 = 1.2;
const READY_MS_MAX: f64 = 300.0;

struct LogSample {
    events: u64,
    cpu_ms_per_1k: f64,
    /// To the do-nothing proxy in the same rounds.
    ratio: f64,
    first_delta_ms: f64,
    ready_ms: f64,
    rss_mb: f64,
}

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, scale: LogScale, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let upstream = mock.target().authority.clone();
    let pass = ServerProcess::start_proxy(ProxyMode::Pass, &upstream).await?;
    let Some(mut headwater) = ServerProcess::start_headwater(options, &upstream).await? else { return Ok(true) };
    let sizes = if scale == LogScale::Full { FULL_SIZES.to_vec() } else { SMALL_SIZES.to_vec() };
    let (mut samples, mut events) = (Vec::new(), 0);
    for size in sizes {
        while events < size {
            events += fill_log(&headwater, size - events).await?;
        }
        headwater = headwater.restart_headwater(options, &upstream).await?;
        let (sample, written) = measure_at(&headwater, &pass, events).await?;
        eprintln!(
            "{events} events: cpu {} ms/1k, × {}, ready after {} ms",
            format_figure(sample.cpu_ms_per_1k),
            format_figure(sample.ratio),
            format_figure(sample.ready_ms)
        );
        samples.push(sample);
        events += written;
    }
    for server in [headwater, pass, mock] {
        server.stop().await?;
    }
    let (verdicts, is_met) = judge(&samples);
    report::publish_section(
        "log",
        &format!("Medians of {ROUNDS} rounds.\n\n{}\n{verdicts}", render(&samples)),
        output,
    )?;
    report::publish_plot("log", &plot(&samples), output)?;
    Ok(is_met)
}

/// Adds about `wanted` events and returns how many it added.
async fn fill_log(headwater: &ServerProcess, wanted: u64) -> anyhow::Result<u64> {
    let target = HeadwaterCell::Scripted.target(headwater.target());
    let runs = (wanted / (u64::from(FILL_DELTAS) + EVENTS_PER_RUN_MIN)).max(1);
    let streams = u32::try_from(runs).unwrap_or(u32::MAX).min(FILL_STREAMS);
    let waves = u32::try_from(runs / u64::from(streams)).unwrap_or(u32::MAX).clamp(1, 200);
    let sample = load::run_load(&target, LoadPlan { streams, deltas: FILL_DELTAS, interval_ms: 0, waves }).await?;
    anyhow::ensure!(sample.faults.total() == 0, "while the log was filled: {}", sample.faults);
    Ok(sample.events)
}

/// Measures at the current size; also returns how many events that wrote.
async fn measure_at(headwater: &ServerProcess, pass: &ServerProcess, events: u64) -> anyhow::Result<(LogSample, u64)> {
    let target = HeadwaterCell::Tasks.target(headwater.target());
    let (mut ours, mut ratios, mut written) = (Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let baseline = load::run_load(pass.target(), MEASURED).await?;
        let sample = load::run_load(&target, MEASURED).await?;
        anyhow::ensure!(sample.faults.total() == 0, "at {events} events: {}", sample.faults);
        written += sample.events;
        ratios.push(sample.cpu_ms_per_1k / baseline.cpu_ms_per_1k);
        ours.push(sample);
    }
    let sample = LogSample {
        events,
        cpu_ms_per_1k: median(ours.iter().map(|sample| sample.cpu_ms_per_1k)),
        ratio: median(ratios),
        first_delta_ms: median(ours.iter().map(|sample| sample.first_delta_latency.p50_ms)),
        ready_ms: headwater.ready_after().as_secs_f64() * 1000.0,
        rss_mb: median(ours.iter().map(|sample| sample.usage.rss_peak_mb)),
    };
    Ok((sample, written))
}

fn render(samples: &[LogSample]) -> String {
    let mut table = Table::new(&[
        "events in the log",
        "CPU ms per 1,000 deltas",
        "× do-nothing",
        "first delta p50 ms",
        "ready after a kill, ms",
        "peak RSS MB",
    ]);
    for sample in samples {
        table.push_row(&[
            sample.events.to_string(),
            format_figure(sample.cpu_ms_per_1k),
            format_figure(sample.ratio),
            format_figure(sample.first_delta_ms),
            format_figure(sample.ready_ms),
            format_figure(sample.rss_mb),
        ]);
    }
    table.into_markdown()
}

fn judge(samples: &[LogSample]) -> (String, bool) {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return (String::new(), true) };
    let growth = last.ratio / first.ratio;
    let ready_ms = samples.iter().map(|sample| sample.ready_ms).fold(0.0, f64::max);
    let lines = [
        (
            format!(
                "cost per event at {} events: {} × that at {} (at most {GROWTH_MAX})",
                last.events,
                format_figure(growth),
                first.events
            ),
            growth <= GROWTH_MAX,
        ),
        (
            format!("ready after at most {} ms (at most {READY_MS_MAX})", format_figure(ready_ms)),
            ready_ms <= READY_MS_MAX,
        ),
    ];
    let is_met = lines.iter().all(|(_, is_met)| *is_met);
    (lines.into_iter().map(|(text, is_met)| format_verdict(&text, is_met)).collect(), is_met)
}

fn plot(samples: &[LogSample]) -> String {
    let points =
        |of: &dyn Fn(&LogSample) -> f64| samples.iter().map(|sample| (sample.events as f64, of(sample))).collect();
    Plot {
        title: "Cost of an event against the length of the log",
        x_label: "events in the log",
        y_label: "CPU time, × do-nothing proxy",
        series: vec![Series { name: "headwater → tasks".into(), points: points(&|sample| sample.ratio) }],
    }
    .into_svg()
}
