//! A node gets no notifications: its viewers of other nodes' runs get every event by polling, a little later.

use crate::context::ChaosContext;
use crate::http_client::{StreamReply, open_stream};
use crate::node::Node;
use crate::protocol::{AcknowledgedRun, Protocol};
use crate::workload::{self, RunPlan};
use anyhow::{Context, bail, ensure};
use model_testing::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How late an event may be: a poll, and the query.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(1_500);
const FAILURE_FACTOR: u32 = 5;
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn drop_notifications(
    context: &Arc<ChaosContext>,
    node: &Node,
    run_number: usize,
    rng: &mut Rng,
) -> anyhow::Result<String> {
    let executor = context.cluster.nodes.iter().find(|other| other.index != node.index && other.is_up());
    let executor = executor.context("no other node")?;
    let before = node.proxy.dropped();
    node.proxy.drop_notifications(true);
    let plan = RunPlan::on_node(run_number, executor.index, 0);
    let (run, _) = workload::start_run(context, &plan, rng).await?;
    let (there, here) = tokio::join!(read_with_times(executor, &run), read_with_times(node, &run));
    node.proxy.drop_notifications(false);
    let there = there?;
    let dropped = node.proxy.dropped() - before;
    ensure!(dropped > 0, "no notification was dropped");
    let here = match here {
        Ok(here) => here,
        Err(error) => {
            context.history.add_problem(format!("without notifications a stream stalls: {error:#}"));
            return Ok(format!("{dropped} notifications dropped"));
        }
    };
    let delays = here.iter().filter_map(|(id, at)| Some(at.saturating_duration_since(*there.get(id)?)));
    let worst = delays.max().context("no event was seen on both nodes")?;
    if worst > DELAY_MAX * FAILURE_FACTOR {
        let problem = format!("without notifications an event came {worst:?} later, and not within {DELAY_MAX:?}");
        context.history.add_problem(problem);
    }
    Ok(format!("{dropped} notifications dropped, {} events at most {} ms later", here.len(), worst.as_millis()))
}

/// When each event of the run was read.
async fn read_with_times(node: &Node, run: &AcknowledgedRun) -> anyhow::Result<BTreeMap<String, Instant>> {
    let request = Protocol::Task.request(run, None);
    let StreamReply::Open(mut stream) = open_stream(&node.address, &request, STREAM_TIMEOUT).await? else {
        bail!("node {} gives no stream of {}", node.index, run.task)
    };
    let mut seen = BTreeMap::new();
    loop {
        let event = tokio::time::timeout(STREAM_TIMEOUT, stream.next()).await;
        let event = event.with_context(|| format!("node {} is silent after {} events", node.index, seen.len()))??;
        let event = event.with_context(|| format!("the stream of node {} ended", node.index))?;
        seen.insert(event.id.clone(), Instant::now());
        if Protocol::Task.is_last(run, &event) {
            return Ok(seen);
        }
    }
}
