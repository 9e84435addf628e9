//! Fixtures for tests of stores: ids, commands, and [`LogWriter`], which logs a run.

use super::TestStore;
use model::command::{AnswerBody, AnswerCommand, CancelCause, CancelCommand, Command, StartCommand, SteerCommand};
use model::content::ContentPart;
use model::event::{
    ActionRequest, ApprovalDecision, ApprovalDecisionKind, CancelMode, CustomEvent, DisplayMode, Event, Initiator,
    Question, TaskCompleted, TaskCreated, TaskPaused, TaskResumed, TaskSpec, TaskStarted,
};
use model::history::RawItem;
use model::json::ExactObject;
use model::ports::{
    AppendBatch, AppendOutcome, ApprovalRow, Checkpoint, CheckpointRun, DirectoryChange, IdempotencyKey, Journal,
    Lease, PageLimit, StoreError, Submission, Submitted, ThreadMode,
};
use model::record::{PrivatePayload, Record, RecordDraft};
use model::seq::{Epoch, Millis, Seq};
use model::task::TaskStatus;
use model::usage::Usage;
use model::{CallId, NodeId, TaskId, ThreadId, UserId};

#[must_use]
pub fn test_user() -> UserId {
    UserId::from("somebody")
}

#[must_use]
pub fn other_user() -> UserId {
    UserId::from("stranger")
}

#[must_use]
pub fn test_node() -> NodeId {
    NodeId::from("node")
}

/// Sorts by `n`: a higher number is a newer thread.
#[must_use]
pub fn nth_thread(n: usize) -> ThreadId {
    ThreadId::from(format!("thr_{n:032x}"))
}

#[must_use]
pub fn nth_run(n: usize) -> TaskId {
    TaskId::from(format!("task_{n:032x}"))
}

/// A checkpoint of a record, with runs of these indexes. Its texts tell the record.
#[must_use]
pub fn nth_checkpoint(seq: u64, runs: &[u64]) -> Checkpoint {
    let run = |index: &u64| CheckpointRun { index: *index, body: format!("{{\"run\":{index},\"at\":{seq}}}") };
    Checkpoint { seq: Seq(seq), body: format!("{{\"n\":{seq}}}"), runs: runs.iter().map(run).collect() }
}

#[must_use]
pub fn start_command(run: &TaskId) -> Command {
    Command::Start(Box::new(StartCommand {
        task_id: run.clone(),
        agent: "demo".to_owned(),
        input: vec![ContentPart::text("hello")],
        previous: None,
        tools: Vec::new(),
        metadata: ExactObject::new(),
        display_mode: DisplayMode::Agent,
        client: None,
        origin: None,
        prior_history: None,
        model_settings: model::model_settings::ModelSettings::default(),
        request_echo: None,
        rewritten_history: None,
        hook_error: None,
        mcp_credentials: Vec::new(),
        state: None,
        context: Vec::new(),
    }))
}

#[must_use]
pub fn cancel_command(run: &TaskId) -> Command {
    Command::Cancel(CancelCommand { task_id: run.clone(), mode: CancelMode::Immediate, cause: CancelCause::User })
}

#[must_use]
pub fn steer_command(run: &TaskId, text: &str) -> Command {
    let otherwise = TaskId::from(format!("{run}-later"));
    Command::Steer(SteerCommand {
        task_id: run.clone(),
        input: vec![ContentPart::text(text)],
        fallback_task_id: otherwise,
    })
}

/// Sorts by `n`: a higher number is a newer approval request.
#[must_use]
pub fn pending_approval(thread: &ThreadId, run: &TaskId, n: u32) -> ApprovalRow {
    let call_id = CallId::numbered(run.run_suffix(), n);
    ApprovalRow {
        key: call_id.approval_key(),
        thread_id: thread.clone(),
        run_id: run.clone(),
        task_id: run.clone(),
        call_id,
        action: ActionRequest {
            name: "trade".to_owned(),
            args: serde_json::json!({"shares": n}).into(),
            ..ActionRequest::default()
        },
        requested_at: 3_000 + u64::from(n),
        expires_at: 1_000_000,
        // Some are questions of tools.
        question: n.is_multiple_of(2).then(|| Question {
            message: format!("Which {n}?"),
            schema: Some(serde_json::json!({"type": "object", "required": ["n"]})),
            url: None,
        }),
        answer: None,
    }
}

#[must_use]
pub const fn approve() -> ApprovalDecision {
    ApprovalDecision { kind: ApprovalDecisionKind::Approve, always: false, message: None, args: None }
}

#[must_use]
pub fn reject(why: &str) -> ApprovalDecision {
    ApprovalDecision { kind: ApprovalDecisionKind::Reject, always: false, message: Some(why.to_owned()), args: None }
}

#[must_use]
pub fn decide_command(question: &ApprovalRow, decision: &ApprovalDecision) -> Command {
    decide_command_as(Initiator::User, question, decision)
}

/// Decides as a user or as the time-out.
#[must_use]
pub fn decide_command_as(by: Initiator, question: &ApprovalRow, decision: &ApprovalDecision) -> Command {
    let to = AnswerBody::Approval { key: question.key.clone(), decision: decision.clone(), by };
    Command::Answer(AnswerCommand {
        task_id: question.run_id.clone(),
        body: to,
        request_echo: None,
        update: None,
        client: None,
    })
}

/// A command for an existing thread.
#[must_use]
pub fn submission(thread: &ThreadId, command: Command) -> Submission {
    Submission {
        thread: thread.clone(),
        thread_mode: ThreadMode::MustExist,
        at: 1_000,
        command,
        idempotency_key: None,
        task_path: Vec::new(),
    }
}

/// A command that creates its thread.
#[must_use]
pub fn new_thread_submission(thread: &ThreadId, command: Command) -> Submission {
    Submission { thread_mode: ThreadMode::CreateNew, ..submission(thread, command) }
}

#[must_use]
pub fn with_idempotency_key(submission: Submission, key: &str, digest: &str) -> Submission {
    let idempotency = Some(IdempotencyKey { key: key.to_owned(), request_digest: digest.to_owned() });
    Submission { idempotency_key: idempotency, ..submission }
}

/// An event that carries only this text.
#[must_use]
pub fn note_event(run: &TaskId, text: &str) -> Event {
    let value = serde_json::Value::String(text.to_owned());
    Event::Custom(CustomEvent { task_id: run.clone(), name: "note".to_owned(), value })
}

#[must_use]
pub fn created_event(thread: &ThreadId, run: &TaskId) -> Event {
    let task = Box::new(TaskSpec {
        thread_id: thread.clone(),
        agent: "demo".to_owned(),
        model: "scripted/demo".to_owned(),
        input: Vec::new(),
        parent_task_id: None,
        previous: None,
        tools: Vec::new(),
        metadata: ExactObject::new(),
        display_mode: DisplayMode::Agent,
        origin: None,
        client: None,
    });
    Event::Created(TaskCreated { task_id: run.clone(), task })
}

#[must_use]
pub fn completed_event(run: &TaskId) -> Event {
    Event::Completed(TaskCompleted { task_id: run.clone(), usage: Usage::default(), cost: None, duration_ms: 1 })
}

/// Repeats a record's event in another epoch.
#[must_use]
pub fn reseal(thread: &ThreadId, epoch: Epoch, record: &Record) -> Record {
    let (event, private) = (record.event().clone(), record.private().map(Box::new));
    Record::seal(thread, &record.run, epoch, RecordDraft { seq: record.seq, at: record.at, event, private })
}

/// Reads every record after a position, page by page.
///
/// # Errors
/// The store's error, if a page cannot be read.
pub async fn read_all_records(
    journal: &dyn Journal,
    (owner, thread): (&UserId, &ThreadId),
    limit: PageLimit,
) -> Result<Vec<Record>, StoreError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let after = records.last().map_or(Seq::ZERO, |record| record.seq);
        let page = journal.read_page(owner, thread, after, limit).await?;
        if page.records.is_empty() {
            return Ok(records);
        }
        records.extend(page.records);
    }
}

/// Claims a thread without a valid lease of another node.
pub async fn claim_thread(journal: &dyn Journal, owner: &UserId, thread: &ThreadId) -> Lease {
    journal.claim(owner, thread, &test_node()).await.unwrap().lease().unwrap()
}

/// Logs runs of one thread.
pub struct LogWriter<'a> {
    pub journal: &'a dyn Journal,
    pub owner: UserId,
    pub thread: ThreadId,
    pub run: TaskId,
    pub lease: Lease,
    /// Records of the next batch.
    pub records: Vec<Record>,
    /// Changes of the next batch.
    pub changes: Vec<DirectoryChange>,
    pub now: Millis,
}

impl<'a> LogWriter<'a> {
    /// Submits the `n`-th run in the `n`-th thread and claims the thread.
    pub async fn new(journal: &'a dyn Journal, directory: &dyn TestStore, n: usize) -> Self {
        Self::for_owner(journal, directory, test_user(), n).await
    }

    /// Like [`Self::new`], for another user.
    pub async fn for_owner(journal: &'a dyn Journal, directory: &dyn TestStore, owner: UserId, n: usize) -> Self {
        let (thread, run) = (nth_thread(n), nth_run(n));
        let submitted = directory.submit(&owner, new_thread_submission(&thread, start_command(&run))).await;
        assert!(matches!(submitted, Ok(Submitted::Claimed { .. })), "{submitted:?}");
        let lease = claim_thread(journal, &owner, &thread).await;
        Self::with_lease(journal, owner, n, lease)
    }

    /// A writer for the `n`-th thread, which has been claimed already.
    #[must_use]
    pub fn with_lease(journal: &'a dyn Journal, owner: UserId, n: usize, lease: Lease) -> Self {
        let (thread, run) = (nth_thread(n), nth_run(n));
        Self { journal, owner, thread, run, lease, records: Vec::new(), changes: Vec::new(), now: 2_000 }
    }

    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.lease.head.plus(self.records.len() as u64).next()
    }

    pub fn push_event(&mut self, event: Event) -> &mut Self {
        self.push_event_with_private(event, None)
    }

    pub fn push_event_with_private(&mut self, event: Event, secret: Option<&str>) -> &mut Self {
        let raw =
            |secret: &str| RawItem { origin: "test".to_owned(), item: serde_json::Value::String(secret.to_owned()) };
        let private =
            secret.map(|secret| Box::new(PrivatePayload { raw: Some(raw(secret)), ..PrivatePayload::default() }));
        self.now += 1;
        let draft = RecordDraft { seq: self.next_seq(), at: self.now, event, private };
        let record = Record::seal(&self.thread, &self.run, self.lease.epoch, draft);
        self.records.push(record);
        self
    }

    pub fn push_note(&mut self, text: &str) -> &mut Self {
        let event = note_event(&self.run, text);
        self.push_event(event)
    }

    pub fn push_notes(&mut self, count: usize) -> &mut Self {
        for n in 0..count {
            self.push_note(&format!("note {n}"));
        }
        self
    }

    /// A change of no consequence. A store may keep records that change nothing else in a place of their own at first.
    pub fn push_change(&mut self) -> &mut Self {
        self.changes.push(DirectoryChange::ScheduleWakeup { at: None });
        self
    }

    pub fn start_run(&mut self) -> &mut Self {
        let (run, first, at) = (self.run.clone(), self.next_seq(), self.now);
        self.changes.push(DirectoryChange::RunStarted { run, agent: "demo".to_owned(), first, at });
        let (created, started) = (created_event(&self.thread, &self.run), TaskStarted { task_id: self.run.clone() });
        self.push_event(created).push_event(Event::Started(started))
    }

    /// Requests the run's `n`-th approval.
    pub fn request_approval(&mut self, n: u32) -> ApprovalRow {
        let question = pending_approval(&self.thread, &self.run, n);
        self.changes.push(DirectoryChange::ApprovalRequested(Box::new(question.clone())));
        self.push_note("may I?");
        question
    }

    pub fn pause_run(&mut self) -> &mut Self {
        let event = Event::Paused(TaskPaused { task_id: self.run.clone(), pending: Vec::new() });
        self.change_status(event, TaskStatus::Paused)
    }

    pub fn resume_run(&mut self) -> &mut Self {
        let event =
            Event::Resumed(Box::new(TaskResumed { task_id: self.run.clone(), by: Initiator::User, client: None }));
        self.change_status(event, TaskStatus::Running)
    }

    pub fn complete_run(&mut self) -> &mut Self {
        let event = completed_event(&self.run);
        self.change_status(event, TaskStatus::Completed)
    }

    fn change_status(&mut self, event: Event, status: TaskStatus) -> &mut Self {
        let (run, last, at) = (self.run.clone(), self.next_seq(), self.now);
        self.changes.push(DirectoryChange::RunStatus { run, status, last, at });
        self.push_event(event)
    }

    /// The batch that the next append would send.
    #[must_use]
    pub fn batch(&self) -> AppendBatch {
        AppendBatch {
            owner: self.owner.clone(),
            thread: self.thread.clone(),
            epoch: self.lease.epoch,
            head: self.lease.head,
            records: self.records.as_slice().into(),
            changes: self.changes.as_slice().into(),
        }
    }

    /// Appends the pending records and changes, and clears them whatever the outcome.
    pub async fn append(&mut self) -> AppendOutcome {
        let batch = self.batch();
        let head = batch.records.last().map_or(self.lease.head, |record| record.seq);
        (self.records, self.changes) = (Vec::new(), Vec::new());
        let verdict = self.journal.append(batch).await;
        if verdict == AppendOutcome::Durable {
            self.lease.head = head;
        }
        verdict
    }

    /// Appends, panics unless the batch is durable, and returns the appended records.
    pub async fn must_append(&mut self) -> Vec<Record> {
        let records = self.records.clone();
        assert_eq!(self.append().await, AppendOutcome::Durable);
        records
    }

    pub async fn read_all(&self) -> Vec<Record> {
        read_all_records(self.journal, (&self.owner, &self.thread), PageLimit::WIDE).await.unwrap()
    }
}
