//! What a run requests from the world.

use model::model_turn::ModelRequest;
use model::ports::FileReadRequest;
use model::question::QuestionAnswer;
use model::tool::ToolRequest;
use model::{ApprovalKey, CallId, ItemId, Millis, TaskId};

/// One request. Exactly one event causes each start, so that the log tells what is outstanding; only aborts have no
/// event of their own.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Call a model (`task.step.started`, `task.retrying`). May start before that record is durable.
    CallModel {
        id: EffectId,
        request: Box<ModelRequest>,
        /// The earliest time to call, after a failed attempt.
        not_before: Option<Millis>,
    },
    /// Run a tool (`task.tool.started`). Never before that record is durable (law 10).
    CallTool { id: EffectId, request: Box<ToolRequest> },
    /// Read a file (the `task.output_item.added` that lists it, or `task.file_processing.updated` when it is read again).
    /// May start before that record is durable.
    ReadFile { id: EffectId, request: FileReadRequest },
    /// Send [`MachineInput::Timer`](crate::MachineInput::Timer) at this time (`task.created` with a deadline,
    /// `task.approval.requested`).
    SetTimer { id: TimerId, at: Millis },
    /// Give a tool that runs the answer to its question (`task.approval.resolved`). The answer is durable already, in the
    /// inbox. `question` is the tool's name of it: the tool may have withdrawn it and asked another.
    AnswerTool { id: EffectId, question: String, answer: QuestionAnswer },
    /// Stop an effect, without waiting for it.
    Abort(EffectId),
}

/// Identifies an effect, so that a late answer is recognized.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EffectId {
    /// One attempt of one step.
    Model {
        task: TaskId,
        step: u32,
        attempt: u32,
    },
    /// One attempt of one call.
    Tool {
        call: CallId,
        attempt: u32,
    },
    /// One attempt to read one file; `item` is the item that lists it.
    File {
        item: ItemId,
        url: String,
        attempt: u32,
    },
    /// The summary of a thread's history up to this run.
    Compaction {
        run: TaskId,
    },
    Timer(TimerId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimerId {
    /// The deadline of a run.
    Run(TaskId),
    /// The time-out of an approval request.
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
