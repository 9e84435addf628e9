//! Blocks of records: consecutive records of one run, compressed. Nothing here reads or writes a database.
//!
//! ```text
//!   format u8 · unpacked length u32 · lz4( at u64 · epoch u64 · v u16 · check u32 · public u32 · private u32 · bytes )*
//! ```
//!
//! Coding copies checksums without checking them: readers verify them.

use bytes::Bytes;
use model::TaskId;
use model::record::{Record, RecordHeader};
use model::seq::{Epoch, Millis, Seq};

pub(crate) const BLOCK_FORMAT: u8 = 1;
pub(crate) const BLOCK_HEADER_BYTES: usize = 5;
pub(crate) const RECORD_HEADER_BYTES: usize = 30;
/// The limit of LZ4. A larger "unpacked length" is damage and must not cause an allocation.
pub(crate) const COMPRESSION_RATIO_MAX: usize = 256;

/// What a block has of each record. Its number and its run are those of the block.
pub(crate) struct RecordColumns<'a> {
    pub(crate) at: Millis,
    pub(crate) epoch: Epoch,
    pub(crate) format: u16,
    pub(crate) checksum: u32,
    pub(crate) public: &'a [u8],
    pub(crate) private: &'a [u8],
}

impl RecordColumns<'_> {
    pub(crate) fn encode(&self, raw: &mut Vec<u8>) {
        let length = |half: &[u8]| u32::try_from(half.len()).unwrap_or(u32::MAX).to_le_bytes();
        raw.extend_from_slice(&self.at.to_le_bytes());
        raw.extend_from_slice(&self.epoch.0.to_le_bytes());
        raw.extend_from_slice(&self.format.to_le_bytes());
        raw.extend_from_slice(&self.checksum.to_le_bytes());
        raw.extend_from_slice(&length(self.public));
        raw.extend_from_slice(&length(self.private));
        raw.extend_from_slice(self.public);
        raw.extend_from_slice(self.private);
    }
}

/// Appends a record as it is in a block.
pub(crate) fn encode_record(raw: &mut Vec<u8>, record: &Record) {
    let columns = RecordColumns {
        at: record.at,
        epoch: record.epoch,
        format: record.format,
        checksum: record.checksum,
        public: &record.public,
        private: &record.private,
    };
    columns.encode(raw);
}

/// Splits the next record off the unpacked bytes.
pub(crate) fn decode_record(raw: &mut Bytes, seq: Seq, run: &TaskId) -> Option<Record> {
    let place = split_bytes(raw, RECORD_HEADER_BYTES)?;
    let mut place = &place[..];
    let at = u64::from_le_bytes(read_array(&mut place)?);
    let epoch = Epoch(u64::from_le_bytes(read_array(&mut place)?));
    let v = u16::from_le_bytes(read_array(&mut place)?);
    let check = u32::from_le_bytes(read_array(&mut place)?);
    let public = u32::from_le_bytes(read_array(&mut place)?) as usize;
    let private = u32::from_le_bytes(read_array(&mut place)?) as usize;
    let public = split_bytes(raw, public)?;
    let private = split_bytes(raw, private)?;
    Some(Record::from_stored(
        RecordHeader { seq, at, run: run.clone(), epoch, format: v, checksum: check },
        public,
        private,
    ))
}

/// The size of the next record in the unpacked bytes, header included; `None` if there is no whole record.
pub(crate) fn measure_record(raw: &[u8]) -> Option<usize> {
    let mut lengths = raw.get(RECORD_HEADER_BYTES - 8..RECORD_HEADER_BYTES)?;
    let public = u32::from_le_bytes(read_array(&mut lengths)?) as usize;
    let private = u32::from_le_bytes(read_array(&mut lengths)?) as usize;
    let bytes = RECORD_HEADER_BYTES.checked_add(public)?.checked_add(private)?;
    (bytes <= raw.len()).then_some(bytes)
}

pub(crate) fn split_bytes(raw: &mut Bytes, bytes: usize) -> Option<Bytes> {
    (bytes <= raw.len()).then(|| raw.split_to(bytes))
}

pub(crate) fn read_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*number)
}

pub(crate) fn compress_block(raw: &[u8]) -> Vec<u8> {
    let mut data = vec![BLOCK_FORMAT];
    data.extend_from_slice(&u32::try_from(raw.len()).unwrap_or(u32::MAX).to_le_bytes());
    data.extend_from_slice(&lz4_flex::block::compress(raw));
    data
}

/// The unpacked records; `None` for a damaged block.
pub(crate) fn decompress_block(data: &[u8]) -> Option<Bytes> {
    let length = read_block_length(data)?;
    let packed = data.get(BLOCK_HEADER_BYTES..)?;
    if data.first() != Some(&BLOCK_FORMAT) || length > packed.len().saturating_mul(COMPRESSION_RATIO_MAX) {
        return None;
    }
    Some(Bytes::from(lz4_flex::block::decompress(packed, length).ok()?))
}

/// The unpacked length, as the header says it.
pub(crate) fn read_block_length(data: &[u8]) -> Option<usize> {
    let length = data.get(1..BLOCK_HEADER_BYTES)?;
    Some(u32::from_le_bytes(length.try_into().ok()?) as usize)
}

/// The size of the records in an uncompressed block.
pub(crate) fn record_bytes_in_block(raw_bytes: usize, records: u64) -> u64 {
    (raw_bytes as u64).saturating_sub(records.saturating_mul(RECORD_HEADER_BYTES as u64))
}
