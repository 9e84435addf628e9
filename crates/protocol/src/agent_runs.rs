//! Agent runs: a thread's runs, one after the other, in nine types of events; and what was said in it, message by message.
//!
//! The stream is the thread's and never ends. It shows the root of each run: its turns, its messages piece by piece, and
//! what each of its calls gave. A sub-agent is one call; what people are asked below it is shown on that call, because
//! otherwise nobody could answer. [`AgentRuns`] makes the frames, [`wire`] has the events, [`payload`] what messages and
//! calls amount to, [`Conversation`] the messages of a run for whoever reads them later.

mod history;
pub mod payload;
mod project;
pub mod wire;

pub use history::{HistoryMessage, MessageHistory, MessageRole};
pub use project::AgentRunsProjection;

/// The projection's name, in cursors and wherever names are given per protocol.
pub const AGENT_RUNS_PROJECTION: &str = "agent-runs";
