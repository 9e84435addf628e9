//! Shares: a thread that its owner shows to whoever has a link's token.
//!
//! A viewer is a user of their own, named after the share (`share:…`, which nobody else can be named), and `scope` is the
//! store as that user sees it: the one thread, up to where it is frozen, to be read and not to be changed. So no route need
//! know of shares, and one that is added tomorrow shows a viewer nothing by mistake. [`admit`] says in addition which
//! routes are for viewers at all.
//!
//! The table here is what requests are held against. It is filled at the start and changes with the store's.

mod scoped_store;

use crate::api_keys::{generate_secret, secret_digest};
use crate::app::App;
use crate::attachments::uploads::{self, Uploads};
use crate::auth::{Caller, Credential};
use crate::problem::Problem;
use axum::http::Method;
use engine::{NewRun, REQUEST_BYTES_MAX};
use model::blob::{BLOB_URL_PREFIX, SHA256_HEX_LEN, blob_hash, is_sha256_hex};
use model::content::ContentPart;
use model::error::ErrorCode;
use model::event::Event;
use model::history::HistoryEntry;
use model::ports::{
    Clock as _, Journal, ListPage, PageLimit, RecordPage, RunFilter, RunRow, ShareRow, StoreError, ThreadShares,
};
use model::seq::{Millis, Seq};
use model::task::TaskStatus;
use model::{Record, ThreadId, UserId};
pub(crate) use scoped_store::ScopedStore;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::OnceCell;
use upstream::responses::generated_image;

/// How a token begins.
pub(crate) const SHARE_TOKEN_PREFIX: &str = "hws_";
/// How the name of a viewer begins. No user's does: it has a character that theirs cannot have.
const VIEWER_PREFIX: &str = "share:";
/// A viewer's stream looks so often whether it may go on.
pub(crate) const SHARE_RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How many of a thread's newest runs are looked at for the one to go on from.
const RECENT_RUNS_MAX: usize = 100;

/// What viewers may ask. Of these, `scope` shows what belongs to their thread.
const VIEWER_ROUTES: [&str; 12] = [
    "/v1/threads/{thread}",
    "/v1/threads/{thread}/events",
    "/v1/tasks",
    "/v1/tasks/{task}",
    "/v1/tasks/{task}/events",
    "/v1/responses/{response}",
    "/v1/responses/{response}/input_items",
    "/api/v1/agent/runs/{thread}/events",
    "/api/v1/agent/history",
    "/api/v1/agent/attachments/signed-url",
    "/v1/blobs/{hash}",
    "/ws",
];
/// What viewers may ask for beside that: a way to follow from a browser.
const TICKET_ROUTE: &str = "/v1/tickets";

/// Is this route for viewers?
pub(crate) fn check_viewer_route(method: &Method, route: &str) -> Result<(), Problem> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    if (reads && VIEWER_ROUTES.contains(&route)) || (*method == Method::POST && route == TICKET_ROUTE) {
        return Ok(());
    }
    // The same for every thread: who may not write need not learn what there is.
    Err(if reads { Problem::not_found() } else { share_read_only() })
}

/// Viewers cannot act.
pub(crate) fn share_read_only() -> Problem {
    let detail = "a share can be read, and nothing else: go on in a thread of your own";
    Problem::new(ErrorCode::ShareReadOnly, detail)
}

/// A share that lets somebody in.
#[derive(Debug)]
pub(crate) struct Share {
    row: ShareRow,
    revoked: AtomicBool,
    /// The blobs that are named in what is frozen. It changes no more, and is long: it is looked through once.
    blob_hashes: OnceCell<HashSet<String>>,
}

impl Share {
    /// Does it still?
    pub(crate) fn is_open(&self) -> bool {
        !self.revoked.load(Ordering::SeqCst) && self.row.is_active(engine::SystemClock.now())
    }

    /// The last record that is shown, where that is settled.
    pub(crate) const fn frozen_at(&self) -> Option<Seq> {
        self.row.until_seq
    }

    /// Who shows it.
    pub(crate) const fn owner(&self) -> &UserId {
        &self.row.owner
    }

    fn covers_thread(&self, thread: &ThreadId) -> bool {
        self.row.thread == *thread
    }

    /// A page as far as it is shown.
    fn clip_page(&self, mut page: RecordPage) -> RecordPage {
        if let Some(until) = self.row.until_seq {
            page.records.retain(|record| record.seq <= until);
            page.head = page.head.min(until);
        }
        page
    }

    /// A run as far as it is shown.
    fn clip_run(&self, row: RunRow) -> Option<RunRow> {
        if !self.covers_thread(&row.thread) {
            return None;
        }
        let Some(until) = self.row.until_seq else { return Some(row) };
        let first = row.first_seq.filter(|first| *first <= until)?;
        if row.last_seq.is_none_or(|last| last <= until) {
            return Some(row);
        }
        // The row says where the run is now. Where it was then its records say, to whoever reads them.
        Some(RunRow { status: TaskStatus::Running, last_seq: Some(first), ended_at: None, ..row })
    }
}

/// The shares that let somebody in now.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    index: RwLock<ShareIndex>,
}

#[derive(Debug, Default)]
struct ShareIndex {
    by_digest: HashMap<String, Arc<Share>>,
    by_viewer: HashMap<UserId, Arc<Share>>,
}

impl Shares {
    /// Reads them.
    pub(crate) async fn load(rows: &dyn ThreadShares) -> Result<Self, StoreError> {
        let shares = Self::default();
        for row in rows.active_shares(engine::SystemClock.now()).await? {
            shares.insert(row);
        }
        Ok(shares)
    }

    /// One more.
    pub(crate) fn insert(&self, row: ShareRow) {
        let (digest, viewer) = (row.digest.clone(), viewer_user_id(&row.id));
        let share = Arc::new(Share { row, revoked: AtomicBool::new(false), blob_hashes: OnceCell::new() });
        let mut open = self.write();
        open.by_digest.insert(digest, Arc::clone(&share));
        open.by_viewer.insert(viewer, share);
    }

    /// Whoever has this token.
    pub(crate) fn find_by_token(&self, token: &str) -> Option<Caller> {
        let share = self.read().by_digest.get(&secret_digest(token)).map(Arc::clone)?;
        let user = viewer_user_id(&share.row.id);
        share.is_open().then_some(Caller { user, credential: Credential::Share(share) })
    }

    /// What this user is a viewer of.
    fn store_user(&self, user: &UserId) -> StoreUser {
        if !user.as_str().starts_with(VIEWER_PREFIX) {
            return StoreUser::User;
        }
        self.read().by_viewer.get(user).map_or(StoreUser::FormerViewer, |share| StoreUser::Viewer(Arc::clone(share)))
    }

    /// The last record that this user is shown, where that is settled.
    pub(crate) fn frozen_at(&self, user: &UserId) -> Option<Seq> {
        match self.store_user(user) {
            StoreUser::Viewer(share) => share.frozen_at(),
            StoreUser::User | StoreUser::FormerViewer => None,
        }
    }

    /// A share lets nobody in any more, and open streams end.
    pub(crate) fn revoke(&self, id: &str) {
        self.revoke_where(|row| row.id == id);
    }

    /// The thread was deleted, and its shares with it.
    pub(crate) fn forget_thread(&self, thread: &ThreadId) {
        self.revoke_where(|row| row.thread == *thread);
    }

    fn revoke_where(&self, is_over: impl Fn(&ShareRow) -> bool) {
        let mut open = self.write();
        let goes_on = |share: &Arc<Share>| {
            let over = is_over(&share.row);
            share.revoked.fetch_or(over, Ordering::SeqCst);
            !over
        };
        open.by_digest.retain(|_, share| goes_on(share));
        open.by_viewer.retain(|_, share| goes_on(share));
    }

    fn read(&self) -> RwLockReadGuard<'_, ShareIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ShareIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who somebody is to the store.
enum StoreUser {
    /// A user.
    User,
    /// Somebody who is shown a thread.
    Viewer(Arc<Share>),
    /// Somebody who was.
    FormerViewer,
}

fn viewer_user_id(id: &str) -> UserId {
    UserId::from(format!("{VIEWER_PREFIX}{id}"))
}

/// How a run begins whose thread goes on from what a share shows: with what was said there by then, and with the pictures
/// that were shown. Files of the owner's stay the owner's: their names are told.
pub(crate) async fn fork_share(app: &App, token: &str) -> Result<(NewRun, Uploads), Problem> {
    let unknown = || {
        let detail = "the share token is unknown, expired or revoked";
        Problem::new(ErrorCode::UnknownShare, detail)
    };
    // Asked as a viewer, so that nothing comes along that is not shown.
    let Caller { user, credential: Credential::Share(share) } = app.shares.find_by_token(token).ok_or_else(unknown)?
    else {
        return Err(unknown());
    };
    let filter = RunFilter { thread: Some(share.row.thread.clone()), ..RunFilter::default() };
    let runs =
        app.engine.ports().directory.runs(&user, filter, ListPage { before: None, limit: RECENT_RUNS_MAX }).await?;
    let ended = runs.into_iter().filter(|run| run.status.is_terminal() && run.first_seq.is_some());
    let mut before = match ended.max_by_key(|run| run.first_seq) {
        Some(run) => Some(app.engine.history_within(&user, &run, REQUEST_BYTES_MAX / 2).await?),
        None => None,
    };
    let mut luggage = Uploads::default();
    for part in before.iter_mut().flat_map(uploads::parts_of_history) {
        copy_shared_attachment(app, &user, part, &mut luggage).await?;
    }
    for entry in before.iter_mut().flat_map(|before| &mut before.entries) {
        if let HistoryEntry::Hosted { raw, .. } = entry {
            copy_generated_image(app, &user, &mut raw.item, &mut luggage).await?;
        }
    }
    let new = NewRun { prior_history: before, origin: Some(json!({ "share": share.row.id })), ..NewRun::default() };
    Ok((new, luggage))
}

/// Takes along what a viewer is shown with this part. What is not shown is told of.
async fn copy_shared_attachment(
    app: &App,
    viewer: &UserId,
    part: &mut ContentPart,
    luggage: &mut Uploads,
) -> Result<(), Problem> {
    let is_kept = part.url().is_some_and(|address| address.starts_with(BLOB_URL_PREFIX));
    let told = match part {
        ContentPart::Text { .. } => return Ok(()),
        ContentPart::ImageUrl { .. } if is_kept => "[image]".to_owned(),
        ContentPart::File { file } if is_kept || file.bucket.is_some() => {
            format!("[file {}]", file.display_name().unwrap_or("without a name"))
        }
        ContentPart::ImageUrl { .. } | ContentPart::File { .. } => return Ok(()),
    };
    if let Some(hash) = part.url().and_then(blob_hash)
        && let Some(row) = app.engine.ports().directory.blob(viewer, None, hash).await?
    {
        luggage.add_shared(hash, row);
        return Ok(());
    }
    *part = ContentPart::text(told);
    Ok(())
}

/// The same for a picture that a model drew. One that is not shown leaves a gap, as one does that is gone.
async fn copy_generated_image(
    app: &App,
    viewer: &UserId,
    item: &mut Value,
    luggage: &mut Uploads,
) -> Result<(), Problem> {
    let Some(hash) = generated_image::generated_image(item).and_then(blob_hash) else { return Ok(()) };
    match app.engine.ports().directory.blob(viewer, None, hash).await? {
        Some(row) => luggage.add_shared(hash, row),
        None => generated_image::omit_generated_image(item),
    }
    Ok(())
}

/// Is this file one that the shared thread's owner has put into it?
pub(crate) async fn is_file_shared(
    app: &App,
    caller: &Caller,
    owner: &UserId,
    (bucket, path): (&str, &str),
) -> Result<bool, Problem> {
    // A thread can name anybody's file. Only its owner's are shown with it.
    let Some(share) = caller.share().filter(|share| share.row.owner == *owner) else { return Ok(false) };
    let is_it = |part: &ContentPart| match part {
        ContentPart::File { file } => file.bucket.as_deref() == Some(bucket) && file.path.as_deref() == Some(path),
        ContentPart::Text { .. } | ContentPart::ImageUrl { .. } => false,
    };
    let holds = |record: &Record| {
        let input = match record_contains(record, path).then(|| record.event()) {
            Some(Event::Created(created)) => &created.task.input,
            Some(Event::InputAdded(added)) => &added.input,
            _ => return false,
        };
        input.iter().flat_map(|said| &said.content).any(is_it)
    };
    Ok(any_shared_record(&*app.engine.ports().journal, &caller.user, &share.row.thread, holds).await?)
}

/// Is there a record like this in what a viewer is shown?
async fn any_shared_record(
    journal: &dyn Journal,
    viewer: &UserId,
    thread: &ThreadId,
    is_it: impl Fn(&Record) -> bool + Send,
) -> Result<bool, StoreError> {
    let mut after = Seq::ZERO;
    loop {
        let page = journal.read_page(viewer, thread, after, PageLimit::WIDE).await?;
        if page.records.iter().any(&is_it) {
            return Ok(true);
        }
        let Some(last) = page.records.last() else { return Ok(false) };
        after = last.seq;
    }
}

/// Does the text of a record have these words in it? They are such that JSON writes them as they are.
fn record_contains(record: &Record, words: &str) -> bool {
    bytes_contain(&record.public, words)
}

/// The blobs that a record names, also where only we read it.
fn blob_hashes_in(record: &Record) -> impl Iterator<Item = String> {
    let texts = [&record.public, &record.private].into_iter().filter_map(|text| std::str::from_utf8(text).ok());
    let hashes = |text| str::split(text, BLOB_URL_PREFIX).skip(1).filter_map(|rest| rest.get(..SHA256_HEX_LEN));
    texts.flat_map(hashes).filter(|hash| is_sha256_hex(hash)).map(str::to_owned)
}

fn bytes_contain(text: &[u8], words: &str) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.contains(words))
}

/// A new share and the token that opens it, which is kept nowhere.
pub(crate) fn new_share(
    (owner, thread): (UserId, ThreadId),
    until: Option<Seq>,
    (created_at, expires_at): (Millis, Millis),
) -> Result<(ShareRow, String), Problem> {
    let made = generate_secret(SHARE_TOKEN_PREFIX).and_then(|token| Ok((generate_secret("")?, token)));
    let (name, token) = made.map_err(|error| {
        tracing::error!(%error, "no randomness");
        Problem::internal()
    })?;
    let id = format!("share_{}", name.chars().take(16).collect::<String>());
    let digest = secret_digest(&token);
    Ok((ShareRow { id, thread, owner, digest, until_seq: until, created_at, expires_at, revoked_at: None }, token))
}
