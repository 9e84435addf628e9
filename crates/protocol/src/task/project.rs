//! Records → frames.

use std::borrow::Cow;

use model::cursor::{Cursor, CursorError};
use model::limits::WRITE_BYTES_MAX;
use model::ports::{Frames, Projection};
use model::{Event, Record, Seq, TaskId};

use sse;

/// Whose records are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything that happens to the thread. Never ends.
    Thread,
    /// One run, named by its root task. Ends with the root.
    Run(TaskId),
    /// One task and everybody below it. Ends with that task.
    Task(TaskId),
}

/// The native projection of one scope.
#[derive(Debug)]
pub struct Task {
    scope: Scope,
    /// The task of [`Scope::Task`] and those below it that were created so far.
    family: Vec<TaskId>,
    over: bool,
    /// Where a frame's id and data are put together, kept from record to record.
    id: String,
    data: String,
}

impl Task {
    /// Frames of this scope, from its beginning on.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let family = match &scope {
            Scope::Thread | Scope::Run(_) => Vec::new(),
            Scope::Task(id) => vec![id.clone()],
        };
        Self { scope, family, over: false, id: String::new(), data: String::new() }
    }

    fn shows(&mut self, record: &Record) -> bool {
        match &self.scope {
            Scope::Thread => true,
            // What happens to the thread stands behind a run without being part of it, and comes after its end.
            Scope::Run(run) => record.run == *run && !record.event_type().starts_with("thread."),
            Scope::Task(_) => {
                self.adopt(record);
                record.task_id().is_some_and(|id| self.family.iter().any(|member| member.as_str() == id))
            }
        }
    }

    /// Takes a new sub-agent into the family when its parent is there.
    fn adopt(&mut self, record: &Record) {
        if record.event_type() == "task.created"
            && let Event::Created(created) = record.event()
            && created.task.parent_task_id.as_ref().is_some_and(|parent| self.family.contains(parent))
        {
            self.family.push(created.task_id.clone());
        }
    }

    fn ends(&self, record: &Record) -> bool {
        let (Scope::Run(last) | Scope::Task(last)) = &self.scope else { return false };
        is_terminal(record.event_type()) && record.task_id() == Some(last.as_str())
    }

    fn write(&mut self, record: &Record, out: &mut Frames) {
        // Valid unless the disk is damaged, and looking is much cheaper than mending.
        let public = match std::str::from_utf8(&record.public) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&record.public),
        };
        // Bytes that are no object at all still make a frame: a reader must see that there is a record.
        let body = public.trim_end().strip_suffix('}').unwrap_or("{");
        self.data.clear();
        self.data.push_str(body);
        if !body.ends_with('{') {
            self.data.push(',');
        }
        let mut number = itoa::Buffer::new();
        self.data.push_str("\"seq\":");
        self.data.push_str(number.format(record.seq.0));
        self.data.push_str(",\"at\":");
        self.data.push_str(number.format(record.at));
        self.data.push('}');

        self.id.clear();
        Cursor::from(record).push_to(&mut self.id);
        out.write(record.seq, |bytes| sse::frame(bytes, Some(&self.id), Some(record.event_type()), &self.data));
        // One large record must not be paid for as long as the projection lives.
        if self.data.capacity() > WRITE_BYTES_MAX {
            self.data = String::new();
        }
    }
}

impl Projection for Task {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        if !self.over && self.shows(record) {
            self.write(record, out);
            self.over = self.ends(record);
        }
        if self.over {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        // Who belongs to a family was said when its members were created.
        matches!(self.scope, Scope::Task(_))
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        let (scope, family) = (self.scope.clone(), self.family.clone());
        Box::new(Self { scope, family, over: self.over, id: String::new(), data: String::new() })
    }
}

/// Where a reader of this dialect goes on, in a log that ends at `head` and has `record` at the cursor's place.
///
/// # Errors
/// When the cursor is ahead of the log, of another log, or inside a record: here a record is one frame, so that such a
/// cursor is another dialect's.
pub fn resume_after(cursor: &Cursor, head: Seq, record: Option<&Record>) -> Result<Seq, CursorError> {
    cursor.verify(head, record)?;
    if cursor.frame.is_some() { Err(CursorError::Mismatch) } else { Ok(cursor.seq) }
}

/// Does an event of this type end its task?
fn is_terminal(kind: &str) -> bool {
    matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled")
}

#[cfg(test)]
#[path = "project_tests.rs"]
mod tests;
