//! Records → frames. Nothing is parsed on the way, unless a sub-agent's scope needs to know who belongs to it.

use crate::sse;
use model::cursor::Cursor;
use model::ports::{Frames, Projection};
use model::{Event, Record, TaskId};
use std::collections::HashSet;
use std::fmt::Write as _;

/// Which records a stream has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything in the thread. Never ends.
    Thread,
    /// One run, sub-agents included. Ends with the run.
    Run(TaskId),
    /// A sub-agent and everybody below it. Ends with the sub-agent.
    Task(TaskId),
}

/// The native projection.
#[derive(Clone, Debug)]
pub struct Task {
    scope: Scope,
    /// Who belongs to a sub-agent's scope: itself, and whomever somebody in here created.
    family: HashSet<TaskId>,
    /// Scratch, kept so that a record costs no allocation.
    id: String,
    data: String,
}

impl Task {
    /// A stream of this scope, before its first record.
    #[must_use]
    pub fn new(scope: Scope) -> Self {
        let family = if let Scope::Task(task) = &scope { HashSet::from([task.clone()]) } else { HashSet::new() };
        Self { scope, family, id: String::new(), data: String::new() }
    }

    /// Is the record in the scope, and does it end it?
    fn place(&mut self, record: &Record) -> Option<Place> {
        match &self.scope {
            Scope::Thread => Some(Place::Inside),
            Scope::Run(run) if record.run != *run => None,
            // Only what may be the end is worth reading.
            Scope::Run(run) if is_terminal(record.kind()) && record.event().task_id() == Some(run) => Some(Place::Last),
            Scope::Run(_) => Some(Place::Inside),
            Scope::Task(task) => {
                let event = record.event();
                let of = event.task_id()?;
                if let Event::Created(created) = event {
                    let parent = created.task.parent_task_id.as_ref();
                    if parent.is_some_and(|parent| self.family.contains(parent)) {
                        self.family.insert(of.clone());
                    }
                }
                if !self.family.contains(of) {
                    return None;
                }
                Some(if event.is_terminal() && of == task { Place::Last } else { Place::Inside })
            }
        }
    }

    fn frame(&mut self, record: &Record, out: &mut Frames) {
        self.id.clear();
        self.data.clear();
        // Writing to a string cannot fail.
        let _infallible = write!(self.id, "{}", Cursor::from(record));
        let text = std::str::from_utf8(&record.public).unwrap_or("{}");
        let open = text.strip_suffix('}').unwrap_or(text);
        let mut number = itoa::Buffer::new();
        self.data.push_str(open);
        self.data.push_str(if open.ends_with('{') { "\"seq\":" } else { ",\"seq\":" });
        self.data.push_str(number.format(record.seq.0));
        self.data.push_str(",\"at\":");
        self.data.push_str(number.format(record.at));
        self.data.push('}');
        let (id, data) = (self.id.as_str(), self.data.as_str());
        out.write(record.seq, |bytes| sse::frame(bytes, Some(id), Some(record.kind()), data));
    }
}

/// Where a record stands in a scope.
enum Place {
    Inside,
    Last,
}

impl Projection for Task {
    fn project(&mut self, record: &Record, out: &mut Frames) {
        let Some(place) = self.place(record) else { return };
        self.frame(record, out);
        if matches!(place, Place::Last) {
            out.finish();
        }
    }

    fn needs_history(&self) -> bool {
        matches!(self.scope, Scope::Task(_))
    }

    fn boxed_clone(&self) -> Box<dyn Projection> {
        Box::new(self.clone())
    }
}

fn is_terminal(kind: &str) -> bool {
    matches!(kind, "task.completed" | "task.incomplete" | "task.failed" | "task.cancelled")
}
