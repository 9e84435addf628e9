//! The store as each user sees it: a viewer of a share sees one thread and cannot change anything.
//!
//! Reads in a viewer's name are answered from the owner's rows where they are about the shared thread. All other reads go to
//! the store unchanged, which has no rows of a viewer. Write access is refused to viewers in one place ([`WriteAccess`]), so
//! an operation that is added to a writer trait needs no change here.

use super::{Share, Shares, StoreUser, blob_hashes_in, viewer_user_id};
use async_trait::async_trait;
use model::command::ClientToolResult;
use model::event::Event;
use model::ports::{
    AliasKind, AliasRow, AppendBatch, ApprovalFilter, ApprovalRow, AttachmentRow, Attachments, BoxFuture, Checkpoint,
    ClaimOutcome, Day, DefinitionStore, Directory, DirectoryWriter, IdempotencyKey, Inbox, InboxRow, Journal, Lease,
    ListPage, OnCommit, PageLimit, PendingQuestions, RecordPage, Retention, RunFilter, RunRow, ScheduledWakeup,
    ShareRow, SpaceWatch, Spend, StorageSpace, StoreError, StoreResult, SubmitError, Submitted, ThreadRow,
    ThreadShares, Threads, UsageLedger, WriteAccess,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, NodeId, TaskId, ThreadId, UserId};
use std::collections::HashSet;
use std::ops::ControlFlow;
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

impl SpaceWatch for ScopedStore {
    fn space(&self) -> StorageSpace {
        self.journal.space()
    }

    fn space_changed(&self, known: StorageSpace) -> BoxFuture<'static, ()> {
        self.journal.space_changed(known)
    }
}

#[async_trait]
impl Journal for ScopedStore {
    async fn claim(&self, owner: &UserId, thread: &ThreadId, node: &NodeId) -> StoreResult<ClaimOutcome> {
        self.journal.claim(owner, thread, node).await
    }

    fn release(&self, thread: &ThreadId, lease: Lease) {
        self.journal.release(thread, lease);
    }

    fn start_append(&self, batch: AppendBatch, on_commit: OnCommit) {
        self.journal.start_append(batch, on_commit);
    }

    async fn read_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        match self.share_of_thread(owner, thread) {
            Some(share) => Ok(share.clip_page(self.journal.read_page(&share.row.owner, thread, after, limit).await?)),
            None => self.journal.read_page(owner, thread, after, limit).await,
        }
    }

    async fn read_condensed_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: Seq,
        until: Seq,
        limit: PageLimit,
    ) -> StoreResult<RecordPage> {
        let Some(share) = self.share_of_thread(owner, thread) else {
            return self.journal.read_condensed_page(owner, thread, after, until, limit).await;
        };
        let until = share.frozen_at().map_or(until, |frozen| frozen.min(until));
        Ok(share.clip_page(self.journal.read_condensed_page(&share.row.owner, thread, after, until, limit).await?))
    }
}

#[async_trait]
impl Inbox for ScopedStore {
    async fn find_submission(
        &self,
        owner: &UserId,
        idempotency: &IdempotencyKey,
    ) -> Result<Option<Submitted>, SubmitError> {
        self.directory.find_submission(owner, idempotency).await
    }

    async fn inbox_page(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        after: u64,
        rows_max: usize,
    ) -> StoreResult<Vec<InboxRow>> {
        let Some(share) = self.share_of_thread(owner, thread) else {
            return self.directory.inbox_page(owner, thread, after, rows_max).await;
        };
        let rows = self.directory.inbox_page(&share.row.owner, thread, after, rows_max).await?;
        // Rows of the inbox are newer than a frozen share.
        Ok(if share.frozen_at().is_some() { Vec::new() } else { rows })
    }

    async fn claimable_threads(&self) -> StoreResult<Vec<(UserId, ThreadId)>> {
        self.directory.claimable_threads().await
    }

    async fn scheduled_wakeups(&self) -> StoreResult<Vec<ScheduledWakeup>> {
        self.directory.scheduled_wakeups().await
    }

    async fn runs(&self, owner: &UserId, filter: RunFilter, page: ListPage) -> StoreResult<Vec<RunRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => self.list_shared_runs(&share, filter, page).await,
            _ => self.directory.runs(owner, filter, page).await,
        }
    }

    async fn run(&self, owner: &UserId, run: &TaskId) -> StoreResult<Option<RunRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => {
                let row = self.directory.run(&share.row.owner, run).await?;
                Ok(row.and_then(|row| share.clip_run(row)))
            }
            _ => self.directory.run(owner, run).await,
        }
    }

    async fn checkpoint(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<Checkpoint>> {
        match self.share_of_thread(owner, thread) {
            Some(share) => {
                let found = self.directory.checkpoint(&share.row.owner, thread).await?;
                Ok(found.filter(|found| share.frozen_at().is_none_or(|until| found.seq <= until)))
            }
            None => self.directory.checkpoint(owner, thread).await,
        }
    }
}

#[async_trait]
impl Threads for ScopedStore {
    async fn threads(&self, owner: &UserId, page: ListPage) -> StoreResult<Vec<ThreadRow>> {
        self.directory.threads(owner, page).await
    }

    async fn thread(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Option<ThreadRow>> {
        let Some(share) = self.share_of_thread(owner, thread) else {
            return self.directory.thread(owner, thread).await;
        };
        let mut row = self.directory.thread(&share.row.owner, thread).await?;
        if let (Some(row), Some(_)) = (&mut row, share.frozen_at()) {
            row.updated_at = row.updated_at.min(share.row.created_at);
        }
        Ok(row)
    }

    async fn alias(&self, owner: &UserId, kind: AliasKind, name: &str) -> StoreResult<Option<AliasRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => {
                let row = self.directory.alias(&share.row.owner, kind, name).await?;
                Ok(row.filter(|row| share.covers_thread(&row.thread)))
            }
            _ => self.directory.alias(owner, kind, name).await,
        }
    }

    async fn log_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        self.directory.log_bytes_used(owner).await
    }
}

/// Of all owners, so no viewer's name is involved.
#[async_trait]
impl Retention for ScopedStore {
    async fn idle_threads(
        &self,
        since: Millis,
        after: Option<&ThreadId>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, ThreadId)>> {
        self.directory.idle_threads(since, after, limit).await
    }

    async fn unused_files(
        &self,
        since: Millis,
        after: Option<&(UserId, String)>,
        limit: usize,
    ) -> StoreResult<Vec<(UserId, String)>> {
        self.directory.unused_files(since, after, limit).await
    }

    async fn retention_time(&self) -> StoreResult<Option<Millis>> {
        self.directory.retention_time().await
    }

    async fn newest_activity(&self) -> StoreResult<Option<Millis>> {
        self.directory.newest_activity().await
    }
}

#[async_trait]
impl PendingQuestions for ScopedStore {
    async fn approvals(&self, owner: &UserId, filter: ApprovalFilter, page: ListPage) -> StoreResult<Vec<ApprovalRow>> {
        self.directory.approvals(owner, filter, page).await
    }

    async fn approval(&self, owner: &UserId, key: &ApprovalKey) -> StoreResult<Option<ApprovalRow>> {
        self.directory.approval(owner, key).await
    }

    async fn has_client_result(
        &self,
        owner: &UserId,
        thread: &ThreadId,
        result: &ClientToolResult,
    ) -> StoreResult<bool> {
        self.directory.has_client_result(owner, thread, result).await
    }
}

#[async_trait]
impl ThreadShares for ScopedStore {
    async fn shares(&self, owner: &UserId, thread: &ThreadId) -> StoreResult<Vec<ShareRow>> {
        self.directory.shares(owner, thread).await
    }

    async fn active_shares(&self, at: Millis) -> StoreResult<Vec<ShareRow>> {
        self.directory.active_shares(at).await
    }
}

#[async_trait]
impl UsageLedger for ScopedStore {
    async fn daily_spend(&self, owner: &UserId, day: Day) -> StoreResult<Spend> {
        self.directory.daily_spend(owner, day).await
    }
}

#[async_trait]
impl DefinitionStore for ScopedStore {
    async fn definitions(&self, digest: &str) -> StoreResult<Option<String>> {
        self.directory.definitions(digest).await
    }
}

#[async_trait]
impl Attachments for ScopedStore {
    async fn attachment(&self, owner: &UserId, path: &str) -> StoreResult<Option<AttachmentRow>> {
        self.directory.attachment(owner, path).await
    }

    async fn attachment_bytes_used(&self, owner: &UserId) -> StoreResult<u64> {
        self.directory.attachment_bytes_used(owner).await
    }

    async fn blob(&self, owner: &UserId, thread: Option<&ThreadId>, hash: &str) -> StoreResult<Option<AttachmentRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) if thread.is_none_or(|thread| share.covers_thread(thread)) => {
                self.find_shared_blob(&share, hash).await
            }
            _ => self.directory.blob(owner, thread, hash).await,
        }
    }

    async fn unreferenced_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        self.directory.unreferenced_attachments().await
    }

    async fn stale_attachments(&self) -> StoreResult<Vec<(UserId, String)>> {
        self.directory.stale_attachments().await
    }
}

impl ScopedStore {
    /// The share through which this user sees this thread.
    fn share_of_thread(&self, user: &UserId, thread: &ThreadId) -> Option<Arc<Share>> {
        match self.shares.store_user(user) {
            StoreUser::Viewer(share) => Some(share).filter(|share| share.covers_thread(thread)),
            StoreUser::User | StoreUser::FormerViewer => None,
        }
    }

    /// A blob of the shared thread. A frozen share shows only blobs that its records name.
    async fn find_shared_blob(&self, share: &Share, hash: &str) -> Result<Option<AttachmentRow>, StoreError> {
        let (owner, thread) = (&share.row.owner, &share.row.thread);
        let Some(row) = self.directory.blob(owner, Some(thread), hash).await? else { return Ok(None) };
        if share.frozen_at().is_none() {
            return Ok(Some(row));
        }
        let hashes = share.blob_hashes.get_or_try_init(|| self.shared_blob_hashes(share)).await?;
        Ok(hashes.contains(hash).then_some(row))
    }

    /// The hashes that the visible records of a share name.
    async fn shared_blob_hashes(&self, share: &Share) -> Result<HashSet<String>, StoreError> {
        let (viewer, mut hashes) = (viewer_user_id(&share.row.id), HashSet::new());
        engine::for_each_record(self, &viewer, &share.row.thread, Seq::ZERO, |record| {
            hashes.extend(blob_hashes_in(record));
            ControlFlow::<()>::Continue(())
        })
        .await?;
        Ok(hashes)
    }

    /// A run's state at the point where the share is frozen, from its records.
    async fn status_when_frozen(&self, share: &Share, row: &RunRow) -> Result<TaskStatus, StoreError> {
        let (Some(until), Some(first), TaskStatus::Running) = (share.frozen_at(), row.first_seq, row.status) else {
            return Ok(row.status);
        };
        let (viewer, mut status) = (viewer_user_id(&share.row.id), row.status);
        engine::for_each_condensed_record(self, &viewer, &row.thread, first.prev(), until, |record| {
            match record.event() {
                Event::Paused(paused) if paused.task_id == row.id => status = TaskStatus::Paused,
                Event::Resumed(resumed) if resumed.task_id == row.id => status = TaskStatus::Running,
                _ => {}
            }
            ControlFlow::<()>::Continue(())
        })
        .await?;
        Ok(status)
    }

    async fn list_shared_runs(
        &self,
        share: &Share,
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
                row.status = self.status_when_frozen(share, &row).await?;
                visible.extend(Some(row).filter(fits));
            }
        }
        visible.truncate(page.limit);
        Ok(visible)
    }
}
