//! Checks that a stream is complete: every delta once and in order, and one terminal event at the end.
//!
//! The order is checked by the model's text (each delta begins with a timestamp and a number), in protocols that number
//! their events by that number, which has no gaps, and in protocols that repeat the text of all deltas by that text.
//! Latency is measured here as well, because only here is it known which bytes are a delta. No I/O: bytes and arrival times
//! are arguments.

use crate::event_reader::{self, EventMeaning};
use crate::sse_splitter::SseSplitter;
use crate::stream_protocol::StreamProtocol;
use std::fmt;

/// The first fault of a stream, which ends its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFault {
    /// No connection, or a response that is not a stream.
    Http,
    /// Not server-sent events or WebSocket messages, or not the protocol's.
    Malformed,
    /// An event missing, repeated or out of order; a text that is not the sum of its deltas.
    Disordered,
    /// In order and ended, but with more or fewer deltas than requested.
    Miscounted,
    /// The run ended in another way than completed.
    Failed,
    /// The connection ended or the deadline passed before the terminal event.
    Cut,
}

impl StreamFault {
    const ALL: [Self; 6] = [Self::Http, Self::Malformed, Self::Disordered, Self::Miscounted, Self::Failed, Self::Cut];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http error",
            Self::Malformed => "malformed",
            Self::Disordered => "out of order",
            Self::Miscounted => "miscounted",
            Self::Failed => "failed",
            Self::Cut => "cut",
        }
    }
}

/// How many streams had which fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts(Vec<StreamFault>);

impl FaultCounts {
    pub(crate) fn add(&mut self, fault: StreamFault) {
        self.0.push(fault);
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    pub(crate) fn total(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn count(&self, kind: StreamFault) -> usize {
        self.0.iter().filter(|fault| **fault == kind).count()
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("0");
        }
        let kinds = StreamFault::ALL.into_iter().filter(|kind| self.count(*kind) > 0);
        let texts: Vec<_> = kinds.map(|kind| format!("{} {}", self.count(kind), kind.name())).collect();
        f.write_str(&texts.join(", "))
    }
}

/// The deltas whose latency is a measure of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyScope {
    /// The stream started the run.
    AllDeltas,
    /// Deltas sent after the response began. Earlier ones had to wait for the viewer.
    SinceAttach,
}

pub(crate) struct StreamChecker {
    splitter: SseSplitter,
    progress: StreamProgress,
}

struct StreamProgress {
    protocol: StreamProtocol,
    /// The number of the next event; unknown before the first event of a turn in a longer thread.
    next_sequence: Option<u64>,
    deltas_wanted: u32,
    deltas: u32,
    events: u64,
    text: String,
    last: Option<DeltaStamp>,
    latency: LatencyScope,
    attached_us: u64,
    latencies_us: Vec<u32>,
    /// The output is complete: no delta may follow.
    completed: bool,
    /// Nothing may follow.
    ended: bool,
}

impl StreamChecker {
    /// Expects `deltas_wanted` deltas, from the first event on.
    pub(crate) fn new(protocol: StreamProtocol, deltas_wanted: u32, latency: LatencyScope) -> Self {
        let progress = StreamProgress {
            protocol,
            next_sequence: protocol.first_sequence_number(),
            deltas_wanted,
            deltas: 0,
            events: 0,
            text: String::new(),
            last: None,
            latency,
            attached_us: 0,
            latencies_us: Vec::with_capacity(deltas_wanted.min(10_000) as usize),
            completed: false,
            ended: false,
        };
        Self { splitter: SseSplitter::default(), progress }
    }

    /// The same for a run that others precede in its thread, so that its numbers begin anywhere.
    pub(crate) fn new_in_thread(protocol: StreamProtocol, deltas_wanted: u32, latency: LatencyScope) -> Self {
        let mut checker = Self::new(protocol, deltas_wanted, latency);
        checker.progress.next_sequence = None;
        checker
    }

    /// The response began at `now_us`.
    pub(crate) fn on_response_start(&mut self, now_us: u64) {
        self.progress.attached_us = now_us;
    }

    /// Checks the bytes that arrived at `received_us`.
    pub(crate) fn on_chunk(&mut self, bytes: &[u8], received_us: u64) -> Result<(), StreamFault> {
        self.splitter.push(bytes);
        while let Some(event) = self.splitter.next().map_err(|_| StreamFault::Malformed)? {
            self.progress.on_event(&event.data, received_us)?;
        }
        Ok(())
    }

    /// Checks the data of an event that arrived in a message of its own.
    pub(crate) fn on_event_data(&mut self, data: &[u8], received_us: u64) -> Result<(), StreamFault> {
        self.progress.on_event(data, received_us)
    }

    /// Whether the last event has arrived.
    pub(crate) fn has_ended(&self) -> bool {
        self.progress.ended
    }

    /// The connection ended.
    pub(crate) fn finish(&self) -> Result<(), StreamFault> {
        if !self.progress.ended {
            Err(StreamFault::Cut)
        } else if !self.splitter.is_between_events() {
            Err(StreamFault::Malformed)
        } else {
            Ok(())
        }
    }

    /// Deltas so far.
    pub(crate) fn deltas(&self) -> u32 {
        self.progress.deltas
    }

    /// Events of every kind so far.
    pub(crate) fn events(&self) -> u64 {
        self.progress.events
    }

    /// Receipt minus stamp, in microseconds, of every delta that counts for it.
    pub(crate) fn into_latencies_us(self) -> Vec<u32> {
        self.progress.latencies_us
    }
}

impl StreamProgress {
    fn on_event(&mut self, data: &[u8], received_us: u64) -> Result<(), StreamFault> {
        let checked = event_reader::read_event(self.protocol, data).map_err(|_| StreamFault::Malformed)?;
        self.events += 1;
        let is_numbered = checked.meaning != EventMeaning::Last && self.next_sequence.is_some();
        if self.ended || (is_numbered && checked.sequence != self.next_sequence) {
            return Err(StreamFault::Disordered);
        }
        self.next_sequence = checked.sequence.map(|sequence| sequence + 1);
        match checked.meaning {
            EventMeaning::Delta(_) | EventMeaning::FullText(_) if self.completed => Err(StreamFault::Disordered),
            EventMeaning::Delta(text) => self.on_delta(&text, received_us),
            EventMeaning::FullText(text) if *text != self.text => Err(StreamFault::Disordered),
            EventMeaning::Completed | EventMeaning::CompletedAndLast if self.deltas != self.deltas_wanted => {
                Err(StreamFault::Miscounted)
            }
            EventMeaning::Last if !self.completed => Err(StreamFault::Disordered),
            EventMeaning::Failed => Err(StreamFault::Failed),
            EventMeaning::Completed => {
                self.completed = true;
                Ok(())
            }
            EventMeaning::CompletedAndLast | EventMeaning::Last => {
                (self.completed, self.ended) = (true, true);
                Ok(())
            }
            EventMeaning::FullText(_) | EventMeaning::Other => Ok(()),
        }
    }

    fn on_delta(&mut self, text: &str, received_us: u64) -> Result<(), StreamFault> {
        let mark = DeltaStamp::parse(text).ok_or(StreamFault::Malformed)?;
        if !mark.follows(self.last) {
            return Err(StreamFault::Disordered);
        }
        self.last = Some(mark);
        self.deltas += 1;
        self.text.push_str(text);
        if self.latency == LatencyScope::AllDeltas || mark.stamp_us >= self.attached_us {
            self.latencies_us.push(u32::try_from(received_us.saturating_sub(mark.stamp_us)).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}

/// The prefix of a delta's text: when it was sent, and its number.
#[derive(Clone, Copy, Debug)]
struct DeltaStamp {
    stamp_us: u64,
    number: u64,
}

impl DeltaStamp {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        Some(Self { stamp_us: words.next()?.parse().ok()?, number: words.next()?.parse().ok()? })
    }

    /// Deltas may be numbered from 0 or from 1.
    fn follows(self, last: Option<Self>) -> bool {
        match last {
            Some(last) => self.number == last.number + 1 && self.stamp_us >= last.stamp_us,
            None => self.number <= 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: &str) -> String {
        format!("data: {json}\n\n")
    }

    fn delta(seq: u64, stamp: u64, number: u64) -> String {
        event(&format!(r#"{{"type":"task.text.delta","delta":"{stamp} {number} hi ","seq":{seq}}}"#))
    }

    fn read(deltas: u32, frames: &[String]) -> Result<Vec<u32>, StreamFault> {
        let mut check = StreamChecker::new(StreamProtocol::Tasks, deltas, LatencyScope::AllDeltas);
        check.on_chunk(frames.concat().as_bytes(), 1_000)?;
        check.finish()?;
        Ok(check.into_latencies_us())
    }

    #[test]
    fn a_complete_stream_passes_with_its_latencies() {
        let frames = [
            event(r#"{"type":"task.created","seq":1,"task":{}}"#),
            delta(2, 900, 1),
            delta(3, 950, 2),
            event(r#"{"type":"task.text.done","seq":4,"item":{"type":"text","text":"900 1 hi 950 2 hi "}}"#),
            event(r#"{"type":"task.completed","seq":5}"#),
        ];
        assert_eq!(read(2, &frames), Ok(vec![100, 50]));
        assert_eq!(read(3, &frames), Err(StreamFault::Miscounted));
    }

    #[test]
    fn a_text_that_is_not_the_sum_of_its_deltas_is_out_of_order() {
        let frames = [
            delta(1, 900, 0),
            event(r#"{"type":"task.text.done","seq":2,"item":{"type":"text","text":"900 0 ho "}}"#),
            event(r#"{"type":"task.completed","seq":3}"#),
        ];
        assert_eq!(read(1, &frames), Err(StreamFault::Disordered));
    }

    #[test]
    fn model_output_is_checked_against_its_own_order() {
        for second in [delta(2, 899, 1), delta(2, 900, 2), delta(2, 900, 0), delta(3, 900, 1)] {
            assert_eq!(read(2, &[delta(1, 900, 0), second]), Err(StreamFault::Disordered));
        }
        assert_eq!(read(1, &[delta(1, 900, 2)]), Err(StreamFault::Disordered));
    }

    #[test]
    fn a_stream_that_ends_inside_an_event_is_cut() {
        assert_eq!(read(1, &[delta(1, 900, 0), "data: {".into()]), Err(StreamFault::Cut));
    }

    #[test]
    fn frames_sent_before_the_viewer_attached_have_no_latency() {
        let mut check = StreamChecker::new(StreamProtocol::Tasks, 2, LatencyScope::SinceAttach);
        check.on_response_start(920);
        check.on_chunk((delta(1, 900, 0) + &delta(2, 950, 1)).as_bytes(), 1_000).unwrap();
        assert_eq!(check.into_latencies_us(), [50]);
    }

    #[test]
    fn a_later_turn_of_a_thread_is_numbered_from_anywhere_without_gaps() {
        let read = |seqs: [u64; 2]| {
            let mut check = StreamChecker::new_in_thread(StreamProtocol::Tasks, 2, LatencyScope::AllDeltas);
            seqs.into_iter()
                .zip([1, 2])
                .try_for_each(|(seq, number)| check.on_chunk(delta(seq, 900, number).as_bytes(), 1_000))
        };
        assert_eq!((read([41, 42]), read([41, 43])), (Ok(()), Err(StreamFault::Disordered)));
    }

    #[test]
    fn a_chat_stream_ends_with_done_and_nothing_after_its_reason() {
        let chunk = |delta: &str, reason: &str| {
            event(&format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":{reason}}}]}}"#))
        };
        let text = |stamp: u64| chunk(&format!(r#"{{"content":"{stamp} 1 hi "}}"#), "null");
        let (stop, done) = (chunk("{}", r#""stop""#), event("[DONE]"));
        let read = |frames: &[&String]| {
            let mut check = StreamChecker::new(StreamProtocol::Chat, 1, LatencyScope::AllDeltas);
            frames.iter().try_for_each(|frame| check.on_chunk(frame.as_bytes(), 1_000))?;
            check.finish()
        };
        let first = text(900);
        assert_eq!(read(&[&first, &stop, &done]), Ok(()));
        assert_eq!(read(&[&first, &stop]), Err(StreamFault::Cut));
        assert_eq!(read(&[&first, &done]), Err(StreamFault::Disordered));
        assert_eq!(read(&[&first, &stop, &text(950), &done]), Err(StreamFault::Disordered));
    }

    #[test]
    fn faults_are_reported_by_kind() {
        let mut faults = FaultCounts::default();
        assert_eq!(faults.to_string(), "0");
        for fault in [StreamFault::Cut, StreamFault::Http, StreamFault::Cut] {
            faults.add(fault);
        }
        assert_eq!((faults.to_string().as_str(), faults.total()), ("1 http error, 2 cut", 3));
    }
}
