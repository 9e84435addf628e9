//! The frames of the append log: what a group appends, in one piece.
//!
//! ```text
//!   file:   frame*
//!   frame:  generation u64 · number u64 · length u32 · checksum of the rows u32 · checksum of what precedes u32 · row*
//!   row:    thread u64 · run u64 · seq u64 · count u32 · length u32 · records as in a block
//! ```

use crate::block_coding::read_array;
use bytes::Bytes;

/// A larger frame is not kept for the next one.
const FRAME_BYTES_KEPT: usize = 256 * 1024;

pub(crate) const FRAME_HEADER_BYTES: usize = 28;
pub(crate) const ROW_HEADER_BYTES: usize = 32;

/// Consecutive records of a run that were appended together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedRow {
    /// The numbers of thread and run.
    pub(crate) thread: i64,
    pub(crate) run: i64,
    pub(crate) seq: u64,
    pub(crate) count: u64,
    /// Encoded as in a block.
    pub(crate) records: Bytes,
    /// Whether no frame follows, so that the group of the frame may not have been committed.
    pub(crate) is_newest: bool,
}

/// The rows of a group, as they will be in the file.
#[derive(Debug, Default)]
pub(crate) struct LogFrame {
    /// With place for the header.
    bytes: Vec<u8>,
}

impl LogFrame {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(FRAME_BYTES_KEPT);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn add_row(&mut self, (thread, run): (i64, i64), seq: u64, count: u64, records: &[u8]) {
        if self.bytes.is_empty() {
            self.bytes.resize(FRAME_HEADER_BYTES, 0);
        }
        let mut header = [0; ROW_HEADER_BYTES];
        let (count, length) = (low_bits(count), low_bits(records.len() as u64));
        let fields = [&thread.to_le_bytes()[..], &run.to_le_bytes(), &seq.to_le_bytes(), &count, &length];
        write_fields(&mut header, &fields);
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(records);
    }

    pub(crate) const fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Fills the header in.
    pub(crate) fn seal(&mut self, generation: u64, number: u64) -> &[u8] {
        if let Some((header, rows)) = self.bytes.split_at_mut_checked(FRAME_HEADER_BYTES) {
            let checksum = crc32fast::hash(rows).to_le_bytes();
            let length = low_bits(rows.len() as u64);
            write_fields(header, &[&generation.to_le_bytes(), &number.to_le_bytes(), &length, &checksum]);
            let checksum = crc32fast::hash(header.get(..FRAME_HEADER_BYTES - 4).unwrap_or_default());
            write_fields(header.get_mut(FRAME_HEADER_BYTES - 4..).unwrap_or_default(), &[&checksum.to_le_bytes()]);
        }
        &self.bytes
    }
}

fn low_bits(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

fn write_fields(mut place: &mut [u8], fields: &[&[u8]]) {
    for field in fields {
        let Some((head, rest)) = place.split_at_mut_checked(field.len()) else { return };
        head.copy_from_slice(field);
        place = rest;
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug)]
struct FrameHeader {
    generation: u64,
    number: u64,
    length: usize,
    checksum: u32,
}

impl FrameHeader {
    fn read(content: &[u8]) -> Option<Self> {
        let header = content.get(..FRAME_HEADER_BYTES)?;
        let (fields, mut sum) = header.split_at_checked(FRAME_HEADER_BYTES - 4)?;
        if u32::from_le_bytes(read_array(&mut sum)?) != crc32fast::hash(fields) {
            return None;
        }
        let mut rest = fields;
        let generation = u64::from_le_bytes(read_array(&mut rest)?);
        let number = u64::from_le_bytes(read_array(&mut rest)?);
        let length = u32::from_le_bytes(read_array(&mut rest)?) as usize;
        let checksum = u32::from_le_bytes(read_array(&mut rest)?);
        Some(Self { generation, number, length, checksum })
    }
}

/// What a file has.
#[derive(Debug, Default)]
pub(crate) struct LogFileContent {
    pub(crate) generation: u64,
    /// The rows of each frame.
    pub(crate) frames: Vec<Bytes>,
    /// Whether a frame is damaged that is not the last one.
    pub(crate) is_damaged: bool,
}

pub(crate) fn read_frames(content: &Bytes) -> LogFileContent {
    let Some(FrameHeader { generation, .. }) = FrameHeader::read(content) else { return LogFileContent::default() };
    let mut found = LogFileContent { generation, ..LogFileContent::default() };
    let (mut at, mut number) = (0, 0);
    while let Some((begin, header)) = find_frame(content, at, (generation, number)) {
        let rows = begin + FRAME_HEADER_BYTES;
        at = rows.saturating_add(header.length);
        let Some(body) = content.get(rows..at) else { break };
        let is_whole = crc32fast::hash(body) == header.checksum;
        if !is_whole && find_frame(content, at, (generation, header.number + 1)).is_none() {
            break;
        }
        // It was not the last write, so it was whole once. Each record has a checksum of its own, which readers verify.
        found.is_damaged |= !is_whole || header.number > number;
        number = header.number + 1;
        found.frames.push(content.slice(rows..at));
    }
    found
}

/// The first frame from a place on that has this generation, and this number or a later one. It is at this place unless there is
/// damage: no record looks like a header, because records are text and a header has zeros.
fn find_frame(content: &[u8], at: usize, (generation, number): (u64, u64)) -> Option<(usize, FrameHeader)> {
    let rest = content.get(at..)?;
    let is_later = |header: &FrameHeader| header.generation == generation && header.number >= number;
    memchr::memmem::find_iter(rest, &generation.to_le_bytes()).find_map(|skipped| {
        let header = FrameHeader::read(rest.get(skipped..)?).filter(is_later)?;
        Some((at + skipped, header))
    })
}

/// The rows of a frame, up to the first one that does not fit in.
pub(crate) struct RowReader(pub(crate) Bytes);

impl Iterator for RowReader {
    type Item = LoggedRow;

    fn next(&mut self) -> Option<LoggedRow> {
        let mut rest = self.0.get(..ROW_HEADER_BYTES)?;
        let thread = i64::from_le_bytes(read_array(&mut rest)?);
        let run = i64::from_le_bytes(read_array(&mut rest)?);
        let seq = u64::from_le_bytes(read_array(&mut rest)?);
        let count = u64::from(u32::from_le_bytes(read_array(&mut rest)?));
        let length = u32::from_le_bytes(read_array(&mut rest)?) as usize;
        let _header = self.0.split_to(ROW_HEADER_BYTES);
        let records = (length <= self.0.len()).then(|| self.0.split_to(length))?;
        Some(LoggedRow { thread, run, seq, count, records, is_newest: false })
    }
}
