//! Writes logs with arbitrary times into the data folder of a stopped server.

use crate::harness::Server;
use model::command::{Command, StartCommand};
use model::content::ContentPart;
use model::event::{Event, RunHidden};
use model::ports::{
    AppendBatch, AppendOutcome, DirectoryChange, Inbox as _, InboxWriter as _, Journal as _, Lease, Submission,
    Submitted, ThreadMode,
};
use model::record::{Record, RecordDraft};
use model::task::TaskStatus;
use model::{Millis, NodeId, TaskId, ThreadId, UserId};
use serde_json::{Value, json};
use store::SqliteStore;

pub(crate) const HOUR: Millis = 60 * 60 * 1000;
pub(crate) const DAY: Millis = 24 * HOUR;

/// Writes the history of one thread.
pub(crate) struct HistoryWriter {
    store: SqliteStore,
    user: UserId,
    thread: ThreadId,
    lease: Option<Lease>,
    runs: u64,
    records: Vec<Record>,
    changes: Vec<DirectoryChange>,
}

impl HistoryWriter {
    /// The server must not be running.
    pub(crate) fn open(hw: &Server, thread: &str) -> Self {
        let store = SqliteStore::open(&hw.data_dir(), &store::SqliteOptions::default()).unwrap();
        let (user, thread) = (UserId::from("local"), ThreadId::from(thread));
        Self { store, user, thread, lease: None, runs: 0, records: Vec::new(), changes: Vec::new() }
    }

    fn current_run(&self) -> TaskId {
        // Two threads have no run in common.
        let thread = format!("{:0>20}", self.thread.as_str().trim_start_matches("thr_"));
        TaskId::from(format!("task_{}{:016x}", &thread[thread.len() - 16..], self.runs))
    }

    fn push_event(&mut self, at: Millis, event: Event) {
        let Lease { epoch, head } = self.lease.unwrap();
        let seq = head.plus(self.records.len() as u64).next();
        let draft = RecordDraft { seq, at, event, private: None };
        self.records.push(Record::seal(&self.thread, &self.current_run(), epoch, draft));
    }

    fn push_run_event(&mut self, at: Millis, kind: &str, fields: &Value) {
        let mut event = json!({"type": kind, "task_id": self.current_run()});
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.push_event(at, serde_json::from_value(event).unwrap());
    }

    /// Writes a run: its input and its answer, each at its time.
    pub(crate) async fn write_run(
        &mut self,
        (asked_at, question): (Millis, &str),
        answers: &[(Millis, String)],
    ) -> TaskId {
        self.runs += 1;
        let run = self.current_run();
        let row = self.submit(asked_at, question).await;
        let first = self.lease.unwrap().head.next();
        self.changes.push(DirectoryChange::RunStarted {
            run: run.clone(),
            agent: "demo".to_owned(),
            first,
            at: asked_at,
        });
        self.changes.push(DirectoryChange::ConsumeInboxRow { row });
        let input = json!([{"id": format!("msg_{}in", run.run_suffix()), "role": "user", "content": [{"type": "text", "text": question}]}]);
        let task = json!({"thread_id": self.thread, "agent": "demo", "model": "scripted/demo", "input": input});
        self.push_run_event(asked_at, "task.created", &json!({"task": task}));
        self.push_run_event(asked_at, "task.started", &json!({}));
        let mut end = asked_at;
        for (index, (at, text)) in answers.iter().enumerate() {
            let id = format!("msg_{}{index}", run.run_suffix());
            let item = json!({"type": "message", "id": id, "role": "assistant"});
            let block =
                json!({"item_id": id, "output_index": index, "block_index": 0, "item": {"type": "text", "text": text}});
            self.push_run_event(*at, "task.output_item.added", &json!({"output_index": index, "item": item}));
            self.push_run_event(*at, "task.text.done", &block);
            self.push_run_event(*at, "task.output_item.done", &json!({"output_index": index, "item": item}));
            end = *at;
        }
        let last = self.lease.unwrap().head.plus(self.records.len() as u64).next();
        self.changes.push(DirectoryChange::RunStatus {
            run: run.clone(),
            status: TaskStatus::Completed,
            last,
            at: end,
        });
        self.push_run_event(end, "task.completed", &json!({"usage": {}, "duration_ms": 1}));
        self.append().await;
        run
    }

    /// Hides a run.
    pub(crate) async fn hide_run(&mut self, at: Millis, run: &TaskId) {
        self.push_event(at, Event::RunHidden(RunHidden { run_id: run.clone() }));
        self.append().await;
    }

    async fn submit(&mut self, at: Millis, question: &str) -> u64 {
        let start = json!({
            "task_id": self.current_run(), "agent": "demo", "input": [ContentPart::text(question)], "previous": null, "tools": [],
            "metadata": {}, "display_mode": "agent", "client": null,
        });
        let start: StartCommand = serde_json::from_value(start).unwrap();
        let command = Command::Start(Box::new(start));
        let thread_mode = if self.lease.is_none() { ThreadMode::CreateNew } else { ThreadMode::MustExist };
        let submission = Submission {
            thread: self.thread.clone(),
            thread_mode,
            at,
            command,
            idempotency_key: None,
            task_path: Vec::new(),
        };
        match self.store.submit(&self.user, submission).await.unwrap() {
            Submitted::Claimed { row, .. } => {
                let node = NodeId::from("past");
                self.lease = self.store.claim(&self.user, &self.thread, &node).await.unwrap().lease();
                row
            }
            Submitted::Queued => self.store.inbox(&self.user, &self.thread).await.unwrap().last().unwrap().id,
            Submitted::Duplicate { .. } => panic!("nothing was sent twice"),
        }
    }

    async fn append(&mut self) {
        let lease = self.lease.unwrap();
        let records = std::mem::take(&mut self.records);
        let head = lease.head.plus(records.len() as u64);
        let batch = AppendBatch {
            owner: self.user.clone(),
            thread: self.thread.clone(),
            epoch: lease.epoch,
            head: lease.head,
            records: records.into(),
            changes: std::mem::take(&mut self.changes).into(),
        };
        assert_eq!(self.store.append(batch).await, AppendOutcome::Durable);
        self.lease = Some(Lease { head, ..lease });
    }

    pub(crate) async fn close(self) {
        self.store.close().await;
    }
}
