//! A position in a log that a client can store: `<check>-<seq>`.
//!
//! `check` is the checksum of the record at `seq`, in eight hex digits. It covers the thread's id, so that a cursor of
//! another thread, or of a log that was restored from a backup and then diverged, is refused rather than misread. The
//! last frame of a record carries the plain cursor, valid in every projection. A projection that emits several frames
//! per record gives the others `<check>-<seq>.<projection>.<k>`, valid in that projection alone.

use crate::record::Record;
use crate::seq::Seq;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The position is after this record…
    pub seq: Seq,
    /// The checksum that this record must have; `None` when the client sent a bare number.
    pub checksum: Option<u32>,
    /// …or inside it, after one of its frames.
    pub frame: Option<FramePosition>,
}

/// A position between two frames of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FramePosition {
    pub projection: String,
    /// Number of the record's frames that the client has received.
    pub frames: u32,
}

/// Why a cursor was refused. `server::problem` gives each its status and code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error("`{0}` is not a cursor: use the id of a frame, or a seq number")]
    Malformed(String),
    #[error("cursor {asked} is ahead of the log, which ends at {head}")]
    Ahead { asked: Seq, head: Seq },
    /// The record at this position has another checksum.
    #[error(
        "this cursor belongs to another log, or to a frame of another protocol: use the id of a frame of this stream"
    )]
    Mismatch,
}

impl Cursor {
    pub const START: Self = Self { seq: Seq::ZERO, checksum: None, frame: None };

    /// Writes the cursor's text. On the hot path of every frame, so it avoids `format_args!`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        if let Some(check) = self.checksum {
            let mut text = *b"........-";
            let nibbles = check.to_be_bytes().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
            for (digit, nibble) in text.iter_mut().zip(nibbles) {
                *digit = nibble + if nibble < 10 { b'0' } else { b'a' - 10 };
            }
            out.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)?;
        }
        out.write_str(itoa::Buffer::new().format(self.seq.0))?;
        self.frame.as_ref().map_or(Ok(()), |inner| inner.write_to(out))
    }

    /// Whether the record is the one that the cursor was made for.
    pub fn matches(&self, record: &Record) -> bool {
        self.seq == record.seq && self.checksum.is_none_or(|check| check == record.checksum)
    }

    /// Checks that a reader may continue here, in a log that ends at `head` and has `record` at the cursor's position.
    ///
    /// A bare number is trusted, so `record` may then be `None`.
    pub fn verify(&self, head: Seq, record: Option<&Record>) -> Result<(), CursorError> {
        if self.seq > head {
            return Err(CursorError::Ahead { asked: self.seq, head });
        }
        let fits = record.map_or(self.checksum.is_none(), |record| self.matches(record));
        if fits { Ok(()) } else { Err(CursorError::Mismatch) }
    }
}

impl FramePosition {
    /// Writes what follows the record's own cursor.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl fmt::Write) -> fmt::Result {
        out.write_char('.')?;
        out.write_str(&self.projection)?;
        out.write_char('.')?;
        out.write_str(itoa::Buffer::new().format(self.frames))
    }
}

impl From<&Record> for Cursor {
    fn from(record: &Record) -> Self {
        Self { seq: record.seq, checksum: Some(record.checksum), frame: None }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        parse_cursor(text).ok_or_else(|| CursorError::Malformed(truncate_for_error(text)))
    }
}

fn parse_cursor(text: &str) -> Option<Cursor> {
    let (position, inner) = match text.split_once('.') {
        None => (text, None),
        Some((position, inner)) => {
            let (projection, frames) = inner.split_once('.')?;
            let plain = !projection.is_empty() && crate::id::is_valid_id(projection);
            let frames = u32::try_from(parse_digits(frames)?).ok()?;
            (position, Some(plain.then(|| FramePosition { projection: projection.to_owned(), frames })?))
        }
    };
    match position.split_once('-') {
        None if inner.is_none() => Some(Cursor { seq: Seq(parse_digits(position)?), checksum: None, frame: inner }),
        None => None,
        Some((check, seq)) => {
            let hex = check.len() == 8 && check.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            let check = hex.then(|| u32::from_str_radix(check, 16).ok())??;
            Some(Cursor { seq: Seq(parse_digits(seq)?), checksum: Some(check), frame: inner })
        }
    }
}

/// Accepts ASCII digits only: `u64::from_str` also accepts `+1`.
fn parse_digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn truncate_for_error(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, TaskStarted};
    use crate::id::{TaskId, ThreadId};
    use crate::record::RecordDraft;
    use crate::seq::Epoch;

    fn sealed(thread: &str, seq: u64) -> Record {
        let task_id = TaskId::from("task_1");
        let event = Event::Started(TaskStarted { task_id: task_id.clone() });
        Record::seal(
            &ThreadId::from(thread),
            &task_id,
            Epoch(1),
            RecordDraft { seq: Seq(seq), at: 5, event, private: None },
        )
    }

    #[test]
    fn a_cursor_is_valid_in_its_own_log_only() {
        let (ours, theirs) = (sealed("thr_1", 4), sealed("thr_2", 4));
        let cursor = Cursor::from(&ours);
        assert_eq!(cursor.verify(Seq(9), Some(&ours)), Ok(()));
        assert_eq!(cursor.verify(Seq(9), Some(&theirs)), Err(CursorError::Mismatch));
        assert_eq!(cursor.verify(Seq(9), Some(&sealed("thr_1", 5))), Err(CursorError::Mismatch));
        assert_eq!(cursor.verify(Seq(9), None), Err(CursorError::Mismatch));
        assert_eq!(cursor.verify(Seq(3), None), Err(CursorError::Ahead { asked: Seq(4), head: Seq(3) }));
    }

    #[test]
    fn a_bare_number_is_a_valid_cursor() {
        let bare = |seq| Cursor { seq: Seq(seq), checksum: None, frame: None };
        assert_eq!(bare(4).verify(Seq(4), Some(&sealed("thr_1", 4))), Ok(()));
        assert_eq!(bare(4).verify(Seq(4), None), Ok(()));
        assert_eq!(bare(5).verify(Seq(4), None), Err(CursorError::Ahead { asked: Seq(5), head: Seq(4) }));
        assert_eq!(Cursor::START.verify(Seq::ZERO, None), Ok(()));
        let before_the_first = Cursor { checksum: Some(7), ..Cursor::START };
        assert_eq!(before_the_first.verify(Seq::ZERO, None), Err(CursorError::Mismatch));
    }

    #[test]
    fn a_printed_cursor_parses_back() {
        let inner = Some(FramePosition { projection: "blocks".to_owned(), frames: 3 });
        for (check, inner) in [(None, None), (Some(0), None), (Some(0xdead_beef), inner)] {
            let cursor = Cursor { seq: Seq(u64::MAX), checksum: check, frame: inner };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }

    #[test]
    fn an_invalid_cursor_is_reported_as_invalid() {
        let bad = [
            "",
            "abc",
            "-1",
            "1.5",
            "+1",
            "0x10",
            "１２",
            " 5",
            "5 ",
            "18446744073709551616",
            "deadbeef-",
            "-5",
            "deadbee-5",
            "DEADBEEF-5",
            "deadbeef-5.",
            "deadbeef-5.blocks",
            "deadbeef-5..1",
            "5.blocks.1",
            "deadbeef--5",
            "deadbeef-5.blocks.-1",
            "\0",
            "1\n2",
        ];
        for text in bad {
            assert!(matches!(text.parse::<Cursor>(), Err(CursorError::Malformed(_))), "{text:?}");
        }
    }
}
