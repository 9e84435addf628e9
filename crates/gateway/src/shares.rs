//! Shares: a token that gives its holder read access to a thread.
//!
//! A viewer is a user of its own, named after the share (`share:…`, which is no valid name of another user), and
//! [`ScopedStore`] is the store as that user sees it: one thread, up to the record at which it is frozen, read-only. So no
//! route need know of shares, and a new route shows a viewer nothing by mistake.
//!
//! The table here is kept in memory, so that a request costs no query. It is loaded at the start and changes with the
//! store's.

mod scoped_store;

use crate::rejection::Rejection;
use crate::secret_token::{generate_secret, secret_digest};
use model::blob::{BLOB_URL_PREFIX, SHA256_HEX_LEN, is_sha256_hex};
use model::ports::{Clock, Directory, RecordPage, RunRow, ShareRow, StoreError};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{Record, ThreadId, UserId};
pub(crate) use scoped_store::ScopedStore;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::OnceCell;

pub const SHARE_TOKEN_PREFIX: &str = "hws_";
/// `:` is not allowed in the names of other users.
const VIEWER_PREFIX: &str = "share:";

/// A share that was active when it was loaded or created.
pub struct Share {
    row: ShareRow,
    revoked: AtomicBool,
    /// Whether the store has it.
    stored: AtomicBool,
    clock: Arc<dyn Clock>,
    /// The blobs that a frozen share's records refer to. These never change, so they are read once.
    blob_hashes: OnceCell<HashSet<String>>,
}

impl fmt::Debug for Share {
    /// Without the token's digest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("id", &self.row.id).finish_non_exhaustive()
    }
}

impl Share {
    /// Whether the share is neither revoked nor expired.
    pub fn is_open(&self) -> bool {
        !self.revoked.load(Ordering::SeqCst) && self.row.is_active(self.clock.now())
    }

    /// The last visible record of a frozen share.
    pub const fn frozen_at(&self) -> Option<Seq> {
        self.row.until_seq
    }

    pub(crate) const fn row(&self) -> &ShareRow {
        &self.row
    }

    pub const fn owner(&self) -> &UserId {
        &self.row.owner
    }

    fn covers_thread(&self, thread: &ThreadId) -> bool {
        self.row.thread == *thread
    }

    /// Removes records after the frozen end.
    fn clip_page(&self, mut page: RecordPage) -> RecordPage {
        if let Some(until) = self.row.until_seq {
            page.records.retain(|record| record.seq <= until);
            page.head = page.head.min(until);
        }
        page
    }

    /// The run as of the frozen end; `None` if it is not visible.
    fn clip_run(&self, row: RunRow) -> Option<RunRow> {
        if !self.covers_thread(&row.thread) {
            return None;
        }
        let Some(until) = self.row.until_seq else { return Some(row) };
        let first = row.first_seq.filter(|first| *first <= until)?;
        if row.last_seq.is_none_or(|last| last <= until) {
            return Some(row);
        }
        // The row has the run's current status. Its status at the frozen end is in its records.
        Some(RunRow { status: TaskStatus::Running, last_seq: Some(first), ended_at: None, ..row })
    }
}

pub struct Shares {
    index: RwLock<ShareIndex>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct ShareIndex {
    by_digest: HashMap<String, Arc<Share>>,
    by_viewer: HashMap<UserId, Arc<Share>>,
}

impl Shares {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { index: RwLock::default(), clock }
    }

    pub async fn load(directory: &dyn Directory, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let shares = Self::new(clock);
        shares.refresh(directory).await?;
        Ok(shares)
    }

    /// Takes over what other nodes have changed: new shares, and those that are not active any more.
    pub async fn refresh(&self, directory: &dyn Directory) -> Result<(), StoreError> {
        // Before the rows are read: what is being created meanwhile is not among them.
        let stored = |share: &&Arc<Share>| share.stored.load(Ordering::SeqCst);
        let known: HashSet<String> =
            self.read().by_digest.values().filter(stored).map(|share| share.row.id.clone()).collect();
        let rows = directory.active_shares(self.clock.now()).await?;
        let active: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        self.revoke_where(|row| known.contains(&row.id) && !active.contains(row.id.as_str()));
        for row in rows {
            if !self.read().by_digest.contains_key(&row.digest) {
                let id = row.id.clone();
                self.insert(row);
                self.mark_stored(&id);
            }
        }
        Ok(())
    }

    /// The store has the share: from now on it is revoked when the store has it no more.
    pub fn mark_stored(&self, id: &str) {
        let index = self.read();
        index
            .by_digest
            .values()
            .filter(|share| share.row.id == id)
            .for_each(|share| share.stored.store(true, Ordering::SeqCst));
    }

    pub fn insert(&self, row: ShareRow) {
        let (digest, viewer) = (row.digest.clone(), viewer_user_id(&row.id));
        let (revoked, stored, clock) = (AtomicBool::new(false), AtomicBool::new(false), Arc::clone(&self.clock));
        let share = Arc::new(Share { row, revoked, stored, clock, blob_hashes: OnceCell::new() });
        let mut index = self.write();
        index.by_digest.insert(digest, Arc::clone(&share));
        index.by_viewer.insert(viewer, share);
    }

    /// The open share of this token, and its viewer.
    pub fn find_by_token(&self, token: &str) -> Option<ShareViewer> {
        let share = self.read().by_digest.get(&secret_digest(token)).map(Arc::clone)?;
        share.is_open().then(|| ShareViewer { user: viewer_user_id(&share.row.id), share })
    }

    /// The open share whose viewer this user is.
    pub fn find_by_viewer(&self, user: &UserId) -> Option<Arc<Share>> {
        self.read().by_viewer.get(user).filter(|share| share.is_open()).map(Arc::clone)
    }

    fn store_user(&self, user: &UserId) -> StoreUser {
        if !is_viewer_name(user.as_str()) {
            return StoreUser::User;
        }
        self.read().by_viewer.get(user).map_or(StoreUser::FormerViewer, |share| StoreUser::Viewer(Arc::clone(share)))
    }

    /// The last record that this user sees, if it is the viewer of a frozen share.
    pub fn frozen_at(&self, user: &UserId) -> Option<Seq> {
        match self.store_user(user) {
            StoreUser::Viewer(share) => share.frozen_at(),
            StoreUser::User | StoreUser::FormerViewer => None,
        }
    }

    /// Ends access through a share, and the streams that are open.
    pub fn revoke(&self, id: &str) {
        self.revoke_where(|row| row.id == id);
    }

    /// Revokes the shares of a thread that was deleted.
    pub fn forget_thread(&self, thread: &ThreadId) {
        self.revoke_where(|row| row.thread == *thread);
    }

    fn revoke_where(&self, is_revoked: impl Fn(&ShareRow) -> bool) {
        let mut index = self.write();
        let is_kept = |share: &Arc<Share>| {
            let revoked = is_revoked(&share.row);
            share.revoked.fetch_or(revoked, Ordering::SeqCst);
            !revoked
        };
        index.by_digest.retain(|_, share| is_kept(share));
        index.by_viewer.retain(|_, share| is_kept(share));
    }

    fn read(&self) -> RwLockReadGuard<'_, ShareIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ShareIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct ShareViewer {
    pub user: UserId,
    pub share: Arc<Share>,
}

enum StoreUser {
    User,
    Viewer(Arc<Share>),
    /// The viewer of a share that has been revoked.
    FormerViewer,
}

/// Whether the name is reserved for viewers of shares.
pub fn is_viewer_name(name: &str) -> bool {
    name.starts_with(VIEWER_PREFIX)
}

fn viewer_user_id(id: &str) -> UserId {
    UserId::from(format!("{VIEWER_PREFIX}{id}"))
}

/// The blobs that a record refers to, in its private half as well.
fn blob_hashes_in(record: &Record) -> impl Iterator<Item = String> {
    let texts = [&record.public, &record.private].into_iter().filter_map(|text| std::str::from_utf8(text).ok());
    let hashes = |text| str::split(text, BLOB_URL_PREFIX).skip(1).filter_map(|rest| rest.get(..SHA256_HEX_LEN));
    texts.flat_map(hashes).filter(|hash| is_sha256_hex(hash)).map(str::to_owned)
}

pub struct NewShare {
    pub owner: UserId,
    pub thread: ThreadId,
    pub until_seq: Option<Seq>,
    pub created_at: Millis,
    pub expires_at: Millis,
}

impl NewShare {
    /// Returns the row and the token, which is stored nowhere.
    pub fn into_row(self) -> Result<(ShareRow, String), Rejection> {
        let secrets = generate_secret(SHARE_TOKEN_PREFIX).and_then(|token| Ok((generate_secret("")?, token)));
        let (name, token) = secrets.map_err(|error| {
            tracing::error!(%error, "no randomness");
            Rejection::internal()
        })?;
        let Self { owner, thread, until_seq, created_at, expires_at } = self;
        let row = ShareRow {
            id: format!("share_{}", name.chars().take(16).collect::<String>()),
            thread,
            owner,
            digest: secret_digest(&token),
            until_seq,
            created_at,
            expires_at,
            revoked_at: None,
        };
        Ok((row, token))
    }
}
