//! What a test's engine stands on: the real store behind a gate, the scripted model and counting tools under
//! observation, a hook and a clock that do as they are told.

use futures_util::{StreamExt as _, stream};
use model::block::ContentPart;
use model::definition::InputHook;
use model::event::ErrorInfo;
use model::history::HistoryEntry;
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{
    AppendBatch, AppendOutcome, BoxFuture, BoxStream, Clock, FileReadOutcome, FileReadRequest, FileReader, HookRequest,
    HookResponse, HookRunner, Journal, Lease, ModelClient, OnCommit, PageLimit, RecordPage, StoreError, ToolRunner,
};
use model::tool::{ToolEvent, ToolOutput, ToolRequest};
use model::{Millis, NodeId, Seq, ThreadId, UserId};
use std::future::{pending, ready};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// What happens to one append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is lost, and the store says that it does not know.
    UnknownLost,
    /// It is kept, and the store says that it does not know.
    UnknownKept,
    /// The process dies before it.
    DeadBefore,
    /// The process dies after it.
    DeadAfter,
}

impl Trouble {
    pub(crate) const ALL: [Self; 4] = [Self::UnknownLost, Self::UnknownKept, Self::DeadBefore, Self::DeadAfter];

    /// Does the process survive it?
    pub(crate) const fn is_survived(self) -> bool {
        matches!(self, Self::UnknownLost | Self::UnknownKept)
    }
}

/// A store whose disk can be held, or can fail once; it counts what goes through it.
pub(crate) struct Gated {
    inner: Arc<dyn Journal>,
    open: Arc<Semaphore>,
    appends: AtomicUsize,
    records_read: AtomicUsize,
    /// What happens to which append, from 1.
    trouble: Option<(usize, Trouble)>,
    met: Arc<Notify>,
}

impl Gated {
    pub(crate) fn new(inner: Arc<dyn Journal>, trouble: Option<(usize, Trouble)>) -> Self {
        let open = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let met = Arc::new(Notify::new());
        Self { inner, open, appends: AtomicUsize::new(0), records_read: AtomicUsize::new(0), trouble, met }
    }

    /// From now on nothing becomes durable, until [`Gated::release`].
    pub(crate) fn hold(&self) {
        self.open.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release(&self, appends: usize) {
        self.open.add_permits(appends);
    }

    /// How many appends there were.
    pub(crate) fn appends(&self) -> usize {
        self.appends.load(SeqCst)
    }

    /// How many records were read since this was last asked.
    pub(crate) fn take_records_read(&self) -> usize {
        self.records_read.swap(0, SeqCst)
    }

    /// Was there trouble?
    pub(crate) fn was_met(&self) -> bool {
        self.trouble.is_some_and(|(at, _)| self.appends() >= at)
    }

    /// The process is dead: whoever plays it stops here.
    pub(crate) async fn died(&self) {
        self.met.notified().await;
    }

    fn troubled(&self, trouble: Trouble, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        let (inner, met) = (Arc::clone(&self.inner), Arc::clone(&self.met));
        // On its own: what becomes of an append does not depend on who waits for it.
        let fate = tokio::spawn(async move {
            if matches!(trouble, Trouble::UnknownKept | Trouble::DeadAfter) {
                assert_eq!(inner.append(batch).await, AppendOutcome::Durable, "what the engine writes fits");
            }
            if !trouble.is_survived() {
                met.notify_one();
                let _unheard = landed;
                return pending().await;
            }
            let verdict = AppendOutcome::Unknown("the disk went away".to_owned());
            landed.call(&verdict);
            verdict
        });
        Box::pin(async { fate.await.expect("it does not panic") })
    }
}

impl Journal for Gated {
    fn claim<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        node: &'a NodeId,
    ) -> BoxFuture<'a, Result<Lease, StoreError>> {
        self.inner.claim(owner, thread, node)
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        let number = self.appends.fetch_add(1, SeqCst) + 1;
        if let Some((_, trouble)) = self.trouble.filter(|(at, _)| *at == number) {
            return self.troubled(trouble, batch, landed);
        }
        if let Ok(permit) = Arc::clone(&self.open).try_acquire_owned() {
            permit.forget();
            return self.inner.append_with_callback(batch, landed);
        }
        let (inner, open) = (Arc::clone(&self.inner), Arc::clone(&self.open));
        let held = tokio::spawn(async move {
            let permit = open.acquire_owned().await.expect("the gate is not closed");
            permit.forget();
            inner.append_with_callback(batch, landed).await
        });
        Box::pin(async { held.await.expect("it does not panic") })
    }

    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<RecordPage, StoreError>> {
        Box::pin(async move {
            let page = self.inner.read_page(owner, thread, after, limit).await;
            self.records_read.fetch_add(page.as_ref().map_or(0, |page| page.records.len()), SeqCst);
            page
        })
    }
}

/// So many requests are kept: those of a long thread hold all of it each.
const KEPT: usize = 64;

/// Models under observation: what they were asked, and how many of their streams live. `silent/…` never says a word.
pub(crate) struct Watched {
    inner: Arc<dyn ModelClient>,
    /// One word at a time, so that each is an append of its own.
    drips: bool,
    /// The latest.
    asked: Mutex<Vec<ModelRequest>>,
    turns: AtomicUsize,
    live: Arc<AtomicUsize>,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn ModelClient>, drips: bool) -> Self {
        Self { inner, drips, asked: Mutex::default(), turns: AtomicUsize::new(0), live: Arc::default() }
    }

    /// What the model was asked, as far as it is kept.
    pub(crate) fn asked(&self) -> Vec<ModelRequest> {
        self.asked.lock().expect("nobody panicked").clone()
    }

    /// What the model was asked last.
    pub(crate) fn last(&self) -> ModelRequest {
        self.asked().pop().expect("it was asked")
    }

    /// How often the model was asked.
    pub(crate) fn turns(&self) -> usize {
        self.turns.load(SeqCst)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }
}

impl ModelClient for Watched {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let silent = request.model.starts_with("silent/");
        self.turns.fetch_add(1, SeqCst);
        let mut asked = self.asked.lock().expect("nobody panicked");
        if asked.len() == KEPT {
            asked.remove(0);
        }
        asked.push(request.clone());
        drop(asked);
        self.live.fetch_add(1, SeqCst);
        let events = if silent { stream::pending().boxed() } else { self.inner.stream_turn(request) };
        Box::pin(Turn { events, drips: self.drips, rests: false, live: Arc::clone(&self.live) })
    }
}

struct Turn {
    events: BoxStream<'static, ModelEvent>,
    drips: bool,
    rests: bool,
    live: Arc<AtomicUsize>,
}

impl stream::Stream for Turn {
    type Item = ModelEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ModelEvent>> {
        self.rests = self.drips && !self.rests;
        if self.rests {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.events.as_mut().poll_next(cx)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.live.fetch_sub(1, SeqCst);
    }
}

/// Tools that count how often each really ran. `hold` waits until it is let go.
pub(crate) struct Counting {
    ran: Arc<Mutex<Vec<ToolRequest>>>,
    pub(crate) let_go: Arc<Semaphore>,
}

impl Default for Counting {
    fn default() -> Self {
        Self { ran: Arc::default(), let_go: Arc::new(Semaphore::new(0)) }
    }
}

impl Counting {
    pub(crate) fn ran(&self) -> Vec<ToolRequest> {
        self.ran.lock().expect("nobody panicked").clone()
    }

    /// How often a tool ran.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.ran().iter().filter(|request| request.name == name).count()
    }
}

impl ToolRunner for Counting {
    fn call_tool(&self, request: ToolRequest) -> BoxStream<'static, ToolEvent> {
        let (ran, let_go) = (Arc::clone(&self.ran), Arc::clone(&self.let_go));
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
}

/// What the hook does.
#[derive(Clone, Debug, Default)]
pub(crate) enum Will {
    /// Leaves everything as it is.
    #[default]
    Keep,
    /// Says something else.
    Input(&'static str),
    /// Gives the model another past.
    History(Vec<HistoryEntry>),
    /// Fails.
    Fail,
    /// Never answers.
    Hang,
    /// Leaves everything as it is, when it is told to go on.
    Slow,
}

/// A hook that does as it is told.
pub(crate) struct Obeying {
    pub(crate) will: Mutex<Will>,
    asked: Mutex<Vec<HookRequest>>,
    pub(crate) was_asked: Notify,
    pub(crate) go_on: Arc<Semaphore>,
}

impl Default for Obeying {
    fn default() -> Self {
        let (will, asked, was_asked) = Default::default();
        Self { will, asked, was_asked, go_on: Arc::new(Semaphore::new(0)) }
    }
}

impl Obeying {
    pub(crate) fn asked(&self) -> Vec<HookRequest> {
        self.asked.lock().expect("nobody panicked").clone()
    }
}

impl HookRunner for Obeying {
    fn run_hook(&self, _hook: &InputHook, request: HookRequest) -> BoxFuture<'static, Result<HookResponse, ErrorInfo>> {
        self.asked.lock().expect("nobody panicked").push(request);
        self.was_asked.notify_one();
        let keep = HookResponse::default();
        match self.will.lock().expect("nobody panicked").clone() {
            Will::Keep => Box::pin(ready(Ok(keep))),
            Will::Input(words) => {
                Box::pin(ready(Ok(HookResponse { input: Some(vec![ContentPart::text(words)]), ..keep })))
            }
            Will::History(history) => Box::pin(ready(Ok(HookResponse { history: Some(history), ..keep }))),
            Will::Fail => Box::pin(ready(Err(ErrorInfo::new("hook_failed", "The input hook said no.")))),
            Will::Hang => Box::pin(pending()),
            Will::Slow => {
                let go_on = Arc::clone(&self.go_on);
                Box::pin(async move {
                    go_on.acquire().await.expect("it is not closed").forget();
                    Ok(keep)
                })
            }
        }
    }
}

/// Files of which some can be read and some hang until they are let go. It knows who is being read.
pub(crate) struct Shelf {
    asked: Mutex<Vec<FileReadRequest>>,
    live: Arc<AtomicUsize>,
    pub(crate) let_go: Arc<Semaphore>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { asked: Mutex::default(), live: Arc::default(), let_go: Arc::new(Semaphore::new(0)) }
    }
}

impl Shelf {
    /// The files that somebody wanted, each time.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panicked").iter().map(|request| request.url.clone()).collect()
    }

    /// How many are being read.
    pub(crate) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }
}

/// Somebody reads.
struct Reading(Arc<AtomicUsize>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl FileReader for Shelf {
    fn read_file(&self, request: FileReadRequest) -> BoxFuture<'static, FileReadOutcome> {
        let FileReadRequest { url, .. } = request.clone();
        self.asked.lock().expect("nobody panicked").push(request);
        self.live.fetch_add(1, SeqCst);
        let (reading, let_go) = (Reading(Arc::clone(&self.live)), Arc::clone(&self.let_go));
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

/// A clock that goes with the runtime's time, which a test may pause, and can be set forward.
pub(crate) struct Hands {
    since: Instant,
    ahead: AtomicU64,
}

impl Default for Hands {
    fn default() -> Self {
        Self { since: Instant::now(), ahead: AtomicU64::new(1_700_000_000_000) }
    }
}

impl Hands {
    pub(crate) fn set_forward(&self, ms: u64) {
        self.ahead.fetch_add(ms, SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Millis {
        let elapsed = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ahead.load(SeqCst).saturating_add(elapsed)
    }
}
