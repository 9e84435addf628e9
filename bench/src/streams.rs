//! The main table: what a stream costs through Headwater in each protocol, through the baselines, and directly.
//!
//! Headwater and the proxies read the same mock provider over HTTP. Every round measures every plan on every server, each
//! round beginning with another server, so that other activity of the machine affects all of them alike. Figures are
//! medians over the rounds.

use crate::append;
use crate::cell::HeadwaterCell;
use crate::load::{self, LoadPlan, LoadSample};
use crate::proxy::ProxyMode;
use crate::report::{self, SectionOutput, format_figure};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::median;
use crate::stream_check::FaultCounts;
use crate::stream_table;
use crate::target::LoadTarget;

/// Waves are chosen so that the CPU time of a baseline is many times the kernel's resolution of 10 ms.
const LOAD_PLANS: [LoadPlan; 5] = [
    LoadPlan { streams: 50, deltas: 100, interval_ms: 20, waves: 2 },
    LoadPlan { streams: 500, deltas: 100, interval_ms: 20, waves: 2 },
    // As many deltas per second as 500 × 20 ms.
    LoadPlan { streams: 2000, deltas: 40, interval_ms: 100, waves: 1 },
    LoadPlan { streams: 50, deltas: 200, interval_ms: 0, waves: 20 },
    LoadPlan { streams: 500, deltas: 200, interval_ms: 0, waves: 4 },
];
pub(crate) const WARM_UP: LoadPlan = LoadPlan { streams: 20, deltas: 50, interval_ms: 0, waves: 2 };

/// What to measure; all of it unless a part is named.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct StreamSelection {
    /// Cells of Headwater; may be repeated [default: all].
    #[arg(long = "cell", value_name = "CELL")]
    cells: Vec<HeadwaterCell>,
    /// One plan with this number of streams instead of the table's.
    #[arg(long)]
    streams: Option<u32>,
    /// One plan with this many milliseconds between deltas, 0 for full speed, instead of the table's.
    #[arg(long, value_name = "MS")]
    pace: Option<u64>,
}

impl StreamSelection {
    fn cells(&self) -> Vec<HeadwaterCell> {
        if self.cells.is_empty() { HeadwaterCell::ALL.to_vec() } else { self.cells.clone() }
    }

    fn plans(&self) -> Vec<LoadPlan> {
        if self.streams.is_none() && self.pace.is_none() {
            return LOAD_PLANS.to_vec();
        }
        let (streams, interval_ms) = (self.streams.unwrap_or(500), self.pace.unwrap_or(20));
        let known = LOAD_PLANS.into_iter().find(|plan| plan.streams == streams && plan.interval_ms == interval_ms);
        let paced = interval_ms > 0;
        let (deltas, waves) = if paced { (100, 2) } else { (200, 4) };
        vec![known.unwrap_or(LoadPlan { streams, deltas, interval_ms, waves })]
    }
}

/// Whether the targets were met; true as well when Headwater was not measured.
pub(crate) async fn run(
    options: &HeadwaterOptions,
    selection: &StreamSelection,
    rounds: usize,
    output: SectionOutput,
) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("direct").await?;
    let upstream = mock.target().authority.clone();
    let pass = ServerProcess::start_proxy(ProxyMode::Pass, &upstream).await?;
    let parse = ServerProcess::start_proxy(ProxyMode::Parse, &upstream).await?;
    let headwater = ServerProcess::start_headwater(options, &upstream).await?;
    let mut targets = vec![mock.target().clone(), pass.target().clone(), parse.target().clone()];
    if let Some(headwater) = &headwater {
        targets.extend(selection.cells().into_iter().map(|cell| cell.target(headwater.target())));
    }
    let servers: Vec<ServerProcess> = [Some(mock), Some(pass), Some(parse), headwater].into_iter().flatten().collect();

    let measured = measure_streams(&targets, &selection.plans(), rounds).await;
    let (rows, flushes_ms) =
        measured.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.log_tail())))?;
    for server in servers {
        server.stop().await?;
    }
    let (verdicts, is_met) = stream_table::judge_targets(&rows);
    let flush_ms = format_figure(median(flushes_ms));
    let body = format!(
        "Medians of {rounds} rounds. A bare 200-byte append with `fdatasync` took p50 {flush_ms} ms in the same rounds: \
         what is durable before it is visible cannot be faster.\n\n{}\n{verdicts}",
        stream_table::render_table(&rows)
    );
    report::publish_section("streams", &body, output)?;
    report::publish_plot("streams", &stream_table::plot_streams(&rows), output)?;
    Ok(is_met)
}

/// One server under one plan, all rounds.
pub(crate) struct StreamRow {
    pub(crate) plan: LoadPlan,
    pub(crate) name: &'static str,
    pub(crate) samples: Vec<LoadSample>,
}

impl StreamRow {
    pub(crate) fn median(&self, of: impl Fn(&LoadSample) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }

    pub(crate) fn faults(&self) -> FaultCounts {
        let mut all = FaultCounts::default();
        self.samples.iter().for_each(|sample| all.extend(&sample.faults));
        all
    }
}

/// All rows, and the duration of a disk flush in each round.
async fn measure_streams(
    targets: &[LoadTarget],
    plans: &[LoadPlan],
    rounds: usize,
) -> anyhow::Result<(Vec<StreamRow>, Vec<f64>)> {
    for target in targets {
        load::run_load(target, WARM_UP).await?;
    }
    let mut rows: Vec<StreamRow> = plans
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
        for plan in plans {
            for turn in 0..targets.len() {
                let Some(target) = targets.get((turn + round) % targets.len()) else { continue };
                let sample = load::run_load(target, *plan).await?;
                eprintln!("round {} {:>16} {:<25} {}", round + 1, plan.label(), target.name, format_sample(&sample));
                if let Some(row) = rows.iter_mut().find(|row| row.plan == *plan && row.name == target.name) {
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
