//! Condensed records, for readers that need a state and no frames.
//!
//! Most records of a long run are deltas of a text that grows. Consecutive deltas of the same part are merged into one
//! record with the whole text, which folds to the same state. A merged record has the position of its last record and
//! knows how many it stands for ([`Record::record_count`]); all other records stay as they are.
//!
//! The texts are joined as they are stored: two JSON texts in a row are the JSON text of both.

use crate::event::Event;
use crate::record::{RECORD_FORMAT, Record};
use bytes::Bytes;

/// Condenses consecutive records. A store takes this as an option: it does not know what an event means.
pub type CondenseRecords = fn(Vec<Record>) -> Vec<Record>;

/// The maximum number of records in a merged record: a reader whose position is inside one has to read its records.
const MERGED_RECORDS_MAX: usize = 512;

const DELTA_MEMBER: &[u8] = br#","delta":""#;
const DELTA_END: &[u8] = br#""}"#;

/// Merges consecutive deltas of the same part of the same item.
pub fn condense_records(records: Vec<Record>) -> Vec<Record> {
    let mut condensed = Vec::new();
    let mut group = DeltaGroup::default();
    for record in records {
        if !group.accepts(&record) {
            group.flush(&mut condensed);
        }
        group.push(record);
    }
    group.flush(&mut condensed);
    condensed
}

/// Consecutive deltas of one part, or one other record.
#[derive(Default)]
struct DeltaGroup {
    records: Vec<Record>,
    /// The size of everything before the text of its first record. `None` if that is no plain delta.
    head_bytes: Option<usize>,
}

impl DeltaGroup {
    /// Whether the record is a delta of the same part as the ones before it. The head names the event, the task, the item and the
    /// part; a delta that begins with the same head has its text behind it, so nothing is searched again.
    fn accepts(&self, next: &Record) -> bool {
        let Some((last, head)) = self.records.last().zip(self.head()) else { return false };
        let follows =
            last.seq.next() == next.seq && last.run == next.run && last.epoch == next.epoch && last.at <= next.at;
        self.records.len() < MERGED_RECORDS_MAX
            && follows
            && is_stored_plainly(next)
            && next.public.strip_prefix(head).and_then(delta_text).is_some()
    }

    fn push(&mut self, record: Record) {
        if self.records.is_empty() {
            self.head_bytes = delta_head_bytes(&record);
        }
        self.records.push(record);
    }

    fn head(&self) -> Option<&[u8]> {
        self.records.first()?.public.get(..self.head_bytes?)
    }

    /// Moves its records into `condensed`, merged if there is more than one.
    fn flush(&mut self, condensed: &mut Vec<Record>) {
        match self.merge() {
            Some(merged) => condensed.push(merged),
            None => condensed.append(&mut self.records),
        }
        self.records.clear();
    }

    fn merge(&self) -> Option<Record> {
        let (first, last) = self.records.first().zip(self.records.last()).filter(|_| self.records.len() > 1)?;
        let head = self.head()?;
        // The head is the same in all of them, so one look tells whether it is that of a delta.
        let is_delta = match first.event() {
            Event::TextDelta(delta) => delta.logprobs.is_none(),
            Event::SummaryDelta(_) | Event::ArgumentsDelta(_) => true,
            _ => false,
        };
        let mut public = is_delta.then(|| head.to_vec())?;
        for record in &self.records {
            public.extend_from_slice(record.public.get(head.len()..)?.strip_suffix(DELTA_END)?);
        }
        public.extend_from_slice(DELTA_END);
        Some(last.merged(Bytes::from(public), u32::try_from(self.records.len()).ok()?))
    }
}

/// Whether nothing but its text distinguishes the record from other deltas.
fn is_stored_plainly(record: &Record) -> bool {
    record.private.is_empty() && record.format == RECORD_FORMAT && record.record_count() == 1
}

/// The size of everything before the text of a delta. `None` unless the text is the last member and plain.
fn delta_head_bytes(record: &Record) -> Option<usize> {
    let is_delta = matches!(
        record.event_type(),
        "task.text.delta" | "task.reasoning_summary_text.delta" | "task.tool_call_arguments.delta"
    );
    if !is_delta || !is_stored_plainly(record) {
        return None;
    }
    let member = record.public.windows(DELTA_MEMBER.len()).position(|bytes| bytes == DELTA_MEMBER)?;
    let head_bytes = member + DELTA_MEMBER.len();
    record.public.get(head_bytes..).and_then(delta_text).map(|_| head_bytes)
}

/// The text of a delta, with the escapes of JSON, from the bytes behind its head.
fn delta_text(rest: &[u8]) -> Option<&[u8]> {
    rest.strip_suffix(DELTA_END).filter(|text| is_plain_json_text(text))
}

/// Whether the bytes are the inside of a JSON text. Surrogates are no plain text: only a pair of them is a character, and
/// its halves may be in two deltas.
fn is_plain_json_text(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        let is_plain = match byte {
            b'"' | 0..=0x1f => false,
            b'\\' => match bytes.next() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => true,
                Some(b'u') => {
                    let (code, rest) = bytes.as_slice().split_at_checked(4).unwrap_or_default();
                    bytes = rest.iter();
                    is_code_of_character(code)
                }
                _ => false,
            },
            _ => true,
        };
        if !is_plain {
            return false;
        }
    }
    std::str::from_utf8(text).is_ok()
}

fn is_code_of_character(hex: &[u8]) -> bool {
    let is_hex = hex.len() == 4 && hex.iter().all(u8::is_ascii_hexdigit);
    let is_surrogate = matches!(hex, [b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..]);
    is_hex && !is_surrogate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{TaskId, ThreadId};
    use crate::record::RecordHeader;
    use crate::seq::{Epoch, Seq};

    fn stored(seq: u64, public: &str, private: &str) -> Record {
        let header = RecordHeader {
            seq: Seq(seq),
            at: 10 * seq,
            run: TaskId::from("task_1"),
            epoch: Epoch(1),
            format: RECORD_FORMAT,
            checksum: 7,
        };
        Record::from_stored(header, Bytes::copy_from_slice(public.as_bytes()), private.to_owned().into())
    }

    fn text_delta(seq: u64, block: u32, tail: &str) -> Record {
        let head = r#"{"type":"task.text.delta","task_id":"task_1","item_id":"msg_1","output_index":0,"block_index":"#;
        stored(seq, &format!("{head}{block},{tail}"), "")
    }

    fn condensed(records: &[Record]) -> Vec<(u64, u64, String)> {
        let condensed = condense_records(records.to_vec());
        let shown = |record: &Record| {
            let text = match record.event() {
                Event::TextDelta(delta) => delta.delta.clone(),
                _ => String::from_utf8_lossy(&record.public).into_owned(),
            };
            (record.first_seq().0, record.seq.0, text)
        };
        condensed.iter().map(shown).collect()
    }

    #[test]
    fn consecutive_deltas_of_one_part_become_one() {
        let records = [
            text_delta(1, 0, r#""delta":"a\n"}"#),
            text_delta(2, 0, r#""delta":""}"#),
            text_delta(3, 0, r#""delta":"\u00e9é\\"}"#),
            text_delta(4, 1, r#""delta":"other block"}"#),
            text_delta(5, 0, r#""delta":"b"}"#),
        ];
        let expected = [(1, 3, "a\néé\\".to_owned()), (4, 4, "other block".to_owned()), (5, 5, "b".to_owned())];
        assert_eq!(condensed(&records), expected);
        let merged = &condense_records(records.to_vec())[0];
        assert_eq!((merged.at, merged.checksum, merged.record_count()), (30, 7, 3));
        assert!(!merged.has_valid_checksum(&ThreadId::from("thr_1")));
    }

    #[test]
    fn a_merged_record_stands_for_a_bounded_number() {
        let all = MERGED_RECORDS_MAX as u64 + 3;
        let records: Vec<Record> = (1..=all).map(|seq| text_delta(seq, 0, r#""delta":"x"}"#)).collect();
        let counts: Vec<u64> = condense_records(records).iter().map(Record::record_count).collect();
        assert_eq!(counts, [MERGED_RECORDS_MAX as u64, 3]);
    }

    #[test]
    fn what_cannot_be_merged_stays_as_it_is() {
        let plain = text_delta(1, 0, r#""delta":"a"}"#);
        let changed = |change: fn(&mut Record)| {
            let mut record = text_delta(2, 0, r#""delta":"b"}"#);
            change(&mut record);
            record
        };
        let cases = [
            text_delta(2, 0, r#""delta":"a","logprobs":[1]}"#),
            text_delta(2, 0, r#""delta":"a","delta":"b"}"#),
            text_delta(2, 0, r#""delta":"half \ud83d"}"#),
            text_delta(2, 0, "\"delta\":\"line\nbreak\"}"),
            text_delta(2, 0, r#""delta":"\x"}"#),
            text_delta(2, 0, r#""delta":"\u12"}"#),
            text_delta(2, 0, r#""delta":1}"#),
            text_delta(2, 0, r#""delta":"cut"#),
            text_delta(3, 0, r#""delta":"after a gap"}"#),
            stored(2, std::str::from_utf8(&plain.public).unwrap(), "{}"),
            changed(|record| record.epoch = Epoch(2)),
            changed(|record| record.run = TaskId::from("task_2")),
            changed(|record| record.format = RECORD_FORMAT + 1),
            changed(|record| record.at = 1),
        ];
        for other in cases {
            let records = vec![plain.clone(), other];
            assert_eq!(condense_records(records.clone()), records);
        }
        // A head that is no delta's after all.
        let broken = |seq: u64| stored(seq, r#"{"type":"task.text.delta","task_id":5,"delta":"a"}"#, "");
        assert_eq!(condense_records(vec![broken(1), broken(2)]), [broken(1), broken(2)]);
    }
}
