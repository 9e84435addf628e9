//! The cost of one more viewer of a task.
//!
//! A task of 500 deltas is started without a stream; its viewers then follow it from its first event to its last and
//! check what they get. The cost is the server's CPU time, the run itself included, over all events delivered. With
//! few viewers several such tasks run at once, because one alone costs less than the kernel can count.

use crate::load::{self, StreamReading};
use crate::process_usage::{ProcessUsage, UsageMeter};
use crate::report::{self, SectionOutput, Table, format_figure};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::{Percentiles, median};
use crate::stream_check::{FaultCounts, LatencyScope, StreamChecker, StreamFault};
use crate::target::{LoadTarget, TargetApi};
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const DELTAS: u32 = 500;
const INTERVAL_MS: u64 = 20;
const DEADLINE: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FanoutPlan {
    pub(crate) viewers: u32,
    pub(crate) tasks: u32,
    pub(crate) deltas: u32,
}

const FANOUT_PLANS: [FanoutPlan; 3] = [
    FanoutPlan { viewers: 1, tasks: 40, deltas: DELTAS },
    FanoutPlan { viewers: 10, tasks: 4, deltas: DELTAS },
    FanoutPlan { viewers: 1000, tasks: 1, deltas: DELTAS },
];

pub(crate) struct FanoutSample {
    pub(crate) cpu_ms_per_1k: f64,
    pub(crate) deliveries: u64,
    pub(crate) added_latency: Percentiles,
    pub(crate) usage: ProcessUsage,
    pub(crate) faults: FaultCounts,
}

struct FanoutRow {
    plan: FanoutPlan,
    name: &'static str,
    samples: Vec<FanoutSample>,
}

/// Measures every plan on Headwater and on the mock, which has no log and no fan-out: each viewer gets a stream of its
/// own. True if every stream was correct.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, output: SectionOutput) -> anyhow::Result<bool> {
    let servers: Vec<ServerProcess> =
        [Some(ServerProcess::start_mock("mock, no log").await?), ServerProcess::start_headwater(options).await?]
            .into_iter()
            .flatten()
            .collect();
    let targets: Vec<LoadTarget> =
        servers.iter().map(|server| LoadTarget { dialect: TargetApi::Tasks, ..server.target().clone() }).collect();
    let rows = measure_all(&targets, rounds).await;
    let rows = rows.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.log_tail())))?;
    for server in servers {
        server.stop().await?;
    }
    let body = format!("Medians of {rounds} rounds.\n\n{}", render_table(&rows));
    report::publish_section("fanout", &body, output)?;
    Ok(rows.iter().flat_map(|row| &row.samples).all(|sample| sample.faults.total() == 0))
}

async fn measure_all(targets: &[LoadTarget], rounds: usize) -> anyhow::Result<Vec<FanoutRow>> {
    let mut rows: Vec<FanoutRow> = FANOUT_PLANS
        .iter()
        .flat_map(|plan| targets.iter().map(|target| FanoutRow { plan: *plan, name: target.name, samples: Vec::new() }))
        .collect();
    for round in 0..rounds {
        for row in &mut rows {
            let Some(target) = targets.iter().find(|target| target.name == row.name) else { continue };
            let sample = measure_fanout(target, row.plan).await?;
            let viewers = row.plan.viewers;
            eprintln!("round {} {viewers:>4} viewers {:<12} {}", round + 1, row.name, format_sample(&sample));
            row.samples.push(sample);
        }
    }
    Ok(rows)
}

pub(crate) async fn measure_fanout(target: &LoadTarget, plan: FanoutPlan) -> anyhow::Result<FanoutSample> {
    let target = Arc::new(target.clone());
    let meter = UsageMeter::start(target.pid)?;
    let mut tasks = JoinSet::new();
    for task in 0..plan.tasks {
        let target = target.clone();
        // Spread over one interval: tasks in lockstep would share every commit.
        let start = Duration::from_millis(INTERVAL_MS) * task / plan.tasks;
        tasks.spawn(async move {
            tokio::time::sleep(start).await;
            watch_task(target, plan).await
        });
    }
    let readings: Vec<StreamReading> = tasks.join_all().await.into_iter().flatten().collect();
    let usage = meter.stop()?;

    let (mut deliveries, mut added_us, mut faults) = (0, Vec::new(), FaultCounts::default());
    for reading in readings {
        deliveries += reading.events;
        added_us.extend(reading.latencies_us);
        if let Some(fault) = reading.fault {
            faults.add(fault);
        }
    }
    let cpu_ms_per_1k = usage.cpu_ms * 1000.0 / deliveries as f64;
    Ok(FanoutSample { cpu_ms_per_1k, deliveries, added_latency: Percentiles::from_micros(added_us), usage, faults })
}

#[derive(Deserialize)]
struct CreatedTask {
    task_id: String,
}

/// Starts one task and lets its viewers follow it.
async fn watch_task(target: Arc<LoadTarget>, plan: FanoutPlan) -> Vec<StreamReading> {
    let failed = || vec![StreamReading { fault: Some(StreamFault::Http), ..StreamReading::default() }];
    let Ok(request) = target.start_task_request(plan.deltas, INTERVAL_MS) else { return failed() };
    let created = load::send_request(&target, request, async |response| {
        if response.status() != StatusCode::ACCEPTED {
            return Err(StreamFault::Http);
        }
        let body = response.into_body().collect().await.map_err(|_| StreamFault::Cut)?;
        serde_json::from_slice::<CreatedTask>(&body.to_bytes()).map_err(|_| StreamFault::Malformed)
    })
    .await;
    let Ok(request) =
        created.and_then(|task| target.follow_task_request(&task.task_id).map_err(|_| StreamFault::Malformed))
    else {
        return failed();
    };
    let mut viewers = JoinSet::new();
    for _ in 0..plan.viewers {
        let (target, request) = (target.clone(), request.clone());
        viewers.spawn(async move {
            let check = StreamChecker::new(plan.deltas, LatencyScope::SinceAttach);
            load::read_checked_stream(&target, request, check, DEADLINE).await
        });
    }
    viewers.join_all().await
}

fn format_sample(sample: &FanoutSample) -> String {
    format!(
        "cpu {} ms/1k deliveries of {}, added p50 {} p99 {} ms, peak {} MB, machine {:.0} % busy, faults {}",
        format_figure(sample.cpu_ms_per_1k),
        sample.deliveries,
        format_figure(sample.added_latency.p50_ms),
        format_figure(sample.added_latency.p99_ms),
        format_figure(sample.usage.rss_peak_mb),
        sample.usage.machine_busy * 100.0,
        sample.faults,
    )
}

fn render_table(rows: &[FanoutRow]) -> String {
    let mut table = Table::new(&[
        "viewers of each task",
        "tasks",
        "server",
        "CPU ms per 1,000 deliveries",
        "deliveries",
        "added per token p50 / p99 ms",
        "peak RSS MB",
        "machine busy",
        "bad streams",
    ]);
    for row in rows {
        let median_of = |figure: &dyn Fn(&FanoutSample) -> f64| median(row.samples.iter().map(figure));
        let mut faults = FaultCounts::default();
        row.samples.iter().for_each(|sample| faults.extend(&sample.faults));
        table.push_row(&[
            row.plan.viewers.to_string(),
            row.plan.tasks.to_string(),
            row.name.into(),
            format_figure(median_of(&|sample| sample.cpu_ms_per_1k)),
            format_figure(median_of(&|sample| sample.deliveries as f64)),
            format!(
                "{} / {}",
                format_figure(median_of(&|sample| sample.added_latency.p50_ms)),
                format_figure(median_of(&|sample| sample.added_latency.p99_ms))
            ),
            format_figure(median_of(&|sample| sample.usage.rss_peak_mb)),
            format!("{:.0} %", median_of(&|sample| sample.usage.machine_busy) * 100.0),
            faults.to_string(),
        ]);
    }
    table.into_markdown()
}
