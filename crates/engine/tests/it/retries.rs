//! Providers that fail before they send anything: retried after a delay, replaced by the next model, or given up.

use crate::fake_ports::{RecordingModels, TestClock};
use crate::fixtures::{definitions, with_agent};
use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine};
use engine::{Engine, Ports};
use model::definition::Definitions;
use model::event::{CancelMode, Event, StepRetrying};
use model::model_turn::{ModelEvent, ModelRequest};
use model::ports::{BoxStream, Clock as _, ModelClient};
use model::task::TaskStatus;
use model::{Millis, Record};
use providers::ProviderRouter;
use providers::scripted::{Scenarios, ScriptedProvider};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SCENARIOS: &str = r#"
[[scenario]]
model = "down"
[[scenario.turn]]
steps = [{ error = { code = "overloaded", message = "Too much to do.", retryable = true } }]

[[scenario]]
match = '\bpatience\b'
[[scenario.turn]]
steps = [
  { error = { code = "rate_limited", message = "In a minute.", retryable = true, retry_after_ms = 60000, times = 1 } },
  { text = "Now." },
]

[[scenario]]
[[scenario.turn]]
usage = { input_tokens = 10 }
steps = [
  { error = { code = "overloaded", message = "Too much to do.", retryable = true, times = 2 } },
  { text = "At last." },
]
"#;

/// Models that record when each turn was requested.
struct Timed {
    inner: ProviderRouter,
    clock: Arc<TestClock>,
    asked_at: Arc<Mutex<Vec<Millis>>>,
}

impl ModelClient for Timed {
    fn stream_turn(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent> {
        self.asked_at.lock().expect("nobody panicked").push(self.clock.now());
        self.inner.stream_turn(request)
    }
}

/// An engine whose models fail as [`SCENARIOS`] says, and the times of their requests.
async fn failing_engine(kind: StoreKind, definitions: Definitions) -> (TestEngine, Arc<Mutex<Vec<Millis>>>) {
    let test_engine = TestEngine::with_definitions(kind, definitions).await;
    let scenarios = Scenarios::parse(SCENARIOS, "test").expect("the scenarios are fine");
    let inner =
        ProviderRouter::new().with_provider("scripted", Arc::new(ScriptedProvider::new(scenarios, Arc::new(|| 0))));
    let asked_at = Arc::default();
    let timed = Timed { inner, clock: Arc::clone(&test_engine.clock), asked_at: Arc::clone(&asked_at) };
    let models = Arc::new(RecordingModels::new(Arc::new(timed), false));
    let engine = Engine::new(Ports { models: models.clone(), ..test_engine.engine.ports().clone() });
    test_engine.engine.stop(Duration::ZERO).await;
    (TestEngine { engine, models, ..test_engine }, asked_at)
}

fn retries(log: &[Record]) -> Vec<(StepRetrying, Millis)> {
    let retry = |record: &Record| match record.event() {
        Event::Retrying(e) => Some(((**e).clone(), record.at)),
        _ => None,
    };
    log.iter().filter_map(retry).collect()
}

/// Time is paused, so that only the retry delay is measured.
#[tokio::test(start_paused = true)]
async fn a_failed_provider_is_retried_after_its_delay_and_not_before() {
    let (test_engine, asked_at) = failing_engine(StoreKind::Memory, definitions()).await;
    let run = test_engine.start_run(None, "hello").await;
    let object = test_engine.wait_until_unbounded(&run, |object| object.status.is_terminal()).await;
    assert_eq!(object.status, TaskStatus::Completed);
    assert_eq!(object.usage.input_tokens, 30, "what failed has cost something, too");
    let retries = retries(&test_engine.read_log(&run.thread).await);
    let asked_at = asked_at.lock().expect("nobody panicked").clone();
    assert_eq!((retries.len(), asked_at.len()), (2, 3));
    for ((retry, at), asked) in retries.iter().zip(&asked_at[1..]) {
        assert!(retry.not_before > *at, "{retry:?}");
        let late = asked.checked_sub(retry.not_before).expect("it is not asked too early");
        assert!(late < 10, "{late} ms late");
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_provider_is_down_the_fallback_model_answers() {
    let models = ["nobody/model", "scripted/down", "scripted/up"].map(str::to_owned);
    let definitions = with_agent(definitions(), "demo", |agent| agent.models = models.to_vec());
    let (test_engine, _) = failing_engine(StoreKind::Memory, definitions).await;
    let run = test_engine.start_run(None, "hello").await;
    let object = test_engine.wait_until_unbounded(&run, |object| object.status.is_terminal()).await;
    assert_eq!(object.status, TaskStatus::Completed);
    let asked: Vec<String> = test_engine.models.requests().into_iter().map(|request| request.model).collect();
    assert_eq!(asked, ["nobody/model", "scripted/down", "scripted/down", "scripted/down", "scripted/up"]);
    let log = test_engine.read_log(&run.thread).await;
    let answered = log.iter().find_map(|record| match record.event() {
        Event::StepDone(e) => Some(e.model.clone()),
        _ => None,
    });
    assert_eq!(answered.as_deref(), Some("scripted/up"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_during_a_retry_delay_ends_the_run_without_another_call() {
    for kind in STORE_KINDS {
        for mode in [CancelMode::Immediate, CancelMode::AfterTurn] {
            let (test_engine, _) = failing_engine(kind, definitions()).await;
            let run = test_engine.start_run(None, "patience").await;
            test_engine.wait_for_event(&run.thread, "task.retrying").await;
            assert_eq!(test_engine.models.live_streams(), 0, "{kind:?} {mode:?}: nothing is held meanwhile");
            test_engine.cancel(&run.task, mode).await;
            assert_eq!(test_engine.wait_settled(&run).await.status, TaskStatus::Cancelled, "{kind:?} {mode:?}");
            test_engine.wait_idle().await;
            assert_eq!(test_engine.models.turn_count(), 1, "{kind:?} {mode:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_during_a_retry_delay_restarts_the_turn() {
    for kind in STORE_KINDS {
        let (test_engine, _) = failing_engine(kind, definitions()).await;
        let run = test_engine.start_run(None, "patience").await;
        test_engine.wait_for_event(&run.thread, "task.retrying").await;
        let test_engine = test_engine.restart().await;
        let object = test_engine.wait_settled(&run).await;
        assert_eq!(object.status, TaskStatus::Completed, "{kind:?}");
        assert_eq!((test_engine.models.turn_count(), test_engine.models.last_request().attempt), (1, 3), "{kind:?}");
        let kinds = test_engine.event_types(&run.thread).await;
        assert!(kinds.iter().any(|kind| kind == "task.recovered"), "{kind:?}: {kinds:?}");
    }
}
