//! Which fault happens when, and to which node: the seed decides. At most two at a time, and never two to the same node.

use super::{FaultKind, FaultReport, clock, database, nodes, notifications};
use crate::cluster::NODES;
use crate::context::ChaosContext;
use crate::workload::{self, RunPlan};
use anyhow::Context;
use model_testing::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const AT_ONCE_MAX: usize = 2;
/// Numbers of the runs that faults start.
const RUNS_FROM: usize = 100;
const VIEWERS_PER_RUN: usize = 2;

/// A fault that is under way.
struct ActiveFault {
    kind: FaultKind,
    node: usize,
}

/// The order of the faults, with the node of each.
pub(crate) fn plan_faults(rng: &mut Rng, kinds: &[FaultKind], rounds: usize) -> Vec<(FaultKind, usize)> {
    let mut plan = Vec::new();
    for _ in 0..rounds {
        let mut kinds = kinds.to_vec();
        while !kinds.is_empty() {
            let kind = kinds.swap_remove(rng.below(kinds.len()));
            plan.push((kind, 1 + rng.below(NODES)));
        }
    }
    plan
}

/// Whether a fault may happen beside those that are under way.
fn fits(kind: FaultKind, active: &[ActiveFault]) -> bool {
    if kind.is_alone() || active.iter().any(|fault| fault.kind.is_alone()) {
        return active.is_empty();
    }
    let is_database_free = !kind.is_of_database() || !active.iter().any(|fault| fault.kind.is_of_database());
    active.len() < AT_ONCE_MAX && is_database_free
}

/// Injects all faults. Returns what happened.
pub(crate) async fn run_schedule(
    context: &Arc<ChaosContext>,
    plan: Vec<(FaultKind, usize)>,
) -> Vec<anyhow::Result<FaultReport>> {
    let mut rng = context.rng(7);
    let mut active: Vec<(ActiveFault, JoinHandle<anyhow::Result<FaultReport>>)> = Vec::new();
    let mut reports = Vec::new();
    for (position, (kind, wanted)) in plan.into_iter().enumerate() {
        loop {
            collect_ended(&mut active, &mut reports).await;
            let faults: Vec<ActiveFault> =
                active.iter().map(|(fault, _)| ActiveFault { kind: fault.kind, node: fault.node }).collect();
            if fits(kind, &faults) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let used = |node: &usize| active.iter().any(|(fault, _)| fault.node == *node && !fault.kind.is_of_database());
        let node = (0..NODES).map(|step| 1 + (wanted - 1 + step) % NODES).find(|node| !used(node)).unwrap_or(wanted);
        let fault_rng = context.rng(5_000 + position);
        let task = tokio::spawn(carry_out(Arc::clone(context), kind, node, RUNS_FROM + position, fault_rng));
        active.push((ActiveFault { kind, node }, task));
        tokio::time::sleep(Duration::from_millis(rng.between(500, 3_000).into())).await;
    }
    while !active.is_empty() {
        collect_ended(&mut active, &mut reports).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    reports
}

async fn collect_ended(
    active: &mut Vec<(ActiveFault, JoinHandle<anyhow::Result<FaultReport>>)>,
    reports: &mut Vec<anyhow::Result<FaultReport>>,
) {
    let mut index = 0;
    while let Some((_, task)) = active.get(index) {
        if !task.is_finished() {
            index += 1;
            continue;
        }
        let (fault, task) = active.swap_remove(index);
        let report = task.await.context("the fault panicked").and_then(|report| report);
        let report = report.with_context(|| format!("{} of node {}", fault.kind.name(), fault.node));
        match &report {
            Ok(report) => println!("{report}"),
            Err(error) => println!("FAILED: {error:#}"),
        }
        reports.push(report);
    }
}

async fn carry_out(
    context: Arc<ChaosContext>,
    kind: FaultKind,
    index: usize,
    run_number: usize,
    mut rng: Rng,
) -> anyhow::Result<FaultReport> {
    let node = context.cluster.node(index)?;
    if kind.removes_node() || kind == FaultKind::JumpClock {
        // The fault has to interrupt at least one run of this node.
        let plan = RunPlan::on_node(run_number, index, VIEWERS_PER_RUN);
        let (run, _) = workload::start_run(&context, &plan, &mut rng).await.context("before the fault")?;
        let (user, mut rng_of_users) = (Arc::clone(&context), context.rng(6_000 + run_number));
        context.spawn_user(async move { workload::use_run(&user, &plan, &run, None, &mut rng_of_users).await });
        nodes::wait_until_busy(&context, node).await?;
        tokio::time::sleep(Duration::from_millis(rng.between(0, 2_500).into())).await;
    }
    let begun = Instant::now();
    let window = kind.is_of_database().then(|| context.history.open_window(None));
    let done = match kind {
        FaultKind::CrashDatabase => database::crash_database(&context, &mut rng).await.map(|proof| (proof, Vec::new())),
        FaultKind::EndConnection => database::end_connection(&context, &mut rng).await.map(|proof| (proof, Vec::new())),
        FaultKind::KillBackend => database::kill_backend(&context, &mut rng).await.map(|proof| (proof, Vec::new())),
        FaultKind::JumpClock => clock::jump_clock(&context, node, &mut rng).await.map(|proof| (proof, Vec::new())),
        FaultKind::DropNotifications => {
            let dropped = notifications::drop_notifications(&context, node, run_number, &mut rng).await;
            dropped.map(|proof| (proof, Vec::new()))
        }
        _ => nodes::remove_node(&context, kind, node, &mut rng).await,
    };
    if let Some(window) = window {
        context.history.close_window(window);
    }
    let took = begun.elapsed();
    let (proof, takeovers) = done?;
    context.history.lock().takeovers.extend(&takeovers);
    Ok(FaultReport { kind, node: index, begun: begun - context.begun, took, proof, takeovers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_every_fault_happens_in_every_round() {
        let plan = plan_faults(&mut Rng::new(7), &FaultKind::ALL, 3);
        assert_eq!(plan, plan_faults(&mut Rng::new(7), &FaultKind::ALL, 3));
        assert_ne!(plan, plan_faults(&mut Rng::new(8), &FaultKind::ALL, 3));
        for kind in FaultKind::ALL {
            assert_eq!(plan.iter().filter(|(other, _)| *other == kind).count(), 3, "{}", kind.name());
        }
        assert!(plan.iter().all(|(_, node)| (1..=NODES).contains(node)));
    }

    #[test]
    fn at_most_two_faults_at_a_time_and_one_of_the_database() {
        let active = |kinds: &[FaultKind]| -> Vec<ActiveFault> {
            kinds.iter().map(|kind| ActiveFault { kind: *kind, node: 1 }).collect()
        };
        assert!(fits(FaultKind::KillNode, &active(&[FaultKind::CrashDatabase])));
        assert!(!fits(FaultKind::KillBackend, &active(&[FaultKind::CrashDatabase])));
        assert!(!fits(FaultKind::KillNode, &active(&[FaultKind::SuspendNode, FaultKind::JumpClock])));
        assert!(!fits(FaultKind::DropNotifications, &active(&[FaultKind::JumpClock])));
        assert!(!fits(FaultKind::JumpClock, &active(&[FaultKind::DropNotifications])));
    }
}
