//! An event as stored in the log.
//!
//! A record's public half is the event's JSON text, written once and never re-serialised: clients of all later versions
//! receive these bytes. The private half never leaves the server: what the model reads, and what recovery needs. The
//! checksum covers both halves and the record's position, thread included.

use crate::command::RequestUpdate;
use crate::content::ContentPart;
use crate::context::ContextEntry;
use crate::defects::Defect;
use crate::definition::OnCrash;
use crate::event::{Event, PendingKind};
use crate::history::{HistoryEntry, PriorHistory, RawItem};
use crate::id::{TaskId, ThreadId};
use crate::item::{CallKind, Item};
use crate::json::write_json;
use crate::model_settings::ModelSettings;
use crate::question::QuestionContext;
use crate::seq::{Epoch, Millis, Seq};
use crate::usage::Usage;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::cell::Cell;
use std::sync::OnceLock;

/// The format of nearly all records.
pub const RECORD_FORMAT: u16 = 1;
/// The highest format that this version reads. A thread with records of a higher one is not executed. What earlier versions
/// cannot read is written with it (`record_format`), and nothing else.
pub const RECORD_FORMAT_MAX: u16 = 2;

/// An event with its position and time that is not logged yet.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordDraft {
    pub seq: Seq,
    /// Never earlier than the record before it.
    pub at: Millis,
    pub event: Event,
    pub private: Option<Box<PrivatePayload>>,
}

/// The part of a record that only the server sees.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrivatePayload {
    /// What the model reads of an item or a file.
    pub content: Option<Vec<ContentPart>>,
    /// The upstream item, unchanged.
    pub raw: Option<RawItem>,
    pub provider_call_id: Option<String>,
    /// The digest of the definitions that the run started with.
    #[serde(rename = "digest")]
    pub definitions_digest: Option<String>,
    /// The deadline of the run or the tool.
    pub deadline: Option<Millis>,
    /// Whether a started tool may be started again after a crash.
    pub idempotent: Option<bool>,
    /// The result of a started tool after a crash.
    pub on_crash: Option<OnCrash>,
    /// The history as an input hook rewrote it.
    #[serde(rename = "history")]
    pub rewritten_history: Option<Vec<HistoryEntry>>,
    /// History that the thread's log does not have.
    #[serde(rename = "before")]
    pub prior_history: Option<PriorHistory>,
    #[serde(default, skip_serializing_if = "ModelSettings::is_empty")]
    #[serde(rename = "wishes")]
    pub model_settings: ModelSettings,
    /// What the client's application shows at the moment; the model reads it before the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextEntry>,
    /// The parts of the request that the client's protocol returns in its responses.
    #[serde(rename = "echo")]
    pub request_echo: Option<Value>,
    /// Tokens so far of a turn that has not ended.
    pub usage: Option<Usage>,
    /// What the request that resumed the run says about the rest of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<Box<RequestUpdate>>,
    /// The safety checks of a computer call that the client acknowledged.
    #[serde(rename = "acknowledged")]
    pub acknowledged_checks: Option<Vec<Value>>,
    /// How the call goes on when its question has been answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Box<QuestionContext>>,
}

/// A logged event. Clones share the bytes and decode the event again on demand.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub seq: Seq,
    pub at: Millis,
    pub run: TaskId,
    pub epoch: Epoch,
    pub format: u16,
    /// Covers all fields and the thread's id.
    pub checksum: u32,
    /// The event's JSON text.
    pub public: Bytes,
    /// The private half's JSON text, or empty.
    pub private: Bytes,
    /// The records that this one stands for.
    record_count: u32,
    /// `public`, decoded on first use.
    event: DecodedEvent,
}

impl Record {
    /// Serialises a draft and computes its checksum.
    pub fn seal(thread: &ThreadId, run: &TaskId, epoch: Epoch, draft: RecordDraft) -> Self {
        let mut record = Self {
            seq: draft.seq,
            at: draft.at,
            run: run.clone(),
            epoch,
            format: record_format(&draft.event),
            checksum: 0,
            public: to_json_bytes(&draft.event),
            private: draft.private.map_or_else(Bytes::new, |private| to_json_bytes(&private)),
            record_count: 1,
            event: DecodedEvent(OnceLock::from(draft.event)),
        };
        record.checksum = record.compute_checksum(thread);
        if Defect::RecordParsedAgain.is_planted() {
            record.event = DecodedEvent(OnceLock::from(Event::decode(&record.public)));
        }
        record
    }

    pub fn from_stored(place: RecordHeader, public: Bytes, private: Bytes) -> Self {
        let RecordHeader { seq, at, run, epoch, format: v, checksum: check } = place;
        let event = DecodedEvent::default();
        Self { seq, at, run, epoch, format: v, checksum: check, public, private, record_count: 1, event }
    }

    /// A record at the same position that also stands for the `record_count - 1` records before it. It is not logged: its
    /// checksum is that of the last record, so that a cursor made of it is valid.
    #[must_use]
    pub fn merged(&self, public: Bytes, record_count: u32) -> Self {
        Self { public, record_count: record_count.max(1), ..self.clone() }
    }

    /// The number of logged records that this one stands for: more than one if it was condensed ([`crate::condense`]).
    pub fn record_count(&self) -> u64 {
        u64::from(self.record_count)
    }

    /// The first of these records.
    pub fn first_seq(&self) -> Seq {
        Seq(self.seq.0.saturating_sub(self.record_count() - 1))
    }

    pub fn event(&self) -> &Event {
        self.event.0.get_or_init(|| Event::decode(&self.public))
    }

    pub fn private(&self) -> Option<PrivatePayload> {
        if self.private.is_empty() { None } else { serde_json::from_slice(&self.private).ok() }
    }

    /// The event's `type`, read from the start of the bytes without decoding the event.
    pub fn event_type(&self) -> &str {
        let text = self.public.strip_prefix(br#"{"type":""#).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == b'"').unwrap_or_default();
        text.get(..end).and_then(|kind| std::str::from_utf8(kind).ok()).unwrap_or_default()
    }

    /// The event's task, read from the bytes without decoding the event. `None` for `thread.*`.
    pub fn task_id(&self) -> Option<&str> {
        // Bytes of another writer may order their members differently: then the event is decoded.
        self.leading_task_id().or_else(|| self.event().task_id().map(TaskId::as_str))
    }

    fn leading_task_id(&self) -> Option<&str> {
        let text = self.public.strip_prefix(br#"{"type":""#)?.get(self.event_type().len()..)?;
        let text = text.strip_prefix(br#"","task_id":""#)?;
        let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
        let plain = text.get(end) == Some(&b'"');
        text.get(..end).filter(|_| plain).and_then(|id| std::str::from_utf8(id).ok())
    }

    /// Whether the bytes are unchanged since they were sealed for this thread.
    #[must_use]
    pub fn has_valid_checksum(&self, thread: &ThreadId) -> bool {
        self.compute_checksum(thread) == self.checksum
    }

    /// Approximate size in memory.
    pub fn size_bytes(&self) -> usize {
        self.public.len() + self.private.len()
    }

    fn compute_checksum(&self, thread: &ThreadId) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        hash.update(thread.as_str().as_bytes());
        hash.update(self.run.as_str().as_bytes());
        // In one piece: many short ones take longer.
        let mut numbers = [0; 5 * 8];
        let header = [self.seq.0, self.at, self.epoch.0, u64::from(self.format), self.public.len() as u64];
        for (bytes, number) in numbers.chunks_exact_mut(8).zip(header) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        hash.update(&numbers);
        hash.update(&self.public);
        hash.update(&self.private);
        hash.finalize()
    }
}

/// A cache: a clone starts empty, and comparisons ignore it.
#[derive(Debug, Default)]
struct DecodedEvent(OnceLock<Event>);

impl Clone for DecodedEvent {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for DecodedEvent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A stored record's columns apart from its payload.
#[derive(Clone, Debug)]
pub struct RecordHeader {
    pub seq: Seq,
    pub at: Millis,
    pub run: TaskId,
    pub epoch: Epoch,
    pub format: u16,
    pub checksum: u32,
}

/// The oldest format whose readers know every word of the event: an earlier version takes a call of kind `hosted` or
/// `tool_search`, or a pause for a question, for an unknown event, and would park the thread; a question it would take for an
/// approval; and a run that continues none would show it the thread's last one.
fn record_format(event: &Event) -> u16 {
    let is_new = match event {
        Event::ItemAdded(e) | Event::ItemDone(e) => {
            let is_new = |kind| matches!(kind, Some(CallKind::Hosted | CallKind::ToolSearch));
            matches!(&e.item, Item::ToolCall(call) if is_new(call.kind))
        }
        Event::Created(e) => e.task.previous.as_ref().is_some_and(TaskId::is_no_run),
        Event::ApprovalRequested(e) => e.question.is_some(),
        Event::Paused(e) => e.pending.iter().any(|pending| pending.kind == PendingKind::Question),
        _ => false,
    };
    if is_new { RECORD_FORMAT_MAX } else { RECORD_FORMAT }
}

/// Our types always serialise: keys are strings and numbers finite. If that were ever untrue, the empty text would be a
/// record that no fold accepts, which stops the thread rather than the process.
fn to_json_bytes(value: &impl Serialize) -> Bytes {
    // A buffer that grows and its spare capacity cost more than a copy into an allocation of the right size.
    let mut text = JSON_BUFFER.take();
    let bytes = write_json(&mut text, value).map_or_else(|_| Bytes::new(), |()| Bytes::copy_from_slice(&text));
    text.clear();
    if text.capacity() <= JSON_BUFFER_BYTES_MAX {
        JSON_BUFFER.set(text);
    }
    bytes
}

thread_local! {
    static JSON_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A larger buffer is not kept.
const JSON_BUFFER_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::TaskStarted;

    fn sealed() -> (ThreadId, Record) {
        let thread = ThreadId::from("thr_1");
        let event = Event::Started(TaskStarted { task_id: TaskId::from("task_1") });
        let draft = RecordDraft { seq: Seq(2), at: 5, event, private: None };
        (thread.clone(), Record::seal(&thread, &TaskId::from("task_1"), Epoch(1), draft))
    }

    #[test]
    fn a_record_has_its_type_without_being_parsed() {
        let (_, record) = sealed();
        assert_eq!(record.event_type(), "task.started");
        assert_eq!(record.task_id(), Some("task_1"));
        assert_eq!(&record.public[..], br#"{"type":"task.started","task_id":"task_1"}"#);
    }

    #[test]
    fn a_record_has_its_task_in_any_key_order() {
        let (_, record) = sealed();
        let written =
            |text: &'static str| Record { public: text.into(), event: DecodedEvent::default(), ..record.clone() };
        let escaped = written(r#"{"type":"task.started","task_id":"task\u005f1"}"#);
        assert_eq!(escaped.task_id(), Some("task_1"));
        assert_eq!(written(r#"{"task_id":"task_1","type":"task.started"}"#).task_id(), Some("task_1"));
        assert_eq!(written(r#"{"type":"thread.run.hidden","run_id":"task_1"}"#).task_id(), None);
        assert_eq!(written("").task_id(), None);
        assert_eq!(written(r#"{"type":"task.started","task_id":"task_1","cut"#).task_id(), Some("task_1"));
    }

    #[test]
    fn every_changed_byte_and_a_wrong_thread_are_detected() {
        let (thread, record) = sealed();
        assert!(record.has_valid_checksum(&thread));
        assert!(!record.has_valid_checksum(&ThreadId::from("thr_2")));
        for at in 0..record.public.len() {
            let mut bytes = record.public.to_vec();
            bytes[at] ^= 1;
            let bent = Record { public: bytes.into(), ..record.clone() };
            assert!(!bent.has_valid_checksum(&thread), "byte {at}");
        }
        assert!(!Record { seq: Seq(3), ..record.clone() }.has_valid_checksum(&thread));
        assert!(!Record { epoch: Epoch(2), ..record }.has_valid_checksum(&thread));
    }

    #[test]
    fn an_event_of_a_later_version_is_preserved() {
        let event = Event::decode(br#"{"type":"task.telepathy","task_id":"task_1","x":1}"#);
        assert_eq!(event.task_id(), Some(&TaskId::from("task_1")));
        assert!(matches!(event, Event::Unknown(_)));
    }

    /// An earlier version would take a question for an approval, and run its tool again.
    #[test]
    fn a_question_has_a_format_that_earlier_versions_do_not_read() {
        let asked = |question: &str| {
            let text = format!(
                r#"{{"type":"task.approval.requested","task_id":"task_1","key":"apr_1","call_id":"call_1",
                "action_requests":[],"review_configs":[],"timeout_seconds":1,"expires_at":1{question}}}"#
            );
            record_format(&Event::decode(text.as_bytes()))
        };
        assert_eq!(asked(""), RECORD_FORMAT);
        assert_eq!(asked(r#","question":{"message":"Which?"}"#), RECORD_FORMAT_MAX);
        let paused = |kind: &str| {
            let pending = format!(r#"{{"kind":"{kind}","key":"apr_1","call_id":"call_1","task_id":"task_1"}}"#);
            let text = format!(r#"{{"type":"task.paused","task_id":"task_1","pending":[{pending}]}}"#);
            record_format(&Event::decode(text.as_bytes()))
        };
        assert_eq!((paused("approval"), paused("question")), (RECORD_FORMAT, RECORD_FORMAT_MAX));
    }

    /// An earlier version would give it the history of the run before it.
    #[test]
    fn a_run_that_continues_none_has_a_format_that_earlier_versions_do_not_read() {
        let created = |previous: &str| {
            let text = format!(
                r#"{{"type":"task.created","task_id":"task_2","task":{{"thread_id":"thr_1","agent":"demo","model":"m",
                "input":[],"parent_task_id":null,"previous":{previous},"origin":null,"client":null}}}}"#
            );
            record_format(&Event::decode(text.as_bytes()))
        };
        assert_eq!((created("null"), created(r#""task_1""#)), (RECORD_FORMAT, RECORD_FORMAT));
        assert_eq!(created(r#""task_none""#), RECORD_FORMAT_MAX);
    }
}
