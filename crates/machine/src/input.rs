//! What can happen to a run from outside.

use crate::effect::{EffectId, TimerId};
use model::TaskId;
use model::command::{AnswerCommand, StartCommand, SteerCommand};
use model::event::{CancelMode, Initiator};
use model::model_turn::ModelEvent;
use model::ports::FileReadOutcome;
use model::tool::ToolEvent;

/// One thing that happened. An input that answers nothing outstanding is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineInput {
    /// Somebody asked for the run.
    Start(Box<StartCommand>),
    /// The model said something, ended its turn, or failed.
    Model {
        /// The turn that was asked for.
        id: EffectId,
        /// What came.
        event: ModelEvent,
    },
    /// A tool said how far it is, or ended.
    Tool {
        /// The call that was asked for.
        id: EffectId,
        /// What came.
        event: ToolEvent,
    },
    /// A file was read, or could not be.
    File {
        /// The file that was asked for.
        id: EffectId,
        /// What became of it.
        answer: FileReadOutcome,
    },
    /// People and clients answered: everything that waited in the inbox, as one input.
    Answers(Vec<AnswerCommand>),
    /// The user said something more.
    Steer(SteerCommand),
    /// A task is to stop, with all below it.
    Cancel(CancelTask),
    /// A moment has come. A question's decides nothing by itself: the clock's answer to it comes with the others.
    Timer(TimerId),
    /// The process that drove the run died; this one has folded its log.
    Recovered,
}

/// A task is to stop, with all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelTask {
    /// Which. The run's root is the whole run.
    pub task_id: TaskId,
    /// How.
    pub mode: CancelMode,
    /// Who says so.
    pub by: Initiator,
}
