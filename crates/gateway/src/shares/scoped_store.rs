//! The store as each user sees it: to a viewer there is one thread, which cannot be changed.
//!
//! What is asked in a viewer's name is answered from the owner's rows where it is about that thread. Everything else goes
//! to the store as it comes, which knows nobody of a viewer's name; what would make something there is refused here.

use super::{Share, Shares, StoreUser, blob_hashes_in, viewer_user_id};
use model::event::Event;
use model::ports::{
    AccessKeyRow, AliasRow, AppendBatch, AppendOutcome, ApprovalRow, AttachmentOutcome, AttachmentRow, Attachments,
    BoxFuture, Checkpoint, Day, Directory, IdempotencyKey, InboxRow, Journal, Lease, ListPage, OnCommit, PageLimit,
    RecordPage, RunFilter, RunRow, ScheduledWakeup, ShareRow, Spend, StoreError, Submission, SubmitError, Submitted,
    ThreadRow,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{ApprovalKey, NodeId, TaskId, ThreadId, UserId};
use std::collections::HashSet;
use std::sync::Arc;

/// The runs of a shared thread are looked at so many at a time.
const RUNS_PAGE_SIZE: usize = 100;

/// The store as each user sees it.
pub(crate) struct ScopedStore {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) shares: Arc<Shares>,
}

type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl Journal for ScopedStore {
    fn claim<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId, node: &'a NodeId) -> StoreFuture<'a, Lease> {
        self.journal.claim(owner, thread, node)
    }

    fn append_with_callback(&self, batch: AppendBatch, landed: OnCommit) -> BoxFuture<'_, AppendOutcome> {
        self.journal.append_with_callback(batch, landed)
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

impl Directory for ScopedStore {
    fn submit<'a>(
        &'a self,
        owner: &'a UserId,
        submission: Submission,
    ) -> BoxFuture<'a, Result<Submitted, SubmitError>> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.submit(owner, submission),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => {
                Box::pin(async { Err(StoreError::ThreadNotFound.into()) })
            }
        }
    }

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
                // What waits comes after what was frozen.
                Ok(if share.frozen_at().is_some() { Vec::new() } else { rows })
            }),
            _ => self.directory.inbox(owner, thread),
        }
    }

    fn claimable_threads(&self) -> StoreFuture<'_, Vec<(UserId, ThreadId)>> {
        self.directory.claimable_threads()
    }

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

    fn delete_thread<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let deleted = self.directory.delete_thread(owner, thread).await?;
            if deleted {
                self.shares.revoke_where(|row| row.thread == *thread);
            }
            Ok(deleted)
        })
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

    fn approvals<'a>(&'a self, owner: &'a UserId, pending: bool, page: ListPage) -> StoreFuture<'a, Vec<ApprovalRow>> {
        self.directory.approvals(owner, pending, page)
    }

    fn approval<'a>(&'a self, owner: &'a UserId, key: &'a ApprovalKey) -> StoreFuture<'a, Option<ApprovalRow>> {
        self.directory.approval(owner, key)
    }

    fn daily_spend<'a>(&'a self, owner: &'a UserId, day: Day) -> StoreFuture<'a, Spend> {
        self.directory.daily_spend(owner, day)
    }

    fn scheduled_wakeups(&self) -> StoreFuture<'_, Vec<ScheduledWakeup>> {
        self.directory.scheduled_wakeups()
    }

    fn create_alias<'a>(&'a self, owner: &'a UserId, row: AliasRow) -> StoreFuture<'a, AliasRow> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.create_alias(owner, row),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
    }

    fn alias<'a>(&'a self, owner: &'a UserId, protocol: &'a str, name: &'a str) -> StoreFuture<'a, Option<AliasRow>> {
        match self.shares.store_user(owner) {
            StoreUser::Viewer(share) => Box::pin(async move {
                let row = self.directory.alias(&share.row.owner, protocol, name).await?;
                Ok(row.filter(|row| share.covers_thread(&row.thread)))
            }),
            _ => self.directory.alias(owner, protocol, name),
        }
    }

    fn update_alias<'a>(
        &'a self,
        owner: &'a UserId,
        protocol: &'a str,
        name: &'a str,
        note: String,
    ) -> StoreFuture<'a, bool> {
        self.directory.update_alias(owner, protocol, name, note)
    }

    fn delete_alias<'a>(&'a self, owner: &'a UserId, protocol: &'a str, name: &'a str) -> StoreFuture<'a, bool> {
        self.directory.delete_alias(owner, protocol, name)
    }

    fn create_share(&self, share: ShareRow) -> StoreFuture<'_, ()> {
        self.directory.create_share(share)
    }

    fn shares<'a>(&'a self, owner: &'a UserId, thread: &'a ThreadId) -> StoreFuture<'a, Vec<ShareRow>> {
        self.directory.shares(owner, thread)
    }

    fn revoke_share<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        id: &'a str,
        at: Millis,
    ) -> StoreFuture<'a, bool> {
        self.directory.revoke_share(owner, thread, id, at)
    }

    fn active_shares(&self, at: Millis) -> StoreFuture<'_, Vec<ShareRow>> {
        self.directory.active_shares(at)
    }

    fn put_definitions<'a>(&'a self, digest: &'a str, body: &'a str) -> StoreFuture<'a, ()> {
        self.directory.put_definitions(digest, body)
    }

    fn definitions<'a>(&'a self, digest: &'a str) -> StoreFuture<'a, Option<String>> {
        self.directory.definitions(digest)
    }

    fn create_access_key(&self, key: AccessKeyRow) -> StoreFuture<'_, ()> {
        self.directory.create_access_key(key)
    }

    fn access_keys(&self) -> StoreFuture<'_, Vec<AccessKeyRow>> {
        self.directory.access_keys()
    }

    fn revoke_access_key<'a>(&'a self, id: &'a str, at: Millis) -> StoreFuture<'a, bool> {
        self.directory.revoke_access_key(id, at)
    }
}

impl Attachments for ScopedStore {
    fn reserve_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str, at: Millis) -> StoreFuture<'a, ()> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.reserve_attachment(owner, path, at),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
    }

    fn commit_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreFuture<'a, AttachmentOutcome> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.commit_attachment(owner, row, bytes_max),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
    }

    fn attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> StoreFuture<'a, Option<AttachmentRow>> {
        self.directory.attachment(owner, path)
    }

    fn attachment_bytes_used<'a>(&'a self, owner: &'a UserId) -> StoreFuture<'a, u64> {
        self.directory.attachment_bytes_used(owner)
    }

    fn delete_attachment<'a>(&'a self, owner: &'a UserId, path: &'a str) -> StoreFuture<'a, bool> {
        self.directory.delete_attachment(owner, path)
    }

    fn link_attachment<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        path: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.link_attachment(owner, thread, path),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
    }

    fn commit_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        row: AttachmentRow,
        bytes_max: Option<u64>,
    ) -> StoreFuture<'a, AttachmentOutcome> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.commit_blob(owner, thread, row, bytes_max),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
    }

    fn link_blob<'a>(
        &'a self,
        owner: &'a UserId,
        thread: &'a ThreadId,
        hash: &'a str,
    ) -> StoreFuture<'a, Option<AttachmentRow>> {
        match self.shares.store_user(owner) {
            StoreUser::User => self.directory.link_blob(owner, thread, hash),
            StoreUser::Viewer(_) | StoreUser::FormerViewer => Box::pin(async { Err(StoreError::ThreadNotFound) }),
        }
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
    /// A blob of the shared thread. Where that is frozen it must have been there by then: told of to people, or to the model
    /// alone, as what was read for it is.
    async fn find_shared_blob(&self, share: Arc<Share>, hash: &str) -> Result<Option<AttachmentRow>, StoreError> {
        let (owner, thread) = (&share.row.owner, &share.row.thread);
        let Some(row) = self.directory.blob(owner, Some(thread), hash).await? else { return Ok(None) };
        if share.frozen_at().is_none() {
            return Ok(Some(row));
        }
        let named = share.blob_hashes.get_or_try_init(|| self.shared_blob_hashes(&share)).await?;
        Ok(named.contains(hash).then_some(row))
    }

    /// The blobs that are named in what a share shows.
    async fn shared_blob_hashes(&self, share: &Share) -> Result<HashSet<String>, StoreError> {
        let (mut named, mut at) = (HashSet::new(), Seq::ZERO);
        loop {
            let page = self.read_page(&viewer_user_id(&share.row.id), &share.row.thread, at, PageLimit::WIDE).await?;
            let Some(last) = page.records.last() else { return Ok(named) };
            at = last.seq;
            named.extend(page.records.iter().flat_map(blob_hashes_in));
        }
    }

    /// How a run was where its thread is frozen: it went on, or it waited for somebody. Its records say so.
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
        if filter.thread.is_some_and(|asked| !share.covers_thread(&asked)) {
            return Ok(Vec::new());
        }
        // Where it is frozen, a run is in the state in which it was then, and any number of runs may have come since.
        let status = if share.frozen_at().is_some() { Vec::new() } else { filter.status.clone() };
        let of_thread = RunFilter { thread: Some(share.row.thread.clone()), status };
        let fits = |row: &RunRow| filter.status.is_empty() || filter.status.contains(&row.status);
        let (mut shown, mut before) = (Vec::new(), page.before);
        while shown.len() < page.limit {
            let next = ListPage { before, limit: page.limit.max(RUNS_PAGE_SIZE) };
            let rows = self.directory.runs(&share.row.owner, of_thread.clone(), next).await?;
            let Some(oldest) = rows.last() else { break };
            before = Some(oldest.id.to_string());
            for mut row in rows.into_iter().filter_map(|row| share.clip_run(row)) {
                row.status = self.status_when_frozen(&share, &row).await?;
                shown.extend(Some(row).filter(fits));
            }
        }
        shown.truncate(page.limit);
        Ok(shown)
    }
}
