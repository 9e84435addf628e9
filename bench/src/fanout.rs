//! The cost of one more viewer of a task.
//!
//! A task of 500 deltas is started without a stream; its viewers then follow it from its first event to its last and
//! check what they get. The cost is the server's CPU time, the run itself included, over all events delivered. With
//! few viewers several such tasks run at once, because one alone costs less than the kernel can count.

use crate::cell::HeadwaterCell;
use crate::load::{self, StreamReading};
use crate::plot::{Plot, Series};
use crate::process_usage::{ProcessUsage, UsageMeter};
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::{Percentiles, median};
use crate::stream_check::{FaultCounts, LatencyScope, StreamChecker, StreamFault};
use crate::stream_protocol::StreamProtocol;
use crate::target::{LoadTarget, story_input};
use http_body_util::BodyExt;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const DELTAS: u32 = 500;
const INTERVAL_MS: u64 = 20;
const DEADLINE: Duration = Duration::from_secs(40);
/// Of a delivery to one of a thousand viewers, to that of the mock.
const COST_RATIO_MAX: f64 = 1.3;

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

/// The rows of the mock, by protocol.
const MOCK_TASKS: &str = "mock, no log → tasks";
const MOCK_RESPONSES: &str = "mock, no log → responses";

struct FanoutRow {
    plan: FanoutPlan,
    target: LoadTarget,
    samples: Vec<FanoutSample>,
}

/// Measures every plan on Headwater and on the mock, which has no log and no fan-out: each viewer gets a stream of its
/// own. True if every stream was correct and the target was met.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let mut targets = vec![
        LoadTarget { name: MOCK_TASKS, protocol: StreamProtocol::Tasks, ..mock.target().clone() },
        LoadTarget { name: MOCK_RESPONSES, protocol: StreamProtocol::Responses, ..mock.target().clone() },
    ];
    let headwater = ServerProcess::start_headwater(options, &mock.target().authority).await?;
    if let Some(headwater) = &headwater {
        targets.extend([HeadwaterCell::Tasks, HeadwaterCell::Responses].map(|cell| cell.target(headwater.target())));
    }
    let servers: Vec<ServerProcess> = [Some(mock), headwater].into_iter().flatten().collect();
    let rows = measure_all(&targets, rounds).await;
    let rows = rows.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.log_tail())))?;
    for server in servers {
        server.stop().await?;
    }
    let (verdicts, is_met) = judge_target(&rows);
    let body = format!("Medians of {rounds} rounds.\n\n{}\n{verdicts}", render_table(&rows));
    report::publish_section("fanout", &body, output)?;
    report::publish_plot("viewers", &plot_viewers(&rows), output)?;
    Ok(is_met)
}

async fn measure_all(targets: &[LoadTarget], rounds: usize) -> anyhow::Result<Vec<FanoutRow>> {
    let mut rows: Vec<FanoutRow> = FANOUT_PLANS
        .iter()
        .flat_map(|plan| {
            targets.iter().map(|target| FanoutRow { plan: *plan, target: target.clone(), samples: Vec::new() })
        })
        .collect();
    for round in 0..rounds {
        for row in &mut rows {
            let sample = measure_fanout(&row.target, row.plan).await?;
            let viewers = row.plan.viewers;
            eprintln!("round {} {viewers:>4} viewers {:<24} {}", round + 1, row.target.name, format_sample(&sample));
            row.samples.push(sample);
        }
    }
    Ok(rows)
}

/// Cost relative to the mock's in the same protocol, plan and round.
fn cost_ratio(rows: &[FanoutRow], row: &FanoutRow) -> f64 {
    let is_baseline = |other: &&FanoutRow| {
        other.plan == row.plan
            && other.target.protocol == row.target.protocol
            && [MOCK_TASKS, MOCK_RESPONSES].contains(&other.target.name)
    };
    let Some(mock) = rows.iter().find(is_baseline) else { return f64::NAN };
    median(row.samples.iter().zip(&mock.samples).map(|(ours, theirs)| ours.cpu_ms_per_1k / theirs.cpu_ms_per_1k))
}

fn judge_target(rows: &[FanoutRow]) -> (String, bool) {
    let bad: usize = rows.iter().flat_map(|row| &row.samples).map(|sample| sample.faults.total()).sum();
    let mut text = format_verdict(&format!("no stream cut, none wrong ({bad} bad)"), bad == 0);
    let mut all_met = bad == 0;
    let is_judged = |row: &&FanoutRow| row.plan.viewers == 1000 && row.target.name == HeadwaterCell::Responses.name();
    for row in rows.iter().filter(is_judged) {
        let ratio = cost_ratio(rows, row);
        let figure = format!("{} × the mock's cost for 1,000 viewers (at most {COST_RATIO_MAX})", format_figure(ratio));
        text += &format_verdict(&figure, ratio <= COST_RATIO_MAX);
        all_met &= ratio <= COST_RATIO_MAX;
    }
    (text, all_met)
}

fn plot_viewers(rows: &[FanoutRow]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let cost = median(row.samples.iter().map(|sample| sample.cpu_ms_per_1k));
        let point = (f64::from(row.plan.viewers), cost);
        match series.iter_mut().find(|series| series.name == row.target.name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: row.target.name.into(), points: vec![point] }),
        }
    }
    let title = "Cost of a delivery against the number of viewers";
    Plot { title, x_label: "viewers of each run", y_label: "CPU ms per 1,000 deliveries", series }.into_svg()
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

/// A run that was started without a stream.
pub(crate) struct CreatedRun {
    pub(crate) id: String,
    pub(crate) thread_id: Option<String>,
}

/// Its members, as each protocol names them.
#[derive(Deserialize)]
struct CreatedRunBody {
    task_id: Option<String>,
    id: Option<String>,
    thread_id: Option<String>,
}

/// Starts a run without reading it.
pub(crate) async fn start_run(target: &LoadTarget, input: &str) -> Result<CreatedRun, StreamFault> {
    let request = target.start_request(input).map_err(|_| StreamFault::Malformed)?;
    let body = load::send_request(target, request, async |response| {
        if !response.status().is_success() {
            return Err(StreamFault::Http);
        }
        let body = response.into_body().collect().await.map_err(|_| StreamFault::Cut)?;
        serde_json::from_slice::<CreatedRunBody>(&body.to_bytes()).map_err(|_| StreamFault::Malformed)
    })
    .await?;
    let id = body.task_id.or(body.id).ok_or(StreamFault::Malformed)?;
    Ok(CreatedRun { id, thread_id: body.thread_id })
}

/// Starts one run and lets its viewers follow it.
async fn watch_task(target: Arc<LoadTarget>, plan: FanoutPlan) -> Vec<StreamReading> {
    let created = start_run(&target, &story_input(plan.deltas, INTERVAL_MS)).await;
    let Ok(request) = created.and_then(|run| target.follow_request(&run.id).map_err(|_| StreamFault::Malformed)) else {
        return vec![StreamReading { fault: Some(StreamFault::Http), ..StreamReading::default() }];
    };
    let mut viewers = JoinSet::new();
    for _ in 0..plan.viewers {
        let (target, request) = (target.clone(), request.clone());
        viewers.spawn(async move {
            let check = StreamChecker::new(target.protocol, plan.deltas, LatencyScope::SinceAttach);
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
        "× mock",
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
            row.target.name.into(),
            format_figure(median_of(&|sample| sample.cpu_ms_per_1k)),
            format_figure(cost_ratio(rows, row)),
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
