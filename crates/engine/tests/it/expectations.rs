//! What users expect of an agent loop, one sentence per test: those that need a store, a model and a viewer and that no
//! other test here covers. Where another test covers one, the sentence is its doc comment. `docs/promises.md` lists
//! them all.

use crate::fixtures::{definitions, text_parts, with_agent, with_tool};
use crate::test_engine::{STORE_KINDS, TestEngine, line_view, utf8_lossy};
use async_trait::async_trait;
use engine::{Engine, NewRun, Ports};
use futures_util::{StreamExt as _, stream};
use model::definition::{ApprovalPolicy, Definitions};
use model::error::{ErrorCode, ErrorInfo};
use model::event::{ApprovalDecision, ApprovalDecisionKind, CancelMode, StopReason};
use model::model_turn::{ModelDelta, ModelEvent, ModelFailure, ModelRequest, ModelTurnEnd};
use model::ports::{
    AppendBatch, BoxFuture, BoxStream, ClaimOutcome, Clock, Journal, ModelClient, OnCommit, PageLimit, RecordPage,
    SpaceWatch, StorageSpace, StoreResult,
};
use model::record::RECORD_FORMAT_MAX;
use model::task::TaskStatus;
use model::usage::Usage;
use model::{NodeId, Seq, ThreadId, UserId};
use model_testing::invariants;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longer than anything in this test takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cancel wakes a viewer that waits for the next event, also when the model sends nothing; no event follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_wakes_a_waiting_viewer() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run_of("silent", None, "hello").await;
        let mut viewer = test_engine.engine.watch_from(&test_engine.user, &run.thread, line_view(&run.task), Seq::ZERO);
        let mut seen = String::new();
        while !seen.contains("task.step.started") {
            seen.push_str(&utf8_lossy(viewer.next().await.expect("readable").expect("it goes on")));
        }
        let (tell, waits) = oneshot::channel();
        let watcher = tokio::spawn(async move {
            let mut tell = Some(tell);
            let mut next = Box::pin(async move {
                let mut rest = String::new();
                while let Some(bytes) = viewer.next().await.expect("readable") {
                    rest.push_str(&utf8_lossy(bytes));
                }
                (rest, viewer.is_interrupted())
            });
            // After its first poll it polls again only when it is woken.
            poll_fn(move |cx| {
                let looked = pin!(&mut next).poll(cx);
                if let Some(tell) = tell.take() {
                    tell.send(looked.is_pending()).expect("somebody listens");
                }
                looked
            })
            .await
        });
        assert!(waits.await.expect("it looks"), "{kind:?}: there is nothing to see yet");
        test_engine.cancel(&run.task, CancelMode::Immediate).await;
        let woken = tokio::time::timeout(PATIENCE, watcher).await;
        let (rest, broken_off) = woken.expect("it is woken").expect("it does not panic");
        let last = rest.lines().last().expect("there is an end");
        assert!(last.contains("task.cancelled") && !broken_off, "{kind:?}: {rest}");
        test_engine.wait_idle().await;
        assert_eq!(
            format!("{seen}{rest}"),
            crate::test_engine::record_lines(&test_engine.read_log(&run.thread).await),
            "{kind:?}"
        );
    }
}

/// A model that sends one word, ends with this result, and then keeps its connection open.
struct Clinging {
    end: ModelEvent,
    connection: Arc<()>,
}

impl ModelClient for Clinging {
    fn stream_turn(&self, _request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        let word = ModelDelta::Text { slot: 0, part: 0, text: "Once ".to_owned(), logprobs: None };
        let connection = Arc::clone(&self.connection);
        let said = stream::iter([ModelEvent::Delta(word), self.end.clone()]).chain(stream::pending());
        said.inspect(move |_| _ = &connection).boxed()
    }
}

/// A turn that failed or reached a limit ends the run with that status, and the provider's stream is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_or_incomplete_turn_ends_the_run_and_closes_the_stream() {
    let error = ErrorInfo::new(ErrorCode::ProviderError, "It broke.");
    let limited = |stop| {
        ModelEvent::End(ModelTurnEnd { stop_reason: stop, usage: Usage::default(), model: None, service_tier: None })
    };
    for (end, status, why) in [
        (ModelEvent::Failed(ModelFailure { error, retry_after_ms: None }), TaskStatus::Failed, "provider_error"),
        (limited(StopReason::MaxTokens), TaskStatus::Incomplete, "max_tokens"),
        (limited(StopReason::ContentFilter), TaskStatus::Incomplete, "content_filter"),
    ] {
        for kind in STORE_KINDS {
            let test_engine = TestEngine::new(kind).await;
            let connection = Arc::new(());
            let models = Arc::new(Clinging { end: end.clone(), connection: Arc::clone(&connection) });
            let engine = Engine::new(Ports { models, ..test_engine.engine.ports().clone() });
            let new = NewRun { agent: "demo".to_owned(), input: text_parts("go"), ..NewRun::default() };
            let run = engine.start(&test_engine.user, new).await.expect("taken");
            let settled =
                tokio::time::timeout(PATIENCE, engine.wait_settled(&test_engine.user, &run.task, &run.thread)).await;
            settled.expect("it ends").expect("readable");
            let object = test_engine.task_object(&run.task).await;
            let said = object.error.map(|error| error.code).or(object.reason);
            assert_eq!((object.status, said.as_deref()), (status, Some(why)), "{kind:?}");
            let closed = async {
                // The model itself holds one reference, and this test another.
                while Arc::strong_count(&connection) > 2 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, closed).await.expect("the stream is closed");
        }
    }
}

/// Other instructions, another model, and a rule that would ask about every trade again.
fn changed_definitions() -> Definitions {
    let changed = with_agent(definitions(), "demo", |demo| {
        demo.instructions = "Ask twice.".to_owned();
        demo.models = vec!["scripted/another".to_owned()];
    });
    let changed = with_tool(changed, "trade", |trade| {
        trade.approval = ApprovalPolicy::Always;
        trade.approval_timeout_seconds = 1;
    });
    Definitions { digest: "another".to_owned(), ..changed }
}

/// A decision holds, whatever has changed when the run resumes: the process, the definitions, further input of its
/// caller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_holds_after_everything_else_has_changed() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        // Stored, with no actor to apply it.
        test_engine.engine.stop(Duration::ZERO).await;
        test_engine.approve(&paused).await;
        test_engine.steer(&run, "by the way, I am somebody else now").await;
        let test_engine = test_engine.restart_with(changed_definitions()).await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        test_engine.wait_idle().await;
        let asked =
            test_engine.event_types(&run.thread).await.iter().filter(|kind| *kind == "task.approval.requested").count();
        assert_eq!((asked, test_engine.tools.call_count("trade")), (1, 1), "{kind:?}: asked once, done once");
        invariants::check_one_terminal_event(&test_engine.read_log(&run.thread).await).expect("law 9");
    }
}

/// A log as a later version would write it.
struct Later(Arc<dyn Journal>);

impl SpaceWatch for Later {
    fn space(&self) -> StorageSpace {
        self.0.space()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.0.space_changed(known)
    }
}

#[async_trait]
impl Journal for Later {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        self.0.claim(owner, thread, node).await
    }

    fn start_append(&self, batch: AppendBatch, landed: OnCommit) {
        self.0.start_append(batch, landed);
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut page = self.0.read_page(owner, thread, after, limit).await?;
        page.records.iter_mut().for_each(|record| record.format = RECORD_FORMAT_MAX + 1);
        Ok(page)
    }
}

/// This version does not continue a log of a later version: the log stays unchanged for a version that can read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_a_later_version_is_left_unchanged() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let run = test_engine.start_run(None, "trade").await;
        let paused = test_engine.wait_settled(&run).await;
        test_engine.wait_idle().await;
        let before = test_engine.read_log(&run.thread).await;
        let journal = Arc::new(Later(Arc::clone(&test_engine.engine.ports().journal)));
        let older = Engine::new(Ports { journal, ..test_engine.engine.ports().clone() });
        let key = paused.pending[0].key.clone().expect("a question");
        let yes = ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None };
        older
            .decide_approval(&test_engine.user, &test_engine.run_row(&run.task).await, key, yes, None)
            .await
            .expect("written down");
        let gone = async {
            while older.live_threads() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("it does not try for ever");
        assert_eq!(test_engine.read_log(&run.thread).await, before, "{kind:?}: nothing was added");
        assert_eq!(test_engine.tools.call_count("trade"), 0, "{kind:?}");
        drop(older);
        let test_engine = test_engine.restart().await;
        test_engine.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(test_engine.tools.call_count("trade"), 1, "{kind:?}: the decision was kept");
    }
}

/// A journal that several nodes share: the first claims find that another node holds the thread.
struct HeldJournal {
    inner: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    refusals_left: AtomicUsize,
}

impl SpaceWatch for HeldJournal {
    fn space(&self) -> StorageSpace {
        self.inner.space()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.inner.space_changed(known)
    }
}

#[async_trait]
impl Journal for HeldJournal {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        let refused = self.refusals_left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if refused {
            let held = ClaimOutcome::Held { node: NodeId::from("another"), until: self.clock.now() + 50 };
            return Ok(held);
        }
        self.inner.claim(owner, thread, node).await
    }

    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit) {
        self.inner.start_append(batch, on_commit);
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        self.inner.read_page(owner, thread, after, limit).await
    }
}

/// A thread that another node holds is left alone, and claimed again when that node's lease expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_that_another_node_holds_is_claimed_when_its_lease_expires() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let first = test_engine.start_run(None, "hello").await;
        test_engine.wait_settled(&first).await;
        test_engine.wait_idle().await;
        let ports = test_engine.engine.ports();
        let another = NodeId::from("another");
        ports.journal.claim(&test_engine.user, &first.thread, &another).await.expect("it was released");
        let journal = Arc::new(HeldJournal {
            inner: Arc::clone(&ports.journal),
            clock: Arc::clone(&ports.clock),
            refusals_left: AtomicUsize::new(2),
        });
        let node = Engine::new(Ports { journal: Arc::clone(&journal) as _, ..ports.clone() });
        node.recover().await.expect("readable");
        let thread = Some(first.thread.clone());
        let new = NewRun { agent: "demo".to_owned(), thread, input: text_parts("hello again"), ..NewRun::default() };
        let run = node.start(&test_engine.user, new).await.expect("submitted");
        let settled = node.wait_settled(&test_engine.user, &run.task, &run.thread);
        tokio::time::timeout(PATIENCE, settled).await.expect("it is claimed again").expect("readable");
        assert_eq!(journal.refusals_left.load(SeqCst), 0, "{kind:?}");
        assert_eq!(test_engine.run_row(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
        node.stop(Duration::ZERO).await;
    }
}
