//! The same node on SQLite and on PostgreSQL, in the same rounds: what it costs the node, and what it costs the database.
//!
//! The client reads Responses. Both nodes read the same mock; the data of both is on the same disk, and every commit is
//! flushed.

use crate::cell::HeadwaterCell;
use crate::load::{self, LoadPlan, LoadSample};
use crate::process_usage::family_cpu_ms;
use crate::report::{self, SectionOutput, Table, format_figure, format_verdict};
use crate::server_process::{HeadwaterOptions, ServerProcess};
use crate::stats::median;
use crate::streams::{WARM_UP, format_sample};
use crate::target::LoadTarget;
use postgres_testing::PostgresServer;

const LOAD_PLANS: [LoadPlan; 3] = [
    LoadPlan { streams: 100, deltas: 100, interval_ms: 20, waves: 2 },
    LoadPlan { streams: 500, deltas: 100, interval_ms: 20, waves: 2 },
    LoadPlan { streams: 100, deltas: 200, interval_ms: 0, waves: 10 },
];
const DATABASE: &str = "postgres";
/// The node's CPU time with PostgreSQL, as a multiple of that with SQLite.
const CPU_RATIO_MAX: f64 = 1.3;

/// One plan, all rounds.
struct StoreRow {
    plan: LoadPlan,
    sqlite: Vec<LoadSample>,
    postgres: Vec<LoadSample>,
    /// CPU time of PostgreSQL per 1,000 deltas.
    database_cpu_ms: Vec<f64>,
}

/// Whether the target was met; true as well when Headwater was not measured.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, output: SectionOutput) -> anyhow::Result<bool> {
    let mock = ServerProcess::start_mock("mock").await?;
    let upstream = mock.target().authority.clone();
    let Some(sqlite) = ServerProcess::start_headwater(options, &upstream).await? else { return Ok(true) };
    let database = tokio::task::spawn_blocking(PostgresServer::start).await?;
    let postgres = ServerProcess::start_headwater_on(options, &upstream, &database.url(DATABASE)).await?;
    let measured = measure(sqlite.target(), postgres.target(), database.postmaster_pid(), rounds).await;
    let rows = measured.inspect_err(|_| eprintln!("{}\n{}", sqlite.log_tail(), postgres.log_tail()))?;
    for server in [sqlite, postgres, mock] {
        server.stop().await?;
    }
    tokio::task::spawn_blocking(move || drop(database)).await?;
    let (verdicts, is_met) = judge(&rows);
    let body = format!("Medians of {rounds} rounds, read as Responses.\n\n{}\n{verdicts}", render(&rows));
    report::publish_section("stores", &body, output)?;
    Ok(is_met)
}

async fn measure(
    sqlite: &LoadTarget,
    postgres: &LoadTarget,
    postmaster: u32,
    rounds: usize,
) -> anyhow::Result<Vec<StoreRow>> {
    let [sqlite, postgres] = [("SQLite", sqlite), ("PostgreSQL", postgres)]
        .map(|(name, server)| LoadTarget { name, ..HeadwaterCell::Responses.target(server) });
    for target in [&sqlite, &postgres] {
        load::run_load(target, WARM_UP).await?;
    }
    let new_row = |plan| StoreRow { plan, sqlite: Vec::new(), postgres: Vec::new(), database_cpu_ms: Vec::new() };
    let mut rows: Vec<StoreRow> = LOAD_PLANS.into_iter().map(new_row).collect();
    for round in 0..rounds {
        for row in &mut rows {
            // Each round begins with another one, so that other activity of the machine affects both alike.
            for is_postgres in [round % 2 == 1, round % 2 == 0] {
                let target = if is_postgres { &postgres } else { &sqlite };
                let before = family_cpu_ms(postmaster)?;
                let sample = load::run_load(target, row.plan).await?;
                let database_cpu_ms = family_cpu_ms(postmaster)? - before;
                eprintln!(
                    "round {} {:>16} {:<10} {}",
                    round + 1,
                    row.plan.label(),
                    target.name,
                    format_sample(&sample)
                );
                if is_postgres {
                    let deltas = f64::from(row.plan.streams * row.plan.deltas * row.plan.waves);
                    row.database_cpu_ms.push(database_cpu_ms / deltas * 1_000.0);
                    row.postgres.push(sample);
                } else {
                    row.sqlite.push(sample);
                }
            }
        }
    }
    Ok(rows)
}

fn median_of(samples: &[LoadSample], of: impl Fn(&LoadSample) -> f64) -> f64 {
    median(samples.iter().map(of))
}

impl StoreRow {
    /// The median of the ratios of each round.
    fn cpu_ratio(&self) -> f64 {
        let rounds = self.postgres.iter().zip(&self.sqlite);
        median(rounds.map(|(postgres, sqlite)| postgres.cpu_ms_per_1k / sqlite.cpu_ms_per_1k))
    }

    fn bad_streams(&self) -> usize {
        self.sqlite.iter().chain(&self.postgres).map(|sample| sample.faults.total()).sum()
    }
}

fn render(rows: &[StoreRow]) -> String {
    let mut table = Table::new(&[
        "streams",
        "store",
        "CPU of the node, ms per 1,000 deltas",
        "× SQLite",
        "CPU of PostgreSQL, ms per 1,000 deltas",
        "added per token p50 / p99 ms",
        "first delta p50 / p99 ms",
        "deltas/s",
        "machine busy",
        "bad streams",
    ]);
    for row in rows {
        let database_cpu = format_figure(median(row.database_cpu_ms.iter().copied()));
        let ratio = format_figure(row.cpu_ratio());
        let of_stores = [
            ("SQLite", &row.sqlite, "1.00", "–"),
            ("PostgreSQL", &row.postgres, ratio.as_str(), database_cpu.as_str()),
        ];
        for (name, samples, ratio, database_cpu) in of_stores {
            let figure = |of: &dyn Fn(&LoadSample) -> f64| format_figure(median_of(samples, of));
            let added = match row.plan.is_paced() {
                true => format!(
                    "{} / {}",
                    figure(&|sample| sample.added_latency.p50_ms),
                    figure(&|sample| sample.added_latency.p99_ms)
                ),
                false => "–".to_owned(),
            };
            table.push_row(&[
                row.plan.label(),
                name.to_owned(),
                figure(&|sample| sample.cpu_ms_per_1k),
                ratio.to_owned(),
                database_cpu.to_owned(),
                added,
                format!(
                    "{} / {}",
                    figure(&|sample| sample.first_delta_latency.p50_ms),
                    figure(&|sample| sample.first_delta_latency.p99_ms)
                ),
                figure(&|sample| sample.deltas_per_s),
                format!("{:.0} %", 100.0 * median_of(samples, |sample| sample.usage.machine_busy)),
                samples.iter().map(|sample| sample.faults.total()).sum::<usize>().to_string(),
            ]);
        }
    }
    table.into_markdown()
}

fn judge(rows: &[StoreRow]) -> (String, bool) {
    let (mut verdicts, mut all_met) = (String::new(), true);
    for row in rows {
        let (ratio, bad) = (row.cpu_ratio(), row.bad_streams());
        let is_met = ratio <= CPU_RATIO_MAX && bad == 0;
        let text = format!(
            "{}: CPU of the node {} × that with SQLite (at most {CPU_RATIO_MAX}), {bad} bad streams",
            row.plan.label(),
            format_figure(ratio)
        );
        verdicts.push_str(&format_verdict(&text, is_met));
        all_met &= is_met;
    }
    (verdicts, all_met)
}
