//! What can happen to a run from outside.

use crate::effect::{EffectId, TimerId};
use model::TaskId;
use model::command::{AnswerCommand, StartCommand, SteerCommand};
use model::error::ErrorInfo;
use model::event::{CancelMode, Initiator};
use model::model_turn::ModelEvent;
use model::ports::FileReadOutcome;
use model::tool::ToolEvent;

/// One input. An input that answers no outstanding effect is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineInput {
    Start(Box<StartCommand>),
    /// The model sent a delta, ended its turn, or failed.
    Model {
        id: EffectId,
        event: ModelEvent,
    },
    /// A tool reported progress, or ended.
    Tool {
        id: EffectId,
        event: ToolEvent,
    },
    /// A file was read, or could not be read.
    File {
        id: EffectId,
        answer: FileReadOutcome,
    },
    /// Answers of people and clients: all that waited in the inbox, as one input. If they resume the run, it reads the
    /// input that arrived while it was paused in its next turn.
    Answers {
        answers: Vec<AnswerCommand>,
        inputs: Vec<SteerCommand>,
    },
    /// More input of the user, while the run is going on.
    Steer(SteerCommand),
    Cancel(CancelTask),
    /// A timer fired. The time-out of an approval decides nothing here: the answer of the clock comes with
    /// [`MachineInput::Answers`].
    Timer(TimerId),
    /// The process that executed the run died; this one has folded its log.
    Recovered,
    /// The run is not resumed: every attempt failed before it logged anything.
    RecoveryFailed(ErrorInfo),
}

/// Stops a task and all tasks below it. The root task of a run is the whole run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelTask {
    pub task_id: TaskId,
    pub mode: CancelMode,
    pub by: Initiator,
}
