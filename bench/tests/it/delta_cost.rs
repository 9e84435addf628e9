//! What a delta costs on its way from a provider to a client, in allocations: the same figure on every machine, busy or not.
//!
//! The path is the real one without its sockets: bytes of a provider's stream, the ingest of its protocol, the machine,
//! a sealed record, an append to SQLite, a projection, the bytes of a frame. The counts are those of the thread that does
//! this; what the store's writer thread does for a record is SQLite's own work. A bound is a little above what was counted
//! when it was set: one more allocation per delta somewhere on the path fails it.

use machine::{Effect, EffectId, MachineInput, MachineOutput, RunState, apply_input};
use model::command::Command;
use model::definition::{Agent, Definitions};
use model::model_turn::ModelRequest;
use model::ports::{
    AppendBatch, AppendOutcome, ClaimOutcome, DirectoryChange, Frames, InboxWriter as _, Journal as _, Lease,
    Projection,
};
use model::{NodeId, Record, Seq, TaskId, ThreadId, UserId};
use protocol::chat::ChatProjection;
use protocol::messages::MessagesProjection;
use protocol::responses::ResponsesProjection;
use protocol::task::{RecordScope, TaskProjection};
use std::sync::Arc;
use store::{SqliteOptions, SqliteStore};
use store_conformance::fixtures::{new_thread_submission, nth_run, nth_thread, start_command, test_user};

/// Deltas that fill caches and buffers first, and those that count.
const WARM_UP: usize = 300;
const COUNTED: usize = 2_000;

/// Fifteen were counted; one more is too many.
const ALLOCATIONS_MAX: f64 = 15.5;

const CHUNK: &str = concat!(
    r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","#,
    r#""choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}"#,
    "\n\n"
);

struct Ids {
    user: UserId,
    thread: ThreadId,
    run: TaskId,
}

struct DeltaPath {
    ids: Ids,
    decoder: sse::Decoder,
    ingest: Box<dyn upstream::Ingest>,
    run: RunState,
    model: EffectId,
    store: SqliteStore,
    lease: Lease,
    head: Seq,
    projection: Box<dyn Projection>,
    frame_bytes: usize,
    _folder: tempfile::TempDir,
}

impl DeltaPath {
    async fn new(projection: Box<dyn Projection>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap();
        let ids = Ids { user: test_user(), thread: nth_thread(1), run: nth_run(1) };
        let Command::Start(start) = start_command(&ids.run) else { unreachable!("a start") };
        store.submit(&ids.user, new_thread_submission(&ids.thread, start_command(&ids.run))).await.unwrap();
        let ClaimOutcome::Granted(lease) = store.claim(&ids.user, &ids.thread, &NodeId::from("n")).await.unwrap()
        else {
            unreachable!("nobody else has it")
        };
        let agent = Agent { name: "demo".to_owned(), models: vec!["p/m".to_owned()], ..Agent::default() };
        let definitions = Definitions { agents: [("demo".to_owned(), agent)].into(), ..Definitions::default() };
        let mut run = RunState::new(ids.user.clone(), ids.thread.clone(), Arc::new(definitions), Arc::default(), None);
        let mut out = MachineOutput::new(1);
        apply_input(&mut run, MachineInput::Start(start), &mut out);
        let call = out.effects.into_iter().find_map(|effect| match effect {
            Effect::CallModel { id, request, .. } => Some((id, request)),
            _ => None,
        });
        let (model, request): (EffectId, Box<ModelRequest>) = call.expect("the model is called");
        let ingest = upstream::chat::new_ingest("http://localhost".to_owned(), &request);
        let decoder = sse::Decoder::new(sse::DecodeLimits::default());
        let run_id = ids.run.clone();
        let mut path = Self {
            ids,
            decoder,
            ingest,
            run,
            model,
            store,
            lease,
            head: Seq::ZERO,
            projection,
            frame_bytes: 0,
            _folder: folder,
        };
        let started = DirectoryChange::RunStarted { run: run_id, agent: "demo".to_owned(), first: Seq(1), at: 1 };
        path.log(out.drafts, vec![started]).await;
        path
    }

    /// One chunk of the provider, up to the bytes for the client.
    async fn pass_delta(&mut self) {
        let mut input = CHUNK.as_bytes();
        let mut events = Vec::new();
        while let Some(event) = self.decoder.decode(&mut input).unwrap() {
            self.ingest.on_event(&event, &mut events);
        }
        let mut out = MachineOutput::new(2);
        for event in events {
            apply_input(&mut self.run, MachineInput::Model { id: self.model.clone(), event }, &mut out);
        }
        self.log(out.drafts, Vec::new()).await;
    }

    async fn log(&mut self, drafts: Vec<model::record::RecordDraft>, changes: Vec<DirectoryChange>) {
        let Ids { user, thread, run } = &self.ids;
        let records: Arc<[Record]> =
            drafts.into_iter().map(|draft| Record::seal(thread, run, self.lease.epoch, draft)).collect();
        let batch = AppendBatch {
            owner: user.clone(),
            thread: thread.clone(),
            epoch: self.lease.epoch,
            head: self.head,
            records: Arc::clone(&records),
            changes: changes.into(),
        };
        self.head = records.last().map_or(self.head, |last| last.seq);
        assert_eq!(self.store.append(batch).await, AppendOutcome::Durable);
        let mut frames = Frames::for_records(records.iter());
        records.iter().for_each(|record| self.projection.project(record, &mut frames));
        self.frame_bytes += frames.into_parts().0.len();
    }
}

fn allocations_per_delta(projection: Box<dyn Projection>) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut path = runtime.block_on(DeltaPath::new(projection));
    let mut pass_deltas = |count: usize| {
        let counted = allocation_counter::measure(|| {
            runtime.block_on(async {
                for _ in 0..count {
                    path.pass_delta().await;
                }
            });
        });
        (counted.count_total, path.frame_bytes)
    };
    let (_, before) = pass_deltas(WARM_UP);
    let (count, after) = pass_deltas(COUNTED);
    assert!(after - before > COUNTED * " token".len(), "every delta reaches the client");
    f64::from(u32::try_from(count).unwrap()) / f64::from(u32::try_from(COUNTED).unwrap())
}

#[test]
fn a_delta_costs_a_bounded_number_of_allocations() {
    let run = || nth_run(1);
    let paths: [(&str, Box<dyn Projection>); 4] = [
        ("tasks", Box::new(TaskProjection::new(RecordScope::Run(run())))),
        ("responses", Box::new(ResponsesProjection::new(run(), 1, &nth_thread(1)))),
        ("chat", Box::new(ChatProjection::new(run(), 1, false.into()))),
        ("messages", Box::new(MessagesProjection::new(run(), 1))),
    ];
    let mut over = Vec::new();
    for (name, projection) in paths {
        let count = allocations_per_delta(projection);
        println!("{name}: {count:.1} allocations per delta");
        if count > ALLOCATIONS_MAX {
            over.push(format!("{name}: {count:.1}"));
        }
    }
    assert!(over.is_empty(), "more than {ALLOCATIONS_MAX} allocations per delta: {over:?}");
}
