//! A whole engine in one process: a vocabulary for tests.

use bytes::Bytes;
use engine::{Engine, NewRun, Ports, Started, SystemClock, View};
use model::block::Part;
use model::cursor::Cursor;
use model::definition::{Agent, Definitions};
use model::object::TaskObject;
use model::ports::{
    Batch, BoxFuture, Directory, Frames, Journal, Landed, Lease, Page, PageLimit, Projection, StoreError, Verdict,
};
use model::{NodeId, Record, Seq, TaskId, ThreadId, UserId};
use providers::Router;
use providers::scripted::{Scenarios, Scripted};
use std::sync::Arc;
use std::time::Duration;
use store::{Memory, Sqlite};
use tokio::sync::Semaphore;
use tools::Builtin;

pub(crate) const SCENARIOS: &str = r#"
[[scenario]]
match = '\bstory (?<n>\d+)\b'
[[scenario.turn]]
steps = [{ text = "w{i} ", repeat = "{n}" }]

[[scenario]]
match = '\bhang\b'
[[scenario.turn]]
steps = [{ text = "Once upon " }, { pause_ms = 3600000 }, { text = "a time" }]

[[scenario]]
match = '\bweather\b'
[[scenario.turn]]
steps = [{ call = "get_weather", arguments = '{"location":"Paris, France"}' }]
[[scenario.turn]]
steps = [{ text = "Sunny." }]

[[scenario]]
[[scenario.turn]]
steps = [{ text = "Hi." }]
"#;

/// Which store is underneath.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Memory,
    Sqlite,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Memory, Kind::Sqlite];

pub(crate) struct House {
    pub(crate) engine: Engine,
    pub(crate) user: UserId,
    pub(crate) gate: Arc<Gated>,
    pub(crate) folder: tempfile::TempDir,
}

impl House {
    pub(crate) async fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Self::on(kind, folder).await
    }

    /// The same folder under a new process, as far as the log can tell.
    pub(crate) async fn restarted(self) -> Self {
        self.engine.stop(Duration::ZERO).await;
        let Self { engine, gate, folder, .. } = self;
        drop(engine);
        while Arc::strong_count(&gate) > 1 {
            tokio::task::yield_now().await;
        }
        drop(gate);
        let house = Self::on(Kind::Sqlite, folder).await;
        house.engine.recover().await.expect("the directory can be read");
        house
    }

    async fn on(kind: Kind, folder: tempfile::TempDir) -> Self {
        let (journal, directory): (Arc<dyn Journal>, Arc<dyn Directory>) = match kind {
            Kind::Memory => {
                let memory = Arc::new(Memory::default());
                (memory.clone(), memory)
            }
            Kind::Sqlite => {
                let sqlite = Sqlite::open(folder.path(), &store::Options::default()).expect("a fresh folder opens");
                let sqlite = Arc::new(sqlite);
                (sqlite.clone(), sqlite)
            }
        };
        let gate = Arc::new(Gated { inner: journal, open: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) });
        let scenarios = Scenarios::parse(SCENARIOS, "test").expect("the scenarios are fine");
        let scripted = Scripted::new(scenarios, Arc::new(|| 0));
        let clock = Arc::new(SystemClock);
        let ports = Ports {
            journal: gate.clone(),
            directory,
            models: Arc::new(Router::new().with("scripted", Arc::new(scripted))),
            tools: Arc::new(Builtin),
            clock,
            definitions: Arc::new(definitions()),
            node: NodeId::from("node-1"),
        };
        Self { engine: Engine::new(ports), user: UserId::from("local"), gate, folder }
    }

    pub(crate) async fn ask(&self, thread: Option<&ThreadId>, text: &str) -> Started {
        let new = NewRun {
            agent: "demo".to_owned(),
            input: vec![Part::text(text)],
            thread: thread.cloned(),
            ..NewRun::default()
        };
        self.engine.start(&self.user, new).await.expect("the run is taken")
    }

    pub(crate) async fn settled(&self, started: &Started) -> TaskObject {
        let wait = self.engine.settled(&self.user, &started.task, &started.thread);
        let ended = tokio::time::timeout(Duration::from_secs(30), wait).await;
        ended.expect("it settles").expect("the log can be read");
        self.object(&started.task).await
    }

    pub(crate) async fn object(&self, task: &TaskId) -> TaskObject {
        self.engine.object(&self.user, task).await.expect("the log can be read").expect("the task is there")
    }

    pub(crate) async fn log(&self, thread: &ThreadId) -> Vec<Record> {
        let mut log: Vec<Record> = Vec::new();
        loop {
            let after = log.last().map_or(Seq::ZERO, |last| last.seq);
            let page = self.engine.ports().journal.read(&self.user, thread, after, PageLimit::WIDE).await;
            let page = page.expect("the log can be read");
            if page.records.is_empty() {
                return log;
            }
            log.extend(page.records);
        }
    }

    /// Everything that a viewer of a run sees from a cursor on.
    pub(crate) async fn watch(&self, started: &Started, cursor: Cursor) -> Vec<u8> {
        let view = lines(&started.task);
        let mut viewer = self.engine.watch(&self.user, &started.thread, view, &cursor).await.expect("the cursor fits");
        let mut seen = Vec::new();
        while let Some(bytes) = viewer.next().await.expect("the log can be read") {
            seen.extend_from_slice(&bytes);
        }
        assert!(!viewer.is_broken_off());
        seen
    }
}

fn definitions() -> Definitions {
    let tool = tools::builtin::definition("get_weather").expect("a builtin");
    let agent = Agent {
        name: "demo".to_owned(),
        models: vec!["scripted/demo".to_owned()],
        tools: vec!["get_weather".to_owned()],
        ..Agent::default()
    };
    Definitions {
        agents: [("demo".to_owned(), agent)].into(),
        tools: [("get_weather".to_owned(), tool)].into(),
        providers: ["scripted".to_owned()].into(),
        ..Definitions::default()
    }
}

/// A line for each record of a run, over at its end.
pub(crate) fn lines(run: &TaskId) -> View {
    View { name: format!("lines:{run}").into(), projection: Box::new(Lines { run: run.clone() }), from: Seq::ZERO }
}

pub(crate) fn line(record: &Record) -> String {
    format!("{} {} {}\n", record.seq, record.kind(), record.check)
}

#[derive(Clone)]
struct Lines {
    run: TaskId,
}

impl Projection for Lines {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if record.run == self.run {
            out.write(record.seq, |bytes| bytes.extend_from_slice(line(record).as_bytes()));
            if record.event().is_terminal() {
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

/// A store whose disk can be held: appends wait until it is let go.
pub(crate) struct Gated {
    inner: Arc<dyn Journal>,
    pub(crate) open: Arc<Semaphore>,
}

impl Gated {
    /// From now on nothing becomes durable, until [`Gated::release`].
    pub(crate) fn hold(&self) {
        self.open.forget_permits(Semaphore::MAX_PERMITS);
    }

    pub(crate) fn release(&self, appends: usize) {
        self.open.add_permits(appends);
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

    fn append_then(&self, batch: Batch, landed: Landed) -> BoxFuture<'_, Verdict> {
        let (inner, open) = (Arc::clone(&self.inner), Arc::clone(&self.open));
        let held = tokio::spawn(async move {
            let permit = open.acquire_owned().await.expect("the gate is not closed");
            permit.forget();
            inner.append_then(batch, landed).await
        });
        Box::pin(async { held.await.expect("it does not panic") })
    }

    fn read<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.inner.read(owner, thread, after, limit)
    }
}

/// Text of the lines of some records.
pub(crate) fn text_of(records: &[Record]) -> String {
    records.iter().map(line).collect()
}

/// Shows bytes in an assertion.
pub(crate) fn shown(bytes: impl Into<Bytes>) -> String {
    String::from_utf8_lossy(&bytes.into()).into_owned()
}
