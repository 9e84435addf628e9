//! Random logs, written into a store as an executor would write them.

use super::TestStore;
use super::fixtures::{new_thread_submission, reseal, start_command, submission, test_user};
use model::event::Event;
use model::ports::{AppendBatch, AppendOutcome, DirectoryChange, Journal, Lease, Submitted};
use model::record::Record;
use model::seq::{Epoch, Seq};
use model::task::TaskStatus;
use model_testing::LogOptions;

pub struct RandomLogWriter<'a> {
    journal: &'a dyn Journal,
    directory: &'a dyn TestStore,
    pub owner: model::UserId,
    pub thread: model::ThreadId,
    /// The whole log, sealed for the store.
    pub records: Vec<Record>,
    epoch: Epoch,
    head: usize,
}

impl<'a> RandomLogWriter<'a> {
    /// Generates the log of this seed and submits its runs.
    pub async fn new(journal: &'a dyn Journal, directory: &'a dyn TestStore, seed: u64) -> Self {
        let options = LogOptions { blobs: false, ..LogOptions::small() };
        let (thread, all) = model_testing::generate_thread_log(seed, options);
        let owner = test_user();
        let first = new_thread_submission(&thread, start_command(&all[0].run));
        let made = directory.submit(&owner, first).await;
        let Ok(Submitted::Claimed { lease: Lease { epoch, .. }, .. }) = made else { panic!("{made:?}") };
        let all = all.iter().map(|record| reseal(&thread, epoch, record)).collect();
        Self { journal, directory, owner, thread, records: all, epoch, head: 0 }
    }

    #[must_use]
    pub const fn appended_len(&self) -> usize {
        self.head
    }

    /// Appends at most `count` records, with their changes.
    pub async fn append(&mut self, count: usize) {
        let end = (self.head + count).min(self.records.len());
        let records = self.records[self.head..end].to_vec();
        let mut changes = Vec::new();
        for record in &records {
            let status = match record.event() {
                Event::Created(created) if created.task.parent_task_id.is_none() => {
                    if record.seq != Seq(1) {
                        let next = submission(&self.thread, start_command(&record.run));
                        assert_eq!(self.directory.submit(&self.owner, next).await, Ok(Submitted::Queued));
                    }
                    let (run, agent) = (record.run.clone(), created.task.agent.clone());
                    changes.push(DirectoryChange::RunStarted { run, agent, first: record.seq, at: record.at });
                    None
                }
                Event::Paused(_) => Some(TaskStatus::Paused),
                Event::Resumed(_) => Some(TaskStatus::Running),
                Event::Completed(_) => Some(TaskStatus::Completed),
                Event::Incomplete(_) => Some(TaskStatus::Incomplete),
                Event::Failed(_) => Some(TaskStatus::Failed),
                Event::Cancelled(_) => Some(TaskStatus::Cancelled),
                _ => None,
            };
            if let Some(status) = status.filter(|_| record.event().task_id() == Some(&record.run)) {
                changes.push(DirectoryChange::RunStatus {
                    run: record.run.clone(),
                    status,
                    last: record.seq,
                    at: record.at,
                });
            }
        }
        let (owner, thread, head) = (self.owner.clone(), self.thread.clone(), Seq(self.head as u64));
        let batch =
            AppendBatch { owner, thread, epoch: self.epoch, head, records: records.into(), changes: changes.into() };
        assert_eq!(self.journal.append(batch).await, AppendOutcome::Durable);
        self.head = end;
    }
}
