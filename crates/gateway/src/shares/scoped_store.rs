//! The store as each user sees it: a viewer of a share sees one thread and cannot change anything.
//!
//! Reads in a viewer's name are answered from the owner's rows where they are about the shared thread. All other reads go to
//! the store unchanged, which has no rows of a viewer. Write access is refused to viewers in one place ([`WriteAccess`]), so
//! an operation that is added to a writer trait needs no change here.

use super::{Share, Shares, StoreUser, blob_hashes_in, viewer_user_id};
use model::event::Event;
use model::ports::{
    AliasKind, AliasRow, AppendBatch, AppendOutcome, ApprovalFilter, ApprovalRow, AttachmentRow, Attachments,
    BoxFuture, Checkpoint, ClaimOutcome, Day, DefinitionStore, Directory, DirectoryWriter, IdempotencyKey, Inbox,
    InboxRow, Journal, ListPage, OnCommit, PageLimit, PendingQuestions, RecordPage, RunFilter, RunRow, ScheduledWakeup,
    ShareRow, Spend, StoreError, StoreFuture, SubmitError, Submitted, ThreadRow, ThreadShares, Threads, UsageLedger,
    WriteAccess,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, NodeId, TaskId, ThreadId, UserId};
use std::collections::HashSet;
use std::sync::Arc;

/// Number of a shared thread's runs that are read at a time.
const RUNS_PAGE_SIZE: usize = 100;

pub(crate) struct ScopedStore {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) shares: Arc<Shares>,
}

impl WriteAccess for ScopedStore {
    fn writer(&self, user: &UserId) -> Result<&dyn DirectoryWriter, StoreError> {
        match self.shares.store_user(user) {
            StoreUser::User => self.directory.writer(user),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Err(StoreError::ThreadNotFound),
        }
    }
}

impl Journal for ScopedStore {
    fn claim<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId, node: &'a NodeId) -> StoreFuture<'a, ClaimOutcome> {
        self.journal.claim(owner, thread, node)
    }

    fn append_with_callback(&self, batch: AppendBatch, on_commit: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        self.journal.append_with_callback(batch, on_commit)
    }

    fn read_page<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreFuture<'a, RecordPage> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if share.covers_thread(thread) => Box::pin(async move {
                let page = self.journal.read_page(&share.row.owner, thread, after, limit).await?;
                Ok(share.clip_page(page))
            }),
            _ => self.journal.read_page(owner, thread, after, limit),
        }
    }
}

impl Inbox for ScopedStore {
    fn find_submission<'a>(
        &'a self,
        owner: &'a UserId,
        idempotency: &'a IdempotencyKey,
    ) -> BoxFuture<'a, Result<Option<Submitted>, SubmitError>> {
        self.directory.find_submission(owner, idempotency)
    }

    fn inbox<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Vec<InboxRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if share.covers_thread(thread) => Box::pin(async move {
                let rows = self.directory.inbox(&share.row.owner, thread).await?;
                // Rows of the inbox are newer than a frozen share.
                Ok(if share.frozen_at().is_some() { Vec::new() } else { rows })
            }),
            _ => self.directory.inbox(owner, thread),
        }
    }

    fn claimable_threads(&self) -> StoreFuture<'_, Vec<(UserId, ThreadId)>> {
        self.directory.claimable_threads()
    }

    fn scheduled_wakeups(&self) -> StoreFuture<'_, Vec<ScheduledWakeup>> {
        self.directory.scheduled_wakeups()
    }

    fn runs<'a>(&'a self, owner: &'a UserId, filter: RunFilter, page: ListPage) -> StoreFuture<'a, Vec<RunRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => Box::pin(self.list_shared_runs(share, filter, page)),
            _ => self.directory.runs(owner, filter, page),
        }
    }

    fn run<'a>(&'a self, owner: &'a UserId, run: &'a TaskId) -> StoreFuture<'a, Option<RunRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => Box::pin(async move {
                let row = self.directory.run(&share.row.owner, run).await?;
                Ok(row.and_then(|row| share.clip_run(row)))
            }),
            _ => self.directory.run(owner, run),
        }
    }

    fn checkpoint<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Option<Checkpoint>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if share.covers_thread(thread) => Box::pin(async move {
                let found = self.directory.checkpoint(&share.row.owner, thread).await?;
                Ok(found.filter(|found| share.frozen_at().is_none_or(|until| found.seq <= until)))
            }),
            _ => self.directory.checkpoint(owner, thread),
        }
    }
}

impl Threads for ScopedStore {
    fn threads<'a>(&'a self, owner: &'a UserId, page: ListPage) -> StoreFuture<'a, Vec<ThreadRow>> {
        self.directory.threads(owner, page)
    }

    fn thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Option<ThreadRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if share.covers_thread(thread) => Box::pin(async move {
                let mut row = self.directory.thread(&share.row.owner, thread).await?;
                if let (Some(row), Some(_)) = (&mut row, share.frozen_at()) {
                    row.updated_at = row.updated_at.min(share.row.created_at);
                }
                Ok(row)
            }),
            _ => self.directory.thread(owner, thread),
        }
    }

    fn alias<'a>(&'a self, owner: &'a UserId, kind: AliasKind, name: &'a str) -> StoreFuture<'a, Option<AliasRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => Box::pin(async move {
                let row = self.directory.alias(&share.row.owner, kind, name).await?;
                Ok(row.filter(|row| share.covers_thread(&row.thread)))
            }),
            _ => self.directory.alias(owner, kind, name),
        }
    }
}

impl PendingQuestions for ScopedStore {
    fn approvals<'a>(
        &'a self,
        owner: &'a UserId,
        filter: ApprovalFilter,
        page: ListPage,
    ) -> StoreFuture<'a, Vec<ApprovalRow>> {
        self.directory.approvals(owner, filter, page)
    }

    fn approval<'a>(&'a self, owner: &'a UserId, key: &'a ApprovalKey) -> StoreFuture<'a, Option<ApprovalRow>> {
        self.directory.approval(owner, key)
    }
}

impl ThreadShares for ScopedStore {
    fn shares<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Vec<ShareRow>> {
        self.directory.shares(owner, thread)
    }

    fn active_shares(&self, at: Millis) -> StoreFuture<'_, Vec<ShareRow>> {
        self.directory.active_shares(at)
    }
}

impl UsageLedger for ScopedStore {
    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> StoreFuture<'a, Spend> {
        self.directory.daily_spend(owner, day)
    }
}

impl DefinitionStore for ScopedStore {
    fn definitions<'a>(&'a self, digest: &'a str) -> StoreFuture<'a, Option<String>> {
        self.directory.definitions(digest)
    }
}

impl Attachments for ScopedStore {
    fn attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> StoreFuture<'a, Option<AttachmentRow>> {
        self.directory.attachment(owner, path)
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> StoreFuture<'a, u64> {
        self.directory.attachment_bytes_used(owner)
    }

    fn blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: Option<&'a ThreadId>,
        hash: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if thread.is_none_or(|thread| share.covers_thread(thread)) => {
                Box::pin(self.find_shared_blob(share, hash))
            }
            _ => self.directory.blob(owner, thread, hash),
        }
    }

    fn unreferenced_attachments(&self) -> StoreFuture<'_, Vec<(UserId, String)>> {
        self.directory.unreferenced_attachments()
    }

    fn stale_attachments(&self) -> StoreFuture<'_, Vec<(UserId, String)>> {
        self.directory.stale_attachments()
    }
}

impl ScopedStore {
    /// A blob of the shared thread. A frozen share shows only blobs that its records name.
    async fn find_shared_blob(&self, share: Arc<Share>, hash: &str) -> Result<Option<AttachmentRow>, StoreError> {
        let (owner, thread) = (&share.row.owner, &share.row.thread);
        let Some(row) = self.directory.blob(owner, Some(thread), hash).await? else { return Ok(None) };
        if share.frozen_at().is_none() {
            return Ok(Some(row));
        }
        let hashes = share.blob_hashes.get_or_try_init(|| self.shared_blob_hashes(&share)).await?;
        Ok(hashes.contains(hash).then_some(row))
    }

    /// The hashes that the visible records of a share name.
    async fn shared_blob_hashes(&self, share: &Share) -> Result<HashSet<String>, StoreError> {
        let (mut hashes, mut at) = (HashSet::new(), Seq::ZERO);
        loop {
            let page = self.read_page(&viewer_user_id(&share.row.id), &share.row.thread, at, PageLimit::WIDE).await?;
            let Some(last) = page.records.last() else { return Ok(hashes) };
            at = last.seq;
            hashes.extend(page.records.iter().flat_map(blob_hashes_in));
        }
    }

    /// A run's state at the point where the share is frozen, from its records.
    async fn status_when_frozen(&self, share: &Share, row: &RunRow) -> Result<TaskStatus, StoreError> {
        let (Some(until), Some(first), TaskStatus::Running) = (share.frozen_at(), row.first_seq, row.status) else {
            return Ok(row.status);
        };
        let (mut status, mut at) = (row.status, first.prev());
        while at < until {
            let page = self.read_page(&viewer_user_id(&share.row.id), &row.thread, at, PageLimit::WIDE).await?;
            let Some(last) = page.records.last() else { break };
            at = last.seq;
            for record in page.records.iter().filter(|record| record.run == row.id) {
                match record.event() {
                    Event::Paused(paused) if paused.task_id == row.id => status = TaskStatus::Paused,
                    Event::Resumed(resumed) if resumed.task_id == row.id => status = TaskStatus::Running,
                    _ => {}
                }
            }
        }
        Ok(status)
    }

    async fn list_shared_runs(
        &self,
        share: Arc<Share>,
        filter: RunFilter,
        page: ListPage,
    ) -> Result<Vec<RunRow>, StoreError> {
        if filter.thread.is_some_and(|thread| !share.covers_thread(&thread)) {
            return Ok(Vec::new());
        }
        // A frozen share shows the state of that time, and any number of runs may have started since.
        let status = if share.frozen_at().is_some() { Vec::new() } else { filter.status.clone() };
        let of_thread = RunFilter { thread: Some(share.row.thread.clone()), status };
        let fits = |row: &RunRow| filter.status.is_empty() || filter.status.contains(&row.status);
        let (mut visible, mut before) = (Vec::new(), page.before);
        while visible.len() < page.limit {
            let next = ListPage { before, limit: page.limit.max(RUNS_PAGE_SIZE) };
            let rows = self.directory.runs(&share.row.owner, of_thread.clone(), next).await?;
            let Some(oldest) = rows.last() else { break };
            before = Some(oldest.id.to_string());
            for mut row in rows.into_iter().filter_map(|row| share.clip_run(row)) {
                row.status = self.status_when_frozen(&share, &row).await?;
                visible.extend(Some(row).filter(fits));
            }
        }
        visible.truncate(page.limit);
        Ok(visible)
    }
}
