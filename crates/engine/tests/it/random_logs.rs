//! Laws 1, 2 and 5 over random logs with every event type, in a real store. `SEED=n` repeats a run.

use crate::test_engine::{STORE_KINDS, StoreKind, TestEngine, record_line};
use engine::View;
use model::command::{Command, StartCommand};
use model::cursor::Cursor;
use model::event::{DisplayMode, Event};
use model::fold::RunFold;
use model::ports::{AppendBatch, AppendOutcome, DirectoryChange, Frames, Projection, Submission, ThreadMode};
use model::task::TaskStatus;
use model::thread::ThreadReplay;
use model::{NodeId, Record, RecordDraft, Seq, ThreadId};
use model_testing::{LogOptions, Rng, generate_thread_log, test_seeds};

/// A generated log in the store.
async fn store_random_log(test_engine: &TestEngine, seed: u64) -> (ThreadId, Vec<Record>) {
    let (thread, log) = generate_thread_log(seed, LogOptions::small());
    let sealed = append_log(test_engine, &thread, &log, seed).await;
    (thread, sealed)
}

/// Stores a log in batches of random size, as an executor would, but without checkpoints.
pub(crate) async fn append_log(test_engine: &TestEngine, thread: &ThreadId, log: &[Record], seed: u64) -> Vec<Record> {
    let ports = test_engine.engine.ports();
    let start = StartCommand {
        task_id: log.first().expect("a log").run.clone(),
        agent: "demo".to_owned(),
        input: Vec::new(),
        previous: None,
        tools: Vec::new(),
        metadata: Default::default(),
        display_mode: DisplayMode::Agent,
        client: None,
        origin: None,
        prior_history: None,
        model_settings: model::model_settings::ModelSettings::default(),
        request_echo: None,
        mcp_credentials: Vec::new(),
        state: None,
        context: Vec::new(),
        rewritten_history: None,
        hook_error: None,
    };
    let command = Command::Start(Box::new(start));
    let submission = Submission {
        thread: thread.clone(),
        thread_mode: ThreadMode::CreateNew,
        at: 1,
        command,
        idempotency_key: None,
        task_path: Vec::new(),
    };
    ports
        .directory
        .writer(&test_engine.user)
        .expect("a user")
        .submit(&test_engine.user, submission)
        .await
        .expect("a new thread");
    let row = ports.directory.inbox(&test_engine.user, thread).await.expect("readable").remove(0);
    let lease = ports.journal.claim(&test_engine.user, thread, &NodeId::from("n")).await.expect("claimed");
    let lease = lease.lease().expect("nobody else holds it");
    let seal = |record: &Record| {
        let (event, private) = (record.event().clone(), record.private().map(Box::new));
        Record::seal(thread, &record.run, lease.epoch, RecordDraft { seq: record.seq, at: record.at, event, private })
    };
    let sealed: Vec<Record> = log.iter().map(seal).collect();
    let mut rng = Rng::new(seed);
    let (mut rest, mut head, mut consumed) = (&sealed[..], Seq::ZERO, false);
    while !rest.is_empty() {
        let (records, later) = rest.split_at((1 + rng.below(40)).min(rest.len()));
        let mut changes = changes_of(records);
        if !std::mem::replace(&mut consumed, true) {
            changes.push(DirectoryChange::ConsumeInboxRow { row: row.id });
        }
        let batch = AppendBatch {
            owner: test_engine.user.clone(),
            thread: thread.clone(),
            epoch: lease.epoch,
            head,
            records: records.into(),
            changes: changes.into(),
        };
        assert_eq!(ports.journal.append(batch).await, AppendOutcome::Durable, "SEED={seed}");
        head = records.last().expect("not empty").seq;
        rest = later;
    }
    sealed
}

fn changes_of(records: &[Record]) -> Vec<DirectoryChange> {
    let mut changes = Vec::new();
    for record in records {
        let (run, at) = (record.run.clone(), record.at);
        let event = record.event();
        if let Event::Created(e) = event
            && e.task.parent_task_id.is_none()
        {
            changes.push(DirectoryChange::RunStarted {
                run: run.clone(),
                agent: e.task.agent.clone(),
                first: record.seq,
                at,
            });
        }
        let status = match event {
            Event::Completed(_) => TaskStatus::Completed,
            Event::Incomplete(_) => TaskStatus::Incomplete,
            Event::Failed(_) => TaskStatus::Failed,
            Event::Cancelled(_) => TaskStatus::Cancelled,
            _ => continue,
        };
        if event.task_id() == Some(&run) {
            changes.push(DirectoryChange::RunStatus { run, status, last: record.seq, at });
        }
    }
    changes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_the_snapshot_is_the_fold_of_the_records_in_every_store() {
    for kind in STORE_KINDS {
        for seed in test_seeds().take(24) {
            let test_engine = TestEngine::new(kind).await;
            let (thread, log) = store_random_log(&test_engine, seed).await;
            assert_eq!(test_engine.read_log(&thread).await, log, "{kind:?} SEED={seed}: the bytes come back");
            let mut fold = RunFold::default();
            for record in &log {
                if matches!(record.event(), Event::Created(e) if e.task.parent_task_id.is_none()) {
                    fold = RunFold::default();
                }
                fold.apply(record).unwrap_or_else(|_| panic!("{kind:?} SEED={seed}: {} does not fit", record.seq));
                if fold.has_ended() && record.event().is_terminal() {
                    for task in &fold.tasks {
                        let served = test_engine.task_object(&task.id).await;
                        let own = fold.task_object(&task.id).expect("it is in the fold");
                        assert_eq!(served, own, "{kind:?} SEED={seed}: {}", task.id);
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_1_a_restart_gives_the_same_thread() {
    for seed in test_seeds().take(12) {
        let test_engine = TestEngine::new(StoreKind::Sqlite).await;
        let (thread, log) = store_random_log(&test_engine, seed).await;
        let replayed = |records: &[Record]| {
            let mut replay = ThreadReplay::default();
            records.iter().for_each(|record| replay.push(record));
            replay.thread
        };
        let before = replayed(&log);
        let test_engine = test_engine.restart().await;
        assert_eq!(replayed(&test_engine.read_log(&thread).await), before, "SEED={seed}");
        assert_eq!(before.fold_errors, 0, "SEED={seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn law_5_every_cursor_of_a_random_log_yields_exactly_the_remaining_frames() {
    for kind in STORE_KINDS {
        for seed in test_seeds().take(12) {
            let test_engine = TestEngine::new(kind).await;
            let (thread, log) = store_random_log(&test_engine, seed).await;
            let last = log.last().expect("a log").seq;
            for place in 0..log.len() {
                let cursor = place.checked_sub(1).and_then(|at| log.get(at)).map_or(Cursor::START, Cursor::from);
                let name = format!("until:{last}").into();
                let view =
                    View { lane: name, projection: Box::new(Until { last }), history_start: Seq::ZERO, skip_frames: 0 };
                let mut viewer =
                    test_engine.engine.watch(&test_engine.user, &thread, view, &cursor).await.expect("it fits");
                let mut seen = String::new();
                while let Some(bytes) = viewer.next().await.expect("readable") {
                    seen.push_str(&String::from_utf8_lossy(&bytes));
                }
                let rest: String = log[place..].iter().map(record_line).collect();
                assert_eq!(seen, rest, "{kind:?} SEED={seed}: after {cursor}");
            }
        }
    }
}

/// Frames that are much longer than their records, and end at a given position.
#[derive(Clone)]
struct LongFrames {
    last: Seq,
}

const LONG_FRAME_BYTES: usize = 40 * 1024;

impl Projection for LongFrames {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        out.write(record.seq, |bytes| bytes.resize(bytes.len() + LONG_FRAME_BYTES, b'x'));
        if record.seq == self.last {
            out.finish();
        }
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_sends_long_frames_before_all_of_a_page_is_written() {
    for kind in STORE_KINDS {
        let test_engine = TestEngine::new(kind).await;
        let (thread, log) = store_random_log(&test_engine, 1).await;
        let last = log.last().expect("a log").seq;
        let projection = Box::new(LongFrames { last });
        let view = View { lane: "long".into(), projection, history_start: Seq::ZERO, skip_frames: 0 };
        let mut viewer =
            test_engine.engine.watch(&test_engine.user, &thread, view, &Cursor::START).await.expect("it fits");
        let mut bytes_seen = 0;
        while let Some(bytes) = viewer.next().await.expect("readable") {
            assert!(bytes.len() <= 64 * 1024 + LONG_FRAME_BYTES, "{kind:?}: {} bytes in one write", bytes.len());
            bytes_seen += bytes.len();
        }
        assert_eq!(bytes_seen, log.len() * LONG_FRAME_BYTES, "{kind:?}");
    }
}

/// One line per record; the projection ends at a given position.
#[derive(Clone)]
struct Until {
    last: Seq,
}

impl Projection for Until {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        out.write(record.seq, |bytes| bytes.extend_from_slice(record_line(record).as_bytes()));
        if record.seq == self.last {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}
