//! Memory: what a run that waits for its model costs, and what a viewer costs who waits for the run.
//!
//! The model sends some deltas and then nothing, so that everything that belongs to a run or a viewer stays allocated.
//! The figure is the growth of the server's resident memory divided by the number of runs or viewers.

use crate::fanout;
use crate::load;
use crate::probe::{ReadUntil, probe};
use crate::process_usage::{UsageMeter, rss_kb};
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{self, HeadwaterOptions, ServerProcess, build_profile};
use crate::stream_check::StreamFault;
use crate::stream_protocol::StreamProtocol;
use crate::target::LoadTarget;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

/// Five deltas, then nothing.
const SILENT_STORY: &str = "story 10 fault hang";
const RUNS: u32 = 1000;
/// With those of the warm-up, as many streams as a server allows one user by default.
const VIEWERS: u32 = 10_000 - WARM_UP;
/// Runs and viewers that exist before counting: the first ones also pay for what all share.
const WARM_UP: u32 = 100;
/// Connections that are opened at the same time.
const CONNECTING_MAX: usize = 64;
/// Until memory that is no longer needed has been returned.
const SETTLE: Duration = Duration::from_secs(2);
/// Longer than the heartbeat's interval of 15 s.
const IDLE_WINDOW: Duration = Duration::from_secs(20);

const RUN_KIB_MAX: f64 = 64.0;
const VIEWER_KIB_MAX: f64 = 12.0;
const BINARY_MB_MAX: f64 = 40.0;

/// True if every target was met.
pub(crate) async fn run(options: &HeadwaterOptions, output: SectionOutput) -> anyhow::Result<bool> {
    let mut table = Table::new(&["what", "number", "KiB each", "seconds to open", "CPU % of one core while idle"]);
    let (mut verdicts, mut all_met) = (String::new(), true);
    let mut judge = |what: &str, kib: f64, bound: f64| {
        verdicts += &format_verdict(&format!("{what}: {} KiB (at most {bound})", format_figure(kib)), kib <= bound);
        all_met &= kib <= bound;
    };
    for protocol in [StreamProtocol::Tasks, StreamProtocol::Responses] {
        let mock = ServerProcess::start_mock("mock").await?;
        let upstream = &mock.target().authority;
        let Some(headwater) = ServerProcess::start_headwater(options, upstream).await? else { return Ok(true) };
        let target = LoadTarget { protocol, model: "bench", ..headwater.target().clone() };
        let measured = measure_server(&target).await;
        let (runs, viewers) = measured.inspect_err(|_| eprintln!("{}", headwater.log_tail()))?;
        for (what, bound, sample) in
            [("live run without viewer", RUN_KIB_MAX, runs), ("idle viewer of one run", VIEWER_KIB_MAX, viewers)]
        {
            let what = format!("{what}, {}", protocol.path());
            table.push_row(&[
                what.clone(),
                sample.number.to_string(),
                format_figure(sample.kib_each),
                format_figure(sample.opened.as_secs_f64()),
                format_figure(sample.idle_cpu * 100.0),
            ]);
            judge(&what, sample.kib_each, bound);
        }
        headwater.stop().await?;
        mock.stop().await?;
    }
    let binary_mb = binary_mb(options).await?;
    let text = format!("binary: {} MB (at most {BINARY_MB_MAX}, in the profile `dist`)", format_figure(binary_mb));
    // Other profiles keep symbols, and are optimised less.
    if build_profile()? == "dist" {
        verdicts += &format_verdict(&text, binary_mb <= BINARY_MB_MAX);
        all_met &= binary_mb <= BINARY_MB_MAX;
    } else {
        verdicts += &format!("- not judged: {text}\n");
    }
    report::publish_section("memory", &format!("{}\n{verdicts}", table.into_markdown()), output)?;
    Ok(all_met)
}

async fn binary_mb(options: &HeadwaterOptions) -> anyhow::Result<f64> {
    let binary = server_process::headwater_binary(options).await?;
    Ok(std::fs::metadata(binary)?.len() as f64 / 1e6)
}

struct MemorySample {
    number: u32,
    kib_each: f64,
    opened: Duration,
    /// Busy share of one core.
    idle_cpu: f64,
}

async fn measure_server(target: &LoadTarget) -> anyhow::Result<(MemorySample, MemorySample)> {
    let target = Arc::new(target.clone());
    start_runs(&target, WARM_UP).await?;
    let runs = measure_growth(&target, RUNS, start_runs(&target, RUNS)).await?.0;
    let id = start_run(&target).await?;
    let warm = open_viewers(&target, &id, WARM_UP).await?;
    let (viewers, open) = measure_growth(&target, VIEWERS, open_viewers(&target, &id, VIEWERS)).await?;
    drop((warm, open));
    Ok((runs, viewers))
}

/// The growth of the server's memory by what `open` opens, which stays open while it is measured.
async fn measure_growth<T>(
    target: &LoadTarget,
    number: u32,
    open: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(MemorySample, T)> {
    tokio::time::sleep(SETTLE).await;
    let before_kb = rss_kb(target.pid)?;
    let started = Instant::now();
    let held = open.await?;
    let opened = started.elapsed();
    tokio::time::sleep(SETTLE).await;
    let meter = UsageMeter::start(target.pid)?;
    tokio::time::sleep(IDLE_WINDOW).await;
    let idle_cpu = meter.stop()?.cpu_ms / (IDLE_WINDOW.as_secs_f64() * 1000.0);
    let kib_each = rss_kb(target.pid)?.saturating_sub(before_kb) as f64 / f64::from(number);
    eprintln!("{number} × {} KiB, opened in {opened:?}", format_figure(kib_each));
    Ok((MemorySample { number, kib_each, opened, idle_cpu }, held))
}

async fn start_run(target: &LoadTarget) -> anyhow::Result<String> {
    let run = fanout::start_run(target, SILENT_STORY).await;
    Ok(run.map_err(|fault| anyhow::anyhow!("a run did not start: {fault:?}"))?.id)
}

/// Starts runs and waits until each has sent something to who asks.
async fn start_runs(target: &Arc<LoadTarget>, number: u32) -> anyhow::Result<()> {
    let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
    let mut starting = JoinSet::new();
    for _ in 0..number {
        let (target, connecting) = (target.clone(), connecting.clone());
        starting.spawn(async move {
            let _permit = connecting.acquire().await?;
            let id = start_run(&target).await?;
            probe(&target, target.follow_request(&id)?, ReadUntil::FirstEvent).await.map(drop)
        });
    }
    starting.join_all().await.into_iter().collect()
}

/// Viewers that have read the beginning of the run and wait for more. They end when dropped.
async fn open_viewers(target: &Arc<LoadTarget>, id: &str, number: u32) -> anyhow::Result<JoinSet<()>> {
    let connecting = Arc::new(Semaphore::new(CONNECTING_MAX));
    let (mut viewers, mut attached) = (JoinSet::new(), Vec::new());
    for _ in 0..number {
        let (target, request, connecting) = (target.clone(), target.follow_request(id)?, connecting.clone());
        let (has_attached, wait) = oneshot::channel();
        attached.push(wait);
        viewers.spawn(async move {
            let Ok(permit) = connecting.acquire_owned().await else { return };
            let mut on_first = Some((permit, has_attached));
            // A viewer that ends drops its sender, which is an error unless it had attached.
            let _ = load::send_request(&target, request, async |response| {
                if !response.status().is_success() {
                    return Err(StreamFault::Http);
                }
                let mut body = response.into_body();
                while let Some(Ok(_)) = body.frame().await {
                    if let Some((_, has_attached)) = on_first.take() {
                        let _ = has_attached.send(());
                    }
                }
                Err::<(), _>(StreamFault::Cut)
            })
            .await;
        });
    }
    for wait in attached {
        wait.await.map_err(|_| anyhow::anyhow!("a viewer was refused or cut"))?;
    }
    Ok(viewers)
}
