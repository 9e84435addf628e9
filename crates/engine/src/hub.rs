//! The live end of every watched thread.
//!
//! A viewer is a cursor and a waker; it has no queue. A [`Topic`] exists while somebody watches its thread, and holds for
//! each projection in use one *lane*: a projector and the frames that it made of the latest records, encoded once and
//! shared. A viewer near the head takes frames from its lane; one that fell behind reads the log, as one that just came
//! does. Both are indexed by `seq`, so going from one to the other needs no hand-shake:
//!
//! ```text
//!   seq   1 … 40 41 42 43 44 45 46 │ 47 48          log: all durable records
//!                     └─ lane ─────┘ └ in flight    lane: the last few, as frames
//!         viewer at 12: log   viewer at 44: lane    viewer at 46: waits for `head` > 46
//! ```
//!
//! Wake-ups are a level ("the head is 46"), not messages: none can be lost and none can pile up.

use crate::sync::{Mutex, lock};
use bytes::{Bytes, BytesMut};
use model::limits::WRITE_BYTES_MAX;
use model::ports::{FrameEnd, Frames, Projection};
use model::{Record, Seq, ThreadId};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

/// How much of a lane one viewer gets as a copy of its own, when it was late and several chunks wait for it.
const COALESCED_BYTES_MAX: usize = 4 * 1024;
/// So many viewers are told by the store itself; more of them by the thread's actor, for the store is everybody's.
const INLINE_PUBLISH_VIEWERS_MAX: usize = 16;
/// How many bytes of frames a lane keeps.
const LANE_BYTES_MAX: usize = 256 * 1024;

/// Every watched thread.
#[derive(Default)]
pub(crate) struct Hub {
    topics: Mutex<HashMap<ThreadId, TopicEntry>>,
}

struct TopicEntry {
    topic: Arc<Topic>,
    viewers: usize,
}

impl Hub {
    /// The thread's topic, for one more viewer. Give it back with [`Hub::leave`].
    pub(crate) fn subscribe(&self, thread: &ThreadId) -> Arc<Topic> {
        let mut topics = lock(&self.topics);
        let watched = topics
            .entry(thread.clone())
            .or_insert_with(|| TopicEntry { topic: Arc::new(Topic::default()), viewers: 0 });
        watched.viewers += 1;
        Arc::clone(&watched.topic)
    }

    /// A viewer went. The last one takes the topic with it.
    pub(crate) fn unsubscribe(&self, thread: &ThreadId) {
        let mut topics = lock(&self.topics);
        if let Some(watched) = topics.get_mut(thread) {
            watched.viewers -= 1;
            if watched.viewers == 0 {
                topics.remove(thread);
            }
        }
    }

    /// Records became durable.
    pub(crate) fn publish(&self, thread: &ThreadId, records: &[Record]) {
        self.publish_if_at_most(thread, records, usize::MAX);
    }

    /// Records became durable, says somebody whose time is precious: shows them, if that is quickly done.
    #[must_use]
    pub(crate) fn try_publish_inline(&self, thread: &ThreadId, records: &[Record]) -> bool {
        self.publish_if_at_most(thread, records, INLINE_PUBLISH_VIEWERS_MAX)
    }

    fn publish_if_at_most(&self, thread: &ThreadId, records: &[Record], viewers_max: usize) -> bool {
        let watched = lock(&self.topics).get(thread).map(|watched| (Arc::clone(&watched.topic), watched.viewers));
        match watched {
            Some((_, viewers)) if viewers > viewers_max => return false,
            Some((topic, _)) => topic.publish(records),
            None => {}
        }
        true
    }

    /// The log is known to reach so far: what nobody showed of it, because nobody knew what became of it, is read there.
    pub(crate) fn advance_head(&self, thread: &ThreadId, head: Seq) {
        let topic = lock(&self.topics).get(thread).map(|watched| Arc::clone(&watched.topic));
        if let Some(topic) = topic {
            topic.advance_head(head);
        }
    }

    /// The thread is gone: nothing will follow.
    pub(crate) fn close(&self, thread: &ThreadId) {
        let topic = lock(&self.topics).get(thread).map(|watched| Arc::clone(&watched.topic));
        if let Some(topic) = topic {
            topic.close();
        }
    }

    /// The server stops: nobody waits any longer.
    pub(crate) fn close_all(&self) {
        let topics: Vec<Arc<Topic>> = lock(&self.topics).values().map(|watched| Arc::clone(&watched.topic)).collect();
        for topic in topics {
            topic.close();
        }
    }
}

/// One watched thread.
#[derive(Default)]
pub(crate) struct Topic {
    state: Mutex<TopicState>,
}

#[derive(Default)]
struct TopicState {
    /// The last record that was published here.
    head: Seq,
    closed: bool,
    /// Few: one for each projection in use.
    lanes: Vec<(Arc<str>, Lane)>,
    /// Who waits, by the viewer's seat.
    wakers: WakerSlots,
}

/// One place for a waker per viewer, so that whoever asks twice waits once.
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

    fn release(&mut self, seat: usize) {
        self.set(seat, None);
        self.free.push(seat);
    }

    fn set(&mut self, seat: usize, waker: Option<Waker>) {
        if let Some(place) = self.wakers.get_mut(seat) {
            *place = waker;
        }
    }

    fn take_all(&mut self) -> Vec<Waker> {
        self.wakers.iter_mut().filter_map(Option::take).collect()
    }
}

/// One projection's latest frames.
struct Lane {
    projector: Box<dyn Projection>,
    /// The last record that the projector saw.
    projected_seq: Seq,
    chunks: VecDeque<Chunk>,
    bytes: usize,
}

/// The frames of records that were published together.
struct Chunk {
    /// It has the records after this one…
    after: Seq,
    /// …up to this one.
    last: Seq,
    bytes: Bytes,
    frame_ends: Vec<FrameEnd>,
    ended: bool,
}

/// What a viewer finds.
pub(crate) enum LaneFrames {
    /// Frames, and the place after them.
    Frames {
        /// The frames; may be empty when no record was in the viewer's scope.
        bytes: Bytes,
        /// The last record that they cover.
        last_seq: Seq,
        /// Nothing will follow.
        ended: bool,
    },
    /// What comes next is not here any more, or not yet: read the log.
    Behind,
    /// There is nothing more yet. The waker will be woken.
    Pending,
    /// There will be nothing more.
    Closed,
}

/// Who asks, and from where.
pub(crate) struct FrameRequest<'a> {
    /// The viewer's seat.
    pub(crate) slot: usize,
    /// The projection that it watches.
    pub(crate) lane: &'a Arc<str>,
    /// The last record that it has.
    pub(crate) cursor: Seq,
    /// Its projector at that place, to open the lane with where there is none.
    pub(crate) projector: Option<&'a dyn Projection>,
}

impl TopicState {
    fn lane(&self, name: &str) -> Option<&Lane> {
        self.lanes.iter().find(|(lane, _)| **lane == *name).map(|(_, lane)| lane)
    }
}

impl Topic {
    /// Gives a viewer at the head what follows, or lets it wait.
    pub(crate) fn poll_frames(&self, ask: &FrameRequest<'_>, waker: &Waker) -> LaneFrames {
        let mut state = lock(&self.state);
        if state.head > ask.cursor {
            return state.lane(ask.lane).and_then(|lane| lane.frames_after(ask.cursor)).unwrap_or(LaneFrames::Behind);
        }
        // Only now: what was published before the end is still given, or a run that ended in time would look cut.
        if state.closed {
            return LaneFrames::Closed;
        }
        // Nothing was published beyond the cursor, so a lane opened here misses nothing.
        if state.lane(ask.lane).is_none() {
            let Some(projector) = ask.projector else { return LaneFrames::Behind };
            let lane = Lane {
                projector: projector.boxed_clone(),
                projected_seq: ask.cursor,
                chunks: VecDeque::new(),
                bytes: 0,
            };
            state.lanes.push((Arc::clone(ask.lane), lane));
        }
        state.wakers.set(ask.slot, Some(waker.clone()));
        LaneFrames::Pending
    }

    /// A seat for a viewer. It is given back with [`Topic::leave`].
    pub(crate) fn register_viewer(&self) -> usize {
        lock(&self.state).wakers.allocate()
    }

    /// A viewer went.
    pub(crate) fn unregister_viewer(&self, seat: usize) {
        lock(&self.state).wakers.release(seat);
    }

    fn publish(&self, records: &[Record]) {
        let Some(last) = records.last() else { return };
        let mut state = lock(&self.state);
        // A lane that has ended has no more to give; whoever has not read all of it finds the rest in the log.
        state.lanes.retain(|(_, lane)| !lane.is_ended());
        for (_, lane) in &mut state.lanes {
            lane.push(records);
        }
        state.head = state.head.max(last.seq);
        let waiting = state.wakers.take_all();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn advance_head(&self, head: Seq) {
        let mut state = lock(&self.state);
        if head <= state.head {
            return;
        }
        // A lane with a hole in it would look whole.
        state.lanes.retain(|(_, lane)| lane.projected_seq >= head);
        state.head = head;
        let waiting = state.wakers.take_all();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let waiting = state.wakers.take_all();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Lane {
    fn is_ended(&self) -> bool {
        self.chunks.back().is_some_and(|chunk| chunk.ended)
    }

    /// Projects new records. Those that the projector has seen already came by way of the log.
    fn push(&mut self, records: &[Record]) {
        let mut frames = Frames::for_records(records);
        let after = self.projected_seq;
        for record in records.iter().filter(|record| record.seq > after) {
            self.projector.project(record, &mut frames);
            self.projected_seq = record.seq;
        }
        if self.projected_seq == after {
            return;
        }
        let (bytes, ends, over) = frames.into_parts();
        // Records out of scope make no frames, but time passes: the last chunk reaches up to them.
        if bytes.is_empty()
            && !over
            && let Some(last) = self.chunks.back_mut()
        {
            last.last = self.projected_seq;
            return;
        }
        self.bytes += bytes.len();
        self.chunks.push_back(Chunk { after, last: self.projected_seq, bytes, frame_ends: ends, ended: over });
        while self.bytes > LANE_BYTES_MAX && self.chunks.len() > 1 {
            let oldest = self.chunks.pop_front();
            self.bytes -= oldest.map_or(0, |chunk| chunk.bytes.len());
        }
    }

    /// The frames after a place, as much as one write takes. `None` when the lane does not reach back that far.
    fn frames_after(&self, cursor: Seq) -> Option<LaneFrames> {
        // Nearly everybody wants the newest one.
        let newest = self.chunks.back().is_some_and(|chunk| chunk.after <= cursor);
        let first =
            if newest { self.chunks.len() - 1 } else { self.chunks.partition_point(|chunk| chunk.last <= cursor) };
        let mut chunks = self.chunks.iter().skip(first);
        let chunk = chunks.next().filter(|chunk| chunk.after <= cursor)?;
        let (bytes, to) = chunk.slice_after(cursor);
        // The common case: one chunk, shared by all viewers without a copy.
        if to < chunk.last || chunk.ended || bytes.len() >= WRITE_BYTES_MAX || to == self.projected_seq {
            return Some(LaneFrames::Frames { bytes, last_seq: to, ended: chunk.ended && to == chunk.last });
        }
        let mut taken = vec![bytes];
        let (mut size, mut to, mut over) = (taken.iter().map(Bytes::len).sum::<usize>(), to, false);
        for chunk in chunks {
            if size + chunk.bytes.len() > COALESCED_BYTES_MAX || over {
                break;
            }
            size += chunk.bytes.len();
            taken.push(chunk.bytes.clone());
            (to, over) = (chunk.last, chunk.ended);
        }
        // Exactly as much as it needs: a reader that stops now holds it for as long as it is there.
        let mut gathered = BytesMut::with_capacity(size);
        taken.iter().for_each(|bytes| gathered.extend_from_slice(bytes));
        Some(LaneFrames::Frames { bytes: gathered.freeze(), last_seq: to, ended: over })
    }
}

impl Chunk {
    /// What it has after a place, at most one write's worth, and the place after that.
    fn slice_after(&self, cursor: Seq) -> (Bytes, Seq) {
        let skipped = self.frame_ends.partition_point(|end| end.seq <= cursor);
        let start = skipped.checked_sub(1).and_then(|at| self.frame_ends.get(at)).map_or(0, |end| end.end);
        if self.bytes.len() - start <= WRITE_BYTES_MAX {
            return (self.bytes.slice(start..), self.last);
        }
        let fitting = self.frame_ends.partition_point(|end| end.end <= start + WRITE_BYTES_MAX);
        // One record's frames always go together, however large.
        match self.frame_ends.get(fitting.saturating_sub(1).max(skipped)) {
            Some(end) => (self.bytes.slice(start..end.end), end.seq),
            None => (self.bytes.slice(start..), self.last),
        }
    }
}
