//! The live end of every watched thread.
//!
//! A viewer is a cursor and a waker; it has no queue. A [`Topic`] exists while its thread has viewers, and holds one *lane*
//! for each projection in use: a projector and the frames of the latest records, encoded once and shared. The thread that
//! commits only hands the records over and wakes the viewers; the first of them writes the frames of its lane. A viewer near
//! the head takes frames from its lane; one that fell behind, or has just subscribed, reads the log. Both are indexed by
//! `seq`, so switching between them needs no handshake:
//!
//! ```text
//!   seq   1 … 40 41 42 43 44 45 46 │ 47 48          log: all durable records
//!                     └─ lane ─────┘ └ in flight    lane: the last few, as frames
//!         viewer at 12: log   viewer at 44: lane    viewer at 46: waits for `head` > 46
//! ```
//!
//! Wake-ups are a level ("the head is 46"), not messages: none can be lost and none can pile up.

// Relative, because a test compiles this file with another mutex.
use super::sync::{Mutex, MutexGuard, lock};
use bytes::{Bytes, BytesMut};
use foldhash::HashMap;
use model::limits::WRITE_BYTES_MAX;
use model::ports::{FrameEnd, Frames, Projection};
use model::{Record, Seq, ThreadId};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// How many bytes of several chunks are copied together for a viewer that was late.
const COALESCED_BYTES_MAX: usize = 4 * 1024;
/// Up to this many viewers are woken on the store's own thread, which all threads share; more of them by the actor.
const INLINE_PUBLISH_VIEWERS_MAX: usize = 16;
const LANE_BYTES_MAX: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct Hub {
    topics: Mutex<HashMap<ThreadId, TopicEntry>>,
}

struct TopicEntry {
    topic: Arc<Topic>,
    viewers: usize,
}

impl Hub {
    /// Adds a viewer to the topic of a thread. [`Hub::unsubscribe`] removes it.
    pub(crate) fn subscribe(&self, thread: &ThreadId) -> Arc<Topic> {
        let mut topics = lock(&self.topics);
        let entry = topics
            .entry(thread.clone())
            .or_insert_with(|| TopicEntry { topic: Arc::new(Topic::default()), viewers: 0 });
        entry.viewers += 1;
        Arc::clone(&entry.topic)
    }

    /// Removes a viewer, and the topic with the last one.
    pub(crate) fn unsubscribe(&self, thread: &ThreadId) {
        let mut topics = lock(&self.topics);
        if let Some(entry) = topics.get_mut(thread) {
            entry.viewers -= 1;
            if entry.viewers == 0 {
                topics.remove(thread);
            }
        }
    }

    pub(crate) fn watched_threads(&self) -> HashSet<ThreadId> {
        lock(&self.topics).keys().cloned().collect()
    }

    /// Publishes records that became durable. Their frames are written here, before a viewer is woken: for many viewers, and
    /// for frames that take long.
    pub(crate) fn publish(&self, thread: &ThreadId, records: &Arc<[Record]>) {
        if let Some(topic) = self.topic(thread) {
            topic.publish_frames(records);
        }
    }

    /// Publishes records that became durable if that is quick; the caller must not be held up. The first viewer that is woken
    /// writes the frames, for all viewers of its lane.
    #[must_use]
    pub(crate) fn try_publish_inline(&self, thread: &ThreadId, records: &Arc<[Record]>) -> bool {
        let watched = lock(&self.topics).get(thread).map(|entry| (Arc::clone(&entry.topic), entry.viewers));
        match watched {
            Some((_, viewers)) if viewers > INLINE_PUBLISH_VIEWERS_MAX => return false,
            Some((topic, _)) => topic.publish_records(records),
            None => {}
        }
        true
    }

    fn topic(&self, thread: &ThreadId) -> Option<Arc<Topic>> {
        lock(&self.topics).get(thread).map(|entry| Arc::clone(&entry.topic))
    }

    /// Tells viewers that the log reaches up to `head`. Records of an append with an unknown outcome were never published:
    /// viewers read them from the log.
    pub(crate) fn advance_head(&self, thread: &ThreadId, head: Seq) {
        if let Some(topic) = self.topic(thread) {
            topic.advance_head(head);
        }
    }

    /// Ends the streams of a thread that was deleted.
    pub(crate) fn close(&self, thread: &ThreadId) {
        if let Some(topic) = self.topic(thread) {
            topic.close();
        }
    }

    /// Ends all streams: the process stops.
    pub(crate) fn close_all(&self) {
        let topics: Vec<Arc<Topic>> = lock(&self.topics).values().map(|entry| Arc::clone(&entry.topic)).collect();
        for topic in topics {
            topic.close();
        }
    }
}

/// One watched thread. Lock order: `lanes`, then `feed`. A commit locks only `feed`, so it never waits while frames are
/// written.
#[derive(Default)]
pub(crate) struct Topic {
    lanes: Mutex<Lanes>,
    feed: Mutex<Feed>,
}

/// What was published, and who waits for more.
#[derive(Default)]
struct Feed {
    /// The last record that was published here.
    head: Seq,
    /// The records after this one and up to the head, as far as a lane may still need them.
    batches: VecDeque<Arc<[Record]>>,
    batches_after: Seq,
    batch_bytes: usize,
    closed: bool,
    wakers: WakerSlots,
}

impl Feed {
    fn push(&mut self, records: &Arc<[Record]>, last: Seq) {
        self.head = self.head.max(last);
        self.batch_bytes += size_of_records(records);
        self.batches.push_back(Arc::clone(records));
        // A lane that nobody reads any more must not keep everything.
        while self.batch_bytes > LANE_BYTES_MAX && self.batches.len() > 1 {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.batches.pop_front() else { return };
        self.batch_bytes -= size_of_records(&oldest);
        self.batches_after = oldest.last().map_or(self.batches_after, |last| last.seq);
    }

    /// Drops the batches that every lane has, if the slowest one has this record.
    fn drop_up_to(&mut self, slowest: Seq) {
        while self.batches.front().is_some_and(|batch| batch.last().is_none_or(|last| last.seq <= slowest)) {
            self.drop_oldest();
        }
    }

    /// There is nothing between the lanes and `head`.
    fn skip_to(&mut self, head: Seq) {
        self.batches.clear();
        (self.head, self.batches_after, self.batch_bytes) = (head, head, 0);
    }

    fn batches_after(&self, seq: Seq) -> Vec<Arc<[Record]>> {
        let is_new = |batch: &&Arc<[Record]>| batch.last().is_some_and(|last| last.seq > seq);
        self.batches.iter().filter(is_new).cloned().collect()
    }
}

fn size_of_records(records: &[Record]) -> usize {
    records.iter().map(Record::size_bytes).sum()
}

/// One for each projection in use, so there are few.
#[derive(Default)]
struct Lanes(Vec<(Arc<str>, Lane)>);

impl Lanes {
    fn find(&mut self, name: &Arc<str>) -> Option<&mut Lane> {
        self.0.iter_mut().find(|(lane, _)| is_same_name(lane, name)).map(|(_, lane)| lane)
    }

    /// Removes what cannot be continued: a lane with a gap would look complete. A viewer that has not read all of an ended
    /// lane finds the rest in the log.
    fn retain_continuable(&mut self, feed: &Feed) {
        self.0.retain(|(_, lane)| {
            lane.projected_seq >= feed.head || (lane.projected_seq >= feed.batches_after && !lane.is_ended())
        });
    }

    /// The last record that all lanes but this one have.
    fn slowest_but(&self, name: &Arc<str>) -> Seq {
        let others = self.0.iter().filter(|(lane, _)| !is_same_name(lane, name));
        others.map(|(_, lane)| lane.projected_seq).min().unwrap_or(Seq(u64::MAX))
    }
}

/// A lane has the name of its first viewer, who is nearly always the one that asks: then the text is not read.
fn is_same_name(one: &Arc<str>, other: &Arc<str>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

/// One slot per viewer, so that a viewer that polls twice is woken once.
#[derive(Default)]
struct WakerSlots {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

impl WakerSlots {
    fn allocate(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.wakers.push(None);
            self.wakers.len() - 1
        })
    }

    fn release(&mut self, slot: usize) {
        self.set(slot, None);
        self.free.push(slot);
    }

    fn set(&mut self, slot: usize, waker: Option<Waker>) {
        if let Some(entry) = self.wakers.get_mut(slot) {
            *entry = waker;
        }
    }

    fn take_all(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }
}

/// The latest frames of one projection.
struct Lane {
    projector: Box<dyn Projection>,
    /// The last record that the projector saw.
    projected_seq: Seq,
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

/// The frames of records that were published together.
struct Chunk {
    /// The first record is the one after this…
    after: Seq,
    /// …and this is the last one.
    last: Seq,
    bytes: Bytes,
    frame_ends: Vec<FrameEnd>,
    ended: bool,
}

/// The answer to a [`FrameRequest`].
pub(crate) enum LaneFrames {
    Frames {
        /// May be empty, when the projection has no frames for these records.
        bytes: Bytes,
        /// The last record that the frames cover.
        last_seq: Seq,
        ended: bool,
    },
    /// The lane does not have the next record: read the log.
    Behind,
    /// The waker will be woken.
    Pending,
    Closed,
}

pub(crate) struct FrameRequest<'a> {
    pub(crate) slot: usize,
    pub(crate) lane: &'a Arc<str>,
    /// The last record that the viewer has.
    pub(crate) cursor: Seq,
    /// The viewer's projector at the cursor, to open a lane that does not exist.
    pub(crate) projector: Option<&'a dyn Projection>,
}

impl Topic {
    /// Returns the frames after the cursor, or registers the waker.
    pub(crate) fn poll_frames(&self, request: &FrameRequest<'_>, waker: &Waker) -> LaneFrames {
        let mut lanes = lock(&self.lanes);
        let mut feed = lock(&self.feed);
        if feed.head > request.cursor {
            let unprojected = take_unprojected(&mut feed, &mut lanes, request.lane);
            drop(feed);
            let Some(lane) = lanes.find(request.lane) else { return LaneFrames::Behind };
            lane.push(&unprojected);
            return lane.frames_after(request.cursor).unwrap_or(LaneFrames::Behind);
        }
        // Only now: frames that were published before the end are still delivered, or a complete run would look interrupted.
        if feed.closed {
            return LaneFrames::Closed;
        }
        // Nothing was published beyond the cursor, so a lane opened here misses nothing.
        if lanes.find(request.lane).is_none() {
            let Some(projector) = request.projector else { return LaneFrames::Behind };
            let lane = Lane {
                projector: projector.boxed_clone(),
                projected_seq: request.cursor,
                chunks: VecDeque::new(),
                bytes: 0,
            };
            lanes.0.push((Arc::clone(request.lane), lane));
        }
        feed.wakers.set(request.slot, Some(waker.clone()));
        LaneFrames::Pending
    }

    /// Allocates the slot of a viewer. [`Topic::unregister_viewer`] releases it.
    pub(crate) fn register_viewer(&self) -> usize {
        lock(&self.feed).wakers.allocate()
    }

    pub(crate) fn unregister_viewer(&self, slot: usize) {
        lock(&self.feed).wakers.release(slot);
    }

    /// Leaves the frames to the viewers that are woken.
    fn publish_records(&self, records: &Arc<[Record]>) {
        let mut feed = lock(&self.feed);
        let Some((records, last)) = unpublished(records, feed.head) else { return };
        feed.push(&records, last);
        wake_all(feed);
    }

    /// Writes the frames first. A thread has one append in flight, so nothing is published meanwhile.
    fn publish_frames(&self, records: &Arc<[Record]>) {
        let mut lanes = lock(&self.lanes);
        let feed = lock(&self.feed);
        let Some((records, last)) = unpublished(records, feed.head) else { return };
        lanes.retain_continuable(&feed);
        let earlier = feed.batches_after(Seq::ZERO);
        drop(feed);
        for (_, lane) in lanes.0.iter_mut().filter(|(_, lane)| !lane.is_ended()) {
            lane.push(&earlier);
            lane.push(std::slice::from_ref(&records));
        }
        let mut feed = lock(&self.feed);
        feed.skip_to(last);
        wake_all(feed);
    }

    fn advance_head(&self, head: Seq) {
        let mut lanes = lock(&self.lanes);
        let mut feed = lock(&self.feed);
        if head <= feed.head {
            return;
        }
        feed.skip_to(head);
        lanes.retain_continuable(&feed);
        wake_all(feed);
    }

    fn close(&self) {
        let mut feed = lock(&self.feed);
        feed.closed = true;
        wake_all(feed);
    }
}

/// The records after the head, and the last of them. A thread that changes its node may be published twice: by its actor and
/// by its tail.
fn unpublished(records: &Arc<[Record]>, head: Seq) -> Option<(Arc<[Record]>, Seq)> {
    let (first, last) = (records.first()?.seq, records.last()?.seq);
    match (first > head, last > head) {
        (true, _) => Some((Arc::clone(records), last)),
        (false, true) => Some((records.iter().filter(|record| record.seq > head).cloned().collect(), last)),
        (false, false) => None,
    }
}

/// The batches that a lane has not seen. The feed keeps them only for the other lanes.
fn take_unprojected(feed: &mut Feed, lanes: &mut Lanes, name: &Arc<str>) -> Vec<Arc<[Record]>> {
    lanes.retain_continuable(feed);
    let Some(projected_seq) = lanes.find(name).map(|lane| lane.projected_seq) else { return Vec::new() };
    let unprojected = feed.batches_after(projected_seq);
    feed.drop_up_to(lanes.slowest_but(name));
    unprojected
}

/// Wakes all waiting viewers after the lock is released.
fn wake_all(mut feed: MutexGuard<'_, Feed>) {
    let waiting = feed.wakers.take_all();
    drop(feed);
    waiting.into_iter().for_each(Waker::wake);
}

impl Lane {
    fn is_ended(&self) -> bool {
        self.chunks.back().is_some_and(|chunk| chunk.ended)
    }

    /// Projects the records that the projector has not seen in the log already.
    fn push(&mut self, batches: &[Arc<[Record]>]) {
        let after = self.projected_seq;
        let mut frames = Frames::for_records(batches.iter().flat_map(|batch| batch.iter()));
        for batch in batches {
            for record in batch.iter().filter(|record| record.seq > after) {
                self.projector.project(record, &mut frames);
                self.projected_seq = record.seq;
            }
            if frames.is_finished() {
                break;
            }
        }
        if self.projected_seq == after {
            return;
        }
        let (bytes, frame_ends, ended) = frames.into_parts();
        // Records without frames extend the last chunk, so that cursors advance past them.
        if bytes.is_empty()
            && !ended
            && let Some(last) = self.chunks.back_mut()
        {
            last.last = self.projected_seq;
            return;
        }
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk { after, last: self.projected_seq, bytes, frame_ends, ended });
        while self.bytes > LANE_BYTES_MAX && self.chunks.len() > 1 {
            let oldest = self.chunks.pop_front();
            self.bytes -= oldest.map_or(0, |chunk| chunk.bytes.len());
        }
    }

    /// The frames after a cursor, at most one write. `None` when the lane does not reach back that far.
    fn frames_after(&self, cursor: Seq) -> Option<LaneFrames> {
        // Nearly all viewers need the newest chunk.
        let newest = self.chunks.back().is_some_and(|chunk| chunk.after <= cursor);
        let first =
            if newest { self.chunks.len() - 1 } else { self.chunks.partition_point(|chunk| chunk.last <= cursor) };
        let mut chunks = self.chunks.iter().skip(first);
        let chunk = chunks.next().filter(|chunk| chunk.after <= cursor)?;
        let (bytes, last_seq) = chunk.slice_after(cursor);
        // The common case: one chunk, shared by all viewers without a copy.
        if last_seq < chunk.last || chunk.ended || bytes.len() >= WRITE_BYTES_MAX || last_seq == self.projected_seq {
            return Some(LaneFrames::Frames { bytes, last_seq, ended: chunk.ended && last_seq == chunk.last });
        }
        let (mut size, mut last_seq, mut ended) = (bytes.len(), last_seq, false);
        let mut taken = vec![bytes];
        for chunk in chunks {
            if size + chunk.bytes.len() > COALESCED_BYTES_MAX || ended {
                break;
            }
            size += chunk.bytes.len();
            taken.push(chunk.bytes.clone());
            (last_seq, ended) = (chunk.last, chunk.ended);
        }
        // The exact capacity: a reader that stalls holds this buffer for as long as it is connected.
        let mut gathered = BytesMut::with_capacity(size);
        taken.iter().for_each(|bytes| gathered.extend_from_slice(bytes));
        Some(LaneFrames::Frames { bytes: gathered.freeze(), last_seq, ended })
    }
}

impl Chunk {
    /// The frames after a cursor, at most one write, and the last record that they cover.
    fn slice_after(&self, cursor: Seq) -> (Bytes, Seq) {
        let skipped = self.frame_ends.partition_point(|end| end.seq <= cursor);
        let start = skipped.checked_sub(1).and_then(|at| self.frame_ends.get(at)).map_or(0, |end| end.end);
        if self.bytes.len() - start <= WRITE_BYTES_MAX {
            return (self.bytes.slice(start..), self.last);
        }
        let fitting = self.frame_ends.partition_point(|end| end.end <= start + WRITE_BYTES_MAX);
        // The frames of one record are never split, however large they are.
        match self.frame_ends.get(fitting.saturating_sub(1).max(skipped)) {
            Some(end) => (self.bytes.slice(start..end.end), end.seq),
            None => (self.bytes.slice(start..), self.last),
        }
    }
}
