//! A viewer of a thread: a cursor that moves from the log into the hub and back.

use crate::hub::{FrameRequest, Hub, LaneFrames, Topic};
use crate::read_records::for_each_condensed_record;
use bytes::Bytes;
use model::defects::Defect;
use model::limits::WRITE_BYTES_MAX;
use model::ports::{FrameBytes, Frames, Journal, PageLimit, Projection, RecordPage, StoreError};
use model::{Record, Seq, ThreadId, UserId};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::task::{Context, Poll};

/// A page of the log for one viewer: small, because each of a thousand viewers that fell behind holds one.
const VIEWER_PAGE: PageLimit = PageLimit { records_max: 256, bytes_max: 16 * 1024 };

/// A page of which the viewer has most frames. Its records are condensed, so a few of them may stand for thousands.
const SKIPPED_PAGE: PageLimit = PageLimit { records_max: 1024, bytes_max: 256 * 1024 };

/// From this many records on, projecting a page is heavy work.
const LONG_PAGE_RECORDS: u64 = 64;

/// From this many records before the cursor on, its first write is the frames of one record: the client has waited for the
/// history to be read, and the frame of a long text takes as long again.
const LONG_HISTORY_RECORDS: u64 = 4096;

/// What a viewer watches.
pub struct View {
    /// Names the projection with its options and scope: viewers of the same lane share frames.
    pub lane: Arc<str>,
    /// The projection before its first record.
    pub projection: Box<dyn Projection>,
    /// The record before the first one of the run: a projection that needs history starts there.
    pub history_start: Seq,
    /// Number of leading frames to skip: a client may resume between two frames of one record, or count frames instead of
    /// records.
    pub skip_frames: u64,
}

/// A stream of frames. Dropping it unsubscribes; the run goes on.
pub struct Viewer {
    slot: usize,
    owner: UserId,
    thread: ThreadId,
    journal: Arc<dyn Journal>,
    hub: Arc<Hub>,
    topic: Arc<Topic>,
    view: View,
    /// The projector at the cursor; `None` once there is a lane, which has one for all its viewers. What it folded may be
    /// large, and thousands of viewers wait. A viewer that falls behind folds the log again.
    projector: Option<Box<dyn Projection>>,
    /// Frames of the log that were read and not returned, in consecutive pieces.
    read_frames: VecDeque<FrameBytes>,
    cursor: Seq,
    /// The stream ends with this record.
    end_seq: Option<Seq>,
    /// Whether the log was read up to its head. Only then the topic has everything that follows.
    at_head: bool,
    /// Whether the last page of the log was long, so that the next one probably is.
    reads_long_pages: bool,
    /// Whether the next write is the first one after a long history.
    follows_long_history: bool,
    ended: bool,
    /// The stream was cut: the thread was deleted, or the process stops.
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
        let follows_long_history = is_long_history(&view, cursor);
        Self {
            slot: topic.register_viewer(),
            owner,
            thread,
            journal,
            hub: Arc::clone(hub),
            topic,
            view,
            projector: None,
            read_frames: VecDeque::new(),
            cursor,
            end_seq: None,
            at_head: false,
            reads_long_pages: false,
            follows_long_history,
            ended: false,
            interrupted: false,
        }
    }

    /// Ends the stream with this record, whatever follows in the log.
    #[must_use]
    pub fn with_end(mut self, end_seq: Seq) -> Self {
        self.end_seq = Some(end_seq);
        self.ended = self.cursor >= end_seq;
        self
    }

    /// Uses this projector, which is at the cursor, instead of folding the log up to there.
    #[must_use]
    pub fn with_projector(mut self, projector: Option<Box<dyn Projection>>) -> Self {
        self.projector = projector;
        self
    }

    /// Reads the log up to the first frames, which [`Viewer::next`] then returns. Returns how many of the frames to skip the log
    /// does not have: none, unless it has no frame to return.
    pub async fn read_ahead(&mut self) -> Result<u64, StoreError> {
        while !self.ended && !self.at_head && self.read_frames.is_empty() {
            self.read_frames = self.next_log_frames().await?;
        }
        Ok(self.view.skip_frames)
    }

    /// Whether the stream has ended, apart from frames that were read ahead.
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the stream was cut before its end: then a client must reconnect, and must not take this for the end.
    pub const fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// The last record that the viewer has.
    pub const fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The next frames, at most one write; `None` at the end of the stream.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        let Some(first) = self.next_piece().await? else { return Ok(None) };
        if self.read_frames.is_empty() {
            return Ok(Some(first.into_bytes()));
        }
        let mut pieces = std::mem::take(&mut self.read_frames);
        pieces.push_front(first);
        let mut frames = Vec::with_capacity(pieces.iter().map(|piece| piece.as_ref().len()).sum());
        pieces.iter().for_each(|piece| frames.extend_from_slice(piece.as_ref()));
        Ok(Some(frames.into()))
    }

    /// The next frames, or a piece of them: a long text of the log is not copied. `None` at the end of the stream.
    pub async fn next_piece(&mut self) -> Result<Option<FrameBytes>, StoreError> {
        loop {
            if let Some(piece) = self.read_frames.pop_front() {
                if self.read_frames.is_empty() {
                    // Thousands of viewers wait, so nothing is kept for the next page.
                    self.read_frames = VecDeque::new();
                }
                return Ok(Some(piece));
            }
            if self.ended {
                return Ok(None);
            }
            if !self.at_head {
                self.read_frames = self.next_log_frames().await?;
                continue;
            }
            // Moved, not borrowed: a projector is not `Sync`, and the future may move to another thread.
            let this = &mut *self;
            let bytes = poll_fn(move |cx| this.poll_live(cx)).await;
            if !bytes.is_empty() {
                return Ok(Some(FrameBytes::Frames(bytes)));
            }
        }
    }

    /// Whether [`Viewer::poll_live`] has the next frames.
    pub fn is_live(&self) -> bool {
        self.at_head && !self.ended && self.read_frames.is_empty()
    }

    /// The next frames of a viewer that [is live](Viewer::is_live): what [`Viewer::next`] returns, without a future that has
    /// to be kept while nothing happens. Empty when the viewer is not live any more, or when there is more.
    pub fn poll_live(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        let request = FrameRequest {
            slot: self.slot,
            lane: &self.view.lane,
            cursor: self.cursor,
            projector: self.projector.as_deref(),
        };
        Poll::Ready(match self.topic.poll_frames(&request, cx.waker()) {
            LaneFrames::Pending => {
                // Frames that are still to be skipped are the log's, which would be folded again for them.
                if self.view.skip_frames == 0 {
                    self.projector = None;
                }
                return Poll::Pending;
            }
            // The lane's frames are shared, so they are all there. The log has them one by one.
            LaneFrames::Frames { last_seq, .. } if self.view.skip_frames > 0 && last_seq > self.cursor => {
                self.at_head = false;
                Bytes::new()
            }
            LaneFrames::Frames { bytes, last_seq, ended } => {
                self.projector = None;
                self.cursor = last_seq;
                self.ended = ended;
                bytes
            }
            LaneFrames::Behind => {
                self.at_head = false;
                Bytes::new()
            }
            LaneFrames::Closed => {
                self.ended = true;
                self.interrupted = true;
                Bytes::new()
            }
        })
    }

    /// The frames of one page of the log, in consecutive pieces. At the head the topic takes over. Cancel safe.
    async fn next_log_frames(&mut self) -> Result<VecDeque<FrameBytes>, StoreError> {
        if self.projector.is_none() {
            let (journal, view) = (&*self.journal, &self.view);
            let (from, projection) = (view.history_start, view.projection.boxed_clone());
            let projector = projector_at(journal, &self.owner, &self.thread, projection, from..self.cursor).await?;
            self.projector = Some(projector);
            self.follows_long_history = is_long_history(&self.view, self.cursor);
        }
        // Viewers that read long logs as fast as they can would else take all workers from other users. Only now: what
        // brings a projector to the cursor waits for the same permits.
        let _permit = if self.reads_long_pages { heavy_work::acquire_permit(&self.owner).await } else { None };
        let end_seq = self.end_seq.unwrap_or(Seq::MAX);
        let (range, skip_frames) = (self.cursor..end_seq, self.view.skip_frames);
        let condensed_max = match &self.projector {
            Some(projector) if projector.is_hidden() => u64::MAX,
            Some(projector) if projector.counts_condensed_frames() => skip_frames,
            Some(_) | None => 0,
        };
        let page = read_viewer_page(&*self.journal, &self.owner, &self.thread, range, condensed_max).await?;
        if page.head < self.cursor {
            // The thread was deleted and created again: the cursor is a position of the old log, whose records never come.
            (self.ended, self.interrupted) = (true, true);
            return Ok(VecDeque::new());
        }
        let Some(projector) = &mut self.projector else { return Ok(VecDeque::new()) };
        self.reads_long_pages = page.records.iter().map(Record::record_count).sum::<u64>() >= LONG_PAGE_RECORDS;
        let mut frames = Frames::for_records(&page.records).with_skip(skip_frames);
        let write_bytes = if self.follows_long_history { 1 } else { WRITE_BYTES_MAX };
        for record in page.records.iter().take_while(|record| record.seq <= end_seq) {
            // The end of what is skipped may be inside a condensed record: from there on, every record is read.
            if record.record_count() > frames.remaining_skip().max(1) && !projector.is_hidden() {
                break;
            }
            projector.project(record, &mut frames);
            self.cursor = record.seq;
            if frames.is_finished() || frames.len() >= write_bytes {
                break;
            }
        }
        self.view.skip_frames = frames.remaining_skip();
        self.follows_long_history &= frames.is_empty();
        self.at_head = page.records.is_empty() || self.cursor >= page.head;
        // A stream with a fixed end does not wait for live records.
        self.ended = frames.is_finished() || self.cursor >= end_seq || (self.at_head && self.end_seq.is_some());
        Ok(frames.into_pieces())
    }
}

fn is_long_history(view: &View, cursor: Seq) -> bool {
    let records = cursor.0.saturating_sub(view.history_start.0);
    records >= LONG_HISTORY_RECORDS && view.projection.needs_history()
}

/// The next page of a viewer, in condensed form if its first record stands for at most `condensed_max`: a delta has at most
/// one frame, so all of them are skipped. Not a method, for the reason that `projector_at` is none.
async fn read_viewer_page(
    journal: &dyn Journal,
    owner: &UserId,
    thread: &ThreadId,
    Range { start: cursor, end }: Range<Seq>,
    condensed_max: u64,
) -> Result<RecordPage, StoreError> {
    if condensed_max > 0 {
        let page = journal.read_condensed_page(owner, thread, cursor, end, SKIPPED_PAGE).await?;
        if page.records.first().is_none_or(|first| first.record_count() <= condensed_max) {
            return Ok(page);
        }
    }
    journal.read_page(owner, thread, cursor, VIEWER_PAGE).await
}

/// A projector at the end of a range: new if it needs no history, else advanced over the range.
/// Not a method: a projector is not `Sync`, so nothing that holds one may be borrowed over the read.
async fn projector_at(
    journal: &dyn Journal,
    owner: &UserId,
    thread: &ThreadId,
    mut projector: Box<dyn Projection>,
    Range { start, end: cursor }: Range<Seq>,
) -> Result<Box<dyn Projection>, StoreError> {
    if projector.needs_history() && start < cursor {
        for_each_condensed_record(journal, owner, thread, start, cursor, |record| {
            projector.project(record, &mut Frames::discarded());
            ControlFlow::<()>::Continue(())
        })
        .await?;
    }
    Ok(projector)
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.topic.unregister_viewer(self.slot);
        self.hub.unsubscribe(&self.thread);
    }
}
