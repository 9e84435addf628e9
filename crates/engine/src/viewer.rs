//! Somebody who watches a thread: a cursor that moves from the log into the hub and back.

use crate::hub::{FrameRequest, Hub, LaneFrames, Topic};
use bytes::Bytes;
use model::defects::Defect;
use model::ports::{Frames, Journal, PageLimit, Projection, StoreError};
use model::{Seq, ThreadId, UserId};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// A page of the log for one viewer: small, because a thousand viewers that fell behind hold one each.
const VIEWER_PAGE: PageLimit = PageLimit { records_max: 256, bytes_max: 16 * 1024 };

/// What a viewer watches.
pub struct View {
    /// The projection's name, with its options and scope: viewers with the same one share frames.
    pub lane: Arc<str>,
    /// The projection before its first record.
    pub projection: Box<dyn Projection>,
    /// Where its history begins: before the first record of its run.
    pub history_start: Seq,
    /// So many frames after the place where the viewer begins are not wanted: a client may stand between two frames of
    /// one record, or count frames instead of records.
    pub skip_frames: u64,
}

/// A viewer. Dropping it is leaving; the run goes on.
pub struct Viewer {
    slot: usize,
    owner: UserId,
    thread: ThreadId,
    journal: Arc<dyn Journal>,
    hub: Arc<Hub>,
    topic: Arc<Topic>,
    view: View,
    /// The projector at the cursor. Frames taken from a lane leave it behind, so then there is none.
    projector: Option<Box<dyn Projection>>,
    cursor: Seq,
    /// Nothing after this record is shown.
    end_seq: Option<Seq>,
    /// Has the log been read up to its head? Only then does the topic know everything that follows.
    at_head: bool,
    ended: bool,
    /// The thread was deleted, or the process stops: the end is not the stream's own.
    interrupted: bool,
}

impl Viewer {
    pub(crate) fn new(
        hub: &Arc<Hub>,
        journal: Arc<dyn Journal>,
        owner: UserId,
        thread: ThreadId,
        view: View,
        cursor: Seq,
    ) -> Self {
        // Subscribe first, then read the log: what is committed in between is in one or the other, and `seq` says which.
        let topic = hub.subscribe(&thread);
        let cursor = if Defect::CursorOffByOne.is_planted() && cursor > Seq::ZERO { cursor.next() } else { cursor };
        let seat = topic.register_viewer();
        let hub = Arc::clone(hub);
        let (projector, until, at_head, over, broken_off) = (None, None, false, false, false);
        Self {
            slot: seat,
            owner,
            thread,
            journal,
            hub,
            topic,
            view,
            projector,
            cursor,
            end_seq: until,
            at_head,
            ended: over,
            interrupted: broken_off,
        }
    }

    /// Shows nothing after this record: the stream ends there, whatever follows in the log.
    #[must_use]
    pub fn with_end(mut self, until: Seq) -> Self {
        self.end_seq = Some(until);
        self.ended = self.cursor >= until;
        self
    }

    /// Did the stream end before its own end? Then a client must come back, and must not take it for the end.
    #[must_use]
    pub const fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The last record that the viewer has.
    #[must_use]
    pub const fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The next frames, at most one write's worth; `None` when nothing will ever follow.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        while !self.ended {
            let bytes = if self.at_head { self.next_live_frames().await } else { self.next_log_frames().await? };
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    async fn next_live_frames(&mut self) -> Bytes {
        // Moved in, not borrowed: a projector may not be shared between threads, and the waiting future may change them.
        let this = &mut *self;
        let take = poll_fn(move |cx| {
            let ask = FrameRequest {
                slot: this.slot,
                lane: &this.view.lane,
                cursor: this.cursor,
                projector: this.projector.as_deref(),
            };
            match this.topic.poll_frames(&ask, cx.waker()) {
                LaneFrames::Pending => Poll::Pending,
                take => Poll::Ready(take),
            }
        });
        match take.await {
            LaneFrames::Frames { bytes, last_seq: to, ended: over } => {
                self.projector = None;
                self.cursor = to;
                self.ended = over;
                bytes
            }
            LaneFrames::Behind => {
                self.at_head = false;
                Bytes::new()
            }
            LaneFrames::Closed | LaneFrames::Pending => {
                self.ended = true;
                self.interrupted = true;
                Bytes::new()
            }
        }
    }

    /// One page of the log. At its end the topic takes over.
    async fn next_log_frames(&mut self) -> Result<Bytes, StoreError> {
        let mut projector = match self.projector.take() {
            Some(projector) => projector,
            None => {
                let place = (&self.owner, &self.thread);
                projector_at(
                    &*self.journal,
                    place,
                    self.view.projection.boxed_clone(),
                    (self.view.history_start, self.cursor),
                )
                .await?
            }
        };
        let page = self.journal.read_page(&self.owner, &self.thread, self.cursor, VIEWER_PAGE).await?;
        let mut frames = Frames::for_records(&page.records).with_skip(self.view.skip_frames);
        let until = self.end_seq.unwrap_or(Seq(u64::MAX));
        for record in page.records.iter().take_while(|record| record.seq <= until) {
            projector.project(record, &mut frames);
            self.cursor = record.seq;
            if frames.is_finished() {
                break;
            }
        }
        self.view.skip_frames = frames.remaining_skip();
        self.at_head = page.records.is_empty() || self.cursor >= page.head;
        self.projector = Some(projector);
        let (bytes, _, over) = frames.into_parts();
        // Who is shown so much and no more has no use for what comes.
        self.ended = over || self.cursor >= until || (self.at_head && self.end_seq.is_some());
        Ok(bytes)
    }
}

/// A projector at the cursor: fresh where each record speaks for itself, else led there from its run's beginning.
/// Not a method: a projector may not be shared, so nothing that holds one is borrowed over the read.
async fn projector_at(
    journal: &dyn Journal,
    (owner, thread): (&UserId, &ThreadId),
    mut projector: Box<dyn Projection>,
    (from, cursor): (Seq, Seq),
) -> Result<Box<dyn Projection>, StoreError> {
    let mut at = from;
    while projector.needs_history() && at < cursor {
        let page = journal.read_page(owner, thread, at, PageLimit::WIDE).await?;
        let known = page.records.iter().take_while(|record| record.seq <= cursor);
        let mut unseen = Frames::default();
        let before = at;
        for record in known {
            projector.project(record, &mut unseen);
            at = record.seq;
        }
        if at == before {
            break;
        }
    }
    Ok(projector)
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.topic.unregister_viewer(self.slot);
        self.hub.unsubscribe(&self.thread);
    }
}
