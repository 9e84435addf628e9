//! A complete engine in one process, and the vocabulary of the tests.

use crate::fake_ports::{
    AppendFailure, CountingTools, FakeDocuments, FakeHooks, FakeResolver, GatedJournal, MemoryRecoveryAttempts,
    RecordingModels, TestClock,
};
use crate::fixtures::{SCENARIOS, definitions, parts_with_links, text_parts};
use bytes::Bytes;
use engine::{CurrentDefinitions, Engine, NewRun, Ports, StartedRun, View};
use memory_store::MemoryStore;
use model::command::{CancelCause, CancelCommand, ClientToolResult};
use model::cursor::Cursor;
use model::definition::Definitions;
use model::event::{ApprovalDecision, ApprovalDecisionKind, CancelMode};
use model::ports::{
    Directory, Frames, IdempotencyKey, InboxRow, Journal, PageLimit, Projection, RunRow, StorageSpace, SubmitError,
};
use model::task::TaskObject;
use model::{ApprovalKey, CallId, NodeId, Record, Seq, TaskId, ThreadId, UserId};
use providers::ProviderRouter;
use providers::scripted::{Scenarios, ScriptedProvider};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use store::{DiskSpace, DiskSpaceProbe, SqliteStore};

/// Parsed once: some tests start hundreds of engines.
static SCRIPTED: LazyLock<ScriptedProvider> = LazyLock::new(|| {
    let scenarios = Scenarios::parse(SCENARIOS, "test").expect("the scenarios are fine");
    ScriptedProvider::new(scenarios, Arc::new(|| 0))
});

/// Longer than anything in these tests takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of an imagined disk.
const DISK_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Memory,
    Sqlite,
}

pub(crate) const STORE_KINDS: [StoreKind; 2] = [StoreKind::Memory, StoreKind::Sqlite];

/// What outlives a process: its data and the outside services.
pub(crate) struct TestEnv {
    pub(crate) store_kind: StoreKind,
    pub(crate) folder: tempfile::TempDir,
    memory: Arc<MemoryStore>,
    /// What the SQLite store takes for the free space of its disk.
    disk_room: Arc<AtomicU64>,
    pub(crate) tools: Arc<CountingTools>,
    pub(crate) hooks: Arc<FakeHooks>,
    pub(crate) resolver: Arc<FakeResolver>,
    pub(crate) recovery_attempts: Arc<MemoryRecoveryAttempts>,
    pub(crate) documents: Arc<FakeDocuments>,
}

impl TestEnv {
    pub(crate) fn new(kind: StoreKind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (tools, hooks, resolver, shelf, recovery_attempts) = Default::default();
        Self {
            store_kind: kind,
            folder,
            memory: Arc::default(),
            disk_room: Arc::new(AtomicU64::new(DISK_BYTES)),
            tools,
            hooks,
            resolver,
            recovery_attempts,
            documents: shelf,
        }
    }

    fn open_store(&self) -> (Arc<dyn Journal>, Arc<dyn Directory>) {
        match self.store_kind {
            StoreKind::Memory => (self.memory.clone(), self.memory.clone()),
            StoreKind::Sqlite => {
                let room = Arc::clone(&self.disk_room);
                let read = move |_: &Path| Some(DiskSpace { available: room.load(SeqCst), total: DISK_BYTES });
                let options =
                    store::SqliteOptions { disk_space: DiskSpaceProbe::new(read), ..store::SqliteOptions::default() };
                let sqlite = Arc::new(SqliteStore::open(self.folder.path(), &options).expect("the folder opens"));
                (sqlite.clone(), sqlite)
            }
        }
    }

    /// Fills the disk or makes room; the memory store follows at once, SQLite when it looks.
    pub(crate) fn set_space(&self, space: StorageSpace) {
        self.memory.set_space(space);
        self.disk_room.store(if space == StorageSpace::Full { 0 } else { DISK_BYTES }, SeqCst);
    }
}

pub(crate) struct TestSetup {
    pub(crate) definitions: Definitions,
    pub(crate) append_failure: Option<(usize, AppendFailure)>,
    /// Nothing becomes durable until the appends are released.
    pub(crate) hold_appends: bool,
    pub(crate) one_delta_at_a_time: bool,
    pub(crate) clock: Arc<TestClock>,
}

impl Default for TestSetup {
    fn default() -> Self {
        Self {
            definitions: definitions(),
            append_failure: None,
            hold_appends: false,
            one_delta_at_a_time: false,
            clock: Arc::default(),
        }
    }
}

pub(crate) struct TestEngine {
    pub(crate) engine: Engine,
    pub(crate) user: UserId,
    pub(crate) journal: Arc<GatedJournal>,
    pub(crate) models: Arc<RecordingModels>,
    pub(crate) tools: Arc<CountingTools>,
    pub(crate) hooks: Arc<FakeHooks>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) env: Arc<TestEnv>,
}

impl TestEngine {
    pub(crate) async fn new(kind: StoreKind) -> Self {
        Self::with_definitions(kind, definitions()).await
    }

    pub(crate) async fn with_definitions(kind: StoreKind, definitions: Definitions) -> Self {
        let setup = TestSetup { definitions, ..TestSetup::default() };
        Self::start_in(Arc::new(TestEnv::new(kind)), setup).await
    }

    /// Restarts on the same data.
    pub(crate) async fn restart(self) -> Self {
        let definitions = Definitions::clone(&self.engine.ports().definitions.get());
        self.restart_with(definitions).await
    }

    pub(crate) async fn restart_with(self, definitions: Definitions) -> Self {
        let (test_env, clock) = self.stop().await;
        Self::start_in(test_env, TestSetup { definitions, clock, ..TestSetup::default() }).await
    }

    /// Stops the process and releases its data.
    pub(crate) async fn stop(self) -> (Arc<TestEnv>, Arc<TestClock>) {
        self.engine.stop(Duration::ZERO).await;
        let Self { engine, journal: gate, env: test_env, clock, .. } = self;
        let store = Arc::clone(&engine.ports().directory);
        drop((engine, gate));
        let ours = if test_env.store_kind == StoreKind::Memory { 2 } else { 1 };
        let gone = async {
            while Arc::strong_count(&store) > ours {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, gone).await.expect("everything that held the store goes");
        (test_env, clock)
    }

    /// Starts a process on this data.
    pub(crate) async fn start_in(test_env: Arc<TestEnv>, setup: TestSetup) -> Self {
        let (journal, directory) = test_env.open_store();
        let TestSetup { definitions, append_failure: trouble, hold_appends: held, one_delta_at_a_time: drips, clock } =
            setup;
        let gate = Arc::new(GatedJournal::new(journal, trouble));
        if held {
            gate.hold_appends();
        }
        let router = ProviderRouter::new().with_provider("scripted", Arc::new(SCRIPTED.clone()));
        let models = Arc::new(RecordingModels::new(Arc::new(router), drips));
        let body = serde_json::to_string(&definitions).expect("JSON");
        directory
            .writer(&UserId::from("operator"))
            .expect("a user")
            .put_definitions(&definitions.digest, &body)
            .await
            .expect("kept");
        let (tools, hooks) = (Arc::clone(&test_env.tools), Arc::clone(&test_env.hooks));
        let ports = Ports {
            cluster: Arc::new(model::ports::SingleNode),
            journal: gate.clone(),
            directory,
            models: models.clone(),
            tools: tools.clone(),
            hooks: hooks.clone(),
            resolver: test_env.resolver.clone(),
            documents: test_env.documents.clone(),
            clock: clock.clone(),
            recovery_attempts: test_env.recovery_attempts.clone(),
            definitions: CurrentDefinitions::new(definitions),
            node: NodeId::from("node-1"),
        };
        let engine = Engine::new(ports);
        engine.recover().await.expect("the directory can be read");
        Self { engine, user: UserId::from("local"), journal: gate, models, tools, hooks, clock, env: test_env }
    }

    /// Starts a run of `demo`.
    pub(crate) async fn start_run(&self, thread: Option<&ThreadId>, text: &str) -> StartedRun {
        self.start_run_of("demo", thread, text).await
    }

    pub(crate) async fn start_run_of(&self, agent: &str, thread: Option<&ThreadId>, text: &str) -> StartedRun {
        let tools = if text.contains("client") { crate::fixtures::client_tools() } else { Vec::new() };
        let (agent, thread) = (agent.to_owned(), thread.cloned());
        let new = NewRun { agent, input: parts_with_links(text), thread, tools, ..NewRun::default() };
        self.engine.start(&self.user, new).await.expect("the run is taken")
    }

    pub(crate) async fn wait_settled(&self, started: &StartedRun) -> TaskObject {
        let wait = self.engine.wait_settled(&self.user, &started.task, &started.thread);
        let ended = tokio::time::timeout(TEST_TIMEOUT, wait).await;
        ended.expect("it settles").expect("the log can be read");
        self.task_object(&started.task).await
    }

    /// Waits until the run satisfies the condition.
    pub(crate) async fn wait_until(&self, started: &StartedRun, so: impl Fn(&TaskObject) -> bool) -> TaskObject {
        let watch = self.wait_until_unbounded(started, so);
        tokio::time::timeout(TEST_TIMEOUT, watch).await.expect("it looks so some time")
    }

    /// The same, for tests with paused time.
    pub(crate) async fn wait_until_unbounded(
        &self,
        started: &StartedRun,
        so: impl Fn(&TaskObject) -> bool,
    ) -> TaskObject {
        let view = line_view(&started.task);
        let mut viewer = self.engine.watch_from(&self.user, &started.thread, view, Seq::ZERO);
        loop {
            let more = viewer.next().await.expect("the log can be read");
            let object = self.task_object(&started.task).await;
            if so(&object) {
                return object;
            }
            assert!(more.is_some(), "it never looked so: {object:?}");
        }
    }

    /// Waits until the condition holds.
    pub(crate) async fn wait_for(&self, so: impl Fn() -> bool) {
        let holds = async {
            while !so() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, holds).await.expect("it is so some time");
    }

    /// Waits until no actor is live.
    pub(crate) async fn wait_idle(&self) {
        let gone = async {
            while self.engine.live_threads() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, gone).await.expect("every executor goes");
    }

    pub(crate) async fn task_object(&self, task: &TaskId) -> TaskObject {
        self.engine.task_object(&self.user, task).await.expect("the log can be read").expect("the task is there")
    }

    pub(crate) async fn run_row(&self, task: &TaskId) -> RunRow {
        self.engine.run_of_task(&self.user, task).await.expect("the directory can be read").expect("the run is there")
    }

    pub(crate) async fn cancel(&self, task: &TaskId, mode: CancelMode) {
        let (thread, task_id) = (self.run_row(task).await.thread, task.clone());
        self.engine
            .cancel(&self.user, &thread, CancelCommand { task_id, mode, cause: CancelCause::User }, None)
            .await
            .expect("taken");
    }

    pub(crate) async fn steer(&self, started: &StartedRun, text: &str) {
        let (thread, task) = (&started.thread, started.task.clone());
        self.engine.steer(&self.user, thread, task, text_parts(text), None).await.expect("taken");
    }

    pub(crate) async fn decide(
        &self,
        task: &TaskId,
        key: &ApprovalKey,
        kind: ApprovalDecisionKind,
    ) -> Result<(), SubmitError> {
        let decision = ApprovalDecision { kind, always: false, message: None, args: None };
        self.engine.decide_approval(&self.user, &self.run_row(task).await, key.clone(), decision, None).await
    }

    /// Approves everything that a run waits for.
    pub(crate) async fn approve(&self, object: &TaskObject) {
        for key in object.pending.iter().filter_map(|pending| pending.key.as_ref()) {
            self.decide(&object.task_id, key, ApprovalDecisionKind::Approve).await.expect("taken");
        }
    }

    pub(crate) async fn submit_results(&self, task: &TaskId, calls: &[&CallId]) -> Result<(), engine::AnswerError> {
        self.submit_results_with_key(task, calls, None).await
    }

    pub(crate) async fn submit_result(
        &self,
        task: &TaskId,
        call: &CallId,
        text: &str,
    ) -> Result<(), engine::AnswerError> {
        let result = ClientToolResult {
            call_id: call.clone(),
            content: text_parts(text),
            error: None,
            acknowledged_checks: Vec::new(),
        };
        self.engine.submit_client_results(&self.user, &self.run_row(task).await, vec![result], None).await
    }

    pub(crate) async fn submit_results_with_key(
        &self,
        task: &TaskId,
        calls: &[&CallId],
        idempotency: Option<IdempotencyKey>,
    ) -> Result<(), engine::AnswerError> {
        let result = |call: &&CallId| ClientToolResult {
            call_id: (*call).clone(),
            content: text_parts("this one"),
            error: None,
            acknowledged_checks: Vec::new(),
        };
        let results = calls.iter().map(result).collect();
        self.engine.submit_client_results(&self.user, &self.run_row(task).await, results, idempotency).await
    }

    pub(crate) async fn read_inbox(&self, thread: &ThreadId) -> Vec<InboxRow> {
        self.engine.ports().directory.inbox(&self.user, thread).await.expect("readable")
    }

    pub(crate) async fn read_log(&self, thread: &ThreadId) -> Vec<Record> {
        let mut log: Vec<Record> = Vec::new();
        loop {
            let after = log.last().map_or(Seq::ZERO, |last| last.seq);
            let page = self.engine.ports().journal.read_page(&self.user, thread, after, PageLimit::WIDE).await;
            let page = page.expect("the log can be read");
            if page.records.is_empty() {
                return log;
            }
            log.extend(page.records);
        }
    }

    pub(crate) async fn event_types(&self, thread: &ThreadId) -> Vec<String> {
        self.read_log(thread).await.iter().map(|record| record.event_type().to_owned()).collect()
    }

    pub(crate) async fn wait_for_event(&self, thread: &ThreadId, kind: &str) {
        let there = async {
            while !self.event_types(thread).await.iter().any(|found| found == kind) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, there).await.expect("it is logged some time");
    }

    /// All frames that a viewer of a run receives after a cursor.
    pub(crate) async fn watch_to_end(&self, started: &StartedRun, cursor: Cursor) -> Vec<u8> {
        let view = line_view(&started.task);
        let mut viewer = self.engine.watch(&self.user, &started.thread, view, &cursor).await.expect("the cursor fits");
        let mut seen = Vec::new();
        while let Some(bytes) = viewer.next().await.expect("the log can be read") {
            seen.extend_from_slice(&bytes);
        }
        assert!(!viewer.is_interrupted());
        seen
    }
}

/// One line per record of a run; the projection ends with the run.
pub(crate) fn line_view(run: &TaskId) -> View {
    let projection = Box::new(LineProjection { run: run.clone() });
    View { lane: format!("lines:{run}").into(), projection, history_start: Seq::ZERO, skip_frames: 0 }
}

pub(crate) fn record_line(record: &Record) -> String {
    format!("{} {} {}\n", record.seq, record.event_type(), record.checksum)
}

#[derive(Clone)]
struct LineProjection {
    run: TaskId,
}

impl Projection for LineProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if record.run == self.run {
            out.write(record.seq, |bytes| bytes.extend_from_slice(record_line(record).as_bytes()));
            if record.event().is_terminal() && record.event().task_id() == Some(&self.run) {
                out.finish();
            }
        }
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

pub(crate) fn record_lines(records: &[Record]) -> String {
    records.iter().map(record_line).collect()
}

pub(crate) fn utf8_lossy(bytes: impl Into<Bytes>) -> String {
    String::from_utf8_lossy(&bytes.into()).into_owned()
}
