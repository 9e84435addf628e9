//! The vocabulary of the server and its invariants.
//!
//! - [`id`], [`seq`]: ids and positions.
//! - [`event`]: everything that can happen; [`item`], [`content`], [`blob`]: what it happens to.
//! - [`record`]: an event in the log; [`cursor`]: a position in the log that a client can store; [`condense`]: records
//!   for readers of the state.
//! - [`fold`], [`thread`]: records → state, pure and total. The only way from the one to the other.
//! - [`model_turn`], [`tool`], [`history`], [`mod@reference`], [`model_settings`], [`question`]: what the run loop exchanges with
//!   models and tools.
//! - [`definition`]: agents and tools as configured; [`approval_rule`]: when a call needs approval; [`limits`].
//! - [`ports`]: the traits between the upper floors, each with its contract.
//!
//! Invariant: no tokio, no I/O, no clock, no randomness. Time and ids come in as arguments.

pub mod approval_rule;
pub mod blob;
pub mod command;
pub mod condense;
pub mod content;
pub mod context;
pub mod cursor;
pub mod defects;
pub mod definition;
pub mod error;
pub mod event;
pub mod fold;
pub mod history;
pub mod id;
pub mod item;
pub mod json;
pub mod limits;
pub mod mcp_credentials;
pub mod model_settings;
pub mod model_turn;
pub mod ports;
pub mod question;
pub mod record;
pub mod reference;
pub mod seq;
pub mod shared_text;
pub mod task;
pub mod thread;
pub mod tool;
pub mod usage;

pub use event::Event;
pub use id::{ApprovalKey, CallId, ItemId, NodeId, TaskId, ThreadId, UserId};
pub use record::{PrivatePayload, Record, RecordDraft};
pub use seq::{Epoch, Millis, Seq};
