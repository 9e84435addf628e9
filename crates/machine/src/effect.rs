//! What a run asks of the world.

use model::model_turn::ModelRequest;
use model::ports::FileReadRequest;
use model::tool::ToolRequest;
use model::{ApprovalKey, CallId, ItemId, Millis, TaskId};

/// One thing asked. Each start is caused by exactly one event, so that what is outstanding can be read from the log;
/// only aborts stand alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask a model (`task.step.started`, `task.retrying`). May begin before that record is durable.
    CallModel {
        /// Its name.
        id: EffectId,
        /// What it is asked.
        request: Box<ModelRequest>,
        /// Not before, when the last attempt failed.
        not_before: Option<Millis>,
    },
    /// Run a tool (`task.tool.started`). Never before that record is durable (law 10).
    CallTool {
        /// Its name.
        id: EffectId,
        /// What it is asked.
        request: Box<ToolRequest>,
    },
    /// Read a file (`task.output_item.added` that lists it, `task.file_processing.updated` when it is read again). May begin
    /// before that record is durable.
    ReadFile {
        /// Its name.
        id: EffectId,
        /// Which.
        request: FileReadRequest,
    },
    /// Say so when this moment comes (`task.created` with a deadline, `task.approval.requested`).
    SetTimer {
        /// What it bounds.
        id: TimerId,
        /// The moment.
        at: Millis,
    },
    /// Stop it. Never waits.
    Abort(EffectId),
}

/// What an effect is called, so that its answer can be told from a late one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectId {
    /// One attempt of one turn.
    Model {
        /// The task.
        task: TaskId,
        /// The turn.
        step: u32,
        /// The try.
        attempt: u32,
    },
    /// One try of one call.
    Tool {
        /// The call.
        call: CallId,
        /// The try.
        attempt: u32,
    },
    /// One try of one file.
    File {
        /// The item that lists it.
        item: ItemId,
        /// Where it is.
        url: String,
        /// The try.
        attempt: u32,
    },
    /// The summary of a thread's history up to this run.
    Compaction { run: TaskId },
    /// A moment.
    Timer(TimerId),
}

/// What a moment bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimerId {
    /// The run as a whole.
    Run(TaskId),
    /// A question to a person.
    Approval(ApprovalKey),
}

impl EffectId {
    pub(crate) fn model(task: &TaskId, step: u32, attempt: u32) -> Self {
        Self::Model { task: task.clone(), step, attempt }
    }

    pub(crate) fn tool(call: &CallId, attempt: u32) -> Self {
        Self::Tool { call: call.clone(), attempt }
    }

    pub(crate) fn file(item: &ItemId, url: &str, attempt: u32) -> Self {
        Self::File { item: item.clone(), url: url.to_owned(), attempt }
    }
}
