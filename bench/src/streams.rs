//! The main table: what a stream costs through Headwater, beside the yardsticks and nothing at all.
//!
//! Every round visits every cell, and every cell every server, each round beginning with another one: what the machine
//! does meanwhile then falls on all of them alike. A figure is the median of its rounds.

use crate::append;
use crate::check::{Fault, Faults};
use crate::load::{self, Plan, Sample};
use crate::proxy::Mode;
use crate::report::{self, Table, figure, verdict};
use crate::servers::{HeadwaterOptions, Server};
use crate::stats::{median, range};
use crate::target::Target;

/// Waves are chosen so that a yardstick's CPU time is many times the 10 ms in which the kernel counts it.
const CELLS: [Plan; 4] = [
    Plan { streams: 50, deltas: 100, interval_ms: 20, waves: 2 },
    Plan { streams: 500, deltas: 100, interval_ms: 20, waves: 2 },
    Plan { streams: 50, deltas: 200, interval_ms: 0, waves: 20 },
    Plan { streams: 500, deltas: 200, interval_ms: 0, waves: 4 },
];
const WARM_UP: Plan = Plan { streams: 20, deltas: 50, interval_ms: 0, waves: 2 };

const CPU_RATIO_MAX: f64 = 3.0;
const ADDED_P50_MS_MAX: f64 = 3.0;
/// The row to which the others are held.
const YARDSTICK: &str = "do-nothing proxy";
const SUBJECT: &str = "headwater";

/// Whether the bars were met; true as well when there was nothing to hold against them.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, write: bool) -> anyhow::Result<bool> {
    let mock = Server::mock("direct").await?;
    let upstream = mock.target().authority.clone();
    let pass = Server::proxy(Mode::Pass, &upstream).await?;
    let parse = Server::proxy(Mode::Parse, &upstream).await?;
    let headwater = Server::headwater(options).await?;
    let servers: Vec<Server> = [Some(mock), Some(pass), Some(parse), headwater].into_iter().flatten().collect();
    let targets: Vec<Target> = servers.iter().map(|server| server.target().clone()).collect();

    let measured = measure(&targets, rounds).await;
    let (rows, flushes_ms) =
        measured.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.last_words())))?;
    for server in servers {
        server.stop().await?;
    }
    let (verdicts, is_met) = verdicts(&rows);
    let flush_ms = figure(median(flushes_ms));
    let body = format!(
        "Medians of {rounds} rounds. A bare 200-byte append with `fdatasync` took p50 {flush_ms} ms in the same rounds: \
         what is durable before it is visible cannot be faster.\n\n{}\n{verdicts}",
        table(&rows)
    );
    report::publish("streams", &body, write)?;
    Ok(is_met)
}

/// One server in one cell, all rounds.
struct Row {
    plan: Plan,
    name: &'static str,
    samples: Vec<Sample>,
}

impl Row {
    fn median(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.samples.iter().map(of))
    }

    fn cpu(&self) -> f64 {
        self.median(|sample| sample.cpu_ms_per_1k)
    }

    fn faults(&self) -> Faults {
        let mut all = Faults::default();
        self.samples.iter().for_each(|sample| all.extend(&sample.faults));
        all
    }
}

/// All rows, and what a flush of the disk took in each round.
async fn measure(targets: &[Target], rounds: usize) -> anyhow::Result<(Vec<Row>, Vec<f64>)> {
    for target in targets {
        load::run(target, WARM_UP).await?;
    }
    let mut rows: Vec<Row> = CELLS
        .iter()
        .flat_map(|plan| targets.iter().map(|target| Row { plan: *plan, name: target.name, samples: Vec::new() }))
        .collect();
    let mut flushes_ms = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let flush = tokio::task::spawn_blocking(append::flush).await??;
        eprintln!("round {} fdatasync p50 {} p99 {} ms", round + 1, figure(flush.p50_ms), figure(flush.p99_ms));
        flushes_ms.push(flush.p50_ms);
        for plan in CELLS {
            for turn in 0..targets.len() {
                let Some(target) = targets.get((turn + round) % targets.len()) else { continue };
                let sample = load::run(target, plan).await?;
                eprintln!("round {} {:>16} {:<18} {}", round + 1, plan.label(), target.name, line(&sample));
                if let Some(row) = rows.iter_mut().find(|row| row.plan == plan && row.name == target.name) {
                    row.samples.push(sample);
                }
            }
        }
    }
    Ok((rows, flushes_ms))
}

/// A sample on one line.
pub(crate) fn line(sample: &Sample) -> String {
    format!(
        "cpu {} ms/1k, added p50 {} p99 {} ms, first delta p50 {} p99 {} ms, {} deltas/s, peak {} MB, machine {:.0} % busy, faults {} of {}",
        figure(sample.cpu_ms_per_1k),
        figure(sample.added.p50_ms),
        figure(sample.added.p99_ms),
        figure(sample.first_delta.p50_ms),
        figure(sample.first_delta.p99_ms),
        figure(sample.deltas_per_s),
        figure(sample.usage.rss_peak_mb),
        sample.usage.machine_busy * 100.0,
        sample.faults,
        sample.streams,
    )
}

fn yardstick(rows: &[Row], plan: Plan) -> Option<&Row> {
    rows.iter().find(|row| row.plan == plan && row.name == YARDSTICK)
}

/// CPU against the yardstick's. Neighbours in one round had the same machine, so it is taken round by round.
fn ratio(rows: &[Row], row: &Row) -> f64 {
    let Some(yardstick) = yardstick(rows, row.plan) else { return f64::NAN };
    let rounds = row.samples.iter().zip(&yardstick.samples);
    median(rounds.map(|(ours, theirs)| ours.cpu_ms_per_1k / theirs.cpu_ms_per_1k))
}

fn table(rows: &[Row]) -> String {
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
        let (low, high) = range(row.samples.iter().map(|sample| sample.cpu_ms_per_1k));
        // At full speed a delta's age is the time that it queued: a figure of the load, not of the server.
        let added = if row.plan.is_paced() {
            pair(row.median(|sample| sample.added.p50_ms), row.median(|sample| sample.added.p99_ms))
        } else {
            "–".into()
        };
        table.row(&[
            row.plan.label(),
            row.name.into(),
            format!("{} [{}–{}]", figure(row.cpu()), figure(low), figure(high)),
            figure(ratio(rows, row)),
            added,
            pair(row.median(|sample| sample.first_delta.p50_ms), row.median(|sample| sample.first_delta.p99_ms)),
            figure(row.median(|sample| sample.deltas_per_s)),
            figure(row.median(|sample| sample.usage.rss_peak_mb)),
            format!("{:.0} %", row.median(|sample| sample.usage.machine_busy) * 100.0),
            row.faults().to_string(),
        ]);
    }
    table.into_text()
}

fn pair(first: f64, second: f64) -> String {
    format!("{} / {}", figure(first), figure(second))
}

fn verdicts(rows: &[Row]) -> (String, bool) {
    let ours: Vec<&Row> = rows.iter().filter(|row| row.name == SUBJECT).collect();
    if ours.is_empty() {
        return ("Headwater was not measured.\n".into(), true);
    }
    let cells = |of: &dyn Fn(&Row) -> Option<String>| {
        let texts: Vec<_> =
            ours.iter().filter_map(|row| of(row).map(|text| format!("{text} at {}", row.plan.label()))).collect();
        texts.join(", ")
    };
    let cpu_is_met = ours.iter().all(|row| ratio(rows, row) <= CPU_RATIO_MAX);
    let cut: usize = ours.iter().map(|row| row.faults().count(Fault::Cut)).sum();
    let bad: usize = ours.iter().map(|row| row.faults().total()).sum();
    let streams: usize = ours.iter().flat_map(|row| &row.samples).map(|sample| sample.streams).sum();
    let p50 = |row: &Row| row.median(|sample| sample.added.p50_ms);
    let added_is_met = ours.iter().filter(|row| row.plan.is_paced()).all(|row| p50(row) <= ADDED_P50_MS_MAX);
    let lines = [
        verdict(
            &format!(
                "CPU at most {CPU_RATIO_MAX} × the do-nothing proxy ({})",
                cells(&|row| Some(figure(ratio(rows, row))))
            ),
            cpu_is_met,
        ),
        verdict(&format!("no stream cut, none wrong ({cut} cut, {bad} bad of {streams})"), bad == 0),
        verdict(
            &format!(
                "added per token p50 at most {ADDED_P50_MS_MAX} ms ({})",
                cells(&|row| row.plan.is_paced().then(|| figure(p50(row))))
            ),
            added_is_met,
        ),
    ];
    (lines.concat(), cpu_is_met && bad == 0 && added_is_met)
}
