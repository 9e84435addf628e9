//! The hub under every interleaving that a random scheduler finds.
//!
//! A log that grows, a writer that publishes what it appended, and viewers that come at any moment, from any cursor: each
//! must end with exactly the records after its cursor (law 5), and never see one before it was durable (law 7).

#[path = "../../src/hub.rs"]
#[expect(dead_code, reason = "the engine uses more of it")]
mod hub;

/// Takes the place of the engine's `sync`. A feature of the engine would do the same, but it needs a second build of all that
/// the engine is built from.
mod sync {
    pub(crate) use shuttle::sync::{Mutex, MutexGuard};

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

use hub::{FrameRequest, Hub, LaneFrames};
use model::event::{Event, TaskStarted};
use model::ports::{Frames, Projection};
use model::{Epoch, Record, RecordDraft, Seq, TaskId, ThreadId};
use shuttle::sync::{Arc, Condvar, Mutex};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Wake};

const RECORDS: u64 = 6;

/// One byte per record, its seq; over after the last.
#[derive(Clone)]
struct Numbers;

impl Projection for Numbers {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let byte = u8::try_from(record.seq.0).expect("a small log");
        out.write(record.seq, |bytes| bytes.extend_from_slice(&[byte]));
        if record.seq.0 == RECORDS {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        false
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(Self)
    }
}

fn record(seq: u64) -> Record {
    let run = TaskId::from("task_1");
    let event = Event::Started(TaskStarted { task_id: run.clone() });
    Record::seal(&ThreadId::from("thr_1"), &run, Epoch(1), RecordDraft { seq: Seq(seq), at: 0, event, private: None })
}

/// Wakes a viewer and nothing else. The waker of `shuttle::future::block_on` is also used by shuttle's locks, so that a viewer
/// which once waited for a lock is polled again without having been woken.
#[derive(Default)]
struct ViewerWaker {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for ViewerWaker {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (mut future, viewer) = (pin!(future), Arc::new(ViewerWaker::default()));
    let waker = Arc::clone(&viewer).into();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let mut woken = viewer.woken.lock().unwrap();
        while !*woken {
            woken = viewer.changed.wait(woken).unwrap();
        }
        *woken = false;
    }
}

/// A viewer as `crate::Viewer` is one, over a log that is a list.
async fn watch(hub: &Hub, log: &Mutex<Vec<Record>>, cursor: u64) -> Vec<u8> {
    let thread = ThreadId::from("thr_1");
    let topic = hub.subscribe(&thread);
    let seat = topic.register_viewer();
    let (mut cursor, mut seen, mut at_head, mut over) = (Seq(cursor), Vec::new(), false, false);
    let name: Arc<str> = "numbers".into();
    while !over {
        if !at_head {
            let durable = log.lock().unwrap().clone();
            let mut frames = Frames::default();
            let after = cursor;
            for record in durable.iter().filter(|record| record.seq > after).take(2) {
                Numbers.project(record, &mut frames);
                cursor = record.seq;
            }
            at_head = cursor.0 >= durable.len() as u64;
            let (bytes, _, ended) = frames.into_parts();
            seen.extend_from_slice(&bytes);
            over = ended;
            continue;
        }
        let take = poll_fn(|cx| {
            match topic
                .poll_frames(&FrameRequest { slot: seat, lane: &name, cursor, projector: Some(&Numbers) }, cx.waker())
            {
                LaneFrames::Pending => Poll::Pending,
                take => Poll::Ready(take),
            }
        });
        match take.await {
            LaneFrames::Frames { bytes, last_seq: to, ended } => {
                let durable = log.lock().unwrap().len() as u64;
                assert!(to.0 <= durable, "a viewer was shown record {to} of {durable}");
                seen.extend_from_slice(&bytes);
                (cursor, over) = (to, ended);
            }
            LaneFrames::Behind => at_head = false,
            LaneFrames::Closed | LaneFrames::Pending => over = true,
        }
    }
    topic.unregister_viewer(seat);
    hub.unsubscribe(&thread);
    seen
}

#[test]
fn law_5_any_interleaving_of_append_and_attach() {
    let schedules = if std::env::vars().any(|(name, _)| name == "HEADWATER_TEST_FULL") { 20_000 } else { 2_000 };
    shuttle::check_random(
        || {
            let hub = Arc::new(Hub::default());
            let log = Arc::new(Mutex::new(Vec::new()));
            let viewers: Vec<_> = [0, 0, 2, 5]
                .into_iter()
                .map(|cursor| {
                    let (hub, log) = (Arc::clone(&hub), Arc::clone(&log));
                    shuttle::thread::spawn(move || {
                        // A cursor refers to a record that exists, because its holder has received it.
                        while (log.lock().unwrap().len() as u64) < cursor {
                            shuttle::thread::yield_now();
                        }
                        let seen = block_on(watch(&hub, &log, cursor));
                        let all: Vec<u8> = (cursor + 1..=RECORDS).map(|seq| u8::try_from(seq).unwrap()).collect();
                        assert_eq!(seen, all, "from cursor {cursor}");
                    })
                })
                .collect();
            for batch in [1..=1, 2..=4, 5..=RECORDS] {
                let records: Arc<[Record]> = batch.map(record).collect();
                log.lock().unwrap().extend(records.iter().cloned());
                hub.publish(&ThreadId::from("thr_1"), &records);
            }
            for viewer in viewers {
                viewer.join().unwrap();
            }
        },
        schedules,
    );
}
