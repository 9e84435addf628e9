//! Frames for a client that has none of the thread: its messages as a snapshot, and what is open, so that the stream can
//! continue at the head. They have no ids: no record stands behind them that a client could resume from.

use super::project::{
    AgUiProjection, AgUiScope, AgUiSink, call_start, cancelled_end, ended_outcome, pause_events, reasoning_message_id,
    reasoning_message_start, run_started, step_name, subagent_id, subagent_started, text_start,
};
use super::wire::{AgUiEvent, AgUiMessage, AgUiMessageContent, AgUiValue};
use super::{AgUiVersion, MessageList, SNAPSHOT_BYTES_MAX};
use crate::record_frames::write_json;
use bytes::{Bytes, BytesMut};
use model::fold::{ItemFold, RunFold, TaskFold};
use model::item::Item;
use model::task::TaskStatus;
use model::{CallId, Millis, Record};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;

/// A result of more bytes may be left out of a snapshot.
const LONG_RESULT_BYTES: usize = 4 * 1024;
/// Stands for such a result.
const LEFT_OUT_NOTE: &str = "[left out: the messages of this run are too long for a snapshot]";

/// A run as a client that joins needs it: its messages, and how far it is.
#[derive(Clone, Debug)]
pub struct AgUiRunSnapshot {
    projection: AgUiProjection,
    list: MessageList,
}

/// Whether a snapshot has all runs of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgUiHistory {
    Complete,
    /// The oldest runs are left out.
    Truncated,
}

impl AgUiRunSnapshot {
    pub fn new(version: AgUiVersion, thread_name: &str) -> Self {
        let projection = AgUiProjection::new(version, thread_name.to_owned(), AgUiScope::Thread);
        Self { projection, list: MessageList::default() }
    }

    /// Reads the next record of the run, which may be a condensed one.
    pub fn read_record(&mut self, record: &Record) {
        self.projection.read_record(record, &mut self.list);
    }

    pub fn messages(&self) -> &[AgUiMessage] {
        self.list.messages()
    }

    /// The size of the messages in a snapshot.
    pub fn message_bytes(&self) -> usize {
        json_bytes(self.messages())
    }

    /// The segment that the run is in, counted from 1; zero before its first record.
    pub fn segment(&self) -> u32 {
        self.projection.run().segment
    }

    /// Whether the run is neither paused nor ended.
    pub fn is_active(&self) -> bool {
        let root = self.fold().root();
        root.is_some_and(|root| !root.status.is_terminal() && root.status != TaskStatus::Paused)
    }

    const fn fold(&self) -> &RunFold {
        self.projection.fold()
    }
}

/// The length of a wire type as JSON.
fn json_bytes(value: &(impl Serialize + ?Sized)) -> usize {
    let mut counter = ByteCounter(0);
    // The keys are texts and the numbers finite, so this cannot fail.
    let _ok = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The frames that bring a client to the head of a thread, of which these are the runs, oldest first. None for a thread
/// without runs.
pub fn agui_prelude(runs: &[AgUiRunSnapshot], history: AgUiHistory) -> Bytes {
    // A run that waits in a queue has no records.
    let Some(last) = runs.iter().rev().find(|run| run.fold().root().is_some()) else { return Bytes::new() };
    let mut frames = PlainFrames { at: last.fold().at, out: BytesMut::new() };
    frames.push(&run_started(last.projection.options(), last.projection.run()));
    if let Some(state) = runs.iter().rev().find_map(|run| run.fold().state.as_ref()) {
        frames.push(&AgUiEvent { snapshot: Some(state), ..AgUiEvent::new("STATE_SNAPSHOT") });
    }
    let (messages, contents) = snapshot_messages(runs, SNAPSHOT_BYTES_MAX);
    if AgUiHistory::Truncated == history || AgUiHistory::Truncated == contents {
        let (name, value) = (Some("headwater.history_truncated"), Some(AgUiValue::new(&())));
        frames.push(&AgUiEvent { name, value, ..AgUiEvent::new("CUSTOM") });
    }
    frames.push(&AgUiEvent { messages: Some(messages), ..AgUiEvent::new("MESSAGES_SNAPSHOT") });
    push_position(last, &mut frames);
    frames.out.freeze()
}

/// The messages of these runs, oldest first, in one frame.
pub fn agui_messages_frame(runs: &[AgUiRunSnapshot]) -> Bytes {
    let at = runs.last().map_or(0, |last| last.fold().at);
    let mut frames = PlainFrames { at, out: BytesMut::new() };
    let (messages, _) = snapshot_messages(runs, SNAPSHOT_BYTES_MAX);
    frames.push(&AgUiEvent { messages: Some(messages), ..AgUiEvent::new("MESSAGES_SNAPSHOT") });
    frames.out.freeze()
}

/// The frames of a run that was cancelled before its first record.
pub fn agui_cancelled_frames(version: AgUiVersion, thread_name: &str, run_id: &str, at: Millis) -> Bytes {
    let mut frames = PlainFrames { at, out: BytesMut::new() };
    let (thread_id, run_id) = (Some(thread_name), Some(run_id));
    let protocol_version = (version == AgUiVersion::V1).then_some("1.0");
    frames.push(&AgUiEvent { thread_id, run_id, protocol_version, ..AgUiEvent::new("RUN_STARTED") });
    frames.push(&cancelled_end(version, thread_id, run_id));
    frames.out.freeze()
}

/// The messages of all runs, in at most about this many bytes: a single run may have more. Then its oldest long results are
/// left out, and if that is not enough, its oldest messages.
fn snapshot_messages(runs: &[AgUiRunSnapshot], bytes_max: usize) -> (Vec<Cow<'_, AgUiMessage>>, AgUiHistory) {
    let mut messages: Vec<Cow<'_, AgUiMessage>> = merged_messages(runs).into_iter().map(Cow::Borrowed).collect();
    let mut bytes: usize = runs.iter().map(AgUiRunSnapshot::message_bytes).sum();
    let mut history = AgUiHistory::Complete;
    for message in messages.iter_mut().filter(|message| message.role == "tool") {
        if bytes <= bytes_max {
            break;
        }
        let before = json_bytes(message.as_ref());
        if before > LONG_RESULT_BYTES {
            let content = Some(AgUiMessageContent::Text(LEFT_OUT_NOTE.to_owned()));
            *message = Cow::Owned(AgUiMessage { content, metadata: None, ..message.as_ref().clone() });
            bytes = bytes.saturating_sub(before);
            history = AgUiHistory::Truncated;
        }
    }
    if let Some(last) = runs.last().filter(|_| bytes > bytes_max) {
        let count = messages.len();
        drop_oldest_messages(last, &mut messages, bytes - bytes_max);
        history = if messages.len() < count { AgUiHistory::Truncated } else { history };
    }
    (messages, history)
}

/// Leaves out messages to save this many bytes. What is open, or waits for an answer, stays: the stream continues it.
fn drop_oldest_messages(last: &AgUiRunSnapshot, messages: &mut Vec<Cow<'_, AgUiMessage>>, bytes_over: usize) {
    let needed = needed_messages(last);
    let mut saved = 0;
    let mut dropped_calls: HashSet<String> = HashSet::new();
    messages.retain(|message| {
        // A result goes with its call.
        let has_no_call = message.tool_call_id.as_ref().is_some_and(|call| dropped_calls.contains(call));
        if !has_no_call && (saved >= bytes_over || needed.contains(message.id.as_str())) {
            return true;
        }
        saved += json_bytes(message.as_ref());
        dropped_calls.extend(message.tool_calls.iter().flatten().map(|call| call.id.clone()));
        false
    });
}

/// The ids of the messages that later events of a run are about.
fn needed_messages(last: &AgUiRunSnapshot) -> HashSet<Cow<'_, str>> {
    let mut needed = HashSet::new();
    for task in last.fold().tasks.iter().filter(|task| !task.status.is_terminal()) {
        let results = task.items.iter().filter_map(|item| match &item.item {
            Item::ToolResult(result) if item.done => Some(&result.call_id),
            _ => None,
        });
        let answered: HashSet<&CallId> = results.collect();
        for item in &task.items {
            match &item.item {
                Item::Message(message) if !item.done => drop(needed.insert(message.id.as_str().into())),
                Item::Reasoning(reasoning) if !item.done => {
                    let id = reasoning.id.as_str();
                    needed.extend(item.open_parts.iter().map(|part| reasoning_message_id(id, *part)));
                }
                Item::ToolCall(call) if !answered.contains(&call.call_id) => {
                    let owner = last.list.owner_of_call(call.call_id.as_str());
                    needed.extend(owner.map(|owner| Cow::Borrowed(owner.id.as_str())));
                }
                _ => {}
            }
        }
    }
    needed
}

/// The runs have no message in common, except inputs that a client sent again and activities that applications share.
fn merged_messages(runs: &[AgUiRunSnapshot]) -> Vec<&AgUiMessage> {
    let mut messages: Vec<&AgUiMessage> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for message in runs.iter().flat_map(AgUiRunSnapshot::messages) {
        match places.entry(message.id.as_str()) {
            Entry::Vacant(place) => {
                place.insert(messages.len());
                messages.push(message);
            }
            Entry::Occupied(place) => {
                let is_activity = |known: &AgUiMessage| known.role == "activity" && message.role == "activity";
                if let Some(known) = messages.get_mut(*place.get()).filter(|known| is_activity(known)) {
                    *known = message;
                }
            }
        }
    }
    messages
}

/// What is open in the run, or how it ended.
fn push_position(last: &AgUiRunSnapshot, frames: &mut PlainFrames) {
    let (run, options) = (last.fold(), last.projection.options());
    let run_id = last.projection.run().run_id.as_str();
    let Some(root) = run.root() else { return };
    match root.status {
        TaskStatus::Queued | TaskStatus::Running => {
            for task in run.tasks.iter().filter(|task| !task.status.is_terminal()) {
                push_open_task(run, task, &last.list, frames);
            }
        }
        TaskStatus::Paused => pause_events(run, options, run_id).iter().for_each(|event| frames.push(event)),
        TaskStatus::Completed | TaskStatus::Incomplete | TaskStatus::Failed | TaskStatus::Cancelled => {
            frames.push(&ended_outcome(root, options, run_id));
        }
    }
}

fn push_open_task(run: &RunFold, task: &TaskFold, list: &MessageList, frames: &mut PlainFrames) {
    if subagent_id(task).is_some() {
        frames.push(&subagent_started(run, task));
    }
    if let Some(step) = task.open_step() {
        let (subagent_run_id, step_name) = (subagent_id(task), Some(step_name(step.step)));
        frames.push(&AgUiEvent { subagent_run_id, step_name, ..AgUiEvent::new("STEP_STARTED") });
    }
    for fold in task.items.iter().filter(|fold| !fold.done) {
        push_open_item(task, fold, list, frames);
    }
}

fn push_open_item(task: &TaskFold, fold: &ItemFold, list: &MessageList, frames: &mut PlainFrames) {
    match &fold.item {
        Item::Message(message) => frames.push(&text_start(task, message)),
        Item::Reasoning(reasoning) => {
            let (subagent_run_id, message_id) = (subagent_id(task), Some(reasoning.id.as_str().into()));
            frames.push(&AgUiEvent { subagent_run_id, message_id, ..AgUiEvent::new("REASONING_START") });
            for part in &fold.open_parts {
                frames.push(&reasoning_message_start(task, reasoning, *part));
            }
        }
        Item::ToolCall(call) if !fold.arguments_complete => {
            let owner = list.owner_of_call(call.call_id.as_str()).map(|message| message.id.as_str());
            let parent = owner.filter(|owner| *owner != call.call_id.as_str());
            frames.push(&call_start(task, call, parent.map(Cow::Borrowed)));
        }
        // Results and activities come in one event, calls with complete arguments are closed.
        Item::ToolCall(_) | Item::ToolResult(_) | Item::HostedCall(_) | Item::FileProcessing(_) => {}
    }
}

/// Frames without ids.
struct PlainFrames {
    at: Millis,
    out: BytesMut,
}

impl AgUiSink for PlainFrames {
    fn push(&mut self, event: &AgUiEvent<'_>) {
        let event = AgUiEvent { timestamp: Some(self.at), ..event.clone() };
        sse::write_event_with(&mut self.out, |_| (), Some(event.event_type), |out| write_json(out, &event));
    }
}
