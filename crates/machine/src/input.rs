//! What can happen to a run from outside.

use crate::effect::{EffectId, TimerId};
use model::command::{Answer, Start, Steer};
use model::delta::ModelEvent;
use model::event::{Actor, CancelMode};
use model::tool::ToolEvent;

/// One thing that happened. An input that answers nothing outstanding is ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Somebody asked for the run.
    Start(Box<Start>),
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
    /// People and clients answered: everything that waited in the inbox, as one input.
    Answers(Vec<Answer>),
    /// The user said something more.
    Steer(Steer),
    /// The run is to stop.
    Cancel(CancelRun),
    /// A moment has come.
    Timer(TimerId),
    /// The process that drove the run died; this one has folded its log.
    Recovered,
}

/// The run is to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelRun {
    /// How.
    pub mode: CancelMode,
    /// Who says so.
    pub by: Actor,
}
