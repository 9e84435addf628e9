//! A node dies, is suspended, or is cut off from PostgreSQL, and others continue its runs.

use super::FaultKind;
use crate::context::ChaosContext;
use crate::http_client::{self, ApiRequest};
use crate::node::{DataFolder, Node, process_state};
use anyhow::{Context, ensure};
use model_testing::Rng;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// How long a killed node stays away if it comes back with its own folder.
const RESTART_AFTER: Duration = Duration::from_secs(3);
const TAKEOVER_POLL: Duration = Duration::from_millis(100);
/// What a takeover may take: the lease, a sweep, and loading the thread.
pub(crate) const TAKEOVER_MAX: Duration = Duration::from_secs(15);
/// A time alone fails the program only far beyond its bound: the machine may be busy, or PostgreSQL down meanwhile.
pub(crate) const FAILURE_FACTOR: u32 = 5;
const STATE_TIMEOUT: Duration = Duration::from_secs(5);

/// A thread that a node executed when it failed.
#[derive(Clone, Debug)]
pub(super) struct OrphanedThread {
    id: String,
    epoch: String,
}

/// The threads with an active run that the node executes.
pub(super) async fn executed_threads(context: &ChaosContext, prefix: &str) -> anyhow::Result<Vec<OrphanedThread>> {
    let sql = format!(
        "SELECT DISTINCT t.id, t.epoch FROM headwater.threads t JOIN headwater.runs r ON r.thread = t.num
         WHERE starts_with(t.node, '{prefix}') AND r.ended_at IS NULL AND r.status <> 'paused' AND r.first_seq IS NOT NULL"
    );
    let rows = context.database_rows_when_up(&sql).await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| <[String; 2]>::try_from(row).ok())
        .map(|[id, epoch]| OrphanedThread { id, epoch })
        .collect())
}

/// Injects the fault, waits until others have continued the node's runs, and heals it.
pub(super) async fn remove_node(
    context: &ChaosContext,
    kind: FaultKind,
    node: &Node,
    rng: &mut Rng,
) -> anyhow::Result<(String, Vec<Duration>)> {
    let prefix = node.id_prefix()?;
    let orphans = executed_threads(context, &prefix).await?;
    let window = context.history.open_window(Some(prefix));
    let begun = Instant::now();
    let absence = async {
        let proof = match kind {
            FaultKind::KillNode => kill_and_restart(node, RESTART_AFTER, DataFolder::Same).await,
            FaultKind::ReplaceNode => kill_and_restart(node, context.form.absence, DataFolder::New).await,
            FaultKind::SuspendNode => suspend(node, context.form.absence).await,
            _ => partition(node, context.form.absence, rng).await,
        };
        context.history.close_window(window);
        proof
    };
    let (proof, takeovers) = tokio::join!(absence, measure_takeovers(context, &orphans, begun));
    Ok((proof?, takeovers))
}

async fn kill_and_restart(node: &Node, away: Duration, data: DataFolder) -> anyhow::Result<String> {
    let pid = node.kill().await?;
    let refused = http_client::send(&node.address, &ApiRequest::get("/readyz"), Duration::from_secs(1)).await;
    ensure!(refused.is_err(), "a killed node answers");
    tokio::time::sleep(away).await;
    node.start(data).await?;
    Ok(format!("process {pid} gone, now {}", node.pid().await?))
}

async fn suspend(node: &Node, away: Duration) -> anyhow::Result<String> {
    let pid = node.signal(Signal::STOP).await?;
    let begun = Instant::now();
    while process_state(pid) != Some('T') {
        ensure!(begun.elapsed() < STATE_TIMEOUT, "process {pid} is not stopped");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let silent = http_client::send(&node.address, &ApiRequest::get("/readyz"), Duration::from_secs(1)).await;
    ensure!(silent.is_err(), "a suspended node answers");
    tokio::time::sleep(away.saturating_sub(begun.elapsed())).await;
    let state = process_state(pid).unwrap_or('-');
    ensure!(state == 'T', "process {pid} did not stay stopped: {state}");
    node.signal(Signal::CONT).await?;
    Ok(format!("process {pid} in state T for {:.1} s", begun.elapsed().as_secs_f64()))
}

async fn partition(node: &Node, away: Duration, rng: &mut Rng) -> anyhow::Result<String> {
    match &node.namespace {
        None => node.proxy.cut(),
        Some(namespace) => namespace.cut().await?,
    }
    let begun = Instant::now();
    // Not longer than the partition: it might be answered after it.
    let answer = http_client::send(&node.address, &ApiRequest::get("/v1/threads"), away / 3).await;
    let is_refused = answer.as_ref().map_or(true, |reply| !reply.is_success());
    tokio::time::sleep(away.saturating_sub(begun.elapsed())).await;
    // What has gathered arrives at a random moment.
    tokio::time::sleep(Duration::from_millis(rng.between(0, 1_000).into())).await;
    let proof = match &node.namespace {
        None => {
            let held = node.proxy.held();
            node.proxy.heal();
            ensure!(held > 0, "nothing was held up");
            format!("{held} connections held up")
        }
        Some(namespace) => {
            namespace.heal().await?;
            namespace.describe()
        }
    };
    ensure!(is_refused, "a node without its database lists threads");
    Ok(format!("{proof}, a request failed"))
}

/// Waits until each thread has a new epoch, or its run has ended or paused.
async fn measure_takeovers(context: &ChaosContext, orphans: &[OrphanedThread], begun: Instant) -> Vec<Duration> {
    let mut waiting = orphans.to_vec();
    let mut takeovers = Vec::new();
    while !waiting.is_empty() {
        if begun.elapsed() > TAKEOVER_MAX * FAILURE_FACTOR {
            let took = begun.elapsed();
            context.history.add_problem(format!("threads without an executor for {took:?}: {waiting:?}"));
            break;
        }
        tokio::time::sleep(TAKEOVER_POLL).await;
        let sql = "SELECT t.id, t.epoch, EXISTS (SELECT 1 FROM headwater.runs r WHERE r.thread = t.num
                   AND r.ended_at IS NULL AND r.status <> 'paused') FROM headwater.threads t";
        // PostgreSQL may be down.
        let Ok(rows) = context.database_rows(sql).await else { continue };
        waiting.retain(|orphan| {
            let row = rows.iter().find(|row| row.first() == Some(&orphan.id));
            let (epoch, is_active) = row.map_or((None, None), |row| (row.get(1), row.get(2)));
            let is_continued = epoch.is_some_and(|epoch| *epoch != orphan.epoch);
            if is_continued {
                takeovers.push(begun.elapsed());
            }
            !is_continued && is_active.is_some_and(|active| active == "t")
        });
    }
    takeovers
}

/// Waits until the node executes a thread.
pub(super) async fn wait_until_busy(context: &ChaosContext, node: &Node) -> anyhow::Result<()> {
    let begun = Instant::now();
    while executed_threads(context, &node.id_prefix()?).await?.is_empty() {
        ensure!(begun.elapsed() < 4 * STATE_TIMEOUT, "node {} executes no thread", node.index);
        tokio::time::sleep(TAKEOVER_POLL).await;
    }
    node.check_alive().await.context("before its fault")
}
