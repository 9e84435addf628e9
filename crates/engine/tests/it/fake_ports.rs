//! The ports of a test engine: the real store behind a gate, the scripted model and counting tools under observation, a
//! hook and a clock that the test controls.

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use model::content::ContentPart;
use model::definition::{Definitions, InputHook};
use model::error::{ErrorCode, ErrorInfo};
use model::event::Question;
use model::history::HistoryEntry;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, BoxStream, ClaimOutcome, Clock, DefinitionResolver, DirectoryChange,
    FileReadOutcome, FileReadRequest, FileReader, HookRequest, HookResponse, HookRunner, Journal, Lease, ModelClient,
    OnCommit, PageLimit, RecordPage, RecoveryAttempts, ResolveRequest, SpaceWatch, StorageSpace, StoreResult,
    ToolRunner,
};
use model::question::{InputRequired, QuestionAnswer, ToolQuestion};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use model::{CallId, Millis, NodeId, Seq, ThreadId, UserId};
use std::collections::BTreeMap;
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// What happens to one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendFailure {
    /// It is lost, and the store reports an unknown outcome.
    UnknownLost,
    /// It is stored, and the store reports an unknown outcome.
    UnknownKept,
    /// The process crashes before it.
    CrashBefore,
    /// The process crashes after it.
    CrashAfter,
}

impl AppendFailure {
    pub(crate) const ALL: [Self; 4] = [Self::UnknownLost, Self::UnknownKept, Self::CrashBefore, Self::CrashAfter];

    /// Whether the process survives it.
    pub(crate) const fn is_survived(self) -> bool {
        matches!(self, Self::UnknownLost | Self::UnknownKept)
    }
}

/// A store whose appends can be held or made to fail; it counts claims, appends and reads.
pub(crate) struct GatedJournal {
    inner: Arc<dyn Journal>,
    permits: Arc<Semaphore>,
    claims: AtomicUsize,
    appends: AtomicUsize,
    records_read: AtomicUsize,
    /// The runs and bytes of every checkpoint that was appended.
    checkpoints: Mutex<Vec<CheckpointSize>>,
    /// Which append fails, counted from 1, and how.
    failure: Option<(usize, AppendFailure)>,
    crashed: Arc<Notify>,
}

impl GatedJournal {
    pub(crate) fn new(inner: Arc<dyn Journal>, trouble: Option<(usize, AppendFailure)>) -> Self {
        let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let met = Arc::new(Notify::new());
        Self {
            inner,
            permits: open,
            claims: AtomicUsize::new(0),
            appends: AtomicUsize::new(0),
            records_read: AtomicUsize::new(0),
            checkpoints: Mutex::default(),
            failure: trouble,
            crashed: met,
        }
    }

    /// Nothing becomes durable until [`Gated::release_appends`].
    pub(crate) fn hold_appends(&self) {
        self.permits.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release_appends(&self, appends: usize) {
        self.permits.add_permits(appends);
    }

    pub(crate) fn append_count(&self) -> usize {
        self.appends.load(SeqCst)
    }

    /// The number of claims since the last call, without those that came with a submission.
    pub(crate) fn take_claims(&self) -> usize {
        self.claims.swap(0, SeqCst)
    }

    /// The number of records read since the last call.
    pub(crate) fn take_records_read(&self) -> usize {
        self.records_read.swap(0, SeqCst)
    }

    /// The checkpoints that were appended since the last call.
    pub(crate) fn take_checkpoints(&self) -> Vec<CheckpointSize> {
        std::mem::take(&mut self.checkpoints.lock().expect("nobody panicked"))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some_and(|(at, _)| self.append_count() >= at)
    }

    /// Waits for the simulated crash, where the test stops the process.
    pub(crate) async fn wait_for_crash(&self) {
        self.crashed.notified().await;
    }

    fn fail_append(&self, trouble: AppendFailure, batch: AppendBatch, landed: OnCommit) {
        let (inner, met) = (Arc::clone(&self.inner), Arc::clone(&self.crashed));
        // In a task of its own: an append finishes whether or not its caller still waits.
        tokio::spawn(async move {
            if matches!(trouble, AppendFailure::UnknownKept | AppendFailure::CrashAfter) {
                assert_eq!(inner.append(batch).await, AppendOutcome::Durable, "what the engine writes fits");
            }
            if !trouble.is_survived() {
                met.notify_one();
                let _unheard = landed;
                pending::<()>().await;
                return;
            }
            landed.call(&AppendOutcome::Unknown("the disk went away".to_owned()));
        });
    }
}

/// How much a checkpoint writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointSize {
    pub(crate) runs: usize,
    pub(crate) bytes: usize,
}

impl CheckpointSize {
    fn of_change(change: &DirectoryChange) -> Option<Self> {
        let DirectoryChange::Checkpoint(checkpoint) = change else { return None };
        let bytes = checkpoint.body.len() + checkpoint.runs.iter().map(|run| run.body.len()).sum::<usize>();
        Some(Self { runs: checkpoint.runs.len(), bytes })
    }
}

impl SpaceWatch for GatedJournal {
    fn space(&self) -> StorageSpace {
        self.inner.space()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.inner.space_changed(known)
    }
}

#[async_trait]
impl Journal for GatedJournal {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        self.claims.fetch_add(1, SeqCst);
        self.inner.claim(owner, thread, node).await
    }

    fn release(&self, thread: &ThreadId, lease: Lease) {
        self.inner.release(thread, lease);
    }

    fn start_append(&self, batch: AppendBatch, landed: OnCommit) {
        let number = self.appends.fetch_add(1, SeqCst) + 1;
        let sizes = batch.changes.iter().filter_map(CheckpointSize::of_change);
        self.checkpoints.lock().expect("nobody panicked").extend(sizes);
        if let Some((_, trouble)) = self.failure.filter(|(at, _)| *at == number) {
            return self.fail_append(trouble, batch, landed);
        }
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            permit.forget();
            return self.inner.start_append(batch, landed);
        }
        let (inner, open) = (Arc::clone(&self.inner), Arc::clone(&self.permits));
        tokio::spawn(async move {
            let permit = open.acquire_owned().await.expect("the gate is not closed");
            permit.forget();
            inner.start_append(batch, landed);
        });
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let page = self.inner.read_page(owner, thread, after, limit).await;
        self.records_read.fetch_add(page.as_ref().map_or(0, |page| page.records.len()), SeqCst);
        page
    }
}

/// The number of requests kept: each request of a long thread holds its whole history.
const REQUESTS_KEPT_MAX: usize = 64;

/// What the processes of one test were resuming.
#[derive(Default)]
pub(crate) struct MemoryRecoveryAttempts(Mutex<BTreeMap<ThreadId, u32>>);

#[async_trait]
impl RecoveryAttempts for MemoryRecoveryAttempts {
    async fn load(&self) -> StoreResult<BTreeMap<ThreadId, u32>> {
        Ok(self.0.lock().expect("nobody panicked").clone())
    }

    async fn save(&self, attempts: &BTreeMap<ThreadId, u32>) -> StoreResult<()> {
        self.0.lock().expect("nobody panicked").clone_from(attempts);
        Ok(())
    }
}

/// Models under observation: their requests and their live streams. `silent/…` never sends an event.
pub(crate) struct RecordingModels {
    inner: Arc<dyn ModelClient>,
    /// How many of the next calls panic.
    pub(crate) panics_left: AtomicUsize,
    /// One word per delta, so that each is an append of its own.
    one_delta_at_a_time: bool,
    requests: Mutex<Vec<ModelRequest>>,
    turns: AtomicUsize,
    live: Arc<AtomicUsize>,
    events_read: Arc<AtomicUsize>,
}

impl RecordingModels {
    pub(crate) fn new(inner: Arc<dyn ModelClient>, drips: bool) -> Self {
        Self {
            inner,
            panics_left: AtomicUsize::new(0),
            one_delta_at_a_time: drips,
            requests: Mutex::default(),
            turns: AtomicUsize::new(0),
            live: Arc::default(),
            events_read: Arc::default(),
        }
    }

    /// The requests, as far as they are kept.
    pub(crate) fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn last_request(&self) -> ModelRequest {
        self.requests().pop().expect("it was asked")
    }

    pub(crate) fn turn_count(&self) -> usize {
        self.turns.load(SeqCst)
    }

    pub(crate) fn live_streams(&self) -> usize {
        self.live.load(SeqCst)
    }

    /// What the engine has taken from all streams.
    pub(crate) fn events_read(&self) -> usize {
        self.events_read.load(SeqCst)
    }
}

impl ModelClient for RecordingModels {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let silent = request.model.starts_with("silent/");
        let panics = self.panics_left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        assert!(panics.is_err(), "a planted panic");
        self.turns.fetch_add(1, SeqCst);
        let mut asked = self.requests.lock().expect("nobody panicked");
        if asked.len() == REQUESTS_KEPT_MAX {
            asked.remove(0);
        }
        asked.push(request.clone());
        drop(asked);
        self.live.fetch_add(1, SeqCst);
        let events = if silent { stream::pending().boxed() } else { self.inner.stream_turn(request) };
        Box::pin(ObservedTurn {
            events,
            one_delta_at_a_time: self.one_delta_at_a_time,
            is_yielding: false,
            live: Arc::clone(&self.live),
            events_read: Arc::clone(&self.events_read),
        })
    }
}

struct ObservedTurn {
    events: BoxStream<'static, ModelEvent>,
    one_delta_at_a_time: bool,
    is_yielding: bool,
    live: Arc<AtomicUsize>,
    events_read: Arc<AtomicUsize>,
}

impl stream::Stream for ObservedTurn {
    type Item = ModelEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        self.is_yielding = self.one_delta_at_a_time && !self.is_yielding;
        if self.is_yielding {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = self.events.as_mut().poll_next(cx);
        if let Poll::Ready(Some(_)) = polled {
            self.events_read.fetch_add(1, SeqCst);
        }
        polled
    }
}

impl Drop for ObservedTurn {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
    }
}

/// Tools that count their executions. `hold` waits until it is released, `interview` for the answer to a question; `survey`
/// ends with one.
pub(crate) struct CountingTools {
    requests: Arc<Mutex<Vec<ToolRequest>>>,
    pub(crate) release: Arc<Semaphore>,
    /// What interviews were told.
    pub(crate) answers: Mutex<Vec<(CallId, String, QuestionAnswer)>>,
    answered: Arc<Semaphore>,
}

impl Default for CountingTools {
    fn default() -> Self {
        let (release, answered) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        Self { requests: Arc::default(), release, answers: Mutex::default(), answered }
    }
}

impl CountingTools {
    pub(crate) fn requests(&self) -> Vec<ToolRequest> {
        self.requests.lock().expect("nobody panicked").clone()
    }

    pub(crate) fn call_count(&self, name: &str) -> usize {
        self.requests().iter().filter(|request| request.name == name).count()
    }
}

impl ToolRunner for CountingTools {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let (ran, let_go) = (Arc::clone(&self.requests), Arc::clone(&self.release));
        let question = ToolQuestion { id: "q".to_owned(), question: Question::default() };
        match request.name.as_str() {
            "interview" => {
                let answered = Arc::clone(&self.answered);
                let ask = stream::once(async move {
                    ran.lock().expect("nobody panicked").push(request);
                    ToolEvent::Question(question)
                });
                let end = stream::once(async move {
                    answered.acquire().await.expect("it is not closed").forget();
                    ToolEvent::End(ToolOutput::default())
                });
                return Box::pin(ask.chain(end));
            }
            "survey" if request.answers.is_none() => {
                return Box::pin(stream::once(async move {
                    ran.lock().expect("nobody panicked").push(request);
                    ToolEvent::InputRequired(InputRequired { questions: vec![question], ..InputRequired::default() })
                }));
            }
            _ => {}
        }
        Box::pin(stream::once(async move {
            let name = request.name.clone();
            ran.lock().expect("nobody panicked").push(request);
            if name == "hold" {
                let_go.acquire().await.expect("it is not closed").forget();
            }
            let message_content = vec![ContentPart::text(format!("{name} did it"))];
            ToolEvent::End(ToolOutput { message_content, ..ToolOutput::default() })
        }))
    }

    fn answer_question(&self, call: &CallId, question: &str, answer: QuestionAnswer) {
        self.answers.lock().expect("nobody panicked").push((call.clone(), question.to_owned(), answer));
        self.answered.add_permits(1);
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) enum HookBehavior {
    /// Leaves the input unchanged.
    #[default]
    Keep,
    /// Replaces the input.
    ReplaceInput(&'static str),
    /// Replaces the history.
    ReplaceHistory(Vec<HistoryEntry>),
    Fail,
    Hang,
    /// Leaves the input unchanged, once it is released.
    WaitForRelease,
}

/// A hook whose behaviour a test sets.
pub(crate) struct FakeHooks {
    pub(crate) behavior: Mutex<HookBehavior>,
    requests: Mutex<Vec<HookRequest>>,
    pub(crate) request_received: Notify,
    pub(crate) release: Arc<Semaphore>,
}

impl Default for FakeHooks {
    fn default() -> Self {
        let (will, asked, was_asked) = Default::default();
        Self { behavior: will, requests: asked, request_received: was_asked, release: Arc::new(Semaphore::new(0)) }
    }
}

impl FakeHooks {
    pub(crate) fn requests(&self) -> Vec<HookRequest> {
        self.requests.lock().expect("nobody panicked").clone()
    }
}

impl HookRunner for FakeHooks {
    fn run_hook(&self, _hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        self.requests.lock().expect("nobody panicked").push(request);
        self.request_received.notify_one();
        let keep = HookResponse::default();
        match self.behavior.lock().expect("nobody panicked").clone() {
            HookBehavior::Keep => Box::pin(ready(Ok(keep))),
            HookBehavior::ReplaceInput(words) => {
                Box::pin(ready(Ok(HookResponse { input: Some(vec![ContentPart::text(words)]), ..keep })))
            }
            HookBehavior::ReplaceHistory(history) => {
                Box::pin(ready(Ok(HookResponse { history: Some(history), ..keep })))
            }
            HookBehavior::Fail => {
                Box::pin(ready(Err(ErrorInfo::new(ErrorCode::HookFailed, "The input hook said no."))))
            }
            HookBehavior::Hang => Box::pin(pending()),
            HookBehavior::WaitForRelease => {
                let go_on = Arc::clone(&self.release);
                Box::pin(async move {
                    go_on.acquire().await.expect("it is not closed").forget();
                    Ok(keep)
                })
            }
        }
    }
}

/// What happens when MCP servers are asked for their tools.
#[derive(Clone, Default)]
pub(crate) enum ResolverBehavior {
    /// The definitions with these instructions for every agent.
    Instruct(&'static str),
    Fail,
    #[default]
    Hang,
}

#[derive(Default)]
pub(crate) struct FakeResolver {
    pub(crate) behavior: Mutex<ResolverBehavior>,
    pub(crate) requests: Mutex<Vec<ResolveRequest>>,
}

impl DefinitionResolver for FakeResolver {
    fn resolve_definitions(&self, request: ResolveRequest) -> BoxFuture<'static, Result<Arc<Definitions>, ErrorInfo>> {
        self.requests.lock().expect("nobody panicked").push(request.clone());
        match self.behavior.lock().expect("nobody panicked").clone() {
            ResolverBehavior::Instruct(words) => {
                let mut resolved = Definitions::clone(&request.definitions);
                resolved.mcp.clear();
                resolved.agents.values_mut().for_each(|agent| agent.instructions = words.to_owned());
                resolved.digest = format!("with tools: {words}");
                Box::pin(ready(Ok(Arc::new(resolved))))
            }
            ResolverBehavior::Fail => {
                Box::pin(ready(Err(ErrorInfo::new(ErrorCode::McpUnavailable, "The MCP server `s` is gone."))))
            }
            ResolverBehavior::Hang => Box::pin(pending()),
        }
    }
}

/// Files of which some can be read and some hang until they are released. It counts active reads.
pub(crate) struct FakeDocuments {
    requests: Mutex<Vec<FileReadRequest>>,
    live: Arc<AtomicUsize>,
    pub(crate) release: Arc<Semaphore>,
}

impl Default for FakeDocuments {
    fn default() -> Self {
        Self { requests: Mutex::default(), live: Arc::default(), release: Arc::new(Semaphore::new(0)) }
    }
}

impl FakeDocuments {
    /// Every requested URL, repetitions included.
    pub(crate) fn requested_urls(&self) -> Vec<String> {
        self.requests.lock().expect("nobody panicked").iter().map(|request| request.url.clone()).collect()
    }

    pub(crate) fn active_reads(&self) -> usize {
        self.live.load(SeqCst)
    }
}

struct ActiveRead(Arc<AtomicUsize>);

impl Drop for ActiveRead {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl FileReader for FakeDocuments {
    fn read_file(&self, request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome> {
        let FileReadRequest { url, .. } = request.clone();
        self.requests.lock().expect("nobody panicked").push(request);
        self.live.fetch_add(1, SeqCst);
        let (reading, let_go) = (ActiveRead(Arc::clone(&self.live)), Arc::clone(&self.release));
        Box::pin(async move {
            let _reading = reading;
            if url.ends_with("/slow") {
                let_go.acquire().await.expect("it is not closed").forget();
            }
            if url.ends_with("/gone") {
                return FileReadOutcome::Failed { message: "Nobody is there.".to_owned() };
            }
            FileReadOutcome::Read { content: vec![ContentPart::text(format!("what {url} says"))], message: None }
        })
    }
}

/// A clock that follows the runtime's time, which a test may pause, and that can be advanced.
pub(crate) struct TestClock {
    started: Instant,
    offset_ms: AtomicU64,
}

impl Default for TestClock {
    fn default() -> Self {
        Self { started: Instant::now(), offset_ms: AtomicU64::new(1_700_000_000_000) }
    }
}

impl TestClock {
    pub(crate) fn advance(&self, ms: u64) {
        self.offset_ms.fetch_add(ms, SeqCst);
    }

    pub(crate) fn set_back(&self, ms: u64) {
        self.offset_ms.fetch_sub(ms, SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Millis {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.offset_ms.load(SeqCst).saturating_add(elapsed)
    }
}
