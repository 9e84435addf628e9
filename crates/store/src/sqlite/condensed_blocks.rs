//! The records of a block in condensed form ([`model::condense`]), where that is much shorter.
//!
//! A row of `condensed` covers the same records as the block with the same first record and is written with it. It is
//! derived from the block: readers fall back to the block if there is none, or if it is damaged. A merged record has no
//! checksum of its own, so the row has one.
//!
//! ```text
//!   format u8 · checksum u32 · unpacked length u32 · lz4( records u32 · record as in a block )*
//! ```

use crate::block_coding::{
    BlockCompressor, COMPRESSION_RATIO_MAX, decode_record, encode_record, read_array, split_bytes,
};
use bytes::Bytes;
use model::condense::CondenseRecords;
use model::record::Record;
use model::seq::Seq;
use model::{TaskId, ThreadId};
use rusqlite::{Connection, OptionalExtension};

/// Records of a block for each one of its condensed form, at least. With fewer, the form would save little.
const RECORDS_PER_CONDENSED_MIN: u64 = 4;

const CONDENSED_FORMAT: u8 = 1;
const CONDENSED_HEADER_BYTES: usize = 9;

pub(crate) struct CondensedBlock {
    thread: i64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of the run of all its records.
    pub(crate) run: i64,
    data: Vec<u8>,
}

impl CondensedBlock {
    /// The condensed form of the block that contains this record.
    pub(crate) fn find(conn: &Connection, thread: i64, seq: Seq) -> rusqlite::Result<Option<Self>> {
        let sql = "SELECT first_seq, last_seq, run, data FROM condensed WHERE thread = ?1 AND first_seq <= ?2
                   ORDER BY first_seq DESC LIMIT 1";
        let mut find = conn.prepare_cached(sql)?;
        let found = find.query_row((thread, seq.0.cast_signed()), |row| {
            let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
            Ok(Self { thread, first: number(0)?, last: number(1)?, run: row.get(2)?, data: row.get(3)? })
        });
        Ok(found.optional()?.filter(|block| block.last >= seq.0))
    }

    /// The first record after this one that is in a condensed block.
    pub(crate) fn next_condensed(conn: &Connection, thread: i64, after: Seq) -> rusqlite::Result<Option<Seq>> {
        let sql = "SELECT first_seq FROM condensed WHERE thread = ?1 AND first_seq > ?2 ORDER BY first_seq LIMIT 1";
        let first = conn.prepare_cached(sql)?.query_row((thread, after.0.cast_signed()), |row| row.get::<_, i64>(0));
        Ok(first.optional()?.map(|first| Seq(first.cast_unsigned())))
    }

    /// All of its records; `None` if it is damaged.
    pub(crate) fn unpack(&self, thread: &ThreadId, run: &TaskId) -> Option<Vec<Record>> {
        let (mut head, packed) = self.data.split_at_checked(CONDENSED_HEADER_BYTES)?;
        let [format] = read_array(&mut head)?;
        let checksum = u32::from_le_bytes(read_array(&mut head)?);
        let length = u32::from_le_bytes(read_array(&mut head)?) as usize;
        let is_sound = format == CONDENSED_FORMAT
            && length <= packed.len().saturating_mul(COMPRESSION_RATIO_MAX)
            && checksum
                == compute_checksum([self.thread, self.first.cast_signed(), self.last.cast_signed(), self.run], packed);
        let mut raw = Bytes::from(lz4_flex::block::decompress(packed, length).ok().filter(|_| is_sound)?);
        let (mut records, mut next) = (Vec::new(), self.first);
        while !raw.is_empty() {
            let count = u32::from_le_bytes(read_array(&mut &split_bytes(&mut raw, 4)?[..])?);
            let last = next.checked_add(u64::from(count).checked_sub(1)?)?;
            let record = decode_record(&mut raw, Seq(last), run)?;
            let is_sound = count > 1 || record.has_valid_checksum(thread);
            let public = record.public.clone();
            records.push(if count > 1 { record.merged(public, count) } else { record });
            next = last.checked_add(1).filter(|_| is_sound)?;
        }
        (next == self.last.checked_add(1)?).then_some(records)
    }
}

/// Where the records of a block come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordSource {
    /// All of them were checked when they were appended.
    Memory,
    /// Some were read from the disk, and were not checked.
    Rows,
}

/// What a block needs in order to be condensed.
pub(crate) struct BlockToCondense<'a> {
    pub(crate) thread: &'a ThreadId,
    pub(crate) thread_num: i64,
    /// The number of the run of all its records.
    pub(crate) run: i64,
    /// The id of that run, if it is known.
    pub(crate) run_id: Option<TaskId>,
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Its records, as in the block.
    pub(crate) raw: Bytes,
    pub(crate) source: RecordSource,
}

impl BlockToCondense<'_> {
    /// Writes the condensed form of a new block, if it is worth it.
    pub(crate) fn write(
        mut self,
        conn: &Connection,
        compressor: &mut BlockCompressor,
        condense: CondenseRecords,
    ) -> rusqlite::Result<()> {
        let record_count = self.last.saturating_sub(self.first).saturating_add(1);
        if record_count < RECORDS_PER_CONDENSED_MIN {
            return Ok(());
        }
        let run_id = match self.run_id.take() {
            Some(id) => Some(id),
            None => find_run_id(conn, self.run)?,
        };
        let Some(records) = run_id.and_then(|run| self.sound_records(&run)) else { return Ok(()) };
        let condensed = condense(records);
        if (condensed.len() as u64).saturating_mul(RECORDS_PER_CONDENSED_MIN) > record_count {
            return Ok(());
        }
        let mut raw = Vec::new();
        for record in &condensed {
            raw.extend_from_slice(&u32::try_from(record.record_count()).unwrap_or(u32::MAX).to_le_bytes());
            encode_record(&mut raw, record);
        }
        let Self { thread_num: thread, run, first, last, .. } = self;
        let data = compressor.compress_behind(CONDENSED_HEADER_BYTES, &raw);
        if let Some((header, packed)) = data.split_first_chunk_mut::<CONDENSED_HEADER_BYTES>() {
            let [a, b, c, d] =
                compute_checksum([thread, first.cast_signed(), last.cast_signed(), run], packed).to_le_bytes();
            let [e, f, g, h] = u32::try_from(raw.len()).unwrap_or(u32::MAX).to_le_bytes();
            *header = [CONDENSED_FORMAT, a, b, c, d, e, f, g, h];
        }
        let mut insert = conn.prepare_cached("INSERT OR REPLACE INTO condensed VALUES (?1, ?2, ?3, ?4, ?5)")?;
        insert.execute((thread, first.cast_signed(), last.cast_signed(), run, &*data)).map(drop)
    }

    /// The records of the block; `None` if one is damaged, because a merged record would hide that.
    fn sound_records(&mut self, run: &TaskId) -> Option<Vec<Record>> {
        let count = self.last.saturating_sub(self.first).saturating_add(1);
        let mut records = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
        for seq in self.first..=self.last {
            let record = decode_record(&mut self.raw, Seq(seq), run)?;
            let is_sound = self.source == RecordSource::Memory || record.has_valid_checksum(self.thread);
            records.push(is_sound.then_some(record)?);
        }
        Some(records)
    }
}

fn find_run_id(conn: &Connection, run: i64) -> rusqlite::Result<Option<TaskId>> {
    let mut select = conn.prepare_cached("SELECT id FROM runs WHERE num = ?1")?;
    Ok(select.query_row([run], |row| row.get::<_, String>(0)).optional()?.map(TaskId::from))
}

/// The checksum of the numbers of the thread, the first and the last record and the run, and the compressed bytes.
fn compute_checksum(place: [i64; 4], packed: &[u8]) -> u32 {
    let mut hash = crc32fast::Hasher::new();
    for number in place {
        hash.update(&number.to_le_bytes());
    }
    hash.update(packed);
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::schema;
    use model::condense::condense_records;
    use model::event::{Event, TextDelta};
    use model::{Epoch, ItemId, RecordDraft};

    fn delta(seq: u64) -> Record {
        let event = Event::TextDelta(TextDelta {
            task_id: TaskId::from("task_1"),
            item_id: ItemId::from("msg_1"),
            output_index: 0,
            block_index: u32::from(seq > 6),
            delta: format!("{seq},"),
            logprobs: None,
        });
        let draft = RecordDraft { seq: Seq(seq), at: seq, event, private: None };
        Record::seal(&ThreadId::from("thr_1"), &TaskId::from("task_1"), Epoch(1), draft)
    }

    fn written(records: &[Record]) -> Option<CondensedBlock> {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, schema::MIGRATIONS).unwrap();
        let run = "INSERT INTO runs (num, id, owner, thread, agent, status, created_at)
                   VALUES (3, 'task_1', 'u', 5, 'a', 'running', 1)";
        conn.execute(run, ()).unwrap();
        let mut raw = Vec::new();
        records.iter().for_each(|record| encode_record(&mut raw, record));
        let (first, last) = (records[0].seq.0, records[records.len() - 1].seq.0);
        let (thread, raw) = (&ThreadId::from("thr_1"), Bytes::from(raw));
        let block = BlockToCondense {
            thread,
            thread_num: 5,
            run: 3,
            run_id: None,
            first,
            last,
            raw,
            source: RecordSource::Rows,
        };
        block.write(&conn, &mut BlockCompressor::default(), condense_records).unwrap();
        CondensedBlock::find(&conn, 5, Seq(last)).unwrap()
    }

    fn unpacked(block: &CondensedBlock) -> Option<Vec<(u64, u64)>> {
        let records = block.unpack(&ThreadId::from("thr_1"), &TaskId::from("task_1"))?;
        Some(records.iter().map(|record| (record.first_seq().0, record.seq.0)).collect())
    }

    #[test]
    fn a_block_is_condensed_if_that_makes_it_much_shorter() {
        let records: Vec<Record> = (3..=10).map(delta).collect();
        assert_eq!(unpacked(&written(&records).unwrap()), Some(vec![(3, 6), (7, 10)]));
        let few: Vec<Record> = (5..=8).map(delta).collect();
        assert!(written(&few).is_none());
    }

    #[test]
    fn a_damaged_record_is_not_hidden() {
        let mut records: Vec<Record> = (3..=10).map(delta).collect();
        records[2].checksum ^= 1;
        assert!(written(&records).is_none());
    }

    #[test]
    fn every_changed_bit_is_detected() {
        let good = written(&(3..=10).map(delta).collect::<Vec<_>>()).unwrap();
        let changed = |data: Vec<u8>| CondensedBlock { data, ..good };
        for at in 0..good.data.len() {
            for bit in 0..8 {
                let mut data = good.data.clone();
                data[at] ^= 1 << bit;
                // The unpacked length alone is covered by the codec, which fails or gives the same bytes.
                let is_length = (5..CONDENSED_HEADER_BYTES).contains(&at);
                let found = unpacked(&changed(data));
                assert!(found.is_none() || (is_length && found == unpacked(&good)), "byte {at}, bit {bit}");
            }
            assert!(unpacked(&changed(good.data[..at].to_vec())).is_none());
        }
        for moved in [
            CondensedBlock { thread: 6, data: good.data.clone(), ..good },
            CondensedBlock { run: 4, data: good.data.clone(), ..good },
            CondensedBlock { first: 2, last: 9, data: good.data.clone(), ..good },
        ] {
            assert!(unpacked(&moved).is_none());
        }
    }
}
