//! One program: start the nodes and the users, inject the faults, wait until everything has ended, and check.

use crate::archive;
use crate::checker;
use crate::cluster::{Cluster, NodeNetwork};
use crate::context::{ChaosContext, ChaosForm};
use crate::faults::{self, FaultKind};
use crate::final_log;
use crate::history::HistoryFacts;
use crate::monitor;
use crate::namespace::NodeNamespace;
use crate::protocol::{AcknowledgedRun, Protocol};
use crate::report::ChaosReport;
use crate::workload::{self, RunPlan};
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long runs may take to end after the last fault: a takeover and a whole run, on a busy machine.
const SETTLE_MAX: Duration = Duration::from_secs(75);
/// Time without faults at the beginning.
const QUIET: Duration = Duration::from_secs(3);
/// A program with fewer frames per viewer did not check much.
const FRAMES_PER_VIEWER_MIN: usize = 20;

pub(crate) async fn run_program(
    form: ChaosForm,
    seed: u64,
    kinds: &[FaultKind],
    binary: &Path,
    keeps_folder: bool,
) -> anyhow::Result<ChaosReport> {
    let network = match NodeNamespace::missing().filter(|_| form.is_full) {
        None if form.is_full => NodeNetwork::Namespaces,
        None => NodeNetwork::Loopback,
        Some(why) => {
            println!("SKIPPED chaos in network namespaces, partitions are simulated: {why}");
            NodeNetwork::Loopback
        }
    };
    let cluster = Cluster::start(binary, network).await?;
    let context = Arc::new(ChaosContext::new(form, seed, cluster));
    let watching = tokio::spawn(monitor::watch_terms(Arc::clone(&context)));
    let mut rng = context.rng(1);
    let plan = faults::plan_faults(&mut rng, kinds, form.rounds);
    let background = form.runs.saturating_sub(plan.iter().filter(|(kind, _)| kind.starts_run()).count());
    for number in 0..background {
        let viewers = form.viewers / background.max(1) + usize::from(number < form.viewers % background.max(1));
        let plan = RunPlan::background(&context, &mut rng, number, viewers);
        context.spawn_user(workload::carry_out(Arc::clone(&context), plan));
    }
    tokio::time::sleep(QUIET).await;
    let outcomes = faults::run_schedule(&context, plan).await;
    let healed = Instant::now();
    context.set_deadline(healed + SETTLE_MAX);
    context.join_users().await;
    let ends = wait_for_ends(&context, healed + SETTLE_MAX).await;
    let settled = healed.elapsed();
    watching.abort();
    let mut report = check(&context, ends).await?;
    report.settled = settled;
    let mut happened = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(fault) => happened.push(fault),
            Err(error) => report.failures.push(format!("{error:#}")),
        }
    }
    let missing = kinds.iter().filter(|kind| !happened.iter().any(|fault| fault.kind == **kind));
    report.failures.extend(missing.map(|kind| format!("{} never happened", kind.name())));
    happened.sort_by_key(|fault| fault.begun);
    report.faults = happened;
    report.took = context.begun.elapsed();
    for node in &context.cluster.nodes {
        if let Err(error) = node.check_alive().await {
            report.problems.push(format!("{error:#}"));
        }
    }
    stop_nodes(context, &mut report, keeps_folder).await;
    Ok(report)
}

async fn stop_nodes(context: Arc<ChaosContext>, report: &mut ChaosReport, keeps_folder: bool) {
    for node in &context.cluster.nodes {
        if let Err(error) = node.stop().await {
            report.problems.push(format!("{error:#}"));
        }
    }
    // Tasks of users that have ended hold no reference any more.
    if let Some(context) = Arc::into_inner(context).filter(|_| keeps_folder) {
        println!("logs: {}", context.cluster.keep_folder().display());
    }
}

/// How each run ended, or that it did not.
async fn wait_for_ends(context: &Arc<ChaosContext>, deadline: Instant) -> BTreeMap<String, anyhow::Result<String>> {
    let runs: Vec<AcknowledgedRun> = context.history.lock().runs.values().cloned().collect();
    let mut ends = BTreeMap::new();
    for run in runs {
        ends.insert(run.task.clone(), final_log::wait_until_ended(context, &run, deadline).await);
    }
    ends
}

async fn check(
    context: &Arc<ChaosContext>,
    ends: BTreeMap<String, anyhow::Result<String>>,
) -> anyhow::Result<ChaosReport> {
    let facts = context.history.take_facts();
    let HistoryFacts { runs, views, decisions, waits, terms, windows, takeovers, reconnects, cancels, mut problems } =
        facts;
    let mut statuses = BTreeMap::new();
    for (task, end) in ends {
        match end {
            Ok(status) => drop(statuses.insert(task, status)),
            Err(error) => problems.push(format!("{error:#}")),
        }
    }
    let mut wanted: BTreeSet<(Protocol, String)> =
        views.iter().map(|view| (view.protocol, view.task.clone())).collect();
    wanted.extend(runs.keys().map(|task| (Protocol::Thread, task.clone())));
    wanted.retain(|(_, task)| statuses.contains_key(task));
    let (streams, unreadable) = final_log::read_streams(context, wanted, &runs).await;
    problems.extend(unreadable);
    let logs = checker::thread_logs(&streams, &runs);
    let records = final_log::read_records(context).await.context("the log cannot be read")?;
    let effects = context.cluster.effects();
    problems.extend(checker::view_problems(&views, &streams));
    problems.extend(logs.iter().flat_map(|(thread, frames)| checker::log_problems(thread, frames)));
    problems.extend(checker::end_problems(&logs));
    problems.extend(checker::effect_problems(&effects, &logs));
    problems.extend(checker::decision_problems(&decisions, &logs));
    problems.extend(checker::record_problems(&records));
    problems.extend(checker::takeover_problems(&records, &logs, &terms, &windows));
    problems.extend(checker::wait_problems(&waits, &statuses));
    let (segments, archive_problems) = archive::check_archive(context).await.context("the archive cannot be read")?;
    problems.extend(archive_problems);
    let mut failures = Vec::new();
    if segments == 0 {
        failures.push("nothing was archived".to_owned());
    }
    let frames: usize = views.iter().map(|view| view.frames.len()).sum();
    let viewers = views.iter().map(|view| view.viewer).collect::<BTreeSet<_>>().len();
    if frames < viewers * FRAMES_PER_VIEWER_MIN || viewers < context.form.viewers {
        failures.push(format!("{viewers} viewers saw only {frames} frames"));
    }
    let recoveries = logs.values().flatten().filter(|frame| frame.name == "task.recovered").count();
    let mut counts = BTreeMap::new();
    statuses.values().for_each(|status| *counts.entry(status.clone()).or_default() += 1);
    Ok(ChaosReport {
        seed: context.seed,
        takeovers,
        runs: runs.len(),
        viewers,
        streams: views.len(),
        frames,
        records: records.len(),
        segments,
        reconnects,
        effects: effects.lines().count(),
        decisions: decisions.len(),
        cancels,
        recoveries,
        ends: counts,
        problems,
        failures,
        ..ChaosReport::default()
    })
}
