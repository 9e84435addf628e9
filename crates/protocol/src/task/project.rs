//! Records → frames.

use std::borrow::Cow;

use model::cursor::{Cursor, CursorError};
use model::limits::WRITE_BYTES_MAX;
use model::ports::{Frames, Projection};
use model::{Event, Record, Seq, TaskId};

use sse;

/// Whose records are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordScope {
    /// Everything that happens to the thread. Never ends.
    Thread,
    /// One run, named by its root task. Ends with the root.
    Run(TaskId),
    /// One task and everybody below it. Ends with that task.
    Task(TaskId),
}

/// The native projection of one scope.
#[derive(Debug)]
pub struct TaskProjection {
    scope: RecordScope,
    /// The task of [`Scope::Task`] and those below it that were created so far.
    task_tree: Vec<TaskId>,
    finished: bool,
    /// Where a frame's id and data are put together, kept from record to record.
    id_buffer: String,
    data_buffer: String,
}

impl TaskProjection {
    /// Frames of this scope, from its beginning on.
    #[must_use]
    pub fn new(scope: RecordScope) -> Self {
        let family = match &scope {
            RecordScope::Thread | RecordScope::Run(_) => Vec::new(),
            RecordScope::Task(id) => vec![id.clone()],
        };
        Self { scope, task_tree: family, finished: false, id_buffer: String::new(), data_buffer: String::new() }
    }

    fn includes(&mut self, record: &Record) -> bool {
        match &self.scope {
            RecordScope::Thread => true,
            // What happens to the thread stands behind a run without being part of it, and comes after its end.
            RecordScope::Run(run) => record.run == *run && !record.event_type().starts_with("thread."),
            RecordScope::Task(_) => {
                self.track_child(record);
                record.task_id().is_some_and(|id| self.task_tree.iter().any(|member| member.as_str() == id))
            }
        }
    }

    /// Takes a new sub-agent into the family when its parent is there.
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

    fn write_frame(&mut self, record: &Record, out: &mut Frames) {
        // Valid unless the disk is damaged, and looking is much cheaper than mending.
        let public = match std::str::from_utf8(&record.public) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&record.public),
        };
        // Bytes that are no object at all still make a frame: a reader must see that there is a record.
        let body = public.trim_end().strip_suffix('}').unwrap_or("{");
        self.data_buffer.clear();
        self.data_buffer.push_str(body);
        if !body.ends_with('{') {
            self.data_buffer.push(',');
        }
        let mut number = itoa::Buffer::new();
        self.data_buffer.push_str("\"seq\":");
        self.data_buffer.push_str(number.format(record.seq.0));
        self.data_buffer.push_str(",\"at\":");
        self.data_buffer.push_str(number.format(record.at));
        self.data_buffer.push('}');

        self.id_buffer.clear();
        Cursor::from(record).push_to(&mut self.id_buffer);
        out.write(record.seq, |bytes| {
            sse::write_event(bytes, Some(&self.id_buffer), Some(record.event_type()), &self.data_buffer)
        });
        // One large record must not be paid for as long as the projection lives.
        if self.data_buffer.capacity() > WRITE_BYTES_MAX {
            self.data_buffer = String::new();
        }
    }
}

impl Projection for TaskProjection {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if !self.finished && self.includes(record) {
            self.write_frame(record, out);
            self.finished = self.is_last(record);
        }
        if self.finished {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        // Who belongs to a family was said when its members were created.
        matches!(self.scope, RecordScope::Task(_))
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        let (scope, family) = (self.scope.clone(), self.task_tree.clone());
        Box::new(Self {
            scope,
            task_tree: family,
            finished: self.finished,
            id_buffer: String::new(),
            data_buffer: String::new(),
        })
    }
}

/// Where a reader of this dialect goes on, in a log that ends at `head` and has `record` at the cursor's place.
///
/// # Errors
/// When the cursor is ahead of the log, of another log, or inside a record: here a record is one frame, so that such a
/// cursor is another dialect's.
pub fn resume_seq(cursor: &Cursor, head: Seq, record: Option<&Record>) -> Result<Seq, CursorError> {
    cursor.verify(head, record)?;
    if cursor.frame.is_some() { Err(CursorError::Mismatch) } else { Ok(cursor.seq) }
}

/// Does an event of this type end its task?
fn is_terminal_kind(kind: &str) -> bool {
    matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled")
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
