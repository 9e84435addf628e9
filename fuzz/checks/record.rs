//! The check of the fuzz target `record`: whatever bytes a store returns, a record decodes to an event or to an unknown
//! one, what is written again reads the same, and the fold of it ends.
//!
//! The input is the public half, then a zero byte and the private half.

use model::event::Event;
use model::fold::RunFold;
use model::record::{Record, RecordHeader};
use model::{Epoch, Seq, TaskId, ThreadId};

pub(crate) fn a_record_decodes_the_same_twice(bytes: &[u8]) {
    let (public, private) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &bytes[..0]),
    };
    let record = stored(public, private);
    let _ = (record.event_type(), record.task_id(), record.has_valid_checksum(&ThreadId::from("thr_1")));
    let event = record.event();
    // Bytes that this version does not know are kept, and never written again.
    if !matches!(event, Event::Unknown(_)) {
        let written = serde_json::to_vec(event).unwrap();
        assert_eq!(serde_json::to_vec(&Event::decode(&written)).unwrap(), written, "{event:?}");
    }
    let private = record.private();
    let mut fold = RunFold::default();
    if fold.apply(&record).is_ok() {
        let mut same = RunFold::default();
        assert!(same.apply_event(Seq(1), 5, event, private.as_ref()).is_ok(), "{event:?}");
        assert_eq!(same, fold);
    }
}

fn stored(public: &[u8], private: &[u8]) -> Record {
    let run = TaskId::from("task_1");
    let header = RecordHeader { seq: Seq(1), at: 5, run, epoch: Epoch(1), format: 1, checksum: 0 };
    Record::from_stored(header, public.to_vec().into(), private.to_vec().into())
}
