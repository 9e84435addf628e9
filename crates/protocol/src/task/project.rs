//! Records → frames.

use std::borrow::Cow;

use crate::record_frames::write_cursor;
use bytes::BytesMut;
use model::cursor::{Cursor, CursorError};
use model::ports::{Frames, Projection};
use model::{Event, Record, Seq, TaskId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordScope {
    /// Everything that happens to the thread. Never ends.
    Thread,
    /// One run, by its root task. Ends with the root.
    Run(TaskId),
    /// One task and its sub-agents. Ends with that task.
    Task(TaskId),
}

/// The native projection of one scope.
#[derive(Clone, Debug)]
pub struct TaskProjection {
    scope: RecordScope,
    /// The task of [`RecordScope::Task`] and its sub-agents so far.
    task_tree: Vec<TaskId>,
    finished: bool,
}

impl TaskProjection {
    pub fn new(scope: RecordScope) -> Self {
        let task_tree = match &scope {
            RecordScope::Thread | RecordScope::Run(_) => Vec::new(),
            RecordScope::Task(id) => vec![id.clone()],
        };
        Self { scope, task_tree, finished: false }
    }

    fn includes(&mut self, record: &Record) -> bool {
        match &self.scope {
            RecordScope::Thread => true,
            // Events of the thread are logged with the run before them, after its end, and are not part of it.
            RecordScope::Run(run) => record.run == *run && !record.event_type().starts_with("thread."),
            RecordScope::Task(_) => {
                self.track_child(record);
                record.task_id().is_some_and(|id| self.task_tree.iter().any(|member| member.as_str() == id))
            }
        }
    }

    /// Adds a new sub-agent to the tree if its parent is in it.
    fn track_child(&mut self, record: &Record) {
        if record.event_type() == "task.created"
            && let Event::Created(created) = record.event()
            && created.task.parent_task_id.as_ref().is_some_and(|parent| self.task_tree.contains(parent))
        {
            self.task_tree.push(created.task_id.clone());
        }
    }

    fn is_last(&self, record: &Record) -> bool {
        let (RecordScope::Run(last) | RecordScope::Task(last)) = &self.scope else { return false };
        is_terminal_kind(record.event_type()) && record.task_id() == Some(last.as_str())
    }
}

/// The event as it is stored, with its position in the log as the last members.
fn write_frame(record: &Record, out: &mut Frames) {
    if record.record_count() > 1 {
        return out.skip_condensed(record.record_count());
    }
    // Valid unless the disk is damaged, and checking is much cheaper than replacing.
    let public = match std::str::from_utf8(&record.public) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(&record.public),
    };
    // Bytes that are not an object still make a frame, so that readers see no gap in the log.
    let body = public.trim_end().strip_suffix('}').unwrap_or("{");
    let comma = if body.ends_with('{') { "" } else { "," };
    let write_data = |out: &mut BytesMut| {
        let (mut seq, mut at) = (itoa::Buffer::new(), itoa::Buffer::new());
        for piece in [body, comma, "\"seq\":", seq.format(record.seq.0), ",\"at\":", at.format(record.at), "}"] {
            out.extend_from_slice(piece.as_bytes());
        }
    };
    out.write(record.seq, |out| {
        sse::write_event_with(out, |out| write_cursor(record, out), Some(record.event_type()), write_data);
    });
}

impl Projection for TaskProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if !self.finished && self.includes(record) {
            write_frame(record, out);
            self.finished = self.is_last(record);
        }
        if self.finished {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        // The tree is built from the records that created its tasks.
        matches!(self.scope, RecordScope::Task(_))
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

/// The record after which a reader resumes, in a log that ends at `head` and has `record` at the cursor's position.
///
/// # Errors
/// If the cursor is ahead of the log, of another log, or inside a record: a record is one frame here, so such a cursor is
/// another protocol's.
pub fn resume_seq(cursor: &Cursor, head: Seq, record: Option<&Record>) -> Result<Seq, CursorError> {
    cursor.verify(head, record)?;
    if cursor.frame.is_some() { Err(CursorError::Mismatch) } else { Ok(cursor.seq) }
}

/// Like [`Event::is_terminal`], without parsing the event.
fn is_terminal_kind(kind: &str) -> bool {
    matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled")
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
