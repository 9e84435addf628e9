//! What one more viewer of a task costs.
//!
//! A task of 500 deltas is started without a stream; its viewers then follow it from its first event to its last and
//! check what they get. The cost is the server's CPU time, the run itself included, over all events delivered. With
//! few viewers several such tasks run at once, because one alone costs less than the kernel can count.

use crate::check::{Fault, Faults, Latency, StreamCheck};
use crate::load::{self, Reading};
use crate::report::{self, Table, figure};
use crate::servers::{HeadwaterOptions, Server};
use crate::stats::{Spread, median};
use crate::target::{Dialect, Target};
use crate::usage::{Meter, Usage};
use http_body_util::BodyExt;
use hyper::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const DELTAS: u32 = 500;
const INTERVAL_MS: u64 = 20;
const DEADLINE: Duration = Duration::from_secs(40);

/// How many watch each task, and how many tasks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crowd {
    pub(crate) viewers: u32,
    pub(crate) tasks: u32,
    pub(crate) deltas: u32,
}

const CROWDS: [Crowd; 3] = [
    Crowd { viewers: 1, tasks: 40, deltas: DELTAS },
    Crowd { viewers: 10, tasks: 4, deltas: DELTAS },
    Crowd { viewers: 1000, tasks: 1, deltas: DELTAS },
];

/// What a crowd cost.
pub(crate) struct Sample {
    pub(crate) cpu_ms_per_1k: f64,
    pub(crate) deliveries: u64,
    pub(crate) added: Spread,
    pub(crate) usage: Usage,
    pub(crate) faults: Faults,
}

struct Row {
    crowd: Crowd,
    name: &'static str,
    samples: Vec<Sample>,
}

/// Measures every crowd on Headwater and on the mock, which has no log and no fan-out: each viewer is told its own
/// story. Says whether every stream was good.
pub(crate) async fn run(options: &HeadwaterOptions, rounds: usize, write: bool) -> anyhow::Result<bool> {
    let servers: Vec<Server> =
        [Some(Server::mock("mock, no log").await?), Server::headwater(options).await?].into_iter().flatten().collect();
    let targets: Vec<Target> =
        servers.iter().map(|server| Target { dialect: Dialect::Tasks, ..server.target().clone() }).collect();
    let rows = measure_all(&targets, rounds).await;
    let rows = rows.inspect_err(|_| servers.iter().for_each(|server| eprintln!("{}", server.last_words())))?;
    for server in servers {
        server.stop().await?;
    }
    let body = format!("Medians of {rounds} rounds.\n\n{}", table(&rows));
    report::publish("fanout", &body, write)?;
    Ok(rows.iter().flat_map(|row| &row.samples).all(|sample| sample.faults.total() == 0))
}

async fn measure_all(targets: &[Target], rounds: usize) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = CROWDS
        .iter()
        .flat_map(|crowd| targets.iter().map(|target| Row { crowd: *crowd, name: target.name, samples: Vec::new() }))
        .collect();
    for round in 0..rounds {
        for row in &mut rows {
            let Some(target) = targets.iter().find(|target| target.name == row.name) else { continue };
            let sample = measure(target, row.crowd).await?;
            let viewers = row.crowd.viewers;
            eprintln!("round {} {viewers:>4} viewers {:<12} {}", round + 1, row.name, line(&sample));
            row.samples.push(sample);
        }
    }
    Ok(rows)
}

/// Runs one crowd.
pub(crate) async fn measure(target: &Target, crowd: Crowd) -> anyhow::Result<Sample> {
    let target = Arc::new(target.clone());
    let meter = Meter::start(target.pid)?;
    let mut tasks = JoinSet::new();
    for task in 0..crowd.tasks {
        let target = target.clone();
        // Spread over one interval: tasks in step would share every commit.
        let start = Duration::from_millis(INTERVAL_MS) * task / crowd.tasks;
        tasks.spawn(async move {
            tokio::time::sleep(start).await;
            watch(target, crowd).await
        });
    }
    let readings: Vec<Reading> = tasks.join_all().await.into_iter().flatten().collect();
    let usage = meter.stop()?;

    let (mut deliveries, mut added_us, mut faults) = (0, Vec::new(), Faults::default());
    for reading in readings {
        deliveries += reading.events;
        added_us.extend(reading.added_us);
        if let Some(fault) = reading.fault {
            faults.add(fault);
        }
    }
    let cpu_ms_per_1k = usage.cpu_ms * 1000.0 / deliveries as f64;
    Ok(Sample { cpu_ms_per_1k, deliveries, added: Spread::of_us(added_us), usage, faults })
}

#[derive(Deserialize)]
struct Created {
    task_id: String,
}

/// Starts one task and lets its viewers follow it.
async fn watch(target: Arc<Target>, crowd: Crowd) -> Vec<Reading> {
    let failed = || vec![Reading { fault: Some(Fault::Http), ..Reading::default() }];
    let Ok(request) = target.start_task(crowd.deltas, INTERVAL_MS) else { return failed() };
    let created = load::exchange(&target, request, async |answer| {
        if answer.status() != StatusCode::ACCEPTED {
            return Err(Fault::Http);
        }
        let body = answer.into_body().collect().await.map_err(|_| Fault::Cut)?;
        serde_json::from_slice::<Created>(&body.to_bytes()).map_err(|_| Fault::Malformed)
    })
    .await;
    let Ok(request) = created.and_then(|task| target.follow_task(&task.task_id).map_err(|_| Fault::Malformed)) else {
        return failed();
    };
    let mut viewers = JoinSet::new();
    for _ in 0..crowd.viewers {
        let (target, request) = (target.clone(), request.clone());
        viewers.spawn(async move {
            let check = StreamCheck::new(crowd.deltas, Latency::SinceAttached);
            load::read(&target, request, check, DEADLINE).await
        });
    }
    viewers.join_all().await
}

fn line(sample: &Sample) -> String {
    format!(
        "cpu {} ms/1k deliveries of {}, added p50 {} p99 {} ms, peak {} MB, machine {:.0} % busy, faults {}",
        figure(sample.cpu_ms_per_1k),
        sample.deliveries,
        figure(sample.added.p50_ms),
        figure(sample.added.p99_ms),
        figure(sample.usage.rss_peak_mb),
        sample.usage.machine_busy * 100.0,
        sample.faults,
    )
}

fn table(rows: &[Row]) -> String {
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
        let of = |of: &dyn Fn(&Sample) -> f64| median(row.samples.iter().map(of));
        let mut faults = Faults::default();
        row.samples.iter().for_each(|sample| faults.extend(&sample.faults));
        table.row(&[
            row.crowd.viewers.to_string(),
            row.crowd.tasks.to_string(),
            row.name.into(),
            figure(of(&|sample| sample.cpu_ms_per_1k)),
            figure(of(&|sample| sample.deliveries as f64)),
            format!("{} / {}", figure(of(&|sample| sample.added.p50_ms)), figure(of(&|sample| sample.added.p99_ms))),
            figure(of(&|sample| sample.usage.rss_peak_mb)),
            format!("{:.0} %", of(&|sample| sample.usage.machine_busy) * 100.0),
            faults.to_string(),
        ]);
    }
    table.into_text()
}
