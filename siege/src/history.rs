//! What everybody was told: acknowledged runs and uploads, events that were read, and effects that were asked for.
//!
//! The checker compares it with what the server has at the end. An event that was read twice is compared at once.

use crate::http_client::StreamEvent;
use serde_json::Value;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A run that the server has acknowledged.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcknowledgedRun {
    pub(crate) user: &'static str,
    pub(crate) task: String,
    pub(crate) thread: String,
}

/// An upload that was answered with 201.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AcknowledgedUpload {
    pub(crate) user: &'static str,
    pub(crate) bucket: String,
    pub(crate) path: String,
    pub(crate) content: String,
}

/// The facts, by the ids that the server gave.
#[derive(Debug, Default)]
pub(crate) struct HistoryFacts {
    pub(crate) runs: BTreeMap<String, AcknowledgedRun>,
    pub(crate) uploads: Vec<AcknowledgedUpload>,
    /// Hashes of the events that were read, by task and `seq`.
    pub(crate) readings: BTreeMap<(String, u64), u64>,
    /// Marks whose tool result was seen as completed.
    pub(crate) recorded_marks: Vec<String>,
    /// What was contradictory at the moment of reading.
    pub(crate) contradictions: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    facts: Mutex<HistoryFacts>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, HistoryFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acknowledge_run(&self, user: &'static str, task: &str, thread: &str) {
        let run = AcknowledgedRun { user, task: task.to_owned(), thread: thread.to_owned() };
        self.lock().runs.insert(task.to_owned(), run);
    }

    /// Takes the run of a response with `task_id` and `thread_id`.
    pub(crate) fn acknowledge_response(&self, user: &'static str, response: &Value) {
        let member = |name: &str| response.get(name).and_then(Value::as_str);
        if let (Some(task), Some(thread)) = (member("task_id"), member("thread_id")) {
            self.acknowledge_run(user, task, thread);
        }
    }

    pub(crate) fn acknowledge_upload(&self, upload: AcknowledgedUpload) {
        self.lock().uploads.push(upload);
    }

    pub(crate) fn acknowledge_mark(&self, mark: &str) {
        self.lock().recorded_marks.push(mark.to_owned());
    }

    /// Takes an event that a stream has shown. Returns its parsed data.
    pub(crate) fn read_event(&self, user: &'static str, event: &StreamEvent) -> Value {
        let data: Value = serde_json::from_str(&event.data).unwrap_or(Value::Null);
        let (Some(task), Some(seq)) =
            (data.get("task_id").and_then(Value::as_str), data.get("seq").and_then(Value::as_u64))
        else {
            return data;
        };
        if event.name == "task.created"
            && let Some(thread) = data.pointer("/task/thread_id").and_then(Value::as_str)
        {
            self.acknowledge_run(user, task, thread);
        }
        let mut facts = self.lock();
        let hash = hash_text(&event.data);
        let known = facts.readings.insert((task.to_owned(), seq), hash);
        if known.is_some_and(|known| known != hash) {
            facts.contradictions.push(format!("{task}: event {seq} was read with two different texts"));
        }
        data
    }

    /// Everything so far.
    pub(crate) fn take_facts(&self) -> HistoryFacts {
        std::mem::take(&mut *self.lock())
    }
}

pub(crate) fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
