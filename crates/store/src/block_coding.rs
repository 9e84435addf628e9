//! Blocks of records: consecutive records of one run, compressed. Nothing here reads or writes a database.
//!
//! ```text
//!   format u8 · unpacked length u32 · lz4( at u64 · epoch u64 · v u16 · check u32 · public u32 · private u32 · bytes )*
//! ```
//!
//! Coding copies checksums without checking them: readers verify them.

use bytes::{Buf as _, Bytes};
use lz4_flex::block::{compress_into, get_maximum_output_size};
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
        let (at, epoch, format) = (self.at.to_le_bytes(), self.epoch.0.to_le_bytes(), self.format.to_le_bytes());
        let checksum = self.checksum.to_le_bytes();
        let (public, private) = (length(self.public), length(self.private));
        // In one piece: many short ones take longer.
        let mut header = [0; RECORD_HEADER_BYTES];
        let fields = [&at[..], &epoch, &format, &checksum, &public, &private];
        let mut rest = &mut header[..];
        for field in fields {
            let Some((place, after)) = rest.split_at_mut_checked(field.len()) else { break };
            place.copy_from_slice(field);
            rest = after;
        }
        raw.reserve(RECORD_HEADER_BYTES + self.public.len() + self.private.len());
        raw.extend_from_slice(&header);
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
    let mut place = raw.get(..RECORD_HEADER_BYTES)?;
    let at = u64::from_le_bytes(read_array(&mut place)?);
    let epoch = Epoch(u64::from_le_bytes(read_array(&mut place)?));
    let v = u16::from_le_bytes(read_array(&mut place)?);
    let check = u32::from_le_bytes(read_array(&mut place)?);
    let public = u32::from_le_bytes(read_array(&mut place)?) as usize;
    let private = u32::from_le_bytes(read_array(&mut place)?) as usize;
    raw.advance(RECORD_HEADER_BYTES);
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
    if bytes == 0 {
        // Most records have no private half. An empty piece would keep the whole buffer and cost as much as a long one.
        return Some(Bytes::new());
    }
    (bytes <= raw.len()).then(|| raw.split_to(bytes))
}

pub(crate) fn read_array<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (number, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*number)
}

pub(crate) fn compress_block(raw: &[u8]) -> Vec<u8> {
    BlockCompressor::default().compress_block(raw).to_vec()
}

/// Compresses one block after the other into a buffer that it keeps: to allocate, clear and shrink one takes a third as long as to
/// compress a short block.
#[derive(Debug, Default)]
pub(crate) struct BlockCompressor {
    output: Vec<u8>,
}

impl BlockCompressor {
    /// A larger output, which a large record causes, is not kept.
    const OUTPUT_BYTES_KEPT: usize = 512 * 1024;

    pub(crate) fn compress_block(&mut self, raw: &[u8]) -> &[u8] {
        let data = self.compress_behind(BLOCK_HEADER_BYTES, raw);
        if let Some((header, _)) = data.split_first_chunk_mut::<BLOCK_HEADER_BYTES>() {
            let [a, b, c, d] = u32::try_from(raw.len()).unwrap_or(u32::MAX).to_le_bytes();
            *header = [BLOCK_FORMAT, a, b, c, d];
        }
        data
    }

    /// The compressed bytes behind a header of this size, which the caller fills.
    pub(crate) fn compress_behind(&mut self, header_bytes: usize, raw: &[u8]) -> &mut [u8] {
        let bytes_max = header_bytes + get_maximum_output_size(raw.len());
        if self.output.len() > Self::OUTPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        if self.output.len() < bytes_max {
            self.output.resize(bytes_max, 0);
        }
        let room = self.output.get_mut(header_bytes..).unwrap_or_default();
        let packed = compress_into(raw, room).unwrap_or_else(|_| {
            // The output is as large as the codec asks for, so this cannot happen.
            let packed = lz4_flex::block::compress(raw);
            self.output.truncate(header_bytes);
            self.output.extend_from_slice(&packed);
            packed.len()
        });
        self.output.get_mut(..header_bytes + packed).unwrap_or_default()
    }
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

/// The size of encoded records without their headers.
pub(crate) const fn record_bytes_in_block(raw_bytes: u64, records: u64) -> u64 {
    raw_bytes.saturating_sub(records.saturating_mul(RECORD_HEADER_BYTES as u64))
}
