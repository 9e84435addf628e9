//! What people expect of an agent loop, a sentence each: those that take a store, a model and a viewer, and that no other
//! test here is about. Where one is, the sentence stands above it. `docs/promises.md` lists them all.

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
    AppendBatch, AppendOutcome, BoxFuture, BoxStream, ClaimOutcome, Clock, Journal, ModelClient, OnCommit, PageLimit,
    RecordPage, StoreResult,
};
use model::record::RECORD_FORMAT;
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

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cancel wakes a viewer that waits for the next event, also when the model never says a word; nothing follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_wakes_a_viewer_that_waits() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run_of("silent", None, "hello").await;
        let mut viewer = house.engine.watch_from(&house.user, &run.thread, line_view(&run.task), Seq::ZERO);
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
            // From its first look on it looks again only when it is woken.
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
        house.cancel(&run.task, CancelMode::Immediate).await;
        let woken = tokio::time::timeout(PATIENCE, watcher).await;
        let (rest, broken_off) = woken.expect("it is woken").expect("it does not panic");
        let last = rest.lines().last().expect("there is an end");
        assert!(last.contains("task.cancelled") && !broken_off, "{kind:?}: {rest}");
        house.wait_idle().await;
        assert_eq!(
            format!("{seen}{rest}"),
            crate::test_engine::record_lines(&house.read_log(&run.thread).await),
            "{kind:?}"
        );
    }
}

/// A model that says a word, ends so, and then does not let go of its connection.
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

/// An answer that failed or came to a limit ends the run with that, and the provider's stream is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_failed_or_is_incomplete_ends_the_run_and_closes_the_stream() {
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
            let house = TestEngine::new(kind).await;
            let connection = Arc::new(());
            let models = Arc::new(Clinging { end: end.clone(), connection: Arc::clone(&connection) });
            let engine = Engine::new(Ports { models, ..house.engine.ports().clone() });
            let new = NewRun { agent: "demo".to_owned(), input: text_parts("go"), ..NewRun::default() };
            let run = engine.start(&house.user, new).await.expect("taken");
            let settled =
                tokio::time::timeout(PATIENCE, engine.wait_settled(&house.user, &run.task, &run.thread)).await;
            settled.expect("it ends").expect("readable");
            let object = house.task_object(&run.task).await;
            let said = object.error.map(|error| error.code).or(object.reason);
            assert_eq!((object.status, said.as_deref()), (status, Some(why)), "{kind:?}");
            let closed = async {
                // The model itself holds one, and this test another.
                while Arc::strong_count(&connection) > 2 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(PATIENCE, closed).await.expect("the stream is closed");
        }
    }
}

/// Another world: other instructions, another model, a rule that would ask about every trade anew.
fn another_world() -> Definitions {
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

/// What was decided stays decided, whatever has changed around the run when it goes on: the process, the definitions, what
/// its caller says meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_holds_when_everything_else_has_changed() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        house.wait_idle().await;
        // Written down, and nobody there to carry it out.
        house.engine.stop(Duration::ZERO).await;
        house.approve(&paused).await;
        house.steer(&run, "by the way, I am somebody else now").await;
        let house = house.restart_with(another_world()).await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        house.wait_idle().await;
        let asked =
            house.event_types(&run.thread).await.iter().filter(|kind| *kind == "task.approval.requested").count();
        assert_eq!((asked, house.tools.call_count("trade")), (1, 1), "{kind:?}: asked once, done once");
        invariants::check_one_terminal_event(&house.read_log(&run.thread).await).expect("law 9");
    }
}

/// A log as a later version would have written it.
struct Later(Arc<dyn Journal>);

#[async_trait]
impl Journal for Later {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        self.0.claim(owner, thread, node).await
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        self.0.append_with_callback(batch, landed)
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let mut page = self.0.read_page(owner, thread, after, limit).await?;
        page.records.iter_mut().for_each(|record| record.format = RECORD_FORMAT + 1);
        Ok(page)
    }
}

/// A log of a later version is not carried on by this one: it waits, whole, for a version that can read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_a_later_version_waits_for_a_version_that_can_read_it() {
    for kind in STORE_KINDS {
        let house = TestEngine::new(kind).await;
        let run = house.start_run(None, "trade").await;
        let paused = house.wait_settled(&run).await;
        house.wait_idle().await;
        let before = house.read_log(&run.thread).await;
        let journal = Arc::new(Later(Arc::clone(&house.engine.ports().journal)));
        let older = Engine::new(Ports { journal, ..house.engine.ports().clone() });
        let key = paused.pending[0].key.clone().expect("a question");
        let yes = ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None };
        older
            .decide_approval(&house.user, &house.run_row(&run.task).await, key, yes, None)
            .await
            .expect("written down");
        let gone = async {
            while older.live_threads() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("it does not try for ever");
        assert_eq!(house.read_log(&run.thread).await, before, "{kind:?}: nothing was added");
        assert_eq!(house.tools.call_count("trade"), 0, "{kind:?}");
        drop(older);
        let house = house.restart().await;
        house.wait_until(&run, |object| object.status == TaskStatus::Completed).await;
        assert_eq!(house.tools.call_count("trade"), 1, "{kind:?}: the decision was kept");
    }
}

/// A journal that several nodes share: the first claims find that another node holds the thread.
struct HeldJournal {
    inner: Arc<dyn Journal>,
    clock: Arc<dyn Clock>,
    refusals_left: AtomicUsize,
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

    fn append_with_callback(&self, batch: AppendBatch, on_commit: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        self.inner.append_with_callback(batch, on_commit)
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
        let house = TestEngine::new(kind).await;
        let first = house.start_run(None, "hello").await;
        house.wait_settled(&first).await;
        house.wait_idle().await;
        let ports = house.engine.ports();
        let journal = Arc::new(HeldJournal {
            inner: Arc::clone(&ports.journal),
            clock: Arc::clone(&ports.clock),
            refusals_left: AtomicUsize::new(2),
        });
        let node = Engine::new(Ports { journal: Arc::clone(&journal) as _, ..ports.clone() });
        node.recover().await.expect("readable");
        let thread = Some(first.thread.clone());
        let new = NewRun { agent: "demo".to_owned(), thread, input: text_parts("hello again"), ..NewRun::default() };
        let run = node.start(&house.user, new).await.expect("submitted");
        let settled = node.wait_settled(&house.user, &run.task, &run.thread);
        tokio::time::timeout(PATIENCE, settled).await.expect("it is claimed again").expect("readable");
        assert_eq!(journal.refusals_left.load(SeqCst), 0, "{kind:?}");
        assert_eq!(house.run_row(&run.task).await.status, TaskStatus::Completed, "{kind:?}");
        node.stop(Duration::ZERO).await;
    }
}
