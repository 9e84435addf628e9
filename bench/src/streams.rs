//! The main table: what a stream costs through Headwater, through the baselines, and directly.
//!
//! Every round measures every plan on every server, each round beginning with another server, so that other activity
//! of the machine affects all of them alike. Figures are medians over the rounds.

use crate::append;
use crate::load::{self, LoadPlan, LoadSample};
use crate::proxy::ProxyMode;
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::{median, min_max};
use crate::stream_check::{FaultCounts, StreamFault};
use crate::target::LoadTarget;

/// Waves are chosen so that the CPU time of a baseline is many times the kernel's resolution of 10 ms.
const LOAD_PLANS: [LoadPlan; 4] = [
    LoadPlan { streams: 50, deltas: 100, interval_ms: 20, waves: 2 },
    LoadPlan { streams: 500, deltas: 100, interval_ms: 20, waves: 2 },
    LoadPlan { streams: 50, deltas: 200, interval_ms: 0, waves: 20 },
    LoadPlan { streams: 500, deltas: 200, interval_ms: 0, waves: 4 },
];
const WARM_UP: LoadPlan = LoadPlan { streams: 20, deltas: 50, interval_ms: 0, waves: 2 };

const CPU_RATIO_MAX: f64 = 3.0;
const ADDED_P50_MS_MAX: f64 = 3.0;
/// The row that the others are compared with.
const BASELINE: &str = "do-nothing proxy";
const SUBJECT: &str = "headwater";

/// Whether the targets were met; true as well when Headwater was not measured.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("direct").await?;
    let upstream = mock.target().authority.clone();
    let pass = ServerProcess::start_proxy(ProxyMode::Pass, &upstream).await?;
    let parse = ServerProcess::start_proxy(ProxyMode::Parse, &upstream).await?;
    let headwater = ServerProcess::start_headwater(options).await?;
    let servers: Vec<ServerProcess> = [Some(mock), Some(pass), Some(parse), headwater].into_iter().flatten().collect();
    let targets: Vec<LoadTarget> = servers.iter().map(|server| server.target().clone()).collect();

    let measured = measure_streams(&targets, rounds).await;
    let (rows, flushes_ms) =
        measured.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.log_tail())))?;
    for server in servers {
        server.stop().await?;
    }
    let (verdicts, is_met) = judge_targets(&rows);
    let flush_ms = format_figure(median(flushes_ms));
    let body = format!(
        "Medians of {rounds} rounds. A bare 200-byte append with `fdatasync` took p50 {flush_ms} ms in the same rounds: \
         what is durable before it is visible cannot be faster.\n\n{}\n{verdicts}",
        render_table(&rows)
    );
    report::publish_section("streams", &body, output)?;
    Ok(is_met)
}

/// One server under one plan, all rounds.
struct StreamRow {
    plan: LoadPlan,
    name: &'static str,
    samples: Vec<LoadSample>,
}

impl StreamRow {
    fn median(&self, of: impl Fn(&LoadSample) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }

    fn cpu(&self) -> f64 {
        self.median(|sample| sample.cpu_ms_per_1k)
    }

    fn faults(&self) -> FaultCounts {
        let mut all = FaultCounts::default();
        self.samples.iter().for_each(|sample| all.extend(&sample.faults));
        all
    }
}

/// All rows, and the duration of a disk flush in each round.
async fn measure_streams(targets: &[LoadTarget], rounds: usize) -> anyhow::Result<(Vec<StreamRow>, Vec<f64>)> {
    for target in targets {
        load::run_load(target, WARM_UP).await?;
    }
    let mut rows: Vec<StreamRow> = LOAD_PLANS
        .iter()
        .flat_map(|plan| targets.iter().map(|target| StreamRow { plan: *plan, name: target.name, samples: Vec::new() }))
        .collect();
    let mut flushes_ms = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let flush = tokio::task::spawn_blocking(append::measure_flush).await??;
        eprintln!(
            "round {} fdatasync p50 {} p99 {} ms",
            round + 1,
            format_figure(flush.p50_ms),
            format_figure(flush.p99_ms)
        );
        flushes_ms.push(flush.p50_ms);
        for plan in LOAD_PLANS {
            for turn in 0..targets.len() {
                let Some(target) = targets.get((turn + round) % targets.len()) else { continue };
                let sample = load::run_load(target, plan).await?;
                eprintln!("round {} {:>16} {:<18} {}", round + 1, plan.label(), target.name, format_sample(&sample));
                if let Some(row) = rows.iter_mut().find(|row| row.plan == plan && row.name == target.name) {
                    row.samples.push(sample);
                }
            }
        }
    }
    Ok((rows, flushes_ms))
}

pub(crate) fn format_sample(sample: &LoadSample) -> String {
    format!(
        "cpu {} ms/1k, added p50 {} p99 {} ms, first delta p50 {} p99 {} ms, {} deltas/s, peak {} MB, machine {:.0} % busy, faults {} of {}",
        format_figure(sample.cpu_ms_per_1k),
        format_figure(sample.added_latency.p50_ms),
        format_figure(sample.added_latency.p99_ms),
        format_figure(sample.first_delta_latency.p50_ms),
        format_figure(sample.first_delta_latency.p99_ms),
        format_figure(sample.deltas_per_s),
        format_figure(sample.usage.rss_peak_mb),
        sample.usage.machine_busy * 100.0,
        sample.faults,
        sample.streams,
    )
}

fn baseline_row(rows: &[StreamRow], plan: LoadPlan) -> Option<&StreamRow> {
    rows.iter().find(|row| row.plan == plan && row.name == BASELINE)
}

/// CPU time relative to the baseline. Compared round by round, because the machine's load changes between rounds.
fn cpu_ratio(rows: &[StreamRow], row: &StreamRow) -> f64 {
    let Some(baseline) = baseline_row(rows, row.plan) else { return f64::NAN };
    let rounds = row.samples.iter().zip(&baseline.samples);
    median(rounds.map(|(ours, theirs)| ours.cpu_ms_per_1k / theirs.cpu_ms_per_1k))
}

fn render_table(rows: &[StreamRow]) -> String {
    let mut table = Table::new(&[
        "streams",
        "server",
        "CPU ms per 1,000 deltas [rounds]",
        "× do-nothing",
        "added per token p50 / p99 ms",
        "first delta p50 / p99 ms",
        "deltas/s",
        "peak RSS MB",
        "machine busy",
        "bad streams",
    ]);
    for row in rows {
        let (low, high) = min_max(row.samples.iter().map(|sample| sample.cpu_ms_per_1k));
        // At full speed latency is queueing time: a figure of the load, not of the server.
        let added = if row.plan.is_paced() {
            format_pair(
                row.median(|sample| sample.added_latency.p50_ms),
                row.median(|sample| sample.added_latency.p99_ms),
            )
        } else {
            "–".into()
        };
        table.push_row(&[
            row.plan.label(),
            row.name.into(),
            format!("{} [{}–{}]", format_figure(row.cpu()), format_figure(low), format_figure(high)),
            format_figure(cpu_ratio(rows, row)),
            added,
            format_pair(
                row.median(|sample| sample.first_delta_latency.p50_ms),
                row.median(|sample| sample.first_delta_latency.p99_ms),
            ),
            format_figure(row.median(|sample| sample.deltas_per_s)),
            format_figure(row.median(|sample| sample.usage.rss_peak_mb)),
            format!("{:.0} %", row.median(|sample| sample.usage.machine_busy) * 100.0),
            row.faults().to_string(),
        ]);
    }
    table.into_markdown()
}

fn format_pair(first: f64, second: f64) -> String {
    format!("{} / {}", format_figure(first), format_figure(second))
}

fn judge_targets(rows: &[StreamRow]) -> (String, bool) {
    let ours: Vec<&StreamRow> = rows.iter().filter(|row| row.name == SUBJECT).collect();
    if ours.is_empty() {
        return ("Headwater was not measured.\n".into(), true);
    }
    let cells = |of: &dyn Fn(&StreamRow) -> Option<String>| {
        let texts: Vec<_> =
            ours.iter().filter_map(|row| of(row).map(|text| format!("{text} at {}", row.plan.label()))).collect();
        texts.join(", ")
    };
    let cpu_is_met = ours.iter().all(|row| cpu_ratio(rows, row) <= CPU_RATIO_MAX);
    let cut: usize = ours.iter().map(|row| row.faults().count(StreamFault::Cut)).sum();
    let bad: usize = ours.iter().map(|row| row.faults().total()).sum();
    let streams: usize = ours.iter().flat_map(|row| &row.samples).map(|sample| sample.streams).sum();
    let p50 = |row: &StreamRow| row.median(|sample| sample.added_latency.p50_ms);
    let added_is_met = ours.iter().filter(|row| row.plan.is_paced()).all(|row| p50(row) <= ADDED_P50_MS_MAX);
    let lines = [
        format_verdict(
            &format!(
                "CPU at most {CPU_RATIO_MAX} × the do-nothing proxy ({})",
                cells(&|row| Some(format_figure(cpu_ratio(rows, row))))
            ),
            cpu_is_met,
        ),
        format_verdict(&format!("no stream cut, none wrong ({cut} cut, {bad} bad of {streams})"), bad == 0),
        format_verdict(
            &format!(
                "added per token p50 at most {ADDED_P50_MS_MAX} ms ({})",
                cells(&|row| row.plan.is_paced().then(|| format_figure(p50(row))))
            ),
            added_is_met,
        ),
    ];
    (lines.concat(), cpu_is_met && bad == 0 && added_is_met)
}
