//! The second user: does what users do, over and over, and notes how long it took and what went wrong.
//!
//! Two loops run beside each other on a thread of their own, so that the attacker's load does not delay them: one starts
//! streams and measures the first token, the other calls a tool, uploads and downloads a file, cuts a stream and resumes
//! it, and reads a run. While an attack stops the server on purpose, failures do not count; what was acknowledged does.

use crate::bounds::FIRST_TOKEN_MAX;
use crate::history::{AcknowledgedUpload, History};
use crate::http_client::{ApiUser, EventStream};
use anyhow::{Context, bail};
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A step that takes longer has failed.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(50);
const ERRORS_KEPT_MAX: usize = 20;

/// What the probe has seen while the server was expected to serve.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeFigures {
    pub(crate) first_tokens: Vec<Duration>,
    /// Whole rounds of tool, file, resume and read.
    pub(crate) rounds: usize,
    /// The slowest of all steps.
    pub(crate) slowest_step: Duration,
    pub(crate) failures: usize,
    pub(crate) messages: Vec<String>,
}

#[derive(Debug, Default)]
struct ProbeState {
    is_strict: bool,
    /// Changes whenever `is_strict` does, so that a step knows whether it ran within one phase.
    phase: u64,
    /// The stream that has no token yet.
    waiting_since: Option<(u64, Instant)>,
    figures: ProbeFigures,
}

/// What the loops and the runner share.
#[derive(Debug, Default)]
pub(crate) struct ProbeControl {
    state: Mutex<ProbeState>,
    is_over: AtomicBool,
}

impl ProbeControl {
    fn lock(&self) -> MutexGuard<'_, ProbeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the server has to serve: failures and times count.
    pub(crate) fn expect_service(&self) {
        let mut state = self.lock();
        state.is_strict = true;
        state.phase += 1;
    }

    /// From now on the server may be unreachable.
    pub(crate) fn expect_interruption(&self) {
        let mut state = self.lock();
        if let Some((phase, since)) = state.waiting_since
            && state.is_strict
            && phase == state.phase
        {
            // It has waited at least that long; a stall must not hide behind the end of the attack.
            let waited = since.elapsed();
            let worst = state.figures.first_tokens.iter().max().copied().unwrap_or(FIRST_TOKEN_MAX);
            if waited > worst {
                state.figures.first_tokens.push(waited);
            }
        }
        state.is_strict = false;
        state.phase += 1;
    }

    pub(crate) fn take_figures(&self) -> ProbeFigures {
        std::mem::take(&mut self.lock().figures)
    }

    /// Waits until the probe has been through everything a few times, at most `most`.
    pub(crate) async fn wait_for_rounds(&self, tokens: usize, rounds: usize, most: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < most {
            {
                let state = self.lock();
                if state.figures.first_tokens.len() >= tokens && state.figures.rounds >= rounds {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// First tokens and whole rounds so far.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.figures.first_tokens.len(), state.figures.rounds)
    }

    fn phase(&self) -> u64 {
        self.lock().phase
    }

    /// Notes the end of a step that began in `phase`.
    fn finish_step(&self, name: &str, phase: u64, took: Duration, outcome: &anyhow::Result<()>) {
        let mut state = self.lock();
        if phase != state.phase || !state.is_strict {
            return;
        }
        state.figures.slowest_step = state.figures.slowest_step.max(took);
        if let Err(error) = outcome {
            state.figures.failures += 1;
            if state.figures.messages.len() < ERRORS_KEPT_MAX {
                state.figures.messages.push(format!("{name}: {error:#}"));
            }
        }
    }

    fn note_first_token(&self, phase: u64, took: Duration) {
        let mut state = self.lock();
        state.waiting_since = None;
        if phase == state.phase && state.is_strict {
            state.figures.first_tokens.push(took);
        }
    }

    fn note_round(&self, phase: u64) {
        let mut state = self.lock();
        if phase == state.phase && state.is_strict {
            state.figures.rounds += 1;
        }
    }
}

/// The running probe.
pub(crate) struct Probe {
    pub(crate) control: Arc<ProbeControl>,
    thread: Option<JoinHandle<()>>,
}

impl Probe {
    pub(crate) fn start(user: &ApiUser, history: &Arc<History>) -> anyhow::Result<Self> {
        let control = Arc::new(ProbeControl::default());
        let member = ProbeUser { user: user.clone(), history: history.clone(), control: control.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = move || {
            runtime.block_on(async { tokio::join!(member.repeat_streams(), member.repeat_rounds()) });
        };
        let thread = std::thread::Builder::new().name("probe".to_owned()).spawn(run)?;
        Ok(Self { control, thread: Some(thread) })
    }

    /// Lets the current steps end, and waits for that.
    pub(crate) fn finish(mut self) {
        self.control.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in there was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.control.is_over.store(true, Ordering::Relaxed);
    }
}

struct ProbeUser {
    user: ApiUser,
    history: Arc<History>,
    control: Arc<ProbeControl>,
}

impl ProbeUser {
    fn is_over(&self) -> bool {
        self.control.is_over.load(Ordering::Relaxed)
    }

    async fn repeat_streams(&self) {
        while !self.is_over() {
            let phase = self.control.phase();
            let is_good = self.step("stream", phase, self.measure_stream(phase)).await;
            tokio::time::sleep(if is_good { PAUSE } else { PAUSE_AFTER_FAILURE }).await;
        }
    }

    async fn repeat_rounds(&self) {
        let mut number = 0_u32;
        while !self.is_over() {
            let phase = self.control.phase();
            number += 1;
            let is_good = self.step("tool", phase, self.call_tool(number)).await
                & self.step("file", phase, self.pass_file(number)).await
                & self.step("resume", phase, self.cut_and_resume()).await;
            if is_good {
                self.control.note_round(phase);
            }
            tokio::time::sleep(if is_good { PAUSE } else { PAUSE_AFTER_FAILURE }).await;
        }
    }

    async fn step(&self, name: &str, phase: u64, step: impl Future<Output = anyhow::Result<()>>) -> bool {
        let begun = Instant::now();
        let outcome = tokio::time::timeout(STEP_TIMEOUT, step).await;
        let outcome = outcome.unwrap_or_else(|_| Err(anyhow::anyhow!("not done within {STEP_TIMEOUT:?}")));
        self.control.finish_step(name, phase, begun.elapsed(), &outcome);
        outcome.is_ok()
    }

    async fn measure_stream(&self, phase: u64) -> anyhow::Result<()> {
        let begun = Instant::now();
        self.control.lock().waiting_since = Some((phase, begun));
        let mut stream =
            self.user.start_stream(&json!({"model": "writer", "input": "story 5", "stream": true})).await?;
        let mut is_first = true;
        let mut last = Value::Null;
        while let Some(event) = stream.next().await? {
            if is_first && event.name == "task.text.delta" {
                self.control.note_first_token(phase, begun.elapsed());
                is_first = false;
            }
            last = self.history.read_event(self.user.name, &event);
        }
        check_completed(&last)
    }

    async fn call_tool(&self, number: u32) -> anyhow::Result<()> {
        // The run's id is not known before the answer, so the mark says which one it is.
        let mark = format!("{}-{}-{number}", self.user.name, self.control.phase());
        let body = json!({"model": "writer", "input": format!("record {mark}"), "wait": true});
        let reply = self.user.post("/v1/tasks", &body, STEP_TIMEOUT).await?.expect_status(200)?;
        let task = reply.json()?;
        self.history.acknowledge_response(self.user.name, &task);
        anyhow::ensure!(task.get("status") == Some(&json!("completed")), "the run is not completed: {}", reply.text());
        let result = task.to_string();
        anyhow::ensure!(result.contains("recorded"), "the tool has no result: {result}");
        self.history.acknowledge_mark(&mark);
        Ok(())
    }

    async fn pass_file(&self, number: u32) -> anyhow::Result<()> {
        let content = format!("file {number} of the probe\n");
        let upload = store_file(&self.user, content).await?;
        let found = read_file(&self.user, &upload).await?;
        anyhow::ensure!(found == upload.content.as_bytes(), "the file came back changed");
        self.history.acknowledge_upload(upload);
        Ok(())
    }

    async fn cut_and_resume(&self) -> anyhow::Result<()> {
        let body = json!({"model": "writer", "input": "story 8 every 5", "stream": true});
        let mut stream = self.user.start_stream(&body).await?;
        let (mut last, mut cursor) = (Value::Null, String::new());
        while last.get("type") != Some(&json!("task.text.delta")) {
            let event = stream.next().await?.context("the stream ended too early")?;
            cursor.clone_from(&event.id);
            last = self.history.read_event(self.user.name, &event);
        }
        drop(stream);
        let task = last.get("task_id").and_then(Value::as_str).context("an event without a task")?.to_owned();
        let mut rest = self.user.follow(&format!("/v1/tasks/{task}/events"), Some(&cursor)).await?;
        self.read_contiguous(&mut rest, &last).await?;
        let reply = self.user.get(&format!("/v1/tasks/{task}"), STEP_TIMEOUT).await?.expect_status(200)?;
        anyhow::ensure!(reply.json()?.get("status") == Some(&json!("completed")), "{}", reply.text());
        Ok(())
    }

    async fn read_contiguous(&self, stream: &mut EventStream, before: &Value) -> anyhow::Result<()> {
        let seq_of = |data: &Value| data.get("seq").and_then(Value::as_u64);
        let mut last = before.clone();
        while let Some(event) = stream.next().await? {
            let data = self.history.read_event(self.user.name, &event);
            if seq_of(&data) != seq_of(&last).map(|seq| seq + 1) {
                bail!("after event {:?} came {:?}", seq_of(&last), seq_of(&data));
            }
            last = data;
        }
        check_completed(&last)
    }
}

fn check_completed(last: &Value) -> anyhow::Result<()> {
    anyhow::ensure!(last.get("type") == Some(&json!("task.completed")), "the stream ended with {last}");
    Ok(())
}

/// Uploads a text.
pub(crate) async fn store_file(user: &ApiUser, content: String) -> anyhow::Result<AcknowledgedUpload> {
    let body = Bytes::from(content.clone());
    let path = "/api/v1/agent/attachments?name=note.txt";
    let reply = user.send(Method::POST, path, body, STEP_TIMEOUT).await?.expect_status(201)?.json()?;
    let member = |name: &str| reply.get(name).and_then(Value::as_str).map(str::to_owned).context("no such member");
    Ok(AcknowledgedUpload { user: user.name, bucket: member("bucket")?, path: member("path")?, content })
}

/// Reads an upload through a signed URL.
pub(crate) async fn read_file(user: &ApiUser, upload: &AcknowledgedUpload) -> anyhow::Result<Bytes> {
    let query = format!("bucket={}&path={}", upload.bucket, upload.path);
    let path = format!("/api/v1/agent/attachments/signed-url?{query}");
    let reply = user.get(&path, STEP_TIMEOUT).await?.expect_status(200)?.json()?;
    let url = reply.get("url").and_then(Value::as_str).context("no signed URL")?;
    let path = url.find("/api/").and_then(|start| url.get(start..)).context("a strange URL")?;
    Ok(user.get(path, STEP_TIMEOUT).await?.expect_status(200)?.body)
}
