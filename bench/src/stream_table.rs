//! The table of streams and the targets that it is judged by.

use crate::cell::HeadwaterCell;
use crate::load::{LoadPlan, LoadSample};
use crate::plot::{Plot, Series};
use crate::report::{Table, format_figure, format_verdict};
use crate::stats::{median, min_max};
use crate::stream_check::StreamFault;
use crate::streams::StreamRow;

/// The row that the others are compared with.
const BASELINE: &str = "do-nothing proxy";
/// The row that sets the throughput at full speed.
const PARSING: &str = "parsing proxy";

const ADDED_P50_MS_MAX: f64 = 1.5;
const ADDED_P99_MS_MAX: f64 = 8.0;
const FIRST_DELTA_P50_MS_MAX: f64 = 5.0;
const FIRST_DELTA_FULL_SPEED_P50_MS_MAX: f64 = 100.0;

/// The most CPU time, as a multiple of the baseline's, in the plans that have such a target.
fn cpu_ratio_max(plan: LoadPlan) -> Option<f64> {
    match (plan.streams, plan.interval_ms) {
        (50, 20) => Some(2.2),
        (500, 20) => Some(2.0),
        _ => None,
    }
}

fn find_row<'a>(rows: &'a [StreamRow], plan: LoadPlan, name: &str) -> Option<&'a StreamRow> {
    rows.iter().find(|row| row.plan == plan && row.name == name)
}

/// A figure relative to another row's. Compared round by round, because the machine's load changes between rounds.
fn ratio_to(rows: &[StreamRow], row: &StreamRow, other: &str, of: impl Fn(&LoadSample) -> f64) -> f64 {
    let Some(other) = find_row(rows, row.plan, other) else { return f64::NAN };
    median(row.samples.iter().zip(&other.samples).map(|(ours, theirs)| of(ours) / of(theirs)))
}

fn cpu_ratio(rows: &[StreamRow], row: &StreamRow) -> f64 {
    ratio_to(rows, row, BASELINE, |sample| sample.cpu_ms_per_1k)
}

pub(crate) fn render_table(rows: &[StreamRow]) -> String {
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
        let cpu = row.median(|sample| sample.cpu_ms_per_1k);
        table.push_row(&[
            row.plan.label(),
            row.name.into(),
            format!("{} [{}–{}]", format_figure(cpu), format_figure(low), format_figure(high)),
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

/// CPU time against the number of paced streams.
pub(crate) fn plot_streams(rows: &[StreamRow]) -> String {
    let mut series: Vec<Series> = Vec::new();
    for row in rows.iter().filter(|row| row.plan.is_paced()) {
        let point = (f64::from(row.plan.streams), row.median(|sample| sample.cpu_ms_per_1k));
        match series.iter_mut().find(|series| series.name == row.name) {
            Some(series) => series.points.push(point),
            None => series.push(Series { name: row.name.into(), points: vec![point] }),
        }
    }
    let title = "Cost of a delta against the number of streams";
    Plot { title, x_label: "streams, paced", y_label: "CPU ms per 1,000 deltas", series }.into_svg()
}

/// The targets that a row of Headwater with a real upstream has, each with its figure and the bound.
fn row_verdicts(rows: &[StreamRow], row: &StreamRow) -> Vec<(String, bool)> {
    let mut verdicts = Vec::new();
    let mut at_most = |what: &str, figure: f64, bound: f64| {
        verdicts.push((format!("{what} {} (at most {bound})", format_figure(figure)), figure <= bound));
    };
    if let Some(bound) = cpu_ratio_max(row.plan) {
        at_most("CPU × do-nothing", cpu_ratio(rows, row), bound);
        at_most("added p50 ms", row.median(|sample| sample.added_latency.p50_ms), ADDED_P50_MS_MAX);
        at_most("added p99 ms", row.median(|sample| sample.added_latency.p99_ms), ADDED_P99_MS_MAX);
        at_most("first delta p50 ms", row.median(|sample| sample.first_delta_latency.p50_ms), FIRST_DELTA_P50_MS_MAX);
    }
    if !row.plan.is_paced() && row.plan.streams == 500 {
        let first = row.median(|sample| sample.first_delta_latency.p50_ms);
        at_most("first delta p50 ms", first, FIRST_DELTA_FULL_SPEED_P50_MS_MAX);
        let ratio = ratio_to(rows, row, PARSING, |sample| sample.deltas_per_s);
        verdicts.push((format!("deltas/s × parsing proxy {} (at least 1)", format_figure(ratio)), ratio >= 1.0));
    }
    verdicts
}

/// One line per row of Headwater, and whether every target was met. A lower bound has no target except correctness.
pub(crate) fn judge_targets(rows: &[StreamRow]) -> (String, bool) {
    let cells = HeadwaterCell::ALL.map(HeadwaterCell::name);
    let ours: Vec<&StreamRow> = rows.iter().filter(|row| cells.contains(&row.name)).collect();
    if ours.is_empty() {
        return ("Headwater was not measured.\n".into(), true);
    }
    let cut: usize = ours.iter().map(|row| row.faults().count(StreamFault::Cut)).sum();
    let bad: usize = ours.iter().map(|row| row.faults().total()).sum();
    let streams: usize = ours.iter().flat_map(|row| &row.samples).map(|sample| sample.streams).sum();
    let mut all_met = bad == 0;
    let mut text = format_verdict(&format!("no stream cut, none wrong ({cut} cut, {bad} bad of {streams})"), bad == 0);
    for row in ours.into_iter().filter(|row| row.name != HeadwaterCell::Scripted.name()) {
        let verdicts = row_verdicts(rows, row);
        if verdicts.is_empty() {
            continue;
        }
        let row_met = verdicts.iter().all(|(_, is_met)| *is_met);
        all_met &= row_met;
        let figures: Vec<String> = verdicts
            .into_iter()
            .map(|(figure, is_met)| if is_met { figure } else { format!("**{figure}**") })
            .collect();
        text += &format_verdict(&format!("{}, {}: {}", row.plan.label(), row.name, figures.join(", ")), row_met);
    }
    (text, all_met)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_usage::ProcessUsage;
    use crate::stats::Percentiles;
    use crate::stream_check::FaultCounts;

    const PACED: LoadPlan = LoadPlan { streams: 500, deltas: 100, interval_ms: 20, waves: 2 };

    fn row(plan: LoadPlan, name: &'static str, cpu_ms_per_1k: f64, deltas_per_s: f64) -> StreamRow {
        let latency = Percentiles { p50_ms: 1.0, p99_ms: 2.0 };
        let sample = LoadSample {
            cpu_ms_per_1k,
            added_latency: latency,
            first_delta_latency: latency,
            deltas_per_s,
            usage: ProcessUsage::default(),
            events: 0,
            streams: 1000,
            faults: FaultCounts::default(),
        };
        StreamRow { plan, name, samples: vec![sample] }
    }

    #[test]
    fn a_cell_beyond_its_ratio_misses_and_the_lower_bound_has_no_ratio() {
        let rows = |responses: f64| {
            [
                row(PACED, BASELINE, 10.0, 1.0),
                row(PACED, HeadwaterCell::Scripted.name(), 90.0, 1.0),
                row(PACED, HeadwaterCell::Responses.name(), responses, 1.0),
            ]
        };
        assert!(judge_targets(&rows(20.0)).1);
        let (text, is_met) = judge_targets(&rows(20.1));
        assert!(!is_met && text.contains("**CPU × do-nothing 2.01 (at most 2)**"), "{text}");
    }

    #[test]
    fn full_speed_is_compared_with_the_parsing_proxy() {
        let plan = LoadPlan { interval_ms: 0, ..PACED };
        let rows = |ours: f64| [row(plan, PARSING, 1.0, 100.0), row(plan, HeadwaterCell::Chat.name(), 9.0, ours)];
        assert!(judge_targets(&rows(100.0)).1);
        assert!(!judge_targets(&rows(99.0)).1);
    }

    #[test]
    fn one_bad_stream_misses_the_target() {
        let mut bad = row(LoadPlan { streams: 2000, ..PACED }, HeadwaterCell::Scripted.name(), 1.0, 1.0);
        for sample in &mut bad.samples {
            sample.faults.add(StreamFault::Cut);
        }
        assert!(!judge_targets(&[bad]).1);
    }
}
