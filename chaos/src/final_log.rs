//! What the nodes have at the end: every stream of every run from its beginning, read from each node, and the log's epochs.

use crate::context::ChaosContext;
use crate::history::Frame;
use crate::http_client::{self, ApiRequest, StreamReply, open_stream};
use crate::node::Node;
use crate::protocol::{AcknowledgedRun, Protocol, is_terminal};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const READ_TIMEOUT: Duration = Duration::from_secs(20);
const SETTLE_POLL: Duration = Duration::from_millis(100);
const READERS: usize = 8;

/// The frames of each stream that somebody saw.
pub(crate) type FinalStreams = BTreeMap<(Protocol, String), Vec<Frame>>;

/// A row of the table of records.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoggedRecord {
    pub(crate) thread: String,
    pub(crate) seq: u64,
    pub(crate) epoch: i64,
}

/// Waits until a run has ended. Returns how it ended.
pub(crate) async fn wait_until_ended(
    context: &ChaosContext,
    run: &AcknowledgedRun,
    deadline: Instant,
) -> anyhow::Result<String> {
    let request = ApiRequest::get(format!("/v1/tasks/{}", run.task));
    let mut rng = context.rng(9_000 + run.number);
    loop {
        let node = context.cluster.pick(&mut rng).context("no node")?;
        let seen = match http_client::send(&node.address, &request, READ_TIMEOUT).await {
            Ok(reply) if reply.status == 200 => {
                let status = reply.json().get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
                if is_terminal(&format!("task.{status}")) {
                    return Ok(status);
                }
                status
            }
            Ok(reply) => reply.describe(),
            Err(error) => format!("{error:#}"),
        };
        ensure!(Instant::now() < deadline, "run {} ({}) has not ended: {seen}", run.number, run.task);
        tokio::time::sleep(SETTLE_POLL).await;
    }
}

/// Reads streams from each node. What differs between nodes is a problem.
pub(crate) async fn read_streams(
    context: &Arc<ChaosContext>,
    wanted: BTreeSet<(Protocol, String)>,
    runs: &BTreeMap<String, AcknowledgedRun>,
) -> (FinalStreams, Vec<String>) {
    let places = Arc::new(Semaphore::new(READERS));
    let mut reading = JoinSet::new();
    for (protocol, task) in wanted {
        let Some(run) = runs.get(&task).cloned() else { continue };
        let (context, places) = (Arc::clone(context), Arc::clone(&places));
        reading.spawn(async move {
            let _place = places.acquire().await;
            let frames = read_from_all_nodes(&context, protocol, &run).await;
            ((protocol, task), frames.map_err(|error| format!("{} of {}: {error:#}", protocol.name(), run.task)))
        });
    }
    let (mut streams, mut problems) = (FinalStreams::new(), Vec::new());
    for (key, frames) in reading.join_all().await {
        match frames {
            Ok(frames) => drop(streams.insert(key, frames)),
            Err(problem) => problems.push(problem),
        }
    }
    (streams, problems)
}

async fn read_from_all_nodes(
    context: &ChaosContext,
    protocol: Protocol,
    run: &AcknowledgedRun,
) -> anyhow::Result<Vec<Frame>> {
    let mut first: Option<Vec<Frame>> = None;
    for node in &context.cluster.nodes {
        let frames = read_stream(node, protocol, run).await.with_context(|| format!("node {}", node.index))?;
        match &first {
            None => first = Some(frames),
            Some(first) => ensure!(*first == frames, "node {} has other frames than node 1", node.index),
        }
    }
    first.context("no node")
}

async fn read_stream(node: &Node, protocol: Protocol, run: &AcknowledgedRun) -> anyhow::Result<Vec<Frame>> {
    let mut stream = match open_stream(&node.address, &protocol.request(run, None), READ_TIMEOUT).await? {
        StreamReply::Open(stream) => stream,
        StreamReply::Refused(reply) => bail!("{}", reply.describe()),
    };
    let mut frames = Vec::new();
    loop {
        let event = tokio::time::timeout(READ_TIMEOUT, stream.next()).await;
        let event = event.with_context(|| format!("silent after {} frames", frames.len()))??;
        let event = event.with_context(|| format!("ended after {} frames", frames.len()))?;
        if !protocol.is_frame(&event) {
            continue;
        }
        let is_last = protocol.is_last(run, &event);
        frames.push(Frame { id: event.id, name: event.name, data: event.data });
        if is_last {
            return Ok(frames);
        }
    }
}

/// All records, in the order of the log, wherever they are.
pub(crate) async fn read_records(context: &ChaosContext) -> anyhow::Result<Vec<LoggedRecord>> {
    let sql = "
        SELECT t.id, r.seq, r.epoch FROM (
            SELECT thread, seq, epoch FROM headwater.records UNION ALL SELECT thread, seq, epoch FROM chaos.archived_records
        ) r JOIN headwater.threads t ON t.num = r.thread ORDER BY r.thread, r.seq";
    let rows = context.database_rows(sql).await?;
    rows.into_iter()
        .map(|row| {
            let [thread, seq, epoch] = <[String; 3]>::try_from(row).ok().context("a strange row")?;
            Ok(LoggedRecord { thread, seq: seq.parse()?, epoch: epoch.parse()? })
        })
        .collect()
}
