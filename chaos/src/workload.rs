//! What users do: they start runs in every protocol, watch them, wait for them, approve, and cancel.

use crate::context::{ChaosContext, is_retried};
use crate::history::AcknowledgedDecision;
use crate::http_client::{self, ApiRequest, StreamReply, open_stream};
use crate::protocol::{AcknowledgedRun, Protocol, StartMethod, WATCHED, is_terminal};
use crate::viewer::Viewer;
use anyhow::{Context, bail};
use model_testing::Rng;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
const WAIT_TIMEOUT: Duration = Duration::from_secs(12);
const METHODS: [StartMethod; 7] = [
    StartMethod::Task,
    StartMethod::TaskWait,
    StartMethod::TaskStream,
    StartMethod::ResponsesStream,
    StartMethod::ResponsesBackground,
    StartMethod::MessagesStream,
    StartMethod::ChatStream,
];
/// Milliseconds between two deltas.
const DELTA_MS: (u32, u32) = (40, 110);

/// A run that is going to be started.
#[derive(Clone, Debug)]
pub(crate) struct RunPlan {
    pub(crate) number: usize,
    pub(crate) method: StartMethod,
    pub(crate) needs_approval: bool,
    pub(crate) is_cancelled: bool,
    /// A second run is queued in the same thread while this one is active.
    pub(crate) has_successor: bool,
    /// The node that has to start it; else any.
    pub(crate) node: Option<usize>,
    pub(crate) delay: Duration,
    pub(crate) viewers: usize,
}

impl RunPlan {
    /// The background load: runs of all kinds, over the whole time.
    pub(crate) fn background(context: &ChaosContext, rng: &mut Rng, number: usize, viewers: usize) -> Self {
        let window = u32::try_from(context.form.start_window.as_millis()).unwrap_or(u32::MAX);
        // Every method is used, and every kind.
        let method = METHODS.get(number % METHODS.len()).copied().unwrap_or(StartMethod::Task);
        Self {
            number,
            method,
            needs_approval: number % 4 == 2 && method != StartMethod::TaskWait,
            is_cancelled: number % 6 == 5,
            has_successor: method == StartMethod::Task || method == StartMethod::TaskStream,
            node: None,
            delay: if number < 3 { Duration::ZERO } else { Duration::from_millis(rng.between(0, window).into()) },
            viewers,
        }
    }

    /// A run on the node that is about to fail.
    pub(crate) const fn on_node(number: usize, node: usize, viewers: usize) -> Self {
        Self {
            number,
            method: StartMethod::Task,
            needs_approval: false,
            is_cancelled: false,
            has_successor: false,
            node: Some(node),
            delay: Duration::ZERO,
            viewers,
        }
    }

    fn request(&self, rng: &mut Rng) -> ApiRequest {
        let word = if self.needs_approval { "approve" } else { "record" };
        let every = rng.between(DELTA_MS.0, DELTA_MS.1);
        self.method.request(&format!("{word} run{} {every}", self.number), format!("chaos-{}", self.number))
    }
}

/// Starts a run and does everything that its plan says, until all have ended.
pub(crate) async fn carry_out(context: Arc<ChaosContext>, plan: RunPlan) {
    tokio::time::sleep(plan.delay).await;
    let mut rng = context.rng(1_000 + plan.number);
    match start_run(&context, &plan, &mut rng).await {
        Ok((run, first_viewer)) => use_run(&context, &plan, &run, first_viewer, &mut rng).await,
        Err(error) => context.history.add_problem(format!("run {} was not started: {error:#}", plan.number)),
    }
}

/// Everything that happens to a run that was acknowledged.
pub(crate) async fn use_run(
    context: &Arc<ChaosContext>,
    plan: &RunPlan,
    run: &AcknowledgedRun,
    first_viewer: Option<tokio::task::JoinHandle<()>>,
    rng: &mut Rng,
) {
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..plan.viewers {
        // Threads with two runs are for protocols that do not begin with the oldest one that is unfinished.
        let protocols = if plan.has_successor { WATCHED.get(..4).unwrap_or(&WATCHED) } else { &WATCHED };
        let protocol = rng.pick(protocols).copied().unwrap_or(Protocol::Task);
        let viewer = Viewer::new(context, plan.number * 100 + index, protocol, run);
        let joins_at = Duration::from_millis(rng.between(0, 5_000).into());
        tasks.spawn(async move {
            tokio::time::sleep(joins_at).await;
            viewer.follow().await;
        });
    }
    if plan.needs_approval {
        tasks.spawn(decide(Arc::clone(context), run.clone(), context.rng(2_000 + plan.number)));
    }
    if plan.is_cancelled {
        tasks.spawn(cancel(Arc::clone(context), run.clone(), context.rng(3_000 + plan.number)));
    }
    if plan.has_successor {
        tasks.spawn(queue_successor(Arc::clone(context), plan.clone(), run.clone()));
    }
    tasks.join_all().await;
    if let Some(viewer) = first_viewer {
        // A panic in there was printed.
        let _ = viewer.await;
    }
}

/// Sends the request until it is acknowledged. A stream that it opens goes to a viewer.
pub(crate) async fn start_run(
    context: &Arc<ChaosContext>,
    plan: &RunPlan,
    rng: &mut Rng,
) -> anyhow::Result<(AcknowledgedRun, Option<tokio::task::JoinHandle<()>>)> {
    let start = plan.request(rng);
    let viewer_number = plan.number * 100 + 99;
    loop {
        anyhow::ensure!(!context.is_past_deadline(), "no node acknowledged it in time");
        if let Some((task, stream)) = try_start(context, plan, &start, rng).await? {
            let thread = find_thread(context, &task, rng).await?;
            let run = AcknowledgedRun { number: plan.number, task, thread, start };
            context.history.lock().runs.insert(run.task.clone(), run.clone());
            let viewer = stream.zip(plan.method.stream_protocol()).map(|((node, first, stream), protocol)| {
                let viewer = Viewer::new(context, viewer_number, protocol, &run);
                tokio::spawn(viewer.follow_started(node, first, stream))
            });
            return Ok((run, viewer));
        }
        tokio::time::sleep(Duration::from_millis(rng.between(50, 300).into())).await;
    }
}

type OpenedStream = (usize, http_client::StreamEvent, http_client::EventStream);

/// The id of the run, and the stream if the method opens one. None if the node gave no answer.
async fn try_start(
    context: &ChaosContext,
    plan: &RunPlan,
    start: &ApiRequest,
    rng: &mut Rng,
) -> anyhow::Result<Option<(String, Option<OpenedStream>)>> {
    let node = match plan.node {
        Some(index) => {
            let node = context.cluster.node(index)?;
            anyhow::ensure!(node.is_up(), "node {index} is down");
            node
        }
        None => match context.cluster.pick(rng) {
            Some(node) => node,
            None => return Ok(None),
        },
    };
    if plan.method.stream_protocol().is_none() {
        let most = if plan.method == StartMethod::TaskWait { WAIT_TIMEOUT } else { REQUEST_TIMEOUT };
        let Ok(reply) = http_client::send(&node.address, start, most).await else { return Ok(None) };
        if is_retried(reply.status) {
            return Ok(None);
        }
        anyhow::ensure!(reply.is_success(), "node {} answered {}", node.index, reply.describe());
        let answer = reply.json();
        let task = plan.method.task_id(&answer).with_context(|| format!("no id in {}", reply.describe()))?;
        if plan.method == StartMethod::TaskWait {
            let status = answer.get("status").and_then(Value::as_str).unwrap_or_default().to_owned();
            context.history.lock().waits.push((task.clone(), status));
        }
        return Ok(Some((task, None)));
    }
    match open_stream(&node.address, start, REQUEST_TIMEOUT).await {
        Ok(StreamReply::Open(mut stream)) => {
            let Ok(Ok(Some(first))) = tokio::time::timeout(REQUEST_TIMEOUT, stream.next()).await else {
                return Ok(None);
            };
            let answer = serde_json::from_str(&first.data).unwrap_or(Value::Null);
            let task = plan.method.task_id(&answer).with_context(|| format!("no id in {}", first.data))?;
            Ok(Some((task, Some((node.index, first, stream)))))
        }
        Ok(StreamReply::Refused(reply)) if is_retried(reply.status) => Ok(None),
        Ok(StreamReply::Refused(reply)) => bail!("node {} answered {}", node.index, reply.describe()),
        Err(_) => Ok(None),
    }
}

async fn find_thread(context: &ChaosContext, task: &str, rng: &mut Rng) -> anyhow::Result<String> {
    let request = ApiRequest::get(format!("/v1/tasks/{task}"));
    let reply = context.send_until_answered(rng, &request, REQUEST_TIMEOUT).await.context("no answer in time")?;
    let thread = reply.json().get("thread_id").and_then(Value::as_str).map(str::to_owned);
    thread.with_context(|| format!("the acknowledged run {task} is {}", reply.describe()))
}

/// Queues a run in the thread of another one.
async fn queue_successor(context: Arc<ChaosContext>, plan: RunPlan, run: AcknowledgedRun) {
    let number = plan.number + 500;
    let mut rng = context.rng(1_000 + number);
    tokio::time::sleep(Duration::from_millis(rng.between(500, 4_000).into())).await;
    let input = format!("record run{number} {}", DELTA_MS.0);
    let body = json!({"model": "writer", "input": input, "thread_id": run.thread});
    let start = ApiRequest::post("/v1/tasks", body).with_key(format!("chaos-{number}"));
    let Some(reply) = context.send_until_answered(&mut rng, &start, REQUEST_TIMEOUT).await else { return };
    let Some(task) = StartMethod::Task.task_id(&reply.json()).filter(|_| reply.is_success()) else {
        return context.history.add_problem(format!("a second run of {}: {}", run.thread, reply.describe()));
    };
    let next = AcknowledgedRun { number, task, thread: run.thread.clone(), start };
    context.history.lock().runs.insert(next.task.clone(), next.clone());
    Viewer::new(&context, number * 100, Protocol::Task, &next).follow().await;
}

/// Waits for questions of a run and answers each of them, sometimes with two people who disagree.
async fn decide(context: Arc<ChaosContext>, run: AcknowledgedRun, mut rng: Rng) {
    let status = ApiRequest::get(format!("/v1/tasks/{}", run.task));
    loop {
        let Some(reply) = context.send_until_answered(&mut rng, &status, REQUEST_TIMEOUT).await else { return };
        let task = reply.json();
        match task.get("status").and_then(Value::as_str).unwrap_or_default() {
            "paused" => answer_questions(&context, &run, &mut rng).await,
            status if is_terminal(&format!("task.{status}")) => return,
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(rng.between(200, 900).into())).await;
    }
}

async fn answer_questions(context: &Arc<ChaosContext>, run: &AcknowledgedRun, rng: &mut Rng) {
    let pending = ApiRequest::get("/v1/approvals?status=pending");
    let Some(reply) = context.send_until_answered(rng, &pending, REQUEST_TIMEOUT).await else { return };
    let reply = reply.json();
    let questions = reply.get("data").and_then(Value::as_array).cloned().unwrap_or_default();
    let mine = questions.iter().filter(|question| question.get("run_id") == Some(&json!(run.task)));
    for key in mine.filter_map(|question| question.get("key").and_then(Value::as_str)) {
        let mut other = rng.clone();
        other.next_u64();
        let approved = send_decision(context, run, key, "approve", rng);
        if other.chance(50) {
            tokio::join!(approved, send_decision(context, run, key, "reject", &mut other));
        } else {
            approved.await;
        }
    }
}

async fn send_decision(
    context: &ChaosContext,
    run: &AcknowledgedRun,
    key: &str,
    decision: &'static str,
    rng: &mut Rng,
) {
    let path = format!("/v1/tasks/{}/approvals/{key}", run.task);
    let request = ApiRequest::post(path, json!({"decision": decision}));
    let Some(reply) = context.send_until_answered(rng, &request, REQUEST_TIMEOUT).await else { return };
    match reply.status {
        200..300 => {
            let decision = AcknowledgedDecision { key: key.to_owned(), decision };
            context.history.lock().decisions.push(decision);
        }
        // Somebody else was first.
        409 => {}
        _ => context.history.add_problem(format!("the decision about {key}: {}", reply.describe())),
    }
}

async fn cancel(context: Arc<ChaosContext>, run: AcknowledgedRun, mut rng: Rng) {
    tokio::time::sleep(Duration::from_millis(rng.between(1_000, 6_000).into())).await;
    let request = ApiRequest::post(format!("/v1/tasks/{}/cancel", run.task), json!({}));
    let Some(reply) = context.send_until_answered(&mut rng, &request, REQUEST_TIMEOUT).await else { return };
    match reply.status {
        200..300 => context.history.lock().cancels += 1,
        // The run had ended.
        409 => {}
        _ => context.history.add_problem(format!("the cancellation of {}: {}", run.task, reply.describe())),
    }
}
