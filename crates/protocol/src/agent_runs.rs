//! Agent runs: the runs of a thread, one after the other, in nine types of events; and its messages as a history.
//!
//! The stream is the thread's and never ends. It shows the root of each run: its turns, its messages piece by piece, and
//! the results of its calls. A sub-agent is one call; its calls that wait for an answer are shown too, so that
//! clients can answer them. [`AgentRunsProjection`] makes the frames, [`MessageHistory`] collects the messages of a run,
//! and [`CreateAgentRunRequest`] is the request that starts one.

mod history;
mod output;
mod project;
mod request;
pub mod wire;

pub use history::MessageHistory;
pub use project::AgentRunsProjection;
pub use request::CreateAgentRunRequest;
pub use wire::{AgentRunEvent, HistoryMessage, MessageRole};

/// The name of this projection in cursors, and of the aliases that its clients give to threads.
pub const AGENT_RUNS_PROJECTION: &str = "agent-runs";
